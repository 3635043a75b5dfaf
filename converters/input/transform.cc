// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <type_traits>

#include "base/error.h"
#include "base/text.h"
#include "converters/formula.h"
#include "converters/input/arrange.h"
#include "converters/values/value_kernels.h"

namespace wflow::converters {

namespace {

using Shape = std::vector<std::size_t>;

std::size_t cells_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

// The next index in C order.
void advance(Shape& index, const Shape& shape) {
  for (std::size_t k = index.size(); k-- > 0;) {
    if (++index[k] < shape[k]) return;
    index[k] = 0;
  }
}

template <typename Value>
Value value_of(const Array& array, std::size_t i) {
  Value value;
  std::memcpy(&value, array.bytes.data() + i * sizeof value, sizeof value);
  return value;
}

DType computed_type(DType type) {
  return type == DType::float32 || dtype_size(type) <= 2 ? DType::float32 : DType::float64;
}

// Calls f with a zero of the type for arithmetic.
template <typename Function>
void with_computed(Array& array, Function function) {
  convert_values(array, computed_type(array.dtype));
  if (array.dtype == DType::float32) {
    function(float{});
  } else {
    function(double{});
  }
}

template <typename Function>
void map_values(Array& array, Function function) {
  with_computed(array, [&](auto zero) {
    using Value = decltype(zero);
    for (std::size_t i = 0; i < array.bytes.size() / sizeof(Value); ++i) {
      const auto value = static_cast<Value>(function(static_cast<double>(value_of<Value>(array, i))));
      std::memcpy(array.bytes.data() + i * sizeof value, &value, sizeof value);
    }
  });
}

bool is_by_kernels(const Transform& step) {
  return step.kind == Transform::Kind::log1p || step.kind == Transform::Kind::clip ||
         step.kind == Transform::Kind::scale;
}

template <typename Value>
void step_by_kernels(const Transform& step, Value* values, std::size_t count) {
  const ValueKernels& kernels = value_kernels();
  constexpr bool kFloats = std::is_same_v<Value, float>;
  const auto call = [&](auto floats, auto doubles, auto... arguments) {
    if constexpr (kFloats) {
      floats(values, count, arguments...);
    } else {
      doubles(values, count, arguments...);
    }
  };
  if (step.kind == Transform::Kind::log1p) {
    call(kernels.log1p_floats, kernels.log1p_doubles);
  } else if (step.kind == Transform::Kind::clip) {
    call(kernels.clip_floats, kernels.clip_doubles, step.a, step.b);
  } else {
    call(kernels.scale_floats, kernels.scale_doubles, step.a, step.b);
  }
}

// Applies all steps to a few values that fit into the first-level cache, then to the next ones.
void steps_by_kernels(std::span<const Transform> steps, Array& array) {
  constexpr std::size_t kBlock = 4096;
  with_computed(array, [&](auto zero) {
    auto* const values = reinterpret_cast<decltype(zero)*>(array.bytes.data());
    const std::size_t count = array.bytes.size() / sizeof(zero);
    for (std::size_t at = 0; at < count; at += kBlock) {
      for (const Transform& step : steps) step_by_kernels(step, values + at, std::min(kBlock, count - at));
    }
  });
}

template <typename Value>
void store(Array& array, const std::vector<double>& values) {
  array.bytes.resize(values.size() * sizeof(Value));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<Value>(values[i]);
    std::memcpy(array.bytes.data() + i * sizeof value, &value, sizeof value);
  }
}

// The shape in blocks of `edge` cells along each axis except C.
Shape coarse_shape(const TransformState& state, std::size_t edge) {
  Shape coarse = state.array.shape;
  for (std::size_t k = 0; k < coarse.size(); ++k) {
    if (state.layout[k] == 'C') continue;
    if (coarse[k] % edge != 0)
      throw Error(ExitCode::data, fmt::format("its shape ({}) is not divisible by {}",
                                              fmt::join(state.array.shape, ", "), edge));
    coarse[k] /= edge;
  }
  return coarse;
}

// The block of the coarse shape that contains a cell.
std::size_t block_of(const Shape& index, const Shape& coarse, std::string_view layout, std::size_t edge) {
  std::size_t block = 0;
  for (std::size_t k = 0; k < index.size(); ++k)
    block = block * coarse[k] + (layout[k] == 'C' ? index[k] : index[k] / edge);
  return block;
}

void downsample(TransformState& state, std::size_t edge) {
  const Shape coarse = coarse_shape(state, edge);
  const Shape fine = state.array.shape;
  with_computed(state.array, [&](auto zero) {
    using Value = decltype(zero);
    std::vector<double> sums(cells_of(coarse), 0.0);
    Shape index(fine.size(), 0);
    for (std::size_t i = 0; i < cells_of(fine); ++i) {
      sums[block_of(index, coarse, state.layout, edge)] +=
          static_cast<double>(value_of<Value>(state.array, i));
      advance(index, fine);
    }
    const double count = static_cast<double>(cells_of(fine)) / static_cast<double>(sums.size());
    for (double& sum : sums) sum /= count;
    store<Value>(state.array, sums);
  });
  state.array.shape = coarse;
}

void require_no_channels(const TransformState& state, const char* what) {
  if (state.layout.starts_with('C'))
    throw Error(ExitCode::data,
                fmt::format("{} makes channels, but its axes {} have some already", what, state.layout));
  if (state.array.shape.size() >= kMostRank)
    throw Error(ExitCode::data,
                fmt::format("{} makes an axis of channels, and it has four axes already", what));
}

// Each block's cells, counted between the edges: fractions of the block, an edge interval a channel.
void histogram(TransformState& state, std::size_t edge, const std::vector<double>& edges) {
  require_no_channels(state, "histogram");
  const Shape coarse = coarse_shape(state, edge);
  const Shape fine = state.array.shape;
  const std::size_t blocks = cells_of(coarse);
  const std::size_t bins = edges.size() - 1;
  std::vector<double> counts(blocks * bins, 0.0);
  const double share = static_cast<double>(blocks) / static_cast<double>(cells_of(fine));
  Shape index(fine.size(), 0);
  convert_values(state.array, DType::float64);
  for (std::size_t i = 0; i < cells_of(fine); ++i) {
    const auto value = value_of<double>(state.array, i);
    const std::size_t block = block_of(index, coarse, state.layout, edge);
    advance(index, fine);
    if (!(value >= edges.front() && value <= edges.back())) continue;
    const auto above = std::upper_bound(edges.begin(), edges.end(), value);
    const std::size_t bin = std::min(static_cast<std::size_t>(above - edges.begin()) - 1, bins - 1);
    counts[bin * blocks + block] += share;
  }
  state.array.dtype = DType::float32;
  store<float>(state.array, counts);
  state.array.shape = coarse;
  state.array.shape.insert(state.array.shape.begin(), bins);
  state.layout = "C" + state.layout;
}

// The begin of a centred crop along each axis.
Selection centred(const TransformState& state, const std::vector<double>& lengths) {
  Selection selection;
  std::size_t next = 0;
  for (std::size_t k = 0; k < state.layout.size(); ++k) {
    const std::size_t have = state.array.shape[k];
    if (state.layout[k] == 'C') {
      selection.push_back({0, have, 1, false});
      continue;
    }
    const std::size_t want = next < lengths.size() ? static_cast<std::size_t>(lengths[next]) : 0;
    ++next;
    if (want == 0 || want > have) next = lengths.size() + 1;
    selection.push_back({(have - std::min(want, have)) / 2, want, 1, false});
  }
  if (next != lengths.size())
    throw Error(ExitCode::data,
                fmt::format("crop: [{}] does not fit its shape ({}), axes {}", fmt::join(lengths, ", "),
                            fmt::join(state.array.shape, ", "), state.layout));
  return selection;
}

void cut(Array& array, const Selection& selection) {
  const std::size_t width = dtype_size(array.dtype);
  const Shape shape = selected_shape(selection);
  std::vector<std::uint8_t> bytes(cells_of(shape) * width);
  take_selection(array.bytes, array.shape, width, selection, bytes);
  array.bytes = std::move(bytes);
  array.shape = shape;
}

void subcubes(TransformState& state, std::size_t edge) {
  if (state.pieces > 1) throw Error(ExitCode::spec, "subcubes stands twice in a transform");
  const Shape coarse = coarse_shape(state, edge);
  const std::size_t width = dtype_size(state.array.dtype);
  Shape grid;
  for (std::size_t k = 0; k < coarse.size(); ++k) grid.push_back(state.layout[k] == 'C' ? 1 : coarse[k]);
  std::vector<std::uint8_t> bytes(state.array.bytes.size());
  const std::size_t pieces = cells_of(grid);
  const std::size_t piece_bytes = bytes.size() / pieces;
  Shape index(grid.size(), 0);
  Selection selection(grid.size());
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    for (std::size_t k = 0; k < grid.size(); ++k) {
      const std::size_t length = state.layout[k] == 'C' ? state.array.shape[k] : edge;
      selection[k] = {index[k] * length, length, 1, false};
    }
    take_selection(state.array.bytes, state.array.shape, width, selection,
                   std::span(bytes).subspan(piece * piece_bytes, piece_bytes));
    advance(index, grid);
  }
  state.array.shape = selected_shape(selection);
  state.array.bytes = std::move(bytes);
  state.pieces = pieces;
}

void one_hot(TransformState& state, std::size_t classes) {
  require_no_channels(state, "one_hot");
  convert_values(state.array, DType::float64);
  const std::size_t cells = cells_of(state.array.shape);
  std::vector<std::uint8_t> bytes(cells * classes, 0);
  for (std::size_t i = 0; i < cells; ++i) {
    const auto value = value_of<double>(state.array, i);
    if (!(value >= 0 && value < static_cast<double>(classes) && value == std::floor(value)))
      throw Error(ExitCode::data,
                  fmt::format("one_hot: {0} takes classes from 0 to {1}, and it has the value {2}", classes,
                              classes - 1, value));
    bytes[static_cast<std::size_t>(value) * cells + i] = 1;
  }
  state.array.dtype = DType::uint8;
  state.array.bytes = std::move(bytes);
  state.array.shape.insert(state.array.shape.begin(), classes);
  state.layout = "C" + state.layout;
}

void expression(const std::string& text, const Parameters& parameters, TransformState& state) {
  const Formula formula = Formula::parse(text);
  const DType type = computed_type(state.array.dtype);
  convert_values(state.array, DType::float64);
  std::vector<double> x(state.array.bytes.size() / sizeof(double));
  std::memcpy(x.data(), state.array.bytes.data(), state.array.bytes.size());
  std::vector<double> numbers(formula.variables().size());
  std::vector<std::span<const double>> values;
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    const std::string& name = formula.variables()[k];
    if (name == "x") {
      values.emplace_back(x);
      continue;
    }
    const auto found = parameters.find(name);
    if (!found) {
      const std::vector<std::string> known(parameters.names.begin(), parameters.names.end());
      throw Error(ExitCode::spec,
                  fmt::format("the expression '{}' needs '{}', which is neither x nor a parameter{}", text,
                              name, text::suggestion(name, known)));
    }
    numbers[k] = *found;
    values.emplace_back(&numbers[k], 1);
  }
  formula.evaluate(values, x);
  std::memcpy(state.array.bytes.data(), x.data(), state.array.bytes.size());
  convert_values(state.array, type);
}

template <typename From, typename To>
void check_range(const Array& array, DType target) {
  // The bounds of 64-bit integers are not doubles: the least is, and one above the greatest.
  const auto least = static_cast<double>(std::numeric_limits<To>::min());
  const double above = std::ldexp(1.0, std::numeric_limits<To>::digits);
  for (std::size_t i = 0; i < array.bytes.size() / sizeof(From); ++i) {
    const auto value = static_cast<double>(value_of<From>(array, i));
    if (!(std::nearbyint(value) >= least && std::nearbyint(value) < above))
      throw Error(ExitCode::data,
                  fmt::format("its value {} does not fit into dtype: {}", value, dtype_name(target)));
  }
}

void apply_step(const Transform& transform, const Parameters& parameters, TransformState& state) {
  using Kind = Transform::Kind;
  const double a = transform.a;
  if (state.pieces > 1 && !is_analysed(transform.kind) &&
      (transform.kind == Kind::downsample || transform.kind == Kind::histogram ||
       transform.kind == Kind::crop || transform.kind == Kind::one_hot))
    throw Error(ExitCode::spec, "steps that change the shape stand before subcubes");
  switch (transform.kind) {
    case Kind::log1p:
    case Kind::clip:
    case Kind::scale:
      return steps_by_kernels({&transform, 1}, state.array);
    case Kind::asinh:
      return map_values(state.array, [a](double v) { return std::asinh(v / a); });
    case Kind::downsample:
      return downsample(state, static_cast<std::size_t>(a));
    case Kind::histogram:
      return histogram(state, static_cast<std::size_t>(a), transform.numbers);
    case Kind::crop:
      return cut(state.array, centred(state, transform.numbers));
    case Kind::subcubes:
      return subcubes(state, static_cast<std::size_t>(a));
    case Kind::one_hot:
      return one_hot(state, static_cast<std::size_t>(a));
    case Kind::expression:
      return expression(transform.text, parameters, state);
    case Kind::standardise:
    case Kind::min_max:
    case Kind::quantile:
      return;
  }
}

}  // namespace

std::optional<double> Parameters::find(std::string_view name) const {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return values[static_cast<std::size_t>(at - names.begin())];
}

// Adds the name of the step, unless the sentence has it.
static void apply_named(const Transform& step, const Parameters& parameters, TransformState& state) {
  try {
    apply_step(step, parameters, state);
  } catch (const Error& error) {
    if (std::string_view(error.what()).find(name_of(step)) != std::string_view::npos) throw;
    throw Error(error.code(), fmt::format("the transform '{}' fails: {}", name_of(step), error.what()));
  }
}

void apply_transforms(std::span<const Transform> steps, const Parameters& parameters, TransformState& state) {
  while (!steps.empty()) {
    const auto end = std::find_if_not(steps.begin(), steps.end(), is_by_kernels);
    const auto mapped = static_cast<std::size_t>(end - steps.begin());
    if (mapped > 0) {
      steps_by_kernels(steps.first(mapped), state.array);
    } else {
      apply_named(steps.front(), parameters, state);
    }
    steps = steps.subspan(std::max<std::size_t>(1, mapped));
  }
}

void cast_values(Array& array, DType target) {
  if (array.dtype == target) return;
  if (!is_floating(target)) {
    with_type(array.dtype, [&](auto from) {
      with_type(target, [&](auto to) {
        if constexpr (!std::is_floating_point_v<decltype(to)>)
          check_range<decltype(from), decltype(to)>(array, target);
      });
    });
    if (is_floating(array.dtype)) map_values(array, [](double v) { return std::nearbyint(v); });
  }
  convert_values(array, target);
}

}  // namespace wflow::converters
