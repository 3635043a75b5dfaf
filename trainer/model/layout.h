// SPDX-License-Identifier: Apache-2.0
// Boxes of cells, and the grid of ranks that share the cells of a sample: how an axis is cut into parts, and
// which cells of a layer's input belong to which cells of its output. Pure arithmetic on whole numbers;
// distribution.h applies it to a network.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace wflow::trainer {

// Cells of an axis, from `begin` to before `end`.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool operator==(const Range&) const = default;
};
// An empty result has equal ends.
Range intersection(const Range& a, const Range& b);
// The smallest range with both.
Range hull(const Range& a, const Range& b);

// Cells of a field: depth, height, width, as in TensorShape.
struct Box {
  std::array<Range, 3> axes;
  static Box of(const std::array<std::int64_t, 3>& extent);
  std::array<std::int64_t, 3> extent() const;
  std::int64_t cells() const;
  bool empty() const { return cells() == 0; }
  bool operator==(const Box&) const = default;
};
Box intersection(const Box& a, const Box& b);
Box moved(const Box& box, const std::array<std::int64_t, 3>& cells);
// The cells of `box` outside `inner`, which lies in it, as at most six boxes without common cells.
std::vector<Box> around(const Box& box, const Box& inner);

// The ranks that share a sample: parts along depth, height and width. The last axis changes fastest.
struct SpaceGrid {
  std::array<int, 3> parts = {1, 1, 1};
  int ranks() const { return parts[0] * parts[1] * parts[2]; }
  int rank_of(const std::array<int, 3>& place) const;
  std::array<int, 3> place_of(int rank) const;
  bool operator==(const SpaceGrid&) const = default;
};
// "2x2x1"; throws Error{usage}.
SpaceGrid read_space_grid(const std::string& text);
std::string text_of(const SpaceGrid& grid);

// The cuts of an axis: part i has the cells from cuts[i] to before cuts[i + 1].
class Partition {
 public:
  Partition() = default;
  explicit Partition(std::vector<std::int64_t> cuts) : cuts_(std::move(cuts)) {}
  // The first `cells % parts` parts have one cell more than the others.
  static Partition even(std::int64_t cells, int parts);

  int parts() const { return static_cast<int>(cuts_.size()) - 1; }
  Range part(int i) const {
    return {cuts_[static_cast<std::size_t>(i)], cuts_[static_cast<std::size_t>(i) + 1]};
  }
  std::span<const std::int64_t> cuts() const { return cuts_; }
  std::int64_t least() const;  // cells of the smallest part
  std::int64_t most() const;
  // The parts that have cells of this range, as a range of numbers.
  Range parts_with(const Range& cells) const;
  bool operator==(const Partition&) const = default;

 private:
  std::vector<std::int64_t> cuts_ = {0, 1};
};

// The cells of a layer's input that a cell of its output reads, along one axis. Reading is a relation, so the
// same values answer both directions: the input that the forward pass needs, and the output gradients that
// the gradient of the input needs.
class AxisReads {
 public:
  // Output cell o reads the cells o * stride - pad + tap * dilation of the input, for each tap.
  struct Window {
    std::int64_t taps = 1;
    std::int64_t stride = 1;
    std::int64_t dilation = 1;
    std::int64_t pad = 0;  // below the first cell; negative: cells that no window reads
  };
  AxisReads() = default;
  // Convolutions, pools, slices.
  static AxisReads windows(const Window& window, std::int64_t inputs, std::int64_t outputs);
  // Input cell i is read by the output cells i * stride + tap - pad: transposed convolutions, up-sampling.
  static AxisReads spread(std::int64_t taps, std::int64_t stride, std::int64_t inputs, std::int64_t outputs,
                          std::int64_t pad = 0);
  // Linear between the centres of cells.
  static AxisReads linear(std::int64_t inputs, std::int64_t outputs);
  // Output cell o is the input cell o - low, counted round the axis: a periodic border, not wider than the
  // axis.
  static AxisReads wrapped(std::int64_t low, std::int64_t inputs, std::int64_t outputs);

  // The range from the first to the last cell of the input that these output cells read; padding is no cell.
  // wrapped(): the border's cells keep their places beyond the ends, from -low on, except that all outputs
  // together need just the cells that there are.
  Range needed(const Range& outputs) const;
  // The range from the first to the last output cell that reads one of these input cells.
  Range readers(const Range& inputs) const;
  // Those of these output cells that read no cell of the input outside `inputs`.
  Range inside(const Range& outputs, const Range& inputs) const;
  // Cuts of the side with more cells that follow those of the side with fewer: windows that do not overlap
  // then read no cell of another part.
  std::vector<std::int64_t> finer_cuts(std::span<const std::int64_t> coarse) const;

  std::int64_t inputs() const { return inputs_; }
  std::int64_t outputs() const { return outputs_; }

 private:
  enum class Kind { windows, spread, linear, wrapped };
  AxisReads(Kind kind, const Window& window, std::int64_t inputs, std::int64_t outputs)
      : kind_(kind), window_(window), inputs_(inputs), outputs_(outputs) {}
  Range image(const Range& windows, std::int64_t cells) const;
  Range preimage(const Range& cells, std::int64_t windows) const;
  // The cut of the side with `cells` cells that follows one of the side with `fewer`.
  std::int64_t finer_cut(std::int64_t cut, std::int64_t fewer, std::int64_t cells) const;
  std::int64_t reach() const { return (window_.taps - 1) * window_.dilation + 1; }

  Kind kind_ = Kind::windows;
  Window window_;
  std::int64_t inputs_ = 1;
  std::int64_t outputs_ = 1;
};

// The cells between which a linear resize takes output cell `output`: one or two.
Range linear_source(std::int64_t output, std::int64_t inputs, std::int64_t outputs);

}  // namespace wflow::trainer
