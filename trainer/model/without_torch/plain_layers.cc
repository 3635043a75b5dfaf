// SPDX-License-Identifier: Apache-2.0
// In place of torch_layers.cc in a build without libtorch: layers between the convolutions and products, in
// plain loops.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "trainer/model/back_end.h"
#include "trainer/model/onednn_convolution.h"
#include "trainer/model/onednn_function.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

using Tensors = TorchLayer::Tensors;

class Elementwise final : public UnaryLayer {
 public:
  explicit Elementwise(const Layer& layer) : function_(layer.kind, layer.value) {}

  at::Tensor predict(const at::Tensor& x) override {
    const at::Tensor from = x.contiguous();
    at::Tensor y = at::empty_like(from);
    function_.apply(y.numel(), from.data_ptr<float>(), y.data_ptr<float>());
    return y;
  }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = x.contiguous();
    return predict(input_);
  }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    const at::Tensor dy = gradient.contiguous();
    at::Tensor dx = at::empty_like(dy);
    function_.apply_slope(dx.numel(), input_.data_ptr<float>(), dy.data_ptr<float>(), dx.data_ptr<float>());
    input_.reset();
    return dx;
  }

 private:
  OnednnFunction function_;
  at::Tensor input_;
};

// A convolution for which oneDNN has no fast kernel: the windows of a sample as columns of a matrix, and
// products.
class PlainConvolution final : public UnaryLayer {
 public:
  PlainConvolution(const Layer& layer, const LayerTensors& tensors)
      : layer_(layer),
        tensors_(tensors),
        group_in_(layer.input.channels / layer.groups),
        group_out_(layer.output.channels / layer.groups),
        taps_(group_in_ * layer.kernel[0] * layer.kernel[1] * layer.kernel[2]),
        cells_(layer.output.voxels()) {}

  at::Tensor predict(const at::Tensor& x) override {
    const at::Tensor from = x.contiguous();
    const auto& e = layer_.output.extent;
    at::Tensor y = at::empty({x.size(0), layer_.output.channels, e[0], e[1], e[2]});
    std::vector<float> columns(static_cast<std::size_t>(taps_ * cells_));
    for_groups(x.size(0), [&](std::int64_t n, std::int64_t group) {
      unfold(from.data_ptr<float>() + n * layer_.input.count(), group, columns);
      float* to = y.data_ptr<float>() + n * layer_.output.count() + group * group_out_ * cells_;
      for (std::int64_t c = 0; c < group_out_; ++c)
        std::fill_n(to + c * cells_, cells_, bias(group * group_out_ + c));
      multiply({group_out_, cells_, taps_}, {.add = true}, weights(group), columns.data(), to);
    });
    return y;
  }

  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = x.contiguous();
    return predict(input_);
  }

  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    const at::Tensor dy = gradient.contiguous();
    const bool learns = tensors_.parameters[0].learns;
    if (learns) tensors_.parameters[0].gradient.zero_();
    if (learns && tensors_.parameters.size() > 1) tensors_.parameters[1].gradient.copy_(dy.sum({0, 2, 3, 4}));
    at::Tensor dx = wants_input ? at::zeros(input_.sizes()) : at::Tensor();
    std::vector<float> columns(static_cast<std::size_t>(taps_ * cells_));
    std::vector<float> sums(static_cast<std::size_t>(group_out_ * taps_));
    for_groups(dy.size(0), [&](std::int64_t n, std::int64_t group) {
      const float* given = dy.data_ptr<float>() + n * layer_.output.count() + group * group_out_ * cells_;
      if (learns) {
        unfold(input_.data_ptr<float>() + n * layer_.input.count(), group, columns);
        multiply({group_out_, taps_, cells_}, {.b_by_column = true}, given, columns.data(), sums.data());
        float* sum = tensors_.parameters[0].gradient.data_ptr<float>() + group * group_out_ * taps_;
        for (std::size_t i = 0; i < sums.size(); ++i) sum[i] += sums[i];
      }
      if (!wants_input) return;
      multiply({taps_, cells_, group_out_}, {.a_by_column = true}, weights(group), given, columns.data());
      fold(columns, group, dx.data_ptr<float>() + n * layer_.input.count());
    });
    input_.reset();
    return dx;
  }

 private:
  float bias(std::int64_t channel) const {
    return tensors_.parameters.size() > 1 ? tensors_.parameters[1].value.data_ptr<float>()[channel] : 0.0F;
  }
  const float* weights(std::int64_t group) const {
    return tensors_.parameters[0].value.data_ptr<float>() + group * group_out_ * taps_;
  }
  template <class Call>
  void for_groups(std::int64_t samples, const Call& call) const {
    for (std::int64_t n = 0; n < samples; ++n)
      for (std::int64_t group = 0; group < layer_.groups; ++group) call(n, group);
  }

  // Calls call(position in the columns, position in a sample's input; -1: the border).
  template <class Call>
  void for_windows(std::int64_t group, const Call& call) const {
    const auto& k = layer_.kernel;
    const auto& in = layer_.input.extent;
    const auto& out = layer_.output.extent;
    at::parallel_for(0, taps_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t tap = begin; tap < end; ++tap) {
        const std::int64_t channel = group * group_in_ + tap / (k[0] * k[1] * k[2]);
        const std::array<std::int64_t, 3> at = {tap / (k[1] * k[2]) % k[0], tap / k[2] % k[1], tap % k[2]};
        std::int64_t column = tap * cells_;
        for (std::int64_t d = 0; d < out[0]; ++d) {
          for (std::int64_t h = 0; h < out[1]; ++h) {
            for (std::int64_t w = 0; w < out[2]; ++w, ++column) {
              const std::array<std::int64_t, 3> cell = {read(0, d, at), read(1, h, at), read(2, w, at)};
              bool inside = true;
              for (std::size_t axis = 0; axis < 3; ++axis)
                inside = inside && cell[axis] >= 0 && cell[axis] < in[axis];
              call(column, inside ? ((channel * in[0] + cell[0]) * in[1] + cell[1]) * in[2] + cell[2] : -1);
            }
          }
        }
      }
    });
  }
  std::int64_t read(std::size_t axis, std::int64_t cell, const std::array<std::int64_t, 3>& tap) const {
    return cell * layer_.stride[axis] + tap[axis] * layer_.dilation[axis] - layer_.pad_low[axis];
  }
  void unfold(const float* x, std::int64_t group, std::vector<float>& columns) const {
    for_windows(group, [&](std::int64_t to, std::int64_t from) {
      columns[static_cast<std::size_t>(to)] = from < 0 ? 0.0F : x[from];
    });
  }
  // Taps of one channel read the same cells, so this is a loop on one thread.
  void fold(const std::vector<float>& columns, std::int64_t group, float* x) const {
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    for_windows(group, [&](std::int64_t from, std::int64_t to) {
      if (to >= 0) x[to] += columns[static_cast<std::size_t>(from)];
    });
    at::set_num_threads(threads);
  }

  Layer layer_;
  LayerTensors tensors_;
  std::int64_t group_in_;
  std::int64_t group_out_;
  std::int64_t taps_;
  std::int64_t cells_;
  at::Tensor input_;
};

// Batch, group and layer norms: the values of a set get the mean 0 and the variance 1, then a scale and a
// shift for each channel. They differ in the sets.
class PlainNorm final : public UnaryLayer {
 public:
  PlainNorm(const Layer& layer, const LayerTensors& tensors)
      : kind_(layer.kind), groups_(layer.groups), tensors_(tensors) {}

  at::Tensor predict(const at::Tensor& x) override {
    const at::Tensor from = x.contiguous();
    const Sets sets = sets_of(from);
    if (kind_ != LayerKind::batch_norm) return scaled(normalised(from, sets, moments_of(from, sets)), sets);
    std::vector<Moments> moments(static_cast<std::size_t>(sets.channels));
    for (std::size_t c = 0; c < moments.size(); ++c)
      moments[c] = {static_cast<double>(tensors_.running[0].data_ptr<float>()[c]),
                    static_cast<double>(tensors_.running[1].data_ptr<float>()[c])};
    return scaled(normalised(from, sets, moments), sets);
  }

  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    const at::Tensor from = x.contiguous();
    sets_ = sets_of(from);
    moments_ = moments_of(from, sets_);
    if (kind_ == LayerKind::batch_norm) keep_statistics();
    normalised_ = normalised(from, sets_, moments_);
    return scaled(normalised_, sets_);
  }

  at::Tensor backward(const at::Tensor& gradient, bool) override {
    const at::Tensor dy = gradient.contiguous();
    const float* given = dy.data_ptr<float>();
    const float* values = normalised_.data_ptr<float>();
    const float* scale = tensors_.parameters[0].value.data_ptr<float>();
    std::vector<Moments> of_parameters(static_cast<std::size_t>(sets_.channels));
    std::vector<Moments> means(moments_.size());  // of the gradient, and of its product with the values
    const double size = static_cast<double>(dy.numel()) / static_cast<double>(moments_.size());
    sets_.for_each([&](std::int64_t i, std::size_t channel, std::size_t set) {
      const double g = static_cast<double>(given[i]);
      const double value = static_cast<double>(values[i]);
      of_parameters[channel].mean += g;
      of_parameters[channel].variance += g * value;
      means[set].mean += g * static_cast<double>(scale[channel]) / size;
      means[set].variance += g * static_cast<double>(scale[channel]) * value / size;
    });
    for (std::size_t c = 0; c < of_parameters.size(); ++c) {
      tensors_.parameters[0].gradient.data_ptr<float>()[c] = static_cast<float>(of_parameters[c].variance);
      tensors_.parameters[1].gradient.data_ptr<float>()[c] = static_cast<float>(of_parameters[c].mean);
    }
    at::Tensor dx = at::empty_like(dy);
    float* to = dx.data_ptr<float>();
    sets_.for_each([&](std::int64_t i, std::size_t channel, std::size_t set) {
      const double g = static_cast<double>(given[i]) * static_cast<double>(scale[channel]);
      to[i] =
          static_cast<float>(inverse(moments_[set]) *
                             (g - means[set].mean - static_cast<double>(values[i]) * means[set].variance));
    });
    normalised_.reset();
    return dx;
  }

 private:
  struct Moments {
    double mean = 0;
    double variance = 0;
  };

  struct Sets {
    LayerKind kind = LayerKind::batch_norm;
    std::int64_t samples = 0;
    std::int64_t channels = 0;
    std::int64_t cells = 0;
    std::int64_t groups = 1;

    std::size_t count() const {
      if (kind == LayerKind::batch_norm) return static_cast<std::size_t>(channels);
      return static_cast<std::size_t>(samples * (kind == LayerKind::group_norm ? groups : cells));
    }
    // Calls call(value, channel, set).
    template <class Call>
    void for_each(const Call& call) const {
      std::int64_t i = 0;
      for (std::int64_t n = 0; n < samples; ++n) {
        for (std::int64_t c = 0; c < channels; ++c) {
          for (std::int64_t cell = 0; cell < cells; ++cell, ++i)
            call(i, static_cast<std::size_t>(c), static_cast<std::size_t>(set_of(n, c, cell)));
        }
      }
    }
    std::int64_t set_of(std::int64_t n, std::int64_t c, std::int64_t cell) const {
      if (kind == LayerKind::batch_norm) return c;
      return kind == LayerKind::group_norm ? n * groups + c / (channels / groups) : n * cells + cell;
    }
  };

  Sets sets_of(const at::Tensor& x) const {
    return {kind_, x.size(0), x.size(1), x.numel() / (x.size(0) * x.size(1)), groups_};
  }
  static double inverse(const Moments& moments) { return 1 / std::sqrt(moments.variance + kNormEpsilon); }

  static std::vector<Moments> moments_of(const at::Tensor& x, const Sets& sets) {
    std::vector<Moments> moments(sets.count());
    const double size = static_cast<double>(x.numel()) / static_cast<double>(moments.size());
    const float* values = x.data_ptr<float>();
    sets.for_each([&](std::int64_t i, std::size_t, std::size_t set) {
      moments[set].mean += static_cast<double>(values[i]) / size;
    });
    sets.for_each([&](std::int64_t i, std::size_t, std::size_t set) {
      const double distance = static_cast<double>(values[i]) - moments[set].mean;
      moments[set].variance += distance * distance / size;
    });
    return moments;
  }

  static at::Tensor normalised(const at::Tensor& x, const Sets& sets, const std::vector<Moments>& moments) {
    at::Tensor y = at::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    sets.for_each([&](std::int64_t i, std::size_t, std::size_t set) {
      to[i] = static_cast<float>((static_cast<double>(from[i]) - moments[set].mean) * inverse(moments[set]));
    });
    return y;
  }

  at::Tensor scaled(const at::Tensor& x, const Sets& sets) const {
    at::Tensor y = at::empty_like(x);
    const float* from = x.data_ptr<float>();
    const float* scale = tensors_.parameters[0].value.data_ptr<float>();
    const float* shift = tensors_.parameters[1].value.data_ptr<float>();
    float* to = y.data_ptr<float>();
    sets.for_each([&](std::int64_t i, std::size_t channel, std::size_t) {
      to[i] = from[i] * scale[channel] + shift[channel];
    });
    return y;
  }

  void keep_statistics() {
    const double count = static_cast<double>(sets_.samples * sets_.cells);
    const double unbiased = count / std::max(1.0, count - 1);
    for (std::size_t c = 0; c < moments_.size(); ++c) {
      const auto weight = static_cast<double>(sets_.samples);
      tensors_.statistics[0].data_ptr<float>()[c] = static_cast<float>(weight * moments_[c].mean);
      tensors_.statistics[1].data_ptr<float>()[c] =
          static_cast<float>(weight * moments_[c].variance * unbiased);
    }
  }

  LayerKind kind_;
  std::int64_t groups_;
  LayerTensors tensors_;
  Sets sets_;
  std::vector<Moments> moments_;
  at::Tensor normalised_;
};

// Windows without overlap: their mean or maximum. A window of all cells is a global maximum.
class PlainPool final : public UnaryLayer {
 public:
  explicit PlainPool(const Layer& layer)
      : maximum_(layer.kind != LayerKind::average_pool),
        window_(layer.kind == LayerKind::global_max ? layer.input.extent : layer.kernel),
        in_(layer.input.extent),
        global_(layer.kind == LayerKind::global_max) {
    for (std::size_t i = 0; i < 3; ++i) out_[i] = in_[i] / window_[i];
  }

  at::Tensor predict(const at::Tensor& x) override {
    std::vector<std::int64_t> places;
    return run(x.contiguous(), places);
  }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override { return run(x.contiguous(), places_); }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    const at::Tensor dy = gradient.contiguous();
    const std::int64_t rows = dy.numel() / (out_[0] * out_[1] * out_[2]);
    at::Tensor dx = at::zeros({gradient.size(0), gradient.size(1), in_[0], in_[1], in_[2]});
    const auto share = 1 / static_cast<float>(window_[0] * window_[1] * window_[2]);
    const float* given = dy.data_ptr<float>();
    float* to = dx.data_ptr<float>();
    for_windows(rows, [&](std::int64_t window, auto&& for_cells) {
      if (maximum_) {
        to[places_[static_cast<std::size_t>(window)]] = given[window];
      } else {
        for_cells([&](std::int64_t cell) { to[cell] = given[window] * share; });
      }
    });
    return dx;
  }

 private:
  at::Tensor run(const at::Tensor& x, std::vector<std::int64_t>& places) const {
    const std::int64_t rows = x.numel() / (in_[0] * in_[1] * in_[2]);
    at::Tensor y = global_ ? at::empty({x.size(0), x.size(1)})
                           : at::empty({x.size(0), x.size(1), out_[0], out_[1], out_[2]});
    places.assign(static_cast<std::size_t>(maximum_ ? y.numel() : 0), 0);
    const double count = static_cast<double>(window_[0] * window_[1] * window_[2]);
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for_windows(rows, [&](std::int64_t window, auto&& for_cells) {
      double sum = 0;
      std::int64_t best = -1;
      for_cells([&](std::int64_t cell) {
        sum += static_cast<double>(from[cell]);
        if (best < 0 || from[cell] > from[best]) best = cell;
      });
      to[window] = maximum_ ? from[best] : static_cast<float>(sum / count);
      if (maximum_) places[static_cast<std::size_t>(window)] = best;
    });
    return y;
  }

  // Calls call(window, for_cells), where for_cells(f) calls f(cell) for the cells of the window.
  template <class Call>
  void for_windows(std::int64_t rows, const Call& call) const {
    at::parallel_for(0, rows * out_[0], 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        for (std::int64_t place = 0; place < out_[1] * out_[2]; ++place) {
          const std::int64_t h = place / out_[2];
          const std::int64_t w = place % out_[2];
          call(plane * out_[1] * out_[2] + place, [&, this](const auto& function) {
            const std::int64_t row = plane / out_[0] * in_[0];
            for (std::int64_t i = 0; i < window_[0]; ++i) {
              for (std::int64_t j = 0; j < window_[1]; ++j) {
                const std::int64_t line =
                    (row + plane % out_[0] * window_[0] + i) * in_[1] + h * window_[1] + j;
                for (std::int64_t k = 0; k < window_[2]; ++k) function(line * in_[2] + w * window_[2] + k);
              }
            }
          });
        }
      }
    });
  }

  bool maximum_;
  std::array<std::int64_t, 3> window_;
  std::array<std::int64_t, 3> in_;
  std::array<std::int64_t, 3> out_ = {};
  bool global_;
  std::vector<std::int64_t> places_;
};

// Each cell repeated.
class PlainUpsample final : public UnaryLayer {
 public:
  explicit PlainUpsample(const Layer& layer)
      : factors_(layer.kernel), in_(layer.input.extent), out_(layer.output.extent) {}

  at::Tensor predict(const at::Tensor& x) override {
    const at::Tensor from = x.contiguous();
    at::Tensor y = at::empty({x.size(0), x.size(1), out_[0], out_[1], out_[2]});
    const float* in = from.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for_lines(x.size(0) * x.size(1), [&](std::int64_t own, std::int64_t source) {
      for (std::int64_t w = 0; w < out_[2]; ++w) to[own + w] = in[source + w / factors_[2]];
    });
    return y;
  }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override { return predict(x); }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    const at::Tensor dy = gradient.contiguous();
    at::Tensor dx = at::zeros({dy.size(0), dy.size(1), in_[0], in_[1], in_[2]});
    const float* given = dy.data_ptr<float>();
    float* to = dx.data_ptr<float>();
    for_lines(dy.size(0) * dy.size(1), [&](std::int64_t own, std::int64_t source) {
      for (std::int64_t w = 0; w < out_[2]; ++w) to[source + w / factors_[2]] += given[own + w];
    });
    return dx;
  }

 private:
  // Calls call(begin of a line of the output, begin of the input's line that it repeats).
  template <class Call>
  void for_lines(std::int64_t rows, const Call& call) const {
    at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t d = 0; d < out_[0]; ++d) {
          for (std::int64_t h = 0; h < out_[1]; ++h)
            call(((row * out_[0] + d) * out_[1] + h) * out_[2],
                 ((row * in_[0] + d / factors_[0]) * in_[1] + h / factors_[1]) * in_[2]);
        }
      }
    });
  }

  std::array<std::int64_t, 3> factors_;
  std::array<std::int64_t, 3> in_;
  std::array<std::int64_t, 3> out_;
};

class PlainSoftmax final : public UnaryLayer {
 public:
  at::Tensor predict(const at::Tensor& x) override {
    const at::Tensor from = x.contiguous();
    at::Tensor y = at::empty_like(from);
    const float* in = from.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for_rows(from, [&](std::int64_t first, std::int64_t channels, std::int64_t step) {
      float most = -std::numeric_limits<float>::infinity();
      for (std::int64_t c = 0; c < channels; ++c) most = std::max(most, in[first + c * step]);
      double sum = 0;
      for (std::int64_t c = 0; c < channels; ++c)
        sum += std::exp(static_cast<double>(in[first + c * step] - most));
      for (std::int64_t c = 0; c < channels; ++c)
        out[first + c * step] =
            static_cast<float>(std::exp(static_cast<double>(in[first + c * step] - most)) / sum);
    });
    return y;
  }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override { return output_ = predict(x); }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    const at::Tensor dy = gradient.contiguous();
    at::Tensor dx = at::empty_like(dy);
    const float* given = dy.data_ptr<float>();
    const float* y = output_.data_ptr<float>();
    float* to = dx.data_ptr<float>();
    for_rows(dy, [&](std::int64_t first, std::int64_t channels, std::int64_t step) {
      double sum = 0;
      for (std::int64_t c = 0; c < channels; ++c)
        sum += static_cast<double>(given[first + c * step]) * static_cast<double>(y[first + c * step]);
      for (std::int64_t c = 0; c < channels; ++c)
        to[first + c * step] = y[first + c * step] * (given[first + c * step] - static_cast<float>(sum));
    });
    return dx;
  }

 private:
  // Calls call(first value, channels, distance between them) for each cell.
  template <class Call>
  static void for_rows(const at::Tensor& x, const Call& call) {
    const std::int64_t cells = x.numel() / (x.size(0) * x.size(1));
    for (std::int64_t n = 0; n < x.size(0); ++n)
      for (std::int64_t cell = 0; cell < cells; ++cell) call(n * x.size(1) * cells + cell, x.size(1), cells);
  }

  at::Tensor output_;
};

// Sum, difference, channels of several values, and the value behind which no gradient goes.
class Joined final : public TorchLayer {
 public:
  explicit Joined(LayerKind kind) : kind_(kind) {}

  at::Tensor predict(const Tensors& inputs) override {
    if (kind_ == LayerKind::concatenate) return at::cat(inputs, 1);
    at::Tensor y = inputs.front().clone();
    for (std::size_t i = 1; i < inputs.size(); ++i)
      y.add_(kind_ == LayerKind::subtract ? inputs[i].mul(-1) : inputs[i]);
    return y;
  }
  at::Tensor forward(const Tensors& inputs, const StepKey&) override {
    channels_.clear();
    for (const at::Tensor& x : inputs) channels_.push_back(x.size(1));
    return predict(inputs);
  }
  Tensors backward(const at::Tensor& gradient, const std::vector<bool>& wanted) override {
    Tensors parts(wanted.size());
    std::int64_t first = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i]) parts[i] = part_of(gradient, i, first);
      first += channels_[i];
    }
    return parts;
  }

 private:
  at::Tensor part_of(const at::Tensor& gradient, std::size_t input, std::int64_t first) const {
    if (kind_ == LayerKind::concatenate) return gradient.narrow(1, first, channels_[input]).contiguous();
    return kind_ == LayerKind::subtract && input > 0 ? gradient.mul(-1) : gradient;
  }

  LayerKind kind_;
  std::vector<std::int64_t> channels_;
};

}  // namespace

std::unique_ptr<TorchLayer> make_torch_layer(const Layer& layer, const LayerTensors& tensors,
                                             bool /*owns_input*/, Precision /*precision*/) {
  if (auto common = make_common_layer(layer)) return common;
  if (!suits_plain_loops(layer)) leave_to_torch(layer.name);
  if (is_function(layer.kind)) return std::make_unique<Elementwise>(layer);
  switch (layer.kind) {
    case LayerKind::batch_norm:
    case LayerKind::group_norm:
    case LayerKind::layer_norm:
      return std::make_unique<PlainNorm>(layer, tensors);
    case LayerKind::average_pool:
    case LayerKind::max_pool:
    case LayerKind::global_max:
      return std::make_unique<PlainPool>(layer);
    case LayerKind::upsample:
      return std::make_unique<PlainUpsample>(layer);
    case LayerKind::softmax:
      return std::make_unique<PlainSoftmax>();
    case LayerKind::add:
    case LayerKind::subtract:
    case LayerKind::concatenate:
    case LayerKind::stop:
      return std::make_unique<Joined>(layer.kind);
    case LayerKind::linear:
      return make_dense_block(tensors);
    case LayerKind::wrap:
      return make_wrap_layer(layer, 0);
    case LayerKind::lstm:
    case LayerKind::gru:
      return make_recurrent_block(layer, tensors);
    case LayerKind::convolution:
      return std::make_unique<PlainConvolution>(layer, tensors);
    case LayerKind::transposed_convolution:
      leave_to_torch(fmt::format(
          "the layer '{}', a transposed convolution for which oneDNN {} with {} has no fast kernel,",
          layer.name, onednn_version(), onednn_instruction_set()));
    default:
      leave_to_torch(fmt::format("the layer '{}' of the kind {}", layer.name, name_of(layer.kind)));
  }
}

std::unique_ptr<TorchLayer> make_spectral_block(const Layer& layer, const LayerTensors& /*tensors*/) {
  leave_to_torch(fmt::format("the layer '{}' of the kind {}", layer.name, name_of(layer.kind)));
}

}  // namespace wflow::trainer
