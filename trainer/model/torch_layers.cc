// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/torch_layers.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <time.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "base/error.h"

namespace wflow::trainer {
namespace {

std::vector<std::int64_t> list(const std::array<std::int64_t, 3>& values) {
  return {values.begin(), values.end()};
}

// Rounds to the precision of the factors. The result has 32 bits on a processor, 16 on a GPU.
at::Tensor factor(const at::Tensor& x, Precision precision) {
  if (precision == Precision::full) return x;
  const at::ScalarType type = precision == Precision::bf16 ? at::kBFloat16 : at::kHalf;
  if (!x.is_cuda()) return x.to(type).to(at::kFloat);
  const auto order = x.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::Preserve;
  return x.to(type, false, false, order);
}

class Convolution final : public UnaryLayer {
 public:
  Convolution(const Layer& layer, const LayerTensors& tensors, Precision precision)
      : layer_(layer), tensors_(tensors), precision_(precision) {
    even_ = layer.pad_low != layer.pad_high;
  }

  at::Tensor predict(const at::Tensor& x) override { return run(factor(padded(x), precision_)); }

  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = factor(padded(x), precision_);
    return run(input_);
  }

  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    const bool rounds = precision_ != Precision::full;
    const bool learns = tensors_.parameters[0].learns;
    const bool has_bias = learns && tensors_.parameters.size() > 1;
    const bool bias = has_bias && !rounds;
    const std::vector<std::int64_t> bias_size = {layer_.output.channels};
    const std::vector<std::int64_t> zeros = {0, 0, 0};
    auto [dx, dw, db] = at::convolution_backward(
        factor(gradient, precision_), input_, factor(tensors_.parameters[0].value, precision_),
        bias ? at::OptionalIntArrayRef(bias_size) : at::OptionalIntArrayRef(), list(layer_.stride),
        even_ ? zeros : list(layer_.pad_low), list(layer_.dilation), false, zeros, layer_.groups,
        {wants_input, learns, bias});
    if (learns) tensors_.parameters[0].gradient.copy_(dw);
    if (has_bias) tensors_.parameters[1].gradient.copy_(bias ? db : gradient.sum({0, 2, 3, 4}));
    input_.reset();
    if (wants_input) dx = dx.to(at::kFloat);
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

  // `x`: as factor() returns it.
  at::Tensor run(const at::Tensor& x) const {
    const bool rounds = precision_ != Precision::full;
    const bool has_bias = tensors_.parameters.size() > 1;
    const c10::optional<at::Tensor> bias =
        has_bias && !rounds ? c10::optional<at::Tensor>(tensors_.parameters[1].value) : c10::nullopt;
    const std::vector<std::int64_t> zeros = {0, 0, 0};
    const at::Tensor y = at::convolution(x, factor(tensors_.parameters[0].value, precision_), bias,
                                         list(layer_.stride), even_ ? zeros : list(layer_.pad_low),
                                         list(layer_.dilation), false, zeros, layer_.groups);
    if (!rounds) return y;
    at::Tensor sums = y.to(at::kFloat);
    return has_bias ? sums.add_(tensors_.parameters[1].value.view({1, -1, 1, 1, 1})) : sums;
  }

  Layer layer_;
  LayerTensors tensors_;
  Precision precision_;
  bool even_ = false;
  at::Tensor input_;
};

class BatchNorm final : public UnaryLayer {
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

// In place if nothing else reads the input. With a positive slope the output has the sign of the input, so
// backward needs no other copy; with slope 0 neither, as the gradient is 0 where the output is.
class LeakyRelu final : public UnaryLayer {
 public:
  LeakyRelu(double slope, bool in_place) : slope_(slope), in_place_(in_place) {}
  at::Tensor predict(const at::Tensor& x) override { return at::leaky_relu(x, slope_); }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    output_ = in_place_ ? x : at::leaky_relu(x, slope_);
    if (in_place_) at::leaky_relu_(output_, slope_);
    return output_;
  }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    at::Tensor dx = at::leaky_relu_backward(gradient, output_, slope_, slope_ > 0);
    output_.reset();
    return dx;
  }

 private:
  double slope_;
  bool in_place_;
  at::Tensor output_;
};

class AveragePool final : public UnaryLayer {
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

class MaxPool final : public UnaryLayer {
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

class Linear final : public UnaryLayer {
 public:
  Linear(const LayerTensors& tensors, Precision precision) : tensors_(tensors), precision_(precision) {}
  at::Tensor predict(const at::Tensor& x) override { return run(factor(x, precision_)); }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = factor(x, precision_);
    return run(input_);
  }
  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    const at::Tensor dy = factor(gradient, precision_);
    if (dy.scalar_type() == at::kFloat) {
      at::mm_out(tensors_.parameters[0].gradient, dy.t(), input_);
    } else {
      tensors_.parameters[0].gradient.copy_(at::mm(dy.t(), input_));
    }
    at::sum_out(tensors_.parameters[1].gradient, gradient, std::vector<std::int64_t>{0});
    input_.reset();
    return wants_input ? at::mm(dy, factor(tensors_.parameters[0].value, precision_)).to(at::kFloat)
                       : at::Tensor();
  }

 private:
  at::Tensor run(const at::Tensor& x) const {
    const at::Tensor weights = factor(tensors_.parameters[0].value, precision_).t();
    if (x.scalar_type() == at::kFloat) return at::addmm(tensors_.parameters[1].value, x, weights);
    return at::mm(x, weights).to(at::kFloat).add_(tensors_.parameters[1].value);
  }

  LayerTensors tensors_;
  Precision precision_;
  at::Tensor input_;
};

// Any operation with a derivative in libtorch.
class Autograd final : public TorchLayer {
 public:
  Autograd(LayerFunction function, const LayerTensors& tensors)
      : function_(std::move(function)), tensors_(tensors) {}

  at::Tensor predict(const Tensors& inputs) override {
    Tensors parameters;
    for (const ParameterTensors& p : tensors_.parameters) parameters.push_back(p.value);
    return function_(inputs, parameters);
  }

  at::Tensor forward(const Tensors& inputs, const StepKey&) override {
    const at::AutoGradMode gradients(true);
    leaves_.clear();
    for (const at::Tensor& x : inputs) leaves_.push_back(x.detach().requires_grad_(true));
    for (const ParameterTensors& p : tensors_.parameters)
      leaves_.push_back(p.value.detach().requires_grad_(true));
    const auto first_parameter = leaves_.begin() + static_cast<std::ptrdiff_t>(inputs.size());
    output_ = function_({leaves_.begin(), first_parameter}, {first_parameter, leaves_.end()});
    return output_.detach();
  }

  Tensors backward(const at::Tensor& gradient, const std::vector<bool>& wanted) override {
    Tensors asked;
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (i >= wanted.size() || wanted[i]) asked.push_back(leaves_[i]);
    }
    Tensors found;
    if (!asked.empty()) found = torch::autograd::grad({output_}, asked, {gradient});
    leaves_.clear();
    output_.reset();
    Tensors result(wanted.size());
    std::size_t at = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i]) result[i] = found[at++];
    }
    for (const ParameterTensors& p : tensors_.parameters) p.gradient.copy_(found[at++]);
    return result;
  }

 private:
  LayerFunction function_;
  LayerTensors tensors_;
  Tensors leaves_;
  at::Tensor output_;
};

// A layer norm over the channels of each cell.
at::Tensor channel_norm(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) {
  const std::vector<std::int64_t> channels = {x.size(1)};
  return at::layer_norm(x.movedim(1, -1), channels, scale, shift, kNormEpsilon).movedim(-1, 1).contiguous();
}

at::Tensor shuffled(const at::Tensor& x, const TensorShape& output,
                    const std::array<std::int64_t, 3>& factors) {
  const auto& e = output.extent;
  const auto& f = factors;
  return x.reshape({x.size(0), output.channels, f[0], f[1], f[2], e[0] / f[0], e[1] / f[1], e[2] / f[2]})
      .permute({0, 1, 5, 2, 6, 3, 7, 4})
      .reshape({x.size(0), output.channels, e[0], e[1], e[2]});
}

// The class numbers of [samples, 1, ...] as indices.
at::Tensor class_indices(const at::Tensor& x, const Layer& layer) {
  const std::int64_t classes = layer.parameters[0].shape[0];
  const at::Tensor numbers = x.round();
  // A comparison with NaN is false.
  const at::Tensor right =
      (x - numbers).abs().le(1e-3).logical_and(numbers.ge(0)).logical_and(numbers.lt(classes));
  if (!right.all().item<bool>()) {
    throw Error(
        ExitCode::data,
        fmt::format("the embedding '{}' reads class numbers from 0 to {}, and a sample has {}; correct "
                    "the data or 'classes'",
                    layer.name, classes - 1, x.masked_select(right.logical_not())[0].item<float>()));
  }
  return numbers.to(at::kLong).select(1, 0);
}

// libtorch cuts off as much on both sides and adds cells behind.
std::vector<std::int64_t> output_padding(const Layer& layer) {
  std::vector<std::int64_t> cells;
  for (std::size_t axis = 0; axis < 3; ++axis) cells.push_back(layer.pad_low[axis] - layer.pad_high[axis]);
  return cells;
}

at::Tensor modulated(const at::Tensor& x, const at::Tensor& numbers) {
  const std::int64_t channels = x.size(1);
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[0] = x.size(0);
  shape[1] = channels;
  const at::Tensor scale = numbers.narrow(1, 0, channels).reshape(shape);
  const at::Tensor shift = numbers.narrow(1, channels, channels).reshape(shape);
  return x * (scale + 1) + shift;
}

// The field with its border from the other ends.
at::Tensor wrapped(const at::Tensor& x, const Layer& layer) {
  at::Tensor y = x;
  for (std::size_t i = 0; i < 3; ++i)
    y = wrapped_along(y, static_cast<std::int64_t>(i) + 2, layer.pad_low[i], layer.pad_high[i]);
  return y;
}

LayerFunction function_of(const Layer& layer, Precision precision) {
  using Tensors = TorchLayer::Tensors;
  const std::vector<std::int64_t> stride = list(layer.stride);
  const std::vector<std::int64_t> extent = list(layer.output.extent);
  switch (layer.kind) {
    case LayerKind::transposed_convolution:
      return [stride, precision, pads = list(layer.pad_low), longer = output_padding(layer)](
                 const Tensors& x, const Tensors& p) {
        const std::vector<std::int64_t> ones = {1, 1, 1};
        const bool rounds = precision != Precision::full;
        const bool has_bias = p.size() > 1;
        const c10::optional<at::Tensor> bias =
            has_bias && !rounds ? c10::optional<at::Tensor>(p[1]) : c10::nullopt;
        const at::Tensor y = at::convolution(factor(x[0], precision), factor(p[0], precision), bias, stride,
                                             pads, ones, true, longer, 1);
        if (!rounds) return y;
        const at::Tensor sums = y.to(at::kFloat);
        return has_bias ? sums + p[1].view({1, -1, 1, 1, 1}) : sums;
      };
    case LayerKind::group_norm:
      return [groups = layer.groups](const Tensors& x, const Tensors& p) {
        return at::group_norm(x[0], groups, p[0], p[1], kNormEpsilon, false);
      };
    case LayerKind::layer_norm:
      return [](const Tensors& x, const Tensors& p) { return channel_norm(x[0], p[0], p[1]); };
    case LayerKind::relu:
      return [](const Tensors& x, const Tensors&) { return x[0].relu(); };
    case LayerKind::elu:
      return [](const Tensors& x, const Tensors&) { return at::elu(x[0]); };
    case LayerKind::gelu:
      return [](const Tensors& x, const Tensors&) { return at::gelu(x[0]); };
    case LayerKind::silu:
      return [](const Tensors& x, const Tensors&) { return at::silu(x[0]); };
    case LayerKind::sigmoid:
      return [](const Tensors& x, const Tensors&) { return x[0].sigmoid(); };
    case LayerKind::tanh:
      return [](const Tensors& x, const Tensors&) { return x[0].tanh(); };
    case LayerKind::softplus:
      return [](const Tensors& x, const Tensors&) { return at::softplus(x[0]); };
    case LayerKind::upsample:
      return [extent](const Tensors& x, const Tensors&) { return at::upsample_nearest3d(x[0], extent); };
    case LayerKind::resize:
      return [extent](const Tensors& x, const Tensors&) {
        return at::upsample_trilinear3d(x[0], extent, false);
      };
    case LayerKind::pixel_shuffle:
      return [output = layer.output, factors = layer.kernel](const Tensors& x, const Tensors&) {
        return shuffled(x[0], output, factors);
      };
    case LayerKind::slice:
      return [axis = static_cast<std::int64_t>(layer.axis) + 1, first = layer.first,
              size = layer.axis == 0 ? layer.output.channels : layer.output.extent[layer.axis - 1]](
                 const Tensors& x, const Tensors&) { return x[0].narrow(axis, first, size).contiguous(); };
    case LayerKind::gather:
      return [channels = layer.channels](const Tensors& x, const Tensors&) {
        return x[0].index_select(1, at::tensor(channels, x[0].options().dtype(at::kLong)));
      };
    case LayerKind::embedding:
      return [layer](const Tensors& x, const Tensors& p) {
        return at::embedding(p[0], class_indices(x[0], layer)).movedim(-1, 1).contiguous();
      };
    case LayerKind::wrap:
      return [layer](const Tensors& x, const Tensors&) { return wrapped(x[0], layer); };
    case LayerKind::global_max:
      return [](const Tensors& x, const Tensors&) { return x[0].amax({2, 3, 4}); };
    case LayerKind::softmax:
      return [](const Tensors& x, const Tensors&) { return x[0].softmax(1); };
    case LayerKind::add:
      return [](const Tensors& x, const Tensors&) {
        at::Tensor sum = x[0] + x[1];
        for (std::size_t i = 2; i < x.size(); ++i) sum = sum + x[i];
        return sum;
      };
    case LayerKind::concatenate:
      return [](const Tensors& x, const Tensors&) { return at::cat(x, 1); };
    case LayerKind::stop:
      return [](const Tensors& x, const Tensors&) { return x[0].clone(); };
    case LayerKind::subtract:
      return [](const Tensors& x, const Tensors&) { return x[0] - x[1]; };
    case LayerKind::film:
      return [](const Tensors& x, const Tensors&) { return modulated(x[0], x[1]); };
    case LayerKind::spread:
      return [extent](const Tensors& x, const Tensors&) {
        return x[0]
            .reshape({x[0].size(0), x[0].size(1), 1, 1, 1})
            .expand({-1, -1, extent[0], extent[1], extent[2]})
            .contiguous();
      };
    case LayerKind::trace_density:
      return trace_function(layer);
    default: {
      LayerFunction function = sequence_function(layer);
      WFLOW_CHECK(function);
      return function;
    }
  }
}

}  // namespace

std::unique_ptr<TorchLayer> make_torch_layer(const Layer& layer, const LayerTensors& tensors, bool owns_input,
                                             Precision precision) {
  if (auto common = make_common_layer(layer)) return common;
  switch (layer.kind) {
    case LayerKind::convolution:
      return std::make_unique<Convolution>(layer, tensors, precision);
    case LayerKind::batch_norm:
      return std::make_unique<BatchNorm>(tensors);
    case LayerKind::leaky_relu:
      return std::make_unique<LeakyRelu>(layer.value, owns_input);
    case LayerKind::average_pool:
      return std::make_unique<AveragePool>(layer);
    case LayerKind::max_pool:
      return std::make_unique<MaxPool>(layer);
    case LayerKind::linear:
      return std::make_unique<Linear>(tensors, precision);
    case LayerKind::module:
      return make_module_layer(layer, tensors);
    default:
      return std::make_unique<Autograd>(function_of(layer, precision), tensors);
  }
}

double measure_blas_gflops() {
  constexpr std::int64_t n = 256;
  const at::Tensor a = at::ones({n, n});
  const at::Tensor b = at::ones({n, n});
  at::Tensor c = at::mm(a, b);  // warm-up
  // CPU time of this thread: wall time would be longer on a loaded machine.
  const auto cpu_seconds = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  double best = 1e30;
  for (int i = 0; i < 3; ++i) {
    const double begin = cpu_seconds();
    at::mm_out(c, a, b);
    best = std::min(best, cpu_seconds() - begin);
  }
  return 2.0 * n * n * n / best * 1e-9;
}

}  // namespace wflow::trainer
