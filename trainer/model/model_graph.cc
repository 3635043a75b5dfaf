// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/model_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "trainer/model/layer_constants.h"

namespace wflow::trainer {
namespace {

std::int64_t recurrent_flops(const Layer& layer) {
  std::int64_t weights = 0;
  for (const ParameterSpec& parameter : layer.parameters) weights += parameter.decays ? parameter.count() : 0;
  return 2 * weights * layer.input.voxels();
}

std::int64_t attention_flops(const Layer& layer) {
  const std::int64_t cells = layer.input.voxels();
  const std::int64_t weights = layer.parameters[0].count() + layer.parameters[2].count();
  return 2 * weights * cells + 4 * layer.input.channels * cells * cells;
}

// Counts the recurrent layer, the hidden one and a head of a mixture, for the longest trace.
std::int64_t trace_flops(const Layer& layer) {
  const std::int64_t units = layer.groups;
  const std::int64_t weights = layer.parameters[1].count() + layer.parameters[2].count() +
                               layer.parameters[5].count() + 3 * layer.components * units;
  return 2 * weights * layer.steps;
}

// Counts the products of matrices that compute it.
std::int64_t spectral_flops(const Layer& layer) {
  const SpectralPlan plan = spectral_plan(layer);
  std::int64_t sum = 4 * layer.parameters[0].count();
  for (const std::vector<SpectralStep>* steps : {&plan.forward, &plan.inverse})
    for (const SpectralStep& step : *steps) sum += 2 * step.rows() * step.matrix.shape[1];
  return sum;
}

std::int64_t sum_counts(const std::vector<ParameterSpec>& specs) {
  return std::accumulate(specs.begin(), specs.end(), std::int64_t{0},
                         [](std::int64_t sum, const ParameterSpec& spec) { return sum + spec.count(); });
}

}  // namespace

std::string text_of(const TensorShape& shape) {
  if (shape.voxels() == 1) return std::to_string(shape.channels);
  const auto& e = shape.extent;
  return fmt::format("{} x {} x {} x {}", shape.channels, e[0], e[1], e[2]);
}

std::int64_t ParameterSpec::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool Layer::in_place() const {
  return kind == LayerKind::leaky_relu || kind == LayerKind::flatten || kind == LayerKind::reshape ||
         kind == LayerKind::dropout || kind == LayerKind::tanh_scale || kind == LayerKind::stop;
}

std::int64_t Layer::forward_flops() const {
  switch (kind) {
    case LayerKind::convolution:
      return 2 * parameters[0].count() * output.voxels();
    case LayerKind::transposed_convolution:
      return 2 * parameters[0].count() * input.voxels();
    case LayerKind::linear:
      return 2 * parameters[0].count();
    case LayerKind::batch_norm:
    case LayerKind::group_norm:
    case LayerKind::layer_norm:
      return 4 * output.count();
    case LayerKind::average_pool:
    case LayerKind::max_pool:
    case LayerKind::global_mean:
    case LayerKind::global_max:
      return input.count();
    case LayerKind::lstm:
    case LayerKind::gru:
      return recurrent_flops(*this);
    case LayerKind::attention:
      return attention_flops(*this);
    case LayerKind::spectral_convolution:
      return spectral_flops(*this);
    case LayerKind::conv_lstm:
      return 2 * (parameters[0].count() + parameters[1].count()) * input.voxels();
    case LayerKind::trace_density:
      return trace_flops(*this);
    case LayerKind::module:  // not known
    case LayerKind::pixel_shuffle:
    case LayerKind::slice:
    case LayerKind::gather:
    case LayerKind::embedding:
    case LayerKind::stop:
    case LayerKind::spread:
    case LayerKind::wrap:
      return 0;
    case LayerKind::film:
    case LayerKind::mix:
      return 2 * output.count();
    case LayerKind::resize:
      return 8 * output.count();
    default:
      return output.count();
  }
}

const TensorShape& ModelGraph::shape_of(std::size_t value) const {
  return value < inputs.size() ? inputs[value].shape : layers.at(value - inputs.size()).output;
}

std::int64_t ModelGraph::output_count() const {
  std::int64_t sum = 0;
  for (const Output& output : outputs) sum += shape_of(output.value).count();
  return sum;
}

namespace {

// Each array once: layers may share them.
std::vector<ParameterSpec> distinct(const std::vector<Layer>& layers,
                                    std::vector<ParameterSpec> Layer::*specs) {
  std::vector<ParameterSpec> all;
  std::set<std::string> names;
  for (const Layer& layer : layers) {
    for (ParameterSpec spec : layer.*specs) {
      if (!names.insert(spec.name).second) continue;
      spec.part = layer.part;
      spec.frozen = layer.frozen;
      all.push_back(std::move(spec));
    }
  }
  return all;
}

}  // namespace

std::vector<ParameterSpec> ModelGraph::parameters() const {
  return distinct(layers, &Layer::parameters);
}

std::vector<ParameterSpec> ModelGraph::buffers() const {
  return distinct(layers, &Layer::buffers);
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
  std::int64_t sum = 0;
  // The border of an input needs no gradient either.
  const auto is_input = [&](std::size_t value) {
    return value < inputs.size() || (layers[value - inputs.size()].kind == LayerKind::wrap &&
                                     layers[value - inputs.size()].inputs.front() < inputs.size());
  };
  for (const Layer& layer : layers) {
    const bool reads_input = std::any_of(layer.inputs.begin(), layer.inputs.end(), is_input);
    sum += (reads_input || layer.frozen ? 2 : 3) * layer.forward_flops();
  }
  return sum;
}

std::string ModelGraph::describe() const {
  std::string out =
      fmt::format("  {:<16} {:<22} {:<22} {:>12} {:>12}\n", "layer", "kind", "output", "parameters", "Mflop");
  for (const Layer& layer : layers) {
    out += fmt::format("  {:<16} {:<22} {:<22} {:>12} {:>12.2f}\n", layer.name, name_of(layer.kind),
                       text_of(layer.output),
                       layer.is_repeated && !layer.parameters.empty()
                           ? std::string("shared")
                           : text::format_count(static_cast<std::uint64_t>(sum_counts(layer.parameters))),
                       static_cast<double>(layer.forward_flops()) * 1e-6);
  }
  return out;
}

void fill_initial(const ParameterSpec& spec, std::uint64_t seed, std::span<float> values,
                  std::int64_t first) {
  WFLOW_CHECK(first + static_cast<std::int64_t>(values.size()) <= spec.count());
  if (spec.initial == Initial::zero || spec.initial == Initial::one) {
    std::fill(values.begin(), values.end(), spec.initial == Initial::one ? 1.0F : 0.0F);
    return;
  }
  const auto begin = static_cast<std::uint64_t>(first);
  std::uint64_t key = seed;
  for (const char c : spec.name) key = hash64(key, static_cast<unsigned char>(c));
  if (spec.initial == Initial::uniform) {
    const double bound = std::sqrt(1.0 / static_cast<double>(spec.fan_in));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(bound * (2 * unit_real(hash64(key, begin + i)) - 1));
    return;
  }
  const double deviation = std::sqrt(2.0 / static_cast<double>(spec.fan_in));
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Box and Muller; 1 - u is never 0.
    const double u = 1 - unit_real(hash64(key, 2 * (begin + i)));
    const double v = unit_real(hash64(key, 2 * (begin + i) + 1));
    values[i] =
        static_cast<float>(deviation * std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
  }
}

}  // namespace wflow::trainer
