// SPDX-License-Identifier: Apache-2.0
// Layers that need no more of libtorch than its tensors.
#include <ATen/Parallel.h>

#include <cmath>

#include "base/random.h"
#include "trainer/model/direct_kernels.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

std::vector<std::int64_t> sizes_of(std::int64_t samples, const TensorShape& shape) {
  if (shape.voxels() == 1) return {samples, shape.channels};
  const auto& e = shape.extent;
  return {samples, shape.channels, e[0], e[1], e[2]};
}

class Reshape final : public UnaryLayer {
 public:
  explicit Reshape(const Layer& layer) : input_(layer.input), output_(layer.output) {}
  at::Tensor predict(const at::Tensor& x) override { return x.reshape(sizes_of(x.size(0), output_)); }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override { return predict(x); }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    return gradient.reshape(sizes_of(gradient.size(0), input_));
  }

 private:
  TensorShape input_;
  TensorShape output_;
};

class GlobalMean final : public UnaryLayer {
 public:
  explicit GlobalMean(const Layer& layer) : input_(layer.input) {}
  // libtorch takes one thread for the mean of few channels.
  at::Tensor predict(const at::Tensor& x) override {
    if (!x.is_cpu()) return x.mean({2, 3, 4});
    const at::Tensor fields = x.contiguous();
    at::Tensor means = at::empty({x.size(0), x.size(1)}, x.options());
    const float* from = fields.data_ptr<float>();
    float* to = means.data_ptr<float>();
    const std::int64_t cells = input_.voxels();
    at::parallel_for(0, means.numel(), kCellsOfThread / cells + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        double sum = 0;
        double squares = 0;
        direct_kernels().moments(from + i * cells, cells, 0, &sum, &squares);
        to[i] = static_cast<float>(sum / static_cast<double>(cells));
      }
    });
    return means;
  }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override { return predict(x); }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    const auto& e = input_.extent;
    return gradient.div(static_cast<double>(input_.voxels()))
        .view({gradient.size(0), input_.channels, 1, 1, 1})
        .expand({gradient.size(0), input_.channels, e[0], e[1], e[2]})
        .contiguous();
  }

 private:
  static constexpr std::int64_t kCellsOfThread = 1 << 14;  // fewer cost less than a second thread
  TensorShape input_;
};

class Dropout final : public UnaryLayer {
 public:
  explicit Dropout(const Layer& layer) : probability_(layer.value) {
    for (const char c : layer.name) key_ = hash64(key_, static_cast<unsigned char>(c));
  }
  at::Tensor predict(const at::Tensor& x) override { return x; }
  at::Tensor forward(const at::Tensor& x, const StepKey& key) override {
    const std::int64_t features = x.numel() / x.size(0);
    at::Tensor mask = at::empty(x.sizes(), at::TensorOptions().dtype(at::kFloat));
    float* values = mask.data_ptr<float>();
    const auto kept = static_cast<float>(1 / (1 - probability_));
    for (std::int64_t n = 0; n < x.size(0); ++n) {
      const std::uint64_t row =
          hash64(hash64(key.seed ^ key_, key.step), static_cast<std::uint64_t>(key.first_sample + n));
      for (std::int64_t i = 0; i < features; ++i) {
        const bool drops = unit_real(hash64(row, static_cast<std::uint64_t>(i))) < probability_;
        values[n * features + i] = drops ? 0.0F : kept;
      }
    }
    mask_ = mask.to(x.device());
    return x.mul(mask_);
  }
  at::Tensor backward(const at::Tensor& gradient, bool) override { return gradient.mul(mask_); }

 private:
  double probability_;
  std::uint64_t key_ = 0;
  at::Tensor mask_;
};

class TanhScale final : public UnaryLayer {
 public:
  explicit TanhScale(double scale) : scale_(scale) {}
  at::Tensor predict(const at::Tensor& x) override { return x.tanh().mul_(scale_); }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    tanh_ = x.tanh();
    return tanh_.mul(scale_);
  }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    return at::tanh_backward(gradient, tanh_).mul_(scale_);
  }

 private:
  double scale_;
  at::Tensor tanh_;
};

// Draws from a normal distribution so that the gradient reaches mean and variance (Kingma and Welling 2014).
class Sample final : public TorchLayer {
 public:
  explicit Sample(const Layer& layer) {
    for (const char c : layer.name) key_ = hash64(key_, static_cast<unsigned char>(c));
  }
  at::Tensor predict(const Tensors& inputs) override { return inputs[0]; }
  at::Tensor forward(const Tensors& inputs, const StepKey& key) override {
    const std::int64_t values = inputs[0].numel() / inputs[0].size(0);
    at::Tensor noise = at::empty(inputs[0].sizes(), at::TensorOptions().dtype(at::kFloat));
    float* to = noise.data_ptr<float>();
    for (std::int64_t n = 0; n < inputs[0].size(0); ++n) {
      const std::uint64_t row =
          hash64(hash64(key.seed ^ key_, key.step), static_cast<std::uint64_t>(key.first_sample + n));
      for (std::int64_t i = 0; i < values; ++i)
        to[n * values + i] = static_cast<float>(normal_real(row, static_cast<std::uint64_t>(i)));
    }
    scaled_noise_ = noise.to(inputs[0].device()).mul_(inputs[1].mul(0.5).exp_());
    return inputs[0].add(scaled_noise_);
  }
  Tensors backward(const at::Tensor& gradient, const std::vector<bool>&) override {
    return {gradient, gradient.mul(scaled_noise_).mul_(0.5)};
  }

 private:
  std::uint64_t key_ = 0;
  at::Tensor scaled_noise_;
};

// A value between two for each sample, on which a gradient penalty acts (Gulrajani et al. 2017, section 4).
class Mix final : public TorchLayer {
 public:
  explicit Mix(const Layer& layer) {
    for (const char c : layer.name) key_ = hash64(key_, static_cast<unsigned char>(c));
  }
  at::Tensor predict(const Tensors& inputs) override { return (inputs[0] + inputs[1]).mul_(0.5); }
  at::Tensor forward(const Tensors& inputs, const StepKey& key) override {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(inputs[0].dim()), 1);
    shape[0] = inputs[0].size(0);
    at::Tensor shares = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
    for (std::int64_t n = 0; n < shape[0]; ++n) {
      const std::uint64_t row =
          hash64(hash64(key.seed ^ key_, key.step), static_cast<std::uint64_t>(key.first_sample + n));
      shares.data_ptr<float>()[n] = static_cast<float>(unit_real(row));
    }
    shares_ = shares.to(inputs[0].device());
    return inputs[0].mul(shares_).add_(inputs[1].mul(1 - shares_));
  }
  Tensors backward(const at::Tensor& gradient, const std::vector<bool>&) override {
    return {gradient.mul(shares_), gradient.mul(1 - shares_)};
  }

 private:
  std::uint64_t key_ = 0;
  at::Tensor shares_;
};

}  // namespace

bool works_on_fields(LayerKind kind) {
  switch (kind) {
    case LayerKind::convolution:
    case LayerKind::transposed_convolution:
    case LayerKind::batch_norm:
    case LayerKind::average_pool:
    case LayerKind::max_pool:
    case LayerKind::upsample:
    case LayerKind::resize:
    case LayerKind::pixel_shuffle:
    case LayerKind::slice:
    case LayerKind::wrap:
    case LayerKind::global_mean:
    case LayerKind::global_max:
      return true;
    default:
      return false;
  }
}

std::unique_ptr<TorchLayer> make_common_layer(const Layer& layer) {
  switch (layer.kind) {
    case LayerKind::flatten:
    case LayerKind::reshape:
      return std::make_unique<Reshape>(layer);
    case LayerKind::global_mean:
      return std::make_unique<GlobalMean>(layer);
    case LayerKind::dropout:
      return std::make_unique<Dropout>(layer);
    case LayerKind::tanh_scale:
      return std::make_unique<TanhScale>(layer.value);
    case LayerKind::sample:
      return std::make_unique<Sample>(layer);
    case LayerKind::mix:
      return std::make_unique<Mix>(layer);
    default:
      return nullptr;
  }
}

}  // namespace wflow::trainer
