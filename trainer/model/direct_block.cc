// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "trainer/model/direct_kernels.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

// The largest product of input and output channels at which the kernels are faster than libtorch's (measured
// with AVX-512; short rows fill only a part of a vector).
std::int64_t most_channel_pairs(std::int64_t row) {
  return row >= 16 ? 64 * 128 : row >= 8 ? 32 * 64 : 16 * 32;
}

BoxSize box_of(const TensorShape& shape) {
  return {shape.extent[0], shape.extent[1], shape.extent[2]};
}

// Replaces the zeros around boxes that DirectKernels::pad() made by the cells at the other ends.
void wrap_border(float* padded, std::int64_t channels, const BoxSize& box) {
  const std::int64_t row = padded_row(box);
  const std::int64_t plane = (box.h + 2) * row;
  for (std::int64_t c = 0; c < channels; ++c) {
    float* own = padded + c * (box.d + 2) * plane;
    for (std::int64_t d = 1; d <= box.d; ++d) {
      float* rows = own + d * plane;
      for (std::int64_t h = 1; h <= box.h; ++h) {
        float* line = rows + h * row;
        line[0] = line[box.w];
        line[box.w + 1] = line[1];
      }
      std::copy_n(rows + box.h * row, row, rows);
      std::copy_n(rows + row, row, rows + (box.h + 1) * row);
    }
    std::copy_n(own + box.d * plane, plane, own);
    std::copy_n(own + plane, plane, own + (box.d + 1) * plane);
  }
}

// `layers`: from the convolution on. `periodic`: it reads the other ends of the field, and so does the
// gradient of its input, which needs no border then.
class DirectBlock final : public UnaryLayer {
 public:
  DirectBlock(std::span<const Layer> layers, std::span<const LayerTensors> tensors, bool periodic,
              bool recomputes);
  at::Tensor forward(const at::Tensor& x, const StepKey& key) override;
  at::Tensor predict(const at::Tensor& x) override;
  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override;

 private:
  struct Moments {
    double sum = 0;
    double squares = 0;
  };

  const float* bias() const {
    return conv_.parameters.size() > 1 ? conv_.parameters[1].value.data_ptr<float>() : nullptr;
  }
  at::Tensor outputs(std::int64_t samples) const;
  at::Tensor run(const at::Tensor& x, std::vector<float>& padded, std::vector<float>& y, bool training);
  void convolve(const float* x, float* padded, float* y) const;
  void pad(const float* x, std::int64_t channels, float* padded) const {
    kernels_.pad(x, channels, box_, padded);
    if (periodic_) wrap_border(padded, channels, box_);
  }
  void convolve_again();
  void activate(const float* y, float* z) const;
  void measure_batch(std::int64_t samples);
  void set_running_activations();
  void reduce_weight_sums(std::span<const float> sums, std::size_t threads);

  const DirectKernels& kernels_ = direct_kernels();
  bool periodic_;
  bool recomputes_;
  TensorShape output_;
  BoxSize box_;
  std::int64_t in_;
  std::int64_t out_;
  std::int64_t in_stride_;      // floats in a sample's input, without a border,
  std::int64_t padded_stride_;  // in its padded copy,
  std::int64_t y_stride_;       // and in the convolution's output
  bool plain_ = false;          // only a convolution: its output is the block's
  bool norm_ = false;
  bool pool_ = false;
  LayerTensors conv_;
  LayerTensors norm_tensors_;
  std::vector<Activation> activations_;  // per channel
  std::vector<float> means_;
  std::vector<double> inverse_deviations_;
  std::vector<float> packed_;
  // Buffers grow to the largest batch and stay: no allocation in a step.
  std::vector<float> padded_;
  std::vector<float> y_;
  std::vector<float> weight_sums_;
  std::int64_t samples_ = 0;
};

DirectBlock::DirectBlock(std::span<const Layer> layers, std::span<const LayerTensors> tensors, bool periodic,
                         bool recomputes)
    : periodic_(periodic),
      recomputes_(recomputes),
      output_(layers.back().output),
      box_(box_of(layers.front().output)),
      in_(layers.front().input.channels),
      out_(layers.front().output.channels),
      in_stride_(in_ * box_.voxels()),
      padded_stride_(in_ * padded_voxels(box_)),
      y_stride_(layers.front().output.count()),
      conv_(tensors.front()),
      activations_(static_cast<std::size_t>(out_)),
      means_(static_cast<std::size_t>(out_), 0.0F),
      inverse_deviations_(static_cast<std::size_t>(out_), 1.0) {
  plain_ = layers.size() == 1;
  for (std::size_t i = 1; i < layers.size(); ++i) {
    if (layers[i].kind == LayerKind::batch_norm) {
      norm_ = true;
      norm_tensors_ = tensors[i];
    }
    if (layers[i].kind == LayerKind::average_pool) pool_ = true;
    if (layers[i].kind == LayerKind::leaky_relu) {
      for (Activation& a : activations_) a.slope = static_cast<float>(layers[i].value);
    }
  }
  for (Activation& a : activations_) {
    a.pool = pool_;
    if (plain_) a.slope = 1;
  }
  packed_.resize(static_cast<std::size_t>(std::max(packed_size(in_, out_), packed_size(out_, in_))));
}

at::Tensor DirectBlock::outputs(std::int64_t samples) const {
  const auto& e = output_.extent;
  return at::empty({samples, output_.channels, e[0], e[1], e[2]}, at::TensorOptions().dtype(at::kFloat));
}

// Computes one sample.
void DirectBlock::convolve(const float* x, float* padded, float* y) const {
  pad(x, in_, padded);
  kernels_.convolve(padded, packed_.data(), bias(), in_, out_, box_, y);
}

// Computes one sample.
void DirectBlock::activate(const float* y, float* z) const {
  for (std::int64_t c = 0; c < out_; ++c) {
    kernels_.activate(y + c * box_.voxels(), box_, activations_[static_cast<std::size_t>(c)],
                      z + c * output_.voxels());
  }
}

// Mean and variance of this batch. One sum per sample, added in order of the samples whatever the number of
// threads.
void DirectBlock::measure_batch(std::int64_t samples) {
  std::vector<Moments> parts(static_cast<std::size_t>(samples * out_));
  at::parallel_for(0, samples, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      for (std::int64_t c = 0; c < out_; ++c) {
        Moments& part = parts[static_cast<std::size_t>(n * out_ + c)];
        // Relative to the first value: a difference of large squares would lose digits.
        kernels_.moments(y_.data() + n * y_stride_ + c * box_.voxels(), box_.voxels(),
                         y_[static_cast<std::size_t>(c * box_.voxels())], &part.sum, &part.squares);
      }
    }
  });
  const double count = static_cast<double>(samples) * static_cast<double>(box_.voxels());
  const float* scale = norm_tensors_.parameters[0].value.data_ptr<float>();
  const float* shift = norm_tensors_.parameters[1].value.data_ptr<float>();
  for (std::int64_t c = 0; c < out_; ++c) {
    const auto i = static_cast<std::size_t>(c);
    double sum = 0;
    double squares = 0;
    for (std::int64_t n = 0; n < samples; ++n) {
      sum += parts[static_cast<std::size_t>(n * out_ + c)].sum;
      squares += parts[static_cast<std::size_t>(n * out_ + c)].squares;
    }
    const double mean = sum / count;
    const double variance = std::max(0.0, squares / count - mean * mean);
    means_[i] = static_cast<float>(mean + y_[static_cast<std::size_t>(c * box_.voxels())]);
    inverse_deviations_[i] = 1 / std::sqrt(variance + kNormEpsilon);
    activations_[i].factor = static_cast<float>(scale[c] * inverse_deviations_[i]);
    activations_[i].constant = shift[c] - means_[i] * activations_[i].factor;
    const auto weight = static_cast<double>(samples);
    norm_tensors_.statistics[0].data_ptr<float>()[c] = static_cast<float>(weight * means_[i]);
    norm_tensors_.statistics[1].data_ptr<float>()[c] =
        static_cast<float>(weight * variance * count / std::max(1.0, count - 1));
  }
}

void DirectBlock::set_running_activations() {
  const float* mean = norm_tensors_.running[0].data_ptr<float>();
  const float* variance = norm_tensors_.running[1].data_ptr<float>();
  const float* scale = norm_tensors_.parameters[0].value.data_ptr<float>();
  const float* shift = norm_tensors_.parameters[1].value.data_ptr<float>();
  for (std::int64_t c = 0; c < out_; ++c) {
    Activation& a = activations_[static_cast<std::size_t>(c)];
    a.factor = static_cast<float>(scale[c] / std::sqrt(variance[c] + kNormEpsilon));
    a.constant = shift[c] - mean[c] * a.factor;
  }
}

// Where no norm needs all samples first, a sample's y is activated while it is in the cache.
at::Tensor DirectBlock::run(const at::Tensor& x_tensor, std::vector<float>& padded, std::vector<float>& y,
                            bool training) {
  const at::Tensor x = x_tensor.contiguous();
  const std::int64_t samples = x.size(0);
  const auto grow = [](std::vector<float>& values, std::int64_t count) {
    if (static_cast<std::int64_t>(values.size()) < count) values.resize(static_cast<std::size_t>(count));
  };
  grow(padded, samples * padded_stride_);
  if (!plain_) grow(y, samples * y_stride_);
  at::Tensor z = outputs(samples);
  const auto z_of = [&](std::int64_t n) { return z.data_ptr<float>() + n * out_ * output_.voxels(); };
  const auto for_samples = [&](const auto& call) {
    at::parallel_for(0, samples, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) call(n);
    });
  };
  const bool waits = norm_ && training;
  pack_weights(conv_.parameters[0].value.data_ptr<float>(), in_, out_, false, packed_.data());
  for_samples([&](std::int64_t n) {
    float* own = plain_ ? z_of(n) : y.data() + n * y_stride_;
    convolve(x.data_ptr<float>() + n * in_stride_, padded.data() + n * padded_stride_, own);
    if (!plain_ && !waits) activate(own, z_of(n));
  });
  if (!waits) return z;
  measure_batch(samples);
  for_samples([&](std::int64_t n) { activate(y.data() + n * y_stride_, z_of(n)); });
  return z;
}

at::Tensor DirectBlock::forward(const at::Tensor& x, const StepKey&) {
  samples_ = x.size(0);
  at::Tensor z = run(x, padded_, y_, true);
  if (recomputes_) y_ = {};
  return z;
}

at::Tensor DirectBlock::predict(const at::Tensor& x) {
  if (norm_) set_running_activations();
  std::vector<float> padded;
  std::vector<float> y;
  return run(x, padded, y, false);
}

void DirectBlock::convolve_again() {
  y_.resize(static_cast<std::size_t>(samples_ * y_stride_));
  pack_weights(conv_.parameters[0].value.data_ptr<float>(), in_, out_, false, packed_.data());
  at::parallel_for(0, samples_, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n)
      kernels_.convolve(padded_.data() + n * padded_stride_, packed_.data(), bias(), in_, out_, box_,
                        y_.data() + n * y_stride_);
  });
}

at::Tensor DirectBlock::backward(const at::Tensor& gradient, bool wants_input) {
  if (recomputes_ && !plain_) convolve_again();
  const at::Tensor dz_tensor = gradient.contiguous();
  const float* dz = dz_tensor.data_ptr<float>();
  const auto dz_of = [&](std::int64_t n, std::int64_t c) { return dz + (n * out_ + c) * output_.voxels(); };
  // Without other layers, the convolution's dy is dz, and y is not needed.
  const auto y_of = [&](std::int64_t n, std::int64_t c) {
    return plain_ ? dz_of(n, c) : y_.data() + n * y_stride_ + c * box_.voxels();
  };

  std::vector<Moments> parts(static_cast<std::size_t>(samples_ * out_));
  const auto part_of = [&](std::int64_t n, std::int64_t c) -> Moments& {
    return parts[static_cast<std::size_t>(n * out_ + c)];
  };
  // Without a norm, the pass that computes dy finds the sums.
  const bool sums_first = norm_ || plain_;
  at::parallel_for(0, sums_first ? samples_ : 0, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      for (std::int64_t c = 0; c < out_; ++c) {
        Moments& part = part_of(n, c);
        const auto i = static_cast<std::size_t>(c);
        kernels_.gradient_sums(y_of(n, c), dz_of(n, c), box_, activations_[i], means_[i], &part.sum,
                               &part.squares);
      }
    }
  });
  const auto sum_of = [&](std::int64_t c, double Moments::*term) {
    double sum = 0;
    for (std::int64_t n = 0; n < samples_; ++n) sum += part_of(n, c).*term;
    return sum;
  };
  std::vector<float> g_means(static_cast<std::size_t>(out_), 0.0F);
  std::vector<float> gy_factors(static_cast<std::size_t>(out_), 0.0F);
  const double count = static_cast<double>(samples_) * static_cast<double>(box_.voxels());
  for (std::int64_t c = 0; c < out_ && norm_; ++c) {
    const auto i = static_cast<std::size_t>(c);
    const double sum_g = sum_of(c, &Moments::sum);
    const double sum_gy = sum_of(c, &Moments::squares);
    norm_tensors_.parameters[0].gradient.data_ptr<float>()[c] =
        static_cast<float>(sum_gy * inverse_deviations_[i]);
    norm_tensors_.parameters[1].gradient.data_ptr<float>()[c] = static_cast<float>(sum_g);
    g_means[i] = static_cast<float>(sum_g / count);
    gy_factors[i] = static_cast<float>(sum_gy / count * inverse_deviations_[i] * inverse_deviations_[i]);
  }

  // A sample's dy is computed, used for both gradients while it is in the cache, and overwritten by the next
  // sample's.
  const auto threads = static_cast<std::size_t>(std::min<std::int64_t>(at::get_num_threads(), samples_));
  const std::size_t sums_size = static_cast<std::size_t>(out_ * in_ * 27 * kPartialSums);
  weight_sums_.assign(threads * sums_size, 0.0F);
  at::Tensor dx;
  if (wants_input) {
    dx = at::empty({samples_, in_, box_.d, box_.h, box_.w}, at::TensorOptions().dtype(at::kFloat));
    pack_weights(conv_.parameters[0].value.data_ptr<float>(), in_, out_, true, packed_.data());
  }
  at::parallel_for(0, static_cast<std::int64_t>(threads), 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<float> own(plain_ ? 0 : static_cast<std::size_t>(y_stride_));
    std::vector<float> padded(wants_input ? static_cast<std::size_t>(out_ * padded_voxels(box_)) : 0);
    for (std::int64_t thread = first; thread < last; ++thread) {
      const auto t = static_cast<std::int64_t>(threads);
      for (std::int64_t n = samples_ * thread / t; n < samples_ * (thread + 1) / t; ++n) {
        for (std::int64_t c = 0; c < out_ && !plain_; ++c) {
          const auto i = static_cast<std::size_t>(c);
          kernels_.activate_backward(y_of(n, c), dz_of(n, c), box_, activations_[i], means_[i], g_means[i],
                                     gy_factors[i], own.data() + c * box_.voxels(), &part_of(n, c).sum);
        }
        const float* dy = plain_ ? dz_of(n, 0) : own.data();
        if (conv_.parameters[0].learns)
          kernels_.weight_gradient(padded_.data() + n * padded_stride_, dy, in_, out_, box_,
                                   weight_sums_.data() + static_cast<std::size_t>(thread) * sums_size);
        if (!wants_input) continue;
        pad(dy, out_, padded.data());
        kernels_.convolve(padded.data(), packed_.data(), nullptr, out_, in_, box_,
                          dx.data_ptr<float>() + n * in_stride_);
      }
    }
  });
  reduce_weight_sums(weight_sums_, threads);
  if (recomputes_) y_ = {};
  // A norm cancels the bias.
  for (std::int64_t c = 0; c < out_ && bias() != nullptr; ++c)
    conv_.parameters[1].gradient.data_ptr<float>()[c] =
        norm_ ? 0.0F : static_cast<float>(sum_of(c, &Moments::sum));
  return dx;
}

void DirectBlock::reduce_weight_sums(std::span<const float> sums, std::size_t threads) {
  float* gradient = conv_.parameters[0].gradient.data_ptr<float>();
  const auto weights = static_cast<std::size_t>(out_ * in_ * 27);
  for (std::size_t w = 0; w < weights; ++w) {
    double sum = 0;
    for (std::size_t thread = 0; thread < threads; ++thread) {
      const float* part = sums.data() + (thread * weights + w) * kPartialSums;
      for (std::int64_t i = 0; i < kPartialSums; ++i) sum += part[i];
    }
    gradient[w] = static_cast<float>(sum);
  }
}

constexpr std::array<std::int64_t, 3> kOnes = {1, 1, 1};

// True if the layer is a convolution of 3^3 cells whose border, or that of the wrap before it, is one cell.
bool fits(const Layer& layer, const Layer& border) {
  constexpr std::array<std::int64_t, 3> kThree = {3, 3, 3};
  return layer.kind == LayerKind::convolution && layer.kernel == kThree && layer.stride == kOnes &&
         border.pad_low == kOnes && border.pad_high == kOnes && layer.dilation == kOnes &&
         layer.groups == 1 &&
         layer.input.channels * layer.output.channels <= most_channel_pairs(layer.output.extent[2]);
}

// 1 if the layers begin with the wrap of a convolution.
std::size_t wraps_before(std::span<const Layer> layers) {
  return layers.size() > 1 && layers[0].kind == LayerKind::wrap ? 1 : 0;
}

}  // namespace

std::size_t direct_block_length(std::span<const Layer> layers) {
  if (layers.empty()) return 0;
  const std::size_t first = wraps_before(layers);  // the convolution
  if (!fits(layers[first], layers[0])) return 0;
  std::size_t length = first + 1;
  if (length < layers.size() && layers[length].kind == LayerKind::batch_norm) ++length;
  if (length >= layers.size() || layers[length].kind != LayerKind::leaky_relu)
    return first + 1;  // only the convolution
  ++length;
  const std::array<std::int64_t, 3> two = {2, 2, 2};
  if (length < layers.size() && layers[length].kind == LayerKind::average_pool) {
    const auto& e = layers[first].output.extent;
    if (layers[length].kernel == two && e[0] % 2 == 0 && e[1] % 2 == 0 && e[2] % 2 == 0) ++length;
  }
  return length;
}

std::unique_ptr<TorchLayer> make_direct_block(std::span<const Layer> layers,
                                              std::span<const LayerTensors> tensors, bool recomputes) {
  const std::size_t wraps = wraps_before(layers);
  return std::make_unique<DirectBlock>(layers.subspan(wraps), tensors.subspan(wraps), wraps > 0, recomputes);
}

}  // namespace wflow::trainer
