// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"
#include "trainer/model/layer_constants.h"
#include "trainer/model/split_layers.h"

namespace wflow::trainer {
namespace {

// The mask of Dropout in torch_layers.cc: by the cell's index in the whole field.
class SplitDropout final : public UnaryLayer {
 public:
  explicit SplitDropout(const SplitLayerPlan& plan)
      : probability_(plan.layer.value), box_(plan.in), extent_(plan.layer.input.extent) {
    for (const char c : plan.layer.name) key_ = hash64(key_, static_cast<unsigned char>(c));
  }
  at::Tensor predict(const at::Tensor& x) override { return x; }
  at::Tensor forward(const at::Tensor& x, const StepKey& key) override {
    mask_ = at::empty(x.sizes(), at::TensorOptions().dtype(at::kFloat));
    float* to = mask_.data_ptr<float>();
    for (std::int64_t n = 0; n < x.size(0); ++n) {
      const std::uint64_t row =
          hash64(hash64(key.seed ^ key_, key.step), static_cast<std::uint64_t>(key.first_sample + n));
      for (std::int64_t c = 0; c < x.size(1); ++c) to = fill_channel(to, row, c);
    }
    return x.mul(mask_);
  }
  at::Tensor backward(const at::Tensor& gradient, bool) override { return gradient.mul(mask_); }

 private:
  float* fill_channel(float* to, std::uint64_t row, std::int64_t channel) const {
    const auto kept = static_cast<float>(1 / (1 - probability_));
    const auto& [depth, height, width] = box_.axes;
    for (std::int64_t d = depth.begin; d < depth.end; ++d) {
      for (std::int64_t h = height.begin; h < height.end; ++h) {
        const std::int64_t line = ((channel * extent_[0] + d) * extent_[1] + h) * extent_[2];
        for (std::int64_t w = width.begin; w < width.end; ++w) {
          const bool drops = unit_real(hash64(row, static_cast<std::uint64_t>(line + w))) < probability_;
          *to++ = drops ? 0.0F : kept;
        }
      }
    }
    return to;
  }

  double probability_;
  Box box_;
  std::array<std::int64_t, 3> extent_;
  std::uint64_t key_ = 0;
  at::Tensor mask_;
};

// relu and leaky_relu, in place where nothing else reads what they overwrite. The output has the sign of the
// input, so that the backward pass needs no other copy.
class SplitRectifier final : public UnaryLayer {
 public:
  explicit SplitRectifier(const SplitLayerPlan& plan)
      : is_relu_(plan.layer.kind == LayerKind::relu),
        slope_(plan.layer.value),
        owns_input_(plan.owns_input),
        owns_gradient_(plan.owns_gradient) {}

  at::Tensor predict(const at::Tensor& x) override {
    at::Tensor y = owns_input_ ? x : at::empty_like(x);
    if (is_relu_) return at::clamp_min_out(y, x, 0);
    return at::leaky_relu_out(y, x, slope_);
  }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    output_ = predict(x);
    return output_;
  }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    at::Tensor dx = owns_gradient_ ? gradient : at::empty_like(gradient);
    if (is_relu_) {
      at::threshold_backward_out(dx, gradient, output_, 0);
    } else {
      at::leaky_relu_backward_out(dx, gradient, output_, slope_, slope_ > 0);
    }
    output_.reset();
    return dx;
  }

 private:
  bool is_relu_;
  double slope_;
  bool owns_input_;
  bool owns_gradient_;
  at::Tensor output_;
};

at::Tensor own_cells_of(const LayerConstant& constant, const SplitLayerPlan& plan) {
  // libtorch has no tensors of constants; nothing writes to this one.
  const at::Tensor all = at::from_blob(const_cast<float*>(constant.values.data()), constant.shape,
                                       at::TensorOptions().dtype(at::kFloat));
  return cells_in(all, Box::of(plan.layer.input.extent), plan.in).clone();
}

// Adds a table of the positions: sines, or numbers that learn.
class SplitPositions final : public UnaryLayer {
 public:
  explicit SplitPositions(const SplitLayerPlan& plan)
      : parameters_(plan.tensors.parameters), box_(plan.in), field_(Box::of(plan.layer.input.extent)) {
    if (parameters_.empty()) table_ = own_cells_of(position_table(plan.layer), plan);
  }
  at::Tensor predict(const at::Tensor& x) override { return x + table(); }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override { return predict(x); }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    if (!parameters_.empty()) {
      at::Tensor& found = parameters_.front().gradient;
      found.zero_();
      cells_in(found.unsqueeze(0), field_, box_).copy_(gradient.sum(0, true));
    }
    return gradient;
  }

 private:
  at::Tensor table() const {
    return parameters_.empty() ? table_ : cells_in(parameters_.front().value.unsqueeze(0), field_, box_);
  }

  std::vector<ParameterTensors> parameters_;
  Box box_;
  Box field_;
  at::Tensor table_;
};

class SplitCoordinates final : public UnaryLayer {
 public:
  explicit SplitCoordinates(const SplitLayerPlan& plan)
      : table_(own_cells_of(coordinate_table(plan.layer), plan)), channels_(plan.layer.input.channels) {}
  at::Tensor predict(const at::Tensor& x) override {
    std::vector<std::int64_t> sizes = table_.sizes().vec();
    sizes[0] = x.size(0);
    return at::cat({x, table_.expand(sizes)}, 1);
  }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override { return predict(x); }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    return gradient.narrow(1, 0, channels_).contiguous();
  }

 private:
  at::Tensor table_;
  std::int64_t channels_;
};

}  // namespace

std::unique_ptr<TorchLayer> make_split_cells(const SplitLayerPlan& plan) {
  switch (plan.layer.kind) {
    case LayerKind::relu:
    case LayerKind::leaky_relu:
      return std::make_unique<SplitRectifier>(plan);
    case LayerKind::dropout:
      return std::make_unique<SplitDropout>(plan);
    case LayerKind::positions:
      return std::make_unique<SplitPositions>(plan);
    case LayerKind::coordinates:
      return std::make_unique<SplitCoordinates>(plan);
    default:
      return make_torch_layer(plan.layer, plan.tensors, plan.owns_input, Precision::full);
  }
}

}  // namespace wflow::trainer
