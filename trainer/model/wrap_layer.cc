// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/torch_layers.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace wflow::trainer {
namespace {

constexpr std::int64_t kValuesOfThread = 1 << 14;  // fewer cost less than a second thread

void add_to(float* sum, const float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += values[i];
}

// In both layouts the fields are rows of boxes [depth][height][width * values]. In libtorch's, a row is a
// channel of a sample; in blocks of B channels, it is such a block, and each cell has B values.
class Wrap final : public UnaryLayer {
 public:
  Wrap(const Layer& layer, int block)
      : low_(layer.pad_low),
        high_(layer.pad_high),
        in_(layer.input.extent),
        out_(layer.output.extent),
        in_blocks_(block != 0),
        values_(std::max(1, block)) {}

  at::Tensor predict(const at::Tensor& x) override {
    const std::int64_t rows = rows_in(x, in_);
    at::Tensor y = field_like(x, rows, out_);
    const at::Tensor fields = x.contiguous();
    const float* from = fields.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for_planes(rows, out_, [&](std::int64_t row, std::int64_t d) {
      for (std::int64_t h = 0; h < out_[1]; ++h) {
        const float* line = line_at(from, in_, row, source(0, d), source(1, h));
        float* wrapped = line_at(to, out_, row, d, h);
        std::copy_n(line + (in_[2] - low_[2]) * values_, low_[2] * values_, wrapped);
        std::copy_n(line, in_[2] * values_, wrapped + low_[2] * values_);
        std::copy_n(line, high_[2] * values_, wrapped + (low_[2] + in_[2]) * values_);
      }
    });
    return y;
  }

  at::Tensor forward(const at::Tensor& x, const StepKey&) override { return predict(x); }

  // Each cell gets the sum over the places that have its value, in a fixed order.
  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    if (!wants_input) return {};
    const std::int64_t rows = rows_in(gradient, out_);
    at::Tensor dx = field_like(gradient, rows, in_);
    const at::Tensor wrapped = gradient.contiguous();
    const float* from = wrapped.data_ptr<float>();
    float* to = dx.data_ptr<float>();
    for_planes(rows, in_, [&](std::int64_t row, std::int64_t d) {
      for (std::int64_t h = 0; h < in_[1]; ++h) {
        float* sum = line_at(to, in_, row, d, h);
        std::fill_n(sum, in_[2] * values_, 0.0F);
        for (const std::int64_t at_d : places(0, d)) {
          for (const std::int64_t at_h : places(1, h)) {
            if (at_d < 0 || at_h < 0) continue;
            add_folded(sum, line_at(from, out_, row, at_d, at_h));
          }
        }
      }
    });
    return dx;
  }

 private:
  using Extent = std::array<std::int64_t, 3>;

  std::int64_t rows_in(const at::Tensor& x, const Extent& cells) const {
    return x.numel() / (cells[0] * cells[1] * cells[2] * values_);
  }
  at::Tensor field_like(const at::Tensor& x, std::int64_t rows, const Extent& cells) const {
    if (in_blocks_) return at::empty({rows * cells[0] * cells[1] * cells[2] * values_}, x.options());
    return at::empty({x.size(0), x.size(1), cells[0], cells[1], cells[2]}, x.options());
  }
  template <class Value>
  Value* line_at(Value* field, const Extent& cells, std::int64_t row, std::int64_t d, std::int64_t h) const {
    return field + ((row * cells[0] + d) * cells[1] + h) * cells[2] * values_;
  }
  template <class Call>
  void for_planes(std::int64_t rows, const Extent& cells, const Call& call) const {
    const std::int64_t planes = cells[0];
    const std::int64_t grain = kValuesOfThread / (cells[1] * cells[2] * values_) + 1;
    at::parallel_for(0, rows * planes, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) call(i / planes, i % planes);
    });
  }

  // The cell whose value stands at `place` of the wrapped field. A border is not wider than the field.
  std::int64_t source(std::size_t axis, std::int64_t place) const {
    const std::int64_t cell = place - low_[axis];
    if (cell < 0) return cell + in_[axis];
    return cell < in_[axis] ? cell : cell - in_[axis];
  }
  // The places that have the value of `cell`; -1: none.
  std::array<std::int64_t, 3> places(std::size_t axis, std::int64_t cell) const {
    const std::int64_t n = in_[axis];
    const std::int64_t own = cell + low_[axis];
    return {own, cell >= n - low_[axis] ? own - n : -1, cell < high_[axis] ? own + n : -1};
  }
  void add_folded(float* sum, const float* line) const {
    add_to(sum, line + low_[2] * values_, in_[2] * values_);
    add_to(sum + (in_[2] - low_[2]) * values_, line, low_[2] * values_);
    add_to(sum, line + (low_[2] + in_[2]) * values_, high_[2] * values_);
  }

  Extent low_;
  Extent high_;
  Extent in_;
  Extent out_;
  bool in_blocks_;
  std::int64_t values_;  // of a cell of a row
};

}  // namespace

std::unique_ptr<TorchLayer> make_wrap_layer(const Layer& layer, int block) {
  return std::make_unique<Wrap>(layer, block);
}

at::Tensor wrapped_along(const at::Tensor& x, std::int64_t axis, std::int64_t low, std::int64_t high) {
  return at::cat({x.narrow(axis, x.size(axis) - low, low), x, x.narrow(axis, 0, high)}, axis);
}

}  // namespace wflow::trainer
