// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/text.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kMostParts = 1 << 16;

// Rounds up, also below 0; `divisor` is positive.
std::int64_t ceiling(std::int64_t number, std::int64_t divisor) {
  return number >= 0 ? (number + divisor - 1) / divisor : -(-number / divisor);
}

// The numbers x with x * stride + offset in `cells`.
Range steps_into(const Range& cells, std::int64_t offset, std::int64_t stride) {
  return {ceiling(cells.begin - offset, stride), ceiling(cells.end - offset, stride)};
}

// The first number of `range` for which the condition holds; it holds for all larger ones. range.end: for
// none.
std::int64_t first_where(Range range, const std::function<bool(std::int64_t)>& condition) {
  while (!range.empty()) {
    const std::int64_t middle = range.begin + range.count() / 2;
    if (condition(middle)) {
      range.end = middle;
    } else {
      range.begin = middle + 1;
    }
  }
  return range.begin;
}

}  // namespace

Range intersection(const Range& a, const Range& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

Range hull(const Range& a, const Range& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

Box Box::of(const std::array<std::int64_t, 3>& extent) {
  return {{Range{0, extent[0]}, Range{0, extent[1]}, Range{0, extent[2]}}};
}

std::array<std::int64_t, 3> Box::extent() const {
  return {axes[0].count(), axes[1].count(), axes[2].count()};
}

std::int64_t Box::cells() const {
  return axes[0].count() * axes[1].count() * axes[2].count();
}

Box intersection(const Box& a, const Box& b) {
  Box common;
  for (std::size_t axis = 0; axis < 3; ++axis) common.axes[axis] = intersection(a.axes[axis], b.axes[axis]);
  return common;
}

Box moved(const Box& box, const std::array<std::int64_t, 3>& cells) {
  Box there = box;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    there.axes[axis].begin += cells[axis];
    there.axes[axis].end += cells[axis];
  }
  return there;
}

std::vector<Box> around(const Box& box, const Box& inner) {
  if (inner.empty()) return {box};
  std::vector<Box> slabs;
  Box rest = box;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const Range kept = inner.axes[axis];
    for (const Range& outside :
         {Range{rest.axes[axis].begin, kept.begin}, Range{kept.end, rest.axes[axis].end}}) {
      if (outside.empty()) continue;
      slabs.push_back(rest);
      slabs.back().axes[axis] = outside;
    }
    rest.axes[axis] = kept;
  }
  return slabs;
}

int SpaceGrid::rank_of(const std::array<int, 3>& place) const {
  return (place[0] * parts[1] + place[1]) * parts[2] + place[2];
}

std::array<int, 3> SpaceGrid::place_of(int rank) const {
  return {rank / (parts[1] * parts[2]), rank / parts[2] % parts[1], rank % parts[2]};
}

SpaceGrid read_space_grid(const std::string& text) {
  const auto refuse_text = [&] {
    throw Error(
        ExitCode::usage,
        fmt::format("'{}' is no grid of ranks: write the parts along depth, height and width, such as 2x2x1",
                    text));
  };
  const std::vector<std::string> numbers = text::split(text, 'x');
  SpaceGrid grid;
  if (numbers.size() != grid.parts.size()) refuse_text();
  std::int64_t ranks = 1;
  for (std::size_t axis = 0; axis < grid.parts.size(); ++axis) {
    const std::int64_t parts = text::to_integer(numbers[axis]).value_or(0);
    if (parts < 1 || parts > kMostParts) refuse_text();
    ranks *= parts;
    if (ranks > kMostParts) refuse_text();
    grid.parts[axis] = static_cast<int>(parts);
  }
  return grid;
}

std::string text_of(const SpaceGrid& grid) {
  return fmt::format("{} x {} x {}", grid.parts[0], grid.parts[1], grid.parts[2]);
}

Partition Partition::even(std::int64_t cells, int parts) {
  std::vector<std::int64_t> cuts = {0};
  for (std::int64_t i = 0; i < parts; ++i)
    cuts.push_back(cuts.back() + cells / parts + (i < cells % parts ? 1 : 0));
  return Partition(std::move(cuts));
}

std::int64_t Partition::least() const {
  std::int64_t cells = part(0).count();
  for (int i = 1; i < parts(); ++i) cells = std::min(cells, part(i).count());
  return cells;
}

std::int64_t Partition::most() const {
  std::int64_t cells = part(0).count();
  for (int i = 1; i < parts(); ++i) cells = std::max(cells, part(i).count());
  return cells;
}

Range Partition::parts_with(const Range& cells) const {
  if (cells.empty()) return {};
  const auto first = std::upper_bound(cuts_.begin(), cuts_.end(), cells.begin);
  const auto end = std::lower_bound(first, cuts_.end(), cells.end);
  return {first - cuts_.begin() - 1, end - cuts_.begin()};
}

AxisReads AxisReads::windows(const Window& window, std::int64_t inputs, std::int64_t outputs) {
  return {Kind::windows, window, inputs, outputs};
}

AxisReads AxisReads::spread(std::int64_t taps, std::int64_t stride, std::int64_t inputs, std::int64_t outputs,
                            std::int64_t pad) {
  return {Kind::spread, {taps, stride, 1, pad}, inputs, outputs};
}

AxisReads AxisReads::linear(std::int64_t inputs, std::int64_t outputs) {
  return {Kind::linear, {}, inputs, outputs};
}

AxisReads AxisReads::wrapped(std::int64_t low, std::int64_t inputs, std::int64_t outputs) {
  return {Kind::wrapped, {1, 1, 1, low}, inputs, outputs};
}

// The cells, of `cells` in all, that these windows touch.
Range AxisReads::image(const Range& windows, std::int64_t cells) const {
  Range touched;
  for (std::int64_t tap = 0; tap < window_.taps; ++tap) {
    const std::int64_t offset = tap * window_.dilation - window_.pad;
    const Range x = intersection(windows, steps_into({0, cells}, offset, window_.stride));
    if (!x.empty())
      touched = hull(touched, {x.begin * window_.stride + offset, (x.end - 1) * window_.stride + offset + 1});
  }
  return touched;
}

// The windows, of `windows` in all, that touch one of these cells.
Range AxisReads::preimage(const Range& cells, std::int64_t windows) const {
  Range touching;
  for (std::int64_t tap = 0; tap < window_.taps; ++tap) {
    const std::int64_t offset = tap * window_.dilation - window_.pad;
    touching = hull(touching, intersection(steps_into(cells, offset, window_.stride), {0, windows}));
  }
  return touching;
}

Range AxisReads::needed(const Range& outputs) const {
  if (outputs.empty()) return {};
  switch (kind_) {
    case Kind::windows:
      return image(outputs, inputs_);
    case Kind::spread:
      return preimage(outputs, inputs_);
    case Kind::wrapped:
      if (outputs == Range{0, outputs_}) return {0, inputs_};
      return {outputs.begin - window_.pad, outputs.end - window_.pad};
    case Kind::linear:
      break;
  }
  return {linear_source(outputs.begin, inputs_, outputs_).begin,
          linear_source(outputs.end - 1, inputs_, outputs_).end};
}

Range AxisReads::readers(const Range& inputs) const {
  if (inputs.empty()) return {};
  switch (kind_) {
    case Kind::windows:
      return preimage(inputs, outputs_);
    case Kind::spread:
      return image(inputs, outputs_);
    case Kind::wrapped: {
      Range all;
      for (const std::int64_t turn : {-inputs_, std::int64_t{0}, inputs_}) {
        const std::int64_t place = window_.pad + turn;
        all = hull(all, intersection(Range{inputs.begin + place, inputs.end + place}, Range{0, outputs_}));
      }
      return all;
    }
    case Kind::linear:
      break;
  }
  const Range all = {0, outputs_};
  return {first_where(all,
                      [&](std::int64_t o) { return linear_source(o, inputs_, outputs_).end > inputs.begin; }),
          first_where(
              all, [&](std::int64_t o) { return linear_source(o, inputs_, outputs_).begin >= inputs.end; })};
}

Range AxisReads::inside(const Range& outputs, const Range& inputs) const {
  // Beyond the ends of the axis is padding, which every rank has.
  const bool first = inputs.begin == 0;
  const bool last = inputs.end == inputs_;
  const std::int64_t stride = window_.stride;
  Range fit = outputs;
  switch (kind_) {
    case Kind::windows:
      if (!first) fit.begin = ceiling(inputs.begin + window_.pad, stride);
      if (!last) fit.end = ceiling(inputs.end + window_.pad - reach() + 1, stride);
      break;
    case Kind::spread:
      if (!first) fit.begin = (inputs.begin - 1) * stride + window_.taps - window_.pad;
      if (!last) fit.end = inputs.end * stride - window_.pad;
      break;
    case Kind::wrapped:
      if (!first || !last) fit = {inputs.begin + window_.pad, inputs.end + window_.pad};
      break;
    case Kind::linear:
      fit.begin = first_where(
          outputs, [&](std::int64_t o) { return linear_source(o, inputs_, outputs_).begin >= inputs.begin; });
      fit.end = first_where(
          outputs, [&](std::int64_t o) { return linear_source(o, inputs_, outputs_).end > inputs.end; });
      break;
  }
  return intersection(outputs, fit);
}

std::int64_t AxisReads::finer_cut(std::int64_t cut, std::int64_t fewer, std::int64_t cells) const {
  switch (kind_) {
    case Kind::linear:
      return (cut * cells + fewer / 2) / fewer;
    case Kind::wrapped:
      return cut + window_.pad;
    case Kind::windows:
    case Kind::spread:
      break;
  }
  // The middle of the cells that both neighbouring windows touch.
  return cut * window_.stride - window_.pad + (reach() - window_.stride) / 2;
}

std::vector<std::int64_t> AxisReads::finer_cuts(std::span<const std::int64_t> coarse) const {
  const std::int64_t fewer = std::min(inputs_, outputs_);
  const std::int64_t cells = std::max(inputs_, outputs_);
  std::vector<std::int64_t> cuts;
  for (const std::int64_t cut : coarse) {
    cuts.push_back(std::clamp<std::int64_t>(finer_cut(cut, fewer, cells), 0, cells));
  }
  cuts.front() = 0;
  cuts.back() = cells;
  return cuts;
}

Range linear_source(std::int64_t output, std::int64_t inputs, std::int64_t outputs) {
  // Twice `outputs` times the place (output + 1/2) * inputs / outputs - 1/2: a whole number.
  const std::int64_t place = std::max<std::int64_t>(0, (2 * output + 1) * inputs - outputs);
  const std::int64_t first = place / (2 * outputs);
  const bool between = place % (2 * outputs) != 0;
  return {first, std::min(inputs, first + (between ? 2 : 1))};
}

}  // namespace wflow::trainer
