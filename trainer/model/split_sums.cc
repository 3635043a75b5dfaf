// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "trainer/model/split_layers.h"

namespace wflow::trainer {
namespace {

// The cells of one channel of one sample.
struct Planes {
  explicit Planes(const at::Tensor& field)
      : tensor(field.contiguous()),
        channels(field.size(1)),
        count(field.size(0) * field.size(1)),
        cells(field.numel() / count) {}
  const float* operator[](std::int64_t plane) const { return tensor.data_ptr<float>() + plane * cells; }

  at::Tensor tensor;
  std::int64_t channels;
  std::int64_t count;
  std::int64_t cells;
};

template <class Work>
void for_each_plane(const Planes& planes, Work work) {
  constexpr std::int64_t kCellsOfATask = 1 << 14;
  at::parallel_for(0, planes.count, std::max<std::int64_t>(1, kCellsOfATask / planes.cells),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t plane = begin; plane < end; ++plane) work(plane);
                   });
}

std::vector<double> sums_of_planes(const at::Tensor& field) {
  const Planes planes(field);
  std::vector<double> sums(static_cast<std::size_t>(planes.count), 0.0);
  for_each_plane(planes, [&](std::int64_t plane) {
    for (const float value : std::span(planes[plane], static_cast<std::size_t>(planes.cells)))
      sums[static_cast<std::size_t>(plane)] += value;
  });
  return sums;
}

at::Tensor as_floats(std::span<const double> numbers, at::IntArrayRef shape) {
  at::Tensor floats = at::empty(shape);
  std::ranges::transform(numbers, floats.data_ptr<float>(),
                         [](double number) { return static_cast<float>(number); });
  return floats;
}

// Two sums of each plane, or of each set of planes.
struct SumPair {
  double first = 0;
  double second = 0;
};

// Norms whose moments are those of sets of planes: batch norm, a set a channel; group norm, a set for each
// group of each sample.
class SplitNorm final : public UnaryLayer {
 public:
  explicit SplitNorm(const SplitLayerPlan& plan)
      : layer_(plan.layer), tensors_(plan.tensors), group_(plan.group), plain_(make_plain(plan)) {}

  at::Tensor predict(const at::Tensor& x) override {
    return is_batch() ? plain_->predict(TorchLayer::Tensors{x}) : normalised(x, moments_of(x));
  }

  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = x.contiguous();
    moments_ = moments_of(input_);
    if (is_batch()) keep_statistics(x.size(0));
    return normalised(input_, moments_);
  }

  // Ioffe and Szegedy 2015, section 3, with the sums over the group's cells.
  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    const Planes x(input_);
    const Planes dy(gradient);
    const std::vector<SumPair> of_planes = gradient_sums(x, dy);
    find_weight_gradients(x, of_planes);
    std::vector<double> sums = sums_of_sets(x, of_planes, true);
    group_.sum_by_rank(sums);
    at::Tensor dx = wants_input ? at::empty_like(x.tensor) : at::Tensor();
    if (wants_input) {
      const double number = numbers_in_set(x);
      for_each_plane(x, [&](std::int64_t plane) {
        const std::size_t set = set_of(plane, x.channels);
        const auto mean = static_cast<float>(moments_[set].first);
        const double inverse = moments_[set].second;
        const auto scale = static_cast<float>(inverse * scale_of(plane % x.channels));
        const auto shift = static_cast<float>(inverse * sums[2 * set] / number);
        const auto slope = static_cast<float>(inverse * inverse * inverse * sums[2 * set + 1] / number);
        float* to = dx.data_ptr<float>() + plane * x.cells;
        for (std::int64_t i = 0; i < x.cells; ++i)
          to[i] = dy[plane][i] * scale - shift - (x[plane][i] - mean) * slope;
      });
    }
    input_.reset();
    return dx;
  }

 private:
  static std::unique_ptr<TorchLayer> make_plain(const SplitLayerPlan& plan) {
    return make_torch_layer(plan.layer, plan.tensors, false, Precision::full);
  }
  bool is_batch() const { return layer_.kind == LayerKind::batch_norm; }
  std::size_t set_of(std::int64_t plane, std::int64_t channels) const {
    if (is_batch()) return static_cast<std::size_t>(plane % channels);
    return static_cast<std::size_t>(plane / (channels / layer_.groups));
  }
  std::size_t sets(const Planes& x) const {
    return static_cast<std::size_t>(is_batch() ? x.channels : x.count / x.channels * layer_.groups);
  }
  double numbers_in_set(const Planes& x) const {
    const std::int64_t planes = x.count / static_cast<std::int64_t>(sets(x));
    return static_cast<double>(planes * layer_.input.voxels());
  }
  float scale_of(std::int64_t channel) const {
    return tensors_.parameters[0].value.data_ptr<float>()[channel];
  }
  float shift_of(std::int64_t channel) const {
    return tensors_.parameters[1].value.data_ptr<float>()[channel];
  }

  // `scaled`: each plane's sums times the channel's scale.
  std::vector<double> sums_of_sets(const Planes& x, const std::vector<SumPair>& of_planes,
                                   bool scaled) const {
    std::vector<double> sums(2 * sets(x), 0.0);
    for (std::int64_t plane = 0; plane < x.count; ++plane) {
      const SumPair& sum = of_planes[static_cast<std::size_t>(plane)];
      const std::size_t set = set_of(plane, x.channels);
      const double factor = scaled ? scale_of(plane % x.channels) : 1.0;
      sums[2 * set] += factor * sum.first;
      sums[2 * set + 1] += factor * sum.second;
    }
    return sums;
  }

  // Mean and 1 / deviation of each set.
  std::vector<SumPair> moments_of(const at::Tensor& field) {
    const Planes x(field);
    std::vector<SumPair> of_planes(static_cast<std::size_t>(x.count));
    for_each_plane(x, [&](std::int64_t plane) {
      SumPair& sum = of_planes[static_cast<std::size_t>(plane)];
      for (const float value : std::span(x[plane], static_cast<std::size_t>(x.cells))) {
        sum.first += value;
        sum.second += static_cast<double>(value) * value;
      }
    });
    std::vector<double> sums = sums_of_sets(x, of_planes, false);
    group_.sum_by_rank(sums);
    const double number = numbers_in_set(x);
    std::vector<SumPair> moments(sets(x));
    variances_.resize(sets(x));
    for (std::size_t set = 0; set < moments.size(); ++set) {
      const double mean = sums[2 * set] / number;
      variances_[set] = std::max(0.0, sums[2 * set + 1] / number - mean * mean);
      moments[set] = {mean, 1 / std::sqrt(variances_[set] + kNormEpsilon)};
    }
    unbiased_ = number / std::max(1.0, number - 1);
    return moments;
  }

  at::Tensor normalised(const at::Tensor& field, const std::vector<SumPair>& moments) const {
    const Planes x(field);
    at::Tensor y = at::empty_like(x.tensor);
    for_each_plane(x, [&](std::int64_t plane) {
      const SumPair& moment = moments[set_of(plane, x.channels)];
      const float scale = static_cast<float>(moment.second) * scale_of(plane % x.channels);
      const float shift = shift_of(plane % x.channels) - static_cast<float>(moment.first) * scale;
      float* to = y.data_ptr<float>() + plane * x.cells;
      for (std::int64_t i = 0; i < x.cells; ++i) to[i] = x[plane][i] * scale + shift;
    });
    return y;
  }

  // For each plane the sum of the gradient, and that of the gradient times the distance from the mean.
  std::vector<SumPair> gradient_sums(const Planes& x, const Planes& dy) const {
    std::vector<SumPair> sums(static_cast<std::size_t>(x.count));
    for_each_plane(x, [&](std::int64_t plane) {
      const double mean = moments_[set_of(plane, x.channels)].first;
      SumPair& sum = sums[static_cast<std::size_t>(plane)];
      for (std::int64_t i = 0; i < x.cells; ++i) {
        sum.first += dy[plane][i];
        sum.second += dy[plane][i] * (x[plane][i] - mean);
      }
    });
    return sums;
  }

  // This rank's part.
  void find_weight_gradients(const Planes& x, const std::vector<SumPair>& of_planes) {
    for (std::int64_t channel = 0; channel < x.channels; ++channel) {
      SumPair sum;
      for (std::int64_t plane = channel; plane < x.count; plane += x.channels) {
        sum.first += of_planes[static_cast<std::size_t>(plane)].first;
        sum.second +=
            of_planes[static_cast<std::size_t>(plane)].second * moments_[set_of(plane, x.channels)].second;
      }
      tensors_.parameters[0].gradient.data_ptr<float>()[channel] = static_cast<float>(sum.second);
      tensors_.parameters[1].gradient.data_ptr<float>()[channel] = static_cast<float>(sum.first);
    }
  }

  // As BatchNorm in torch_layers.cc.
  void keep_statistics(std::int64_t samples) {
    for (std::size_t channel = 0; channel < moments_.size(); ++channel) {
      tensors_.statistics[0].data_ptr<float>()[channel] =
          static_cast<float>(moments_[channel].first * static_cast<double>(samples));
      tensors_.statistics[1].data_ptr<float>()[channel] =
          static_cast<float>(variances_[channel] * unbiased_ * static_cast<double>(samples));
    }
  }

  Layer layer_;
  LayerTensors tensors_;
  RankGroup& group_;
  std::unique_ptr<TorchLayer> plain_;
  at::Tensor input_;
  std::vector<SumPair> moments_;
  std::vector<double> variances_;  // of each set
  double unbiased_ = 1;            // factor of the variances
};

class SplitGlobalMean final : public UnaryLayer {
 public:
  explicit SplitGlobalMean(const SplitLayerPlan& plan)
      : cells_(static_cast<double>(plan.layer.input.voxels())),
        extent_(plan.in.extent()),
        group_(plan.group) {}

  at::Tensor predict(const at::Tensor& x) override {
    std::vector<double> sums = sums_of_planes(x);
    group_.sum_by_rank(sums);
    for (double& sum : sums) sum /= cells_;
    return as_floats(sums, {x.size(0), x.size(1)});
  }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override { return predict(x); }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    return gradient.div(cells_)
        .view({gradient.size(0), gradient.size(1), 1, 1, 1})
        .expand({gradient.size(0), gradient.size(1), extent_[0], extent_[1], extent_[2]})
        .contiguous();
  }

 private:
  double cells_;
  std::array<std::int64_t, 3> extent_;
  RankGroup& group_;
};

// Cells with the maximum share the gradient, as in libtorch.
class SplitGlobalMax final : public UnaryLayer {
 public:
  explicit SplitGlobalMax(const SplitLayerPlan& plan) : group_(plan.group) {}

  at::Tensor predict(const at::Tensor& x) override { return maximum(x); }
  at::Tensor forward(const at::Tensor& x, const StepKey&) override {
    input_ = x;
    largest_ = maximum(x);
    return largest_;
  }
  at::Tensor backward(const at::Tensor& gradient, bool) override {
    const std::vector<std::int64_t> shape = {gradient.size(0), gradient.size(1), 1, 1, 1};
    const at::Tensor has_it = input_.eq(largest_.view(shape)).to(at::kFloat);
    const at::Tensor own = has_it.sum({2, 3, 4}).contiguous();
    std::vector<double> cells(own.data_ptr<float>(), own.data_ptr<float>() + own.numel());
    group_.sum_by_rank(cells);
    at::Tensor share = gradient.clone().contiguous();
    for (std::size_t i = 0; i < cells.size(); ++i)
      share.data_ptr<float>()[i] = static_cast<float>(share.data_ptr<float>()[i] / cells[i]);
    input_.reset();
    return has_it.mul_(share.view(shape));
  }

 private:
  at::Tensor maximum(const at::Tensor& x) {
    at::Tensor largest = x.amax({2, 3, 4}).contiguous();
    const auto count = static_cast<std::size_t>(largest.numel());
    const std::vector<float> own(largest.data_ptr<float>(), largest.data_ptr<float>() + count);
    const std::vector<float> all = values_of_ranks<float>(group_, own);
    for (std::size_t i = 0; i < all.size(); ++i) {
      float& value = largest.data_ptr<float>()[i % count];
      // Like libtorch, it is NaN where a cell is.
      if (all[i] > value || std::isnan(all[i])) value = all[i];
    }
    return largest;
  }

  RankGroup& group_;
  at::Tensor input_;
  at::Tensor largest_;
};

// The numbers are whole, and so is their gradient: sums over the group's cells.
class SplitFilm final : public TorchLayer {
 public:
  explicit SplitFilm(const SplitLayerPlan& plan) : group_(plan.group) {}

  at::Tensor predict(const Tensors& inputs) override {
    const at::Tensor& x = inputs[0];
    return x * (part(inputs[1], x, 0) + 1) + part(inputs[1], x, 1);
  }
  at::Tensor forward(const Tensors& inputs, const StepKey&) override {
    field_ = inputs[0];
    numbers_ = inputs[1];
    return predict(inputs);
  }
  Tensors backward(const at::Tensor& gradient, const std::vector<bool>& wanted) override {
    Tensors found(2);
    if (wanted[0]) found[0] = gradient * (part(numbers_, field_, 0) + 1);
    if (wanted[1]) found[1] = gradient_of_numbers(Planes(field_), Planes(gradient));
    field_.reset();
    return found;
  }

 private:
  // The scales (0) or shifts (1) of each channel.
  static at::Tensor part(const at::Tensor& numbers, const at::Tensor& x, std::int64_t which) {
    return numbers.narrow(1, which * x.size(1), x.size(1)).reshape({x.size(0), x.size(1), 1, 1, 1});
  }

  at::Tensor gradient_of_numbers(const Planes& x, const Planes& dy) {
    // For each sample the scales of all channels, then their shifts.
    std::vector<double> sums(static_cast<std::size_t>(2 * x.count), 0.0);
    for_each_plane(x, [&](std::int64_t plane) {
      const auto scale = static_cast<std::size_t>(plane + plane / x.channels * x.channels);
      for (std::int64_t i = 0; i < x.cells; ++i) {
        sums[scale] += static_cast<double>(dy[plane][i]) * x[plane][i];
        sums[scale + static_cast<std::size_t>(x.channels)] += dy[plane][i];
      }
    });
    group_.sum_by_rank(sums);
    return as_floats(sums, {x.count / x.channels, 2 * x.channels});
  }

  RankGroup& group_;
  at::Tensor field_;
  at::Tensor numbers_;
};

class SplitSpread final : public TorchLayer {
 public:
  explicit SplitSpread(const SplitLayerPlan& plan) : extent_(plan.out.extent()), group_(plan.group) {}

  at::Tensor predict(const Tensors& inputs) override {
    const at::Tensor& numbers = inputs[0];
    return numbers.reshape({numbers.size(0), numbers.size(1), 1, 1, 1})
        .expand({-1, -1, extent_[0], extent_[1], extent_[2]})
        .contiguous();
  }
  at::Tensor forward(const Tensors& inputs, const StepKey&) override { return predict(inputs); }
  Tensors backward(const at::Tensor& gradient, const std::vector<bool>& wanted) override {
    Tensors found(2);
    if (!wanted[0]) return found;
    std::vector<double> sums = sums_of_planes(gradient);
    group_.sum_by_rank(sums);
    found[0] = as_floats(sums, {gradient.size(0), gradient.size(1)});
    return found;
  }

 private:
  std::array<std::int64_t, 3> extent_;
  RankGroup& group_;
};

}  // namespace

std::unique_ptr<TorchLayer> make_split_sum(const SplitLayerPlan& plan) {
  switch (plan.layer.kind) {
    case LayerKind::batch_norm:
    case LayerKind::group_norm:
      return std::make_unique<SplitNorm>(plan);
    case LayerKind::global_mean:
      return std::make_unique<SplitGlobalMean>(plan);
    case LayerKind::global_max:
      return std::make_unique<SplitGlobalMax>(plan);
    case LayerKind::film:
      return std::make_unique<SplitFilm>(plan);
    case LayerKind::spread:
      return std::make_unique<SplitSpread>(plan);
    default:
      return nullptr;
  }
}

}  // namespace wflow::trainer
