// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/model/split_layers.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

// A border along a cut axis comes from the rank at the other end. Along an axis that is not cut, a rank has
// both ends. The gradients of the border go back to the ranks that own its cells, which add them.
class SplitWrap final : public UnaryLayer {
 public:
  explicit SplitWrap(const SplitLayerPlan& plan)
      : layer_(plan.layer),
        in_(plan.in),
        read_(plan.reads_whole ? Box::of(plan.layer.input.extent) : plan.in),
        needed_(plan.split.needed[static_cast<std::size_t>(plan.group.rank())]),
        halo_(plan.group, plan.split.halo),
        gradient_halo_(plan.group, plan.split.gradient_halo) {
    for (std::size_t axis = 0; axis < 3; ++axis)
      has_ends_[axis] = plan.out.axes[axis] == Range{0, layer_.output.extent[axis]};
  }

  at::Tensor predict(const at::Tensor& x) override {
    halo_.start(x, read_);
    at::Tensor cells = zero_field(x.size(0), x.size(1), needed_);
    for (const Image& image : images_of(read_))
      cells_in(cells, needed_, image.place).copy_(cells_in(x, read_, image.box));
    halo_.finish(cells, needed_);
    for (std::size_t axis = 0; axis < 3; ++axis)
      if (has_ends_[axis])
        cells = wrapped_along(cells, axis_of(axis), layer_.pad_low[axis], layer_.pad_high[axis]);
    return cells;
  }

  at::Tensor forward(const at::Tensor& x, const StepKey&) override { return predict(x); }

  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    if (!wants_input) return {};
    at::Tensor found = gradient;
    for (std::size_t axis = 0; axis < 3; ++axis)
      if (has_ends_[axis]) found = folded_along(found, axis);
    gradient_halo_.start(found, needed_);
    at::Tensor dx = zero_field(gradient.size(0), gradient.size(1), in_);
    for (const Image& image : images_of(in_))
      cells_in(dx, in_, image.box).add_(cells_in(found, needed_, image.place));
    gradient_halo_.finish_adding(dx, in_);
    return dx;
  }

 private:
  // Cells of a box, and a place in needed_ where they stand.
  struct Image {
    Box box;
    Box place;
  };

  static std::int64_t axis_of(std::size_t axis) { return static_cast<std::int64_t>(axis) + 2; }

  std::vector<Image> images_of(const Box& box) const {
    const auto& n = layer_.input.extent;
    std::vector<Image> images;
    for (const std::int64_t d : {-n[0], std::int64_t{0}, n[0]}) {
      for (const std::int64_t h : {-n[1], std::int64_t{0}, n[1]}) {
        for (const std::int64_t w : {-n[2], std::int64_t{0}, n[2]}) {
          const Box place = intersection(moved(box, {d, h, w}), needed_);
          if (!place.empty()) images.push_back({moved(place, {-d, -h, -w}), place});
        }
      }
    }
    return images;
  }

  at::Tensor folded_along(const at::Tensor& gradient, std::size_t axis) const {
    const std::int64_t low = layer_.pad_low[axis];
    const std::int64_t high = layer_.pad_high[axis];
    const std::int64_t n = layer_.input.extent[axis];
    const std::int64_t along = axis_of(axis);
    at::Tensor sum = gradient.narrow(along, low, n).clone();
    sum.narrow(along, n - low, low).add_(gradient.narrow(along, 0, low));
    sum.narrow(along, 0, high).add_(gradient.narrow(along, low + n, high));
    return sum;
  }

  Layer layer_;
  Box in_;
  Box read_;
  Box needed_;
  std::array<bool, 3> has_ends_{};  // the rank has all cells along the axis
  BoxExchange halo_;
  BoxExchange gradient_halo_;
};

}  // namespace

std::unique_ptr<TorchLayer> make_split_wrap(const SplitLayerPlan& plan) {
  return std::make_unique<SplitWrap>(plan);
}

}  // namespace wflow::trainer
