// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/model_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kSmallestPooled = 8;  // an axis is halved while it has so many cells: down to 4 to 7
constexpr double kTanhScale = 1.2;           // MLPerf: targets lie in [-1, 1], outputs may overshoot a little

// Adds layers at the end and keeps count of the shape.
class Builder {
 public:
  Builder(const ModelConfig& config, const TensorShape& input) : config_(config), shape_(input) {
    graph_.input = input;
  }

  const TensorShape& shape() const { return shape_; }

  void convolution(std::int64_t channels, std::int64_t size) {
    Layer layer = begin(LayerKind::convolution, fmt::format("conv{}", ++convolutions_));
    std::int64_t fan_in = shape_.channels;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::int64_t k = shape_.extent[axis] == 1 ? 1 : size;
      layer.kernel[axis] = k;
      layer.pad_low[axis] = (k - 1) / 2;
      layer.pad_high[axis] = k / 2;
      fan_in *= k;
    }
    const auto& k = layer.kernel;
    layer.parameters.push_back({layer.name + ".weight",
                                {channels, shape_.channels, k[0], k[1], k[2]},
                                Initial::he_normal,
                                fan_in,
                                true});
    // A norm subtracts the mean: a bias before it has no effect.
    if (!config_.batch_norm)
      layer.parameters.push_back({layer.name + ".bias", {channels}, Initial::zero, 1, false});
    shape_.channels = channels;
    push(std::move(layer));
  }

  void norm() {
    if (!config_.batch_norm) return;
    Layer layer = begin(LayerKind::batch_norm, fmt::format("norm{}", convolutions_));
    const std::vector<std::int64_t> shape = {shape_.channels};
    layer.parameters.push_back({layer.name + ".scale", shape, Initial::one, 1, false});
    layer.parameters.push_back({layer.name + ".shift", shape, Initial::zero, 1, false});
    layer.buffers.push_back({layer.name + ".running_mean", shape, Initial::zero, 1, false});
    layer.buffers.push_back({layer.name + ".running_variance", shape, Initial::one, 1, false});
    push(std::move(layer));
  }

  void leaky(const std::string& after) {
    Layer layer = begin(LayerKind::leaky_relu, after + ".leaky");
    layer.value = config_.leaky_slope;
    push(std::move(layer));
  }

  bool can_pool() const {
    return std::any_of(shape_.extent.begin(), shape_.extent.end(),
                       [](auto n) { return n >= kSmallestPooled; });
  }

  void pool(LayerKind kind) {
    Layer layer = begin(kind, fmt::format("pool{}", convolutions_));
    for (std::size_t axis = 0; axis < 3; ++axis) {
      layer.kernel[axis] = shape_.extent[axis] >= kSmallestPooled ? 2 : 1;
      shape_.extent[axis] /= layer.kernel[axis];
    }
    push(std::move(layer));
  }

  void to_vector(LayerKind kind) {
    Layer layer = begin(kind, kind == LayerKind::flatten ? "flatten" : "global_mean");
    shape_ = {kind == LayerKind::flatten ? shape_.count() : shape_.channels, {1, 1, 1}};
    push(std::move(layer));
  }

  void linear(std::int64_t size, bool last) {
    Layer layer = begin(LayerKind::linear, last ? "out" : fmt::format("dense{}", ++linears_));
    layer.parameters.push_back(
        {layer.name + ".weight", {size, shape_.channels}, Initial::he_normal, shape_.channels, true});
    layer.parameters.push_back({layer.name + ".bias", {size}, Initial::zero, 1, false});
    shape_.channels = size;
    push(std::move(layer));
  }

  ModelGraph head(std::int64_t outputs) {
    for (const std::int64_t size : config_.dense) {
      linear(size, false);
      leaky(fmt::format("dense{}", linears_));
      if (config_.dropout > 0) {
        Layer layer = begin(LayerKind::dropout, fmt::format("dropout{}", linears_));
        layer.value = config_.dropout;
        push(std::move(layer));
      }
    }
    linear(outputs, true);
    if (config_.tanh_output) {
      Layer layer = begin(LayerKind::tanh_scale, "tanh");
      layer.value = kTanhScale;
      push(std::move(layer));
    }
    graph_.outputs = outputs;
    return std::move(graph_);
  }

  std::string convolution_name() const { return fmt::format("conv{}", convolutions_); }

 private:
  Layer begin(LayerKind kind, std::string name) const {
    Layer layer;
    layer.kind = kind;
    layer.name = std::move(name);
    layer.input = shape_;
    return layer;
  }
  void push(Layer layer) {
    layer.output = shape_;
    graph_.layers.push_back(std::move(layer));
  }

  const ModelConfig& config_;
  TensorShape shape_;
  ModelGraph graph_;
  int convolutions_ = 0;
  int linears_ = 0;
};

// research/cosmology.md section 5: (conv, norm, leaky, average pool) down to 4 cells an axis, one more conv,
// the mean over the box (the field is homogeneous), a small head.
ModelGraph build_cosmoflow(const ModelConfig& config, Builder builder, std::int64_t outputs) {
  std::int64_t channels = config.width;
  for (; builder.can_pool(); channels *= 2) {
    builder.convolution(channels, 3);
    builder.norm();
    builder.leaky(builder.convolution_name());
    builder.pool(LayerKind::average_pool);
  }
  builder.convolution(channels, 3);
  builder.norm();
  builder.leaky(builder.convolution_name());
  builder.to_vector(LayerKind::global_mean);
  return builder.head(outputs);
}

// MLPerf HPC's reference. Leaky ReLU grows with its argument, so that it and the maximum may change places:
// behind the pool it has an eighth of the work.
ModelGraph build_mlperf(const ModelConfig& config, Builder builder, std::int64_t outputs) {
  std::int64_t channels = config.width;
  for (; builder.can_pool(); channels *= 2) {
    builder.convolution(channels, 3);
    builder.norm();
    builder.pool(LayerKind::max_pool);
    builder.leaky(builder.convolution_name());
  }
  builder.to_vector(LayerKind::flatten);
  return builder.head(outputs);
}

// The SC18 network (arXiv 1808.04728): seven convolutions with channels in multiples of 16 and kernels of 2
// to 4, average pooling behind the first ones, three dense layers. The paper's table is not at hand; this
// one has 7.07 M parameters and 68.1 Gflop a sample at 128^3, the paper 7.04 M and 69.3.
ModelGraph build_sc18(const ModelConfig& config, Builder builder, std::int64_t outputs) {
  constexpr std::array<std::int64_t, 7> kFactors = {1, 2, 4, 4, 8, 16, 16};
  constexpr std::array<std::int64_t, 7> kKernels = {3, 4, 3, 2, 2, 3, 3};
  for (std::size_t i = 0; i < kFactors.size(); ++i) {
    builder.convolution(config.width * kFactors[i], kKernels[i]);
    builder.norm();
    builder.leaky(builder.convolution_name());
    if (i < 5 && builder.can_pool()) builder.pool(LayerKind::average_pool);
  }
  builder.to_vector(LayerKind::flatten);
  return builder.head(outputs);
}

const char* word_of(LayerKind kind) {
  switch (kind) {
    case LayerKind::convolution:
      return "convolution";
    case LayerKind::batch_norm:
      return "batch norm";
    case LayerKind::leaky_relu:
      return "leaky ReLU";
    case LayerKind::average_pool:
      return "average pool";
    case LayerKind::max_pool:
      return "max pool";
    case LayerKind::flatten:
      return "flatten";
    case LayerKind::global_mean:
      return "global mean";
    case LayerKind::linear:
      return "dense";
    case LayerKind::dropout:
      return "dropout";
    case LayerKind::tanh_scale:
      return "tanh";
  }
  return "?";
}

std::string text_of(const TensorShape& shape) {
  if (shape.voxels() == 1) return std::to_string(shape.channels);
  const auto& e = shape.extent;
  return fmt::format("{} x {} x {} x {}", shape.channels, e[0], e[1], e[2]);
}

std::int64_t sum_counts(const std::vector<ParameterSpec>& specs) {
  return std::accumulate(specs.begin(), specs.end(), std::int64_t{0},
                         [](std::int64_t sum, const ParameterSpec& spec) { return sum + spec.count(); });
}

}  // namespace

std::int64_t ParameterSpec::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool Layer::in_place() const {
  return kind == LayerKind::leaky_relu || kind == LayerKind::flatten || kind == LayerKind::dropout ||
         kind == LayerKind::tanh_scale;
}

std::int64_t Layer::forward_flops() const {
  switch (kind) {
    case LayerKind::convolution:
      return 2 * parameters[0].count() * output.voxels();
    case LayerKind::linear:
      return 2 * parameters[0].count();
    case LayerKind::batch_norm:
      return 4 * output.count();
    case LayerKind::average_pool:
    case LayerKind::max_pool:
    case LayerKind::global_mean:
      return input.count();
    default:
      return output.count();
  }
}

std::vector<ParameterSpec> ModelGraph::parameters() const {
  std::vector<ParameterSpec> all;
  for (const Layer& layer : layers) all.insert(all.end(), layer.parameters.begin(), layer.parameters.end());
  return all;
}

std::vector<ParameterSpec> ModelGraph::buffers() const {
  std::vector<ParameterSpec> all;
  for (const Layer& layer : layers) all.insert(all.end(), layer.buffers.begin(), layer.buffers.end());
  return all;
}

std::int64_t ModelGraph::parameter_count() const {
  return sum_counts(parameters());
}

std::int64_t ModelGraph::forward_flops() const {
  std::int64_t sum = 0;
  for (const Layer& layer : layers) sum += layer.forward_flops();
  return sum;
}

std::int64_t ModelGraph::training_flops() const {
  return 3 * forward_flops() - (layers.empty() ? 0 : layers.front().forward_flops());
}

std::int64_t ModelGraph::activation_bytes() const {
  std::int64_t values = input.count();
  for (const Layer& layer : layers) values += layer.in_place() ? 0 : 2 * layer.output.count();
  return values * static_cast<std::int64_t>(sizeof(float));
}

std::string ModelGraph::describe() const {
  std::string out =
      fmt::format("  {:<14} {:<13} {:<22} {:>12} {:>12}\n", "layer", "kind", "output", "parameters", "Mflop");
  for (const Layer& layer : layers) {
    out += fmt::format("  {:<14} {:<13} {:<22} {:>12} {:>12.2f}\n", layer.name, word_of(layer.kind),
                       text_of(layer.output),
                       text::format_count(static_cast<std::uint64_t>(sum_counts(layer.parameters))),
                       static_cast<double>(layer.forward_flops()) * 1e-6);
  }
  return out;
}

ModelGraph build_model(const ModelConfig& config, const TensorShape& input, std::int64_t outputs) {
  Builder builder(config, input);
  if (!builder.can_pool()) {
    throw Error(ExitCode::spec,
                fmt::format("the network '{}' needs an input of at least {} cells along one axis; "
                            "the samples are {}",
                            name_of(config.name), kSmallestPooled, text_of(input)));
  }
  switch (config.name) {
    case ModelName::cosmoflow:
      return build_cosmoflow(config, std::move(builder), outputs);
    case ModelName::sc18:
      return build_sc18(config, std::move(builder), outputs);
    case ModelName::mlperf:
      return build_mlperf(config, std::move(builder), outputs);
  }
  WFLOW_CHECK(false);
  return {};
}

void fill_initial(const ParameterSpec& spec, std::uint64_t seed, std::span<float> values) {
  WFLOW_CHECK(static_cast<std::int64_t>(values.size()) == spec.count());
  if (spec.initial != Initial::he_normal) {
    std::fill(values.begin(), values.end(), spec.initial == Initial::one ? 1.0F : 0.0F);
    return;
  }
  std::uint64_t key = seed;
  for (const char c : spec.name) key = hash64(key, static_cast<unsigned char>(c));
  const double deviation = std::sqrt(2.0 / static_cast<double>(spec.fan_in));
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Box and Muller; 1 - u is never 0.
    const double u = 1 - unit_real(hash64(key, 2 * i));
    const double v = unit_real(hash64(key, 2 * i + 1));
    values[i] =
        static_cast<float>(deviation * std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
  }
}

}  // namespace wflow::trainer
