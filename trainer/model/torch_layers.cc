// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/torch_layers.h"

#include "base/error.h"
#include "base/random.h"

namespace wflow::trainer {
namespace {

std::vector<std::int64_t> list(const std::array<std::int64_t, 3>& values) {
  return {values.begin(), values.end()};
}

class Convolution final : public TorchLayer {
 public:
  Convolution(const Layer& layer, const LayerTensors& tensors) : layer_(layer), tensors_(tensors) {
    even_ = layer.pad_low != layer.pad_high;
  }

  at::Tensor predict(const at::Tensor& x) override { return run(padded(x)); }

  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = padded(x);
    return run(input_);
  }

  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    const bool bias = tensors_.parameters.size() > 1;
    const std::vector<std::int64_t> bias_size = {layer_.output.channels};
    const std::vector<std::int64_t> ones = {1, 1, 1};
    const std::vector<std::int64_t> zeros = {0, 0, 0};
    auto [dx, dw, db] = at::convolution_backward(
        gradient, input_, tensors_.parameters[0].value,
        bias ? at::OptionalIntArrayRef(bias_size) : at::OptionalIntArrayRef(), ones,
        even_ ? zeros : list(layer_.pad_low), ones, false, zeros, 1, {wants_input, true, bias});
    tensors_.parameters[0].gradient.copy_(dw);
    if (bias) tensors_.parameters[1].gradient.copy_(db);
    input_.reset();
    if (!wants_input || !even_) return dx;
    for (std::int64_t axis = 0; axis < 3; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      dx = dx.narrow(axis + 2, layer_.pad_low[a], layer_.input.extent[a]);
    }
    return dx.contiguous();
  }

 private:
  at::Tensor padded(const at::Tensor& x) const {
    if (!even_) return x;
    const auto& low = layer_.pad_low;
    const auto& high = layer_.pad_high;
    return at::constant_pad_nd(
        x, std::vector<std::int64_t>{low[2], high[2], low[1], high[1], low[0], high[0]}, 0);
  }

  at::Tensor run(const at::Tensor& x) const {
    const c10::optional<at::Tensor> bias = tensors_.parameters.size() > 1
                                               ? c10::optional<at::Tensor>(tensors_.parameters[1].value)
                                               : c10::nullopt;
    const std::vector<std::int64_t> ones = {1, 1, 1};
    const std::vector<std::int64_t> zeros = {0, 0, 0};
    return at::convolution(x, tensors_.parameters[0].value, bias, ones, even_ ? zeros : list(layer_.pad_low),
                           ones, false, zeros, 1);
  }

  Layer layer_;
  LayerTensors tensors_;
  bool even_ = false;
  at::Tensor input_;
};

class BatchNorm final : public TorchLayer {
 public:
  explicit BatchNorm(const LayerTensors& tensors) : tensors_(tensors) {}

  at::Tensor predict(const at::Tensor& x) override {
    return std::get<0>(at::native_batch_norm(x, tensors_.parameters[0].value, tensors_.parameters[1].value,
                                             tensors_.running[0], tensors_.running[1], false, 0,
                                             kNormEpsilon));
  }

  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = x;
    // Momentum 1 on scratch statistics gives this batch's mean and unbiased variance.
    at::Tensor y;
    at::Tensor mean = at::zeros_like(tensors_.running[0]);
    at::Tensor variance = at::zeros_like(tensors_.running[1]);
    std::tie(y, mean_, inverse_deviation_) =
        at::native_batch_norm(x, tensors_.parameters[0].value, tensors_.parameters[1].value, mean, variance,
                              true, 1.0, kNormEpsilon);
    tensors_.statistics[0].copy_(mean.mul_(static_cast<double>(x.size(0))));
    tensors_.statistics[1].copy_(variance.mul_(static_cast<double>(x.size(0))));
    return y;
  }

  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    auto [dx, dscale, dshift] =
        at::native_batch_norm_backward(gradient, input_, tensors_.parameters[0].value, {}, {}, mean_,
                                       inverse_deviation_, true, kNormEpsilon, {wants_input, true, true});
    tensors_.parameters[0].gradient.copy_(dscale);
    tensors_.parameters[1].gradient.copy_(dshift);
    input_.reset();
    return dx;
  }

 private:
  LayerTensors tensors_;
  at::Tensor input_;
  at::Tensor mean_;
  at::Tensor inverse_deviation_;
};

// In place: with a positive slope the output has the sign of the input, so that backward needs no other copy.
class LeakyRelu final : public TorchLayer {
 public:
  explicit LeakyRelu(double slope) : slope_(slope) {}
  at::Tensor predict(const at::Tensor& x) override { return at::leaky_relu(x, slope_); }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    output_ = x;
    at::leaky_relu_(output_, slope_);
    return output_;
  }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    at::Tensor dx = at::leaky_relu_backward(gradient, output_, slope_, slope_ > 0);
    output_.reset();
    return dx;
  }

 private:
  double slope_;
  at::Tensor output_;
};

class AveragePool final : public TorchLayer {
 public:
  explicit AveragePool(const Layer& layer) : kernel_(list(layer.kernel)) {}
  at::Tensor predict(const at::Tensor& x) override { return at::avg_pool3d(x, kernel_); }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = x;
    return predict(x);
  }
  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    at::Tensor dx;
    if (wants_input) {
      dx = at::avg_pool3d_backward(gradient, input_, kernel_, kernel_, std::vector<std::int64_t>{0, 0, 0},
                                   false, true, c10::nullopt);
    }
    input_.reset();
    return dx;
  }

 private:
  std::vector<std::int64_t> kernel_;
  at::Tensor input_;
};

class MaxPool final : public TorchLayer {
 public:
  explicit MaxPool(const Layer& layer) : kernel_(list(layer.kernel)) {}
  at::Tensor predict(const at::Tensor& x) override {
    return std::get<0>(at::max_pool3d_with_indices(x, kernel_));
  }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = x;
    at::Tensor y;
    std::tie(y, indices_) = at::max_pool3d_with_indices(x, kernel_);
    return y;
  }
  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    at::Tensor dx;
    if (wants_input) {
      dx = at::max_pool3d_with_indices_backward(gradient, input_, kernel_, kernel_,
                                                std::vector<std::int64_t>{0, 0, 0},
                                                std::vector<std::int64_t>{1, 1, 1}, false, indices_);
    }
    input_.reset();
    indices_.reset();
    return dx;
  }

 private:
  std::vector<std::int64_t> kernel_;
  at::Tensor input_;
  at::Tensor indices_;
};

class Flatten final : public TorchLayer {
 public:
  explicit Flatten(const Layer& layer) : input_(layer.input) {}
  at::Tensor predict(const at::Tensor& x) override { return x.reshape({x.size(0), -1}); }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override { return predict(x); }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    const auto& e = input_.extent;
    return gradient.reshape({gradient.size(0), input_.channels, e[0], e[1], e[2]});
  }

 private:
  TensorShape input_;
};

class GlobalMean final : public TorchLayer {
 public:
  explicit GlobalMean(const Layer& layer) : input_(layer.input) {}
  at::Tensor predict(const at::Tensor& x) override { return x.mean({2, 3, 4}); }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override { return predict(x); }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    const auto& e = input_.extent;
    return gradient.div(static_cast<double>(input_.voxels()))
        .view({gradient.size(0), input_.channels, 1, 1, 1})
        .expand({gradient.size(0), input_.channels, e[0], e[1], e[2]})
        .contiguous();
  }

 private:
  TensorShape input_;
};

class Linear final : public TorchLayer {
 public:
  explicit Linear(const LayerTensors& tensors) : tensors_(tensors) {}
  at::Tensor predict(const at::Tensor& x) override {
    return at::addmm(tensors_.parameters[1].value, x, tensors_.parameters[0].value.t());
  }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = x;
    return predict(x);
  }
  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    at::mm_out(tensors_.parameters[0].gradient, gradient.t(), input_);
    at::sum_out(tensors_.parameters[1].gradient, gradient, std::vector<std::int64_t>{0});
    input_.reset();
    return wants_input ? at::mm(gradient, tensors_.parameters[0].value) : at::Tensor();
  }

 private:
  LayerTensors tensors_;
  at::Tensor input_;
};

class Dropout final : public TorchLayer {
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

class TanhScale final : public TorchLayer {
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

}  // namespace

std::unique_ptr<TorchLayer> make_torch_layer(const Layer& layer, const LayerTensors& tensors) {
  switch (layer.kind) {
    case LayerKind::convolution:
      return std::make_unique<Convolution>(layer, tensors);
    case LayerKind::batch_norm:
      return std::make_unique<BatchNorm>(tensors);
    case LayerKind::leaky_relu:
      return std::make_unique<LeakyRelu>(layer.value);
    case LayerKind::average_pool:
      return std::make_unique<AveragePool>(layer);
    case LayerKind::max_pool:
      return std::make_unique<MaxPool>(layer);
    case LayerKind::flatten:
      return std::make_unique<Flatten>(layer);
    case LayerKind::global_mean:
      return std::make_unique<GlobalMean>(layer);
    case LayerKind::linear:
      return std::make_unique<Linear>(tensors);
    case LayerKind::dropout:
      return std::make_unique<Dropout>(layer);
    case LayerKind::tanh_scale:
      return std::make_unique<TanhScale>(layer.value);
  }
  WFLOW_CHECK(false);
  return nullptr;
}

}  // namespace wflow::trainer
