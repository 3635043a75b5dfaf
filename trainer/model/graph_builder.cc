// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/graph_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kPreferredGroups = 8;

// More parameters are a mistake in the configuration and would not fit a 32-bit count of an array.
constexpr std::int64_t kMostParameters = std::int64_t{1} << 31;

bool draws_weights(LayerKind kind) {
  return kind == LayerKind::convolution || kind == LayerKind::transposed_convolution ||
         kind == LayerKind::linear;
}

bool is_rectifier(LayerKind kind) {
  return kind == LayerKind::leaky_relu || kind == LayerKind::relu || kind == LayerKind::elu ||
         kind == LayerKind::gelu || kind == LayerKind::silu;
}

// True if a rectifier is the next activation on some path from `value`, through norms, pools and layers that
// only rearrange values.
bool leads_to_rectifier(const ModelGraph& graph, std::size_t value) {
  std::vector<bool> reached(graph.inputs.size() + graph.layers.size(), false);
  reached[value] = true;
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    const Layer& layer = graph.layers[i];
    if (std::ranges::none_of(layer.inputs, [&](std::size_t input) { return reached[input]; })) continue;
    if (is_activation(layer.kind)) {
      if (is_rectifier(layer.kind)) return true;
    } else if (std::ranges::none_of(layer.parameters, &ParameterSpec::decays)) {
      reached[graph.inputs.size() + i] = true;
    }
  }
  return false;
}

// PyTorch takes the second axis of the weights as their inputs, which those of a transposed convolution have
// for the output channels (torch.nn.init._calculate_fan_in_and_fan_out).
std::int64_t fan_in_of_torch(const Layer& layer) {
  const ParameterSpec& weights = layer.parameters[0];
  return layer.kind == LayerKind::transposed_convolution ? weights.count() / weights.shape[0]
                                                         : weights.fan_in;
}

// Cells of padding below and above n cells for ceil(n / stride) windows that span `reach` cells.
std::array<std::int64_t, 2> border_of(std::int64_t n, std::int64_t stride, std::int64_t reach) {
  const std::int64_t pad = std::max<std::int64_t>(0, ((n + stride - 1) / stride - 1) * stride + reach - n);
  return {pad / 2, pad - pad / 2};
}

}  // namespace

void refuse(const std::string& sentence) {
  throw Error(ExitCode::spec, sentence);
}

GraphBuilder::GraphBuilder(std::vector<NamedShape> inputs, const std::vector<TensorShape>& fields) {
  graph_.inputs = std::move(inputs);
  for (std::size_t axis = 0; axis < 3; ++axis) {
    for (const NamedShape& input : graph_.inputs) flat_[axis] = flat_[axis] && input.shape.extent[axis] == 1;
    for (const TensorShape& field : fields) flat_[axis] = flat_[axis] && field.extent[axis] == 1;
  }
}

const std::string& GraphBuilder::name_of(Value value) const {
  const std::size_t inputs = graph_.inputs.size();
  return value < inputs ? graph_.inputs[value].name : graph_.layers[value - inputs].name;
}

std::array<std::int64_t, 3> GraphBuilder::along_axes(std::int64_t size) const {
  return {flat_[0] ? 1 : size, flat_[1] ? 1 : size, flat_[2] ? 1 : size};
}

Layer GraphBuilder::begin(LayerKind kind, std::string name, std::vector<Value> from) const {
  Layer layer;
  layer.kind = kind;
  layer.name = std::move(name);
  layer.part = part_;
  layer.inputs = std::move(from);
  layer.input = layer.output = shape(layer.inputs.front());
  return layer;
}

GraphBuilder::Value GraphBuilder::push(Layer layer) {
  for (const ParameterSpec& spec : layer.parameters) {
    if (spec.count() <= kMostParameters) continue;
    refuse(fmt::format(
        "the layer '{}' would have {} weights, as it reads {} from '{}'; pool or use fewer units before it",
        layer.name, spec.count(), text_of(layer.input), name_of(layer.inputs.front())));
  }
  graph_.layers.push_back(std::move(layer));
  return graph_.inputs.size() + graph_.layers.size() - 1;
}

void GraphBuilder::need_vector(const Layer& layer) const {
  if (layer.input.voxels() == 1) return;
  refuse(fmt::format(
      "the {} layer '{}' takes a vector, and '{}' gives a field of {}; put flatten or global_mean "
      "between them",
      trainer::name_of(layer.kind), layer.name, name_of(layer.inputs.front()), text_of(layer.input)));
}

void GraphBuilder::need_equal_extents(const Layer& layer, bool channels_too) const {
  for (const Value value : layer.inputs) {
    const TensorShape& other = shape(value);
    if (other.extent == layer.input.extent && (!channels_too || other.channels == layer.input.channels))
      continue;
    refuse(
        fmt::format("the {} layer '{}' needs {} of its inputs to be equal: '{}' gives {} and '{}' gives {}",
                    trainer::name_of(layer.kind), layer.name, channels_too ? "channels and cells" : "cells",
                    name_of(layer.inputs.front()), text_of(layer.input), name_of(value), text_of(other)));
  }
}

void GraphBuilder::need_divisible_channels(const Layer& layer) const {
  const bool reads = layer.input.channels % layer.groups != 0;
  if (!reads && layer.output.channels % layer.groups == 0) return;
  refuse(fmt::format("the convolution '{}' can't divide the {} channels {} into {} groups", layer.name,
                     reads ? layer.input.channels : layer.output.channels,
                     reads ? fmt::format("of '{}'", name_of(layer.inputs.front())) : "that it gives",
                     layer.groups));
}

GraphBuilder::Value GraphBuilder::convolution(std::string name, Value from, std::int64_t channels,
                                              const Window& window) {
  if (window.padding == Padding::periodic) {
    Window inside = window;
    inside.padding = Padding::valid;
    const Value wrapped = wrap(name, from, window);
    return convolution(std::move(name), wrapped, channels, inside);
  }
  Layer layer = begin(LayerKind::convolution, std::move(name), {from});
  layer.output.channels = channels;
  layer.groups = window.groups;
  need_divisible_channels(layer);
  std::int64_t fan_in = layer.input.channels / layer.groups;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t n = layer.input.extent[axis];
    const std::int64_t k = flat_[axis] ? 1 : window.kernel;
    const std::int64_t stride = flat_[axis] ? 1 : window.stride;
    layer.kernel[axis] = k;
    layer.stride[axis] = stride;
    if (k > 1) layer.dilation[axis] = window.dilation;
    const std::int64_t reach = layer.reach(axis);
    if (window.padding == Padding::same) {
      const auto [low, high] = border_of(n, stride, reach);
      layer.pad_low[axis] = low;
      layer.pad_high[axis] = high;
    }
    const std::int64_t padded = n + layer.pad_low[axis] + layer.pad_high[axis];
    if (padded < reach) {
      refuse(fmt::format(
          "the window of the convolution '{}' has {} cells along an axis and '{}' gives {}; use a smaller "
          "kernel or 'padding: same'",
          layer.name, reach, name_of(from), text_of(layer.input)));
    }
    layer.output.extent[axis] = (padded - reach) / stride + 1;
    fan_in *= k;
  }
  const auto& k = layer.kernel;
  layer.parameters.push_back({layer.name + ".weight",
                              {channels, layer.input.channels / layer.groups, k[0], k[1], k[2]},
                              Initial::he_normal,
                              fan_in,
                              true});
  if (window.bias) layer.parameters.push_back({layer.name + ".bias", {channels}, Initial::zero, 1, false});
  return push(std::move(layer));
}

// Returns `from` for windows that need no border.
GraphBuilder::Value GraphBuilder::wrap(const std::string& convolution, Value from, const Window& window) {
  Layer layer = begin(LayerKind::wrap, convolution + ".wrap", {from});
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (flat_[axis]) continue;
    const std::int64_t n = layer.input.extent[axis];
    const auto [low, high] = border_of(n, window.stride, (window.kernel - 1) * window.dilation + 1);
    if (high > n) {
      refuse(
          fmt::format("the convolution '{}' needs a border of {} cells, and '{}' gives {}: a periodic border "
                      "can't be wider than the field; use a smaller kernel or dilation, or 'padding: same'",
                      convolution, high, name_of(from), text_of(layer.input)));
    }
    layer.pad_low[axis] = low;
    layer.pad_high[axis] = high;
    layer.output.extent[axis] = low + n + high;
  }
  return layer.output == layer.input ? from : push(std::move(layer));
}

// Without padding, n cells become (n - 1) * stride + kernel. With kernel = stride that is n * stride, each
// output cell from one input cell. `same` cuts off what is beyond n * stride, the larger part at the
// beginning.
GraphBuilder::Value GraphBuilder::transposed_convolution(std::string name, Value from, std::int64_t channels,
                                                         const Window& window) {
  Layer layer = begin(LayerKind::transposed_convolution, std::move(name), {from});
  std::int64_t fan_in = layer.input.channels;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t k = flat_[axis] ? 1 : window.kernel;
    const std::int64_t stride = flat_[axis] ? 1 : window.stride;
    layer.kernel[axis] = k;
    layer.stride[axis] = stride;
    const std::int64_t beyond = window.padding == Padding::same ? k - stride : 0;
    if (beyond < 0) {
      refuse(
          fmt::format("the transposed convolution '{}' with 'padding: same' needs a kernel of at least its "
                      "stride, {} cells",
                      layer.name, stride));
    }
    layer.pad_low[axis] = beyond - beyond / 2;
    layer.pad_high[axis] = beyond / 2;
    layer.output.extent[axis] = (layer.input.extent[axis] - 1) * stride + k - beyond;
    fan_in *= std::max<std::int64_t>(1, k / stride);  // inputs that an output cell depends on
  }
  layer.output.channels = channels;
  const auto& k = layer.kernel;
  layer.parameters.push_back({layer.name + ".weight",
                              {layer.input.channels, channels, k[0], k[1], k[2]},
                              Initial::he_normal,
                              fan_in,
                              true});
  if (window.bias) layer.parameters.push_back({layer.name + ".bias", {channels}, Initial::zero, 1, false});
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::norm(std::string name, Value from, Norm norm, std::int64_t groups) {
  if (norm == Norm::none) return from;
  Layer layer =
      begin(norm == Norm::batch ? LayerKind::batch_norm : LayerKind::group_norm, std::move(name), {from});
  const std::int64_t channels = layer.input.channels;
  const std::vector<std::int64_t> shape = {channels};
  layer.parameters.push_back({layer.name + ".scale", shape, Initial::one, 1, false});
  layer.parameters.push_back({layer.name + ".shift", shape, Initial::zero, 1, false});
  if (norm == Norm::batch) {
    layer.buffers.push_back({layer.name + ".running_mean", shape, Initial::zero, 1, false});
    layer.buffers.push_back({layer.name + ".running_variance", shape, Initial::one, 1, false});
  } else {
    layer.groups = groups > 0 ? groups : std::gcd(channels, kPreferredGroups);
    if (channels % layer.groups != 0) {
      refuse(fmt::format("the group norm '{}' can't divide the {} channels of '{}' into {} groups",
                         layer.name, channels, name_of(from), layer.groups));
    }
  }
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::instance_norm(std::string name, Value from) {
  const TensorShape& field = shape(from);
  if (field.voxels() == 1) {
    refuse(fmt::format(
        "the instance_norm '{}' takes mean and deviation over the cells of a field, and '{}' gives {} "
        "numbers; use layer_norm",
        name, name_of(from), field.channels));
  }
  return norm(std::move(name), from, Norm::group, field.channels);
}

GraphBuilder::Value GraphBuilder::layer_norm(std::string name, Value from) {
  Layer layer = begin(LayerKind::layer_norm, std::move(name), {from});
  const std::vector<std::int64_t> shape = {layer.input.channels};
  layer.parameters.push_back({layer.name + ".scale", shape, Initial::one, 1, false});
  layer.parameters.push_back({layer.name + ".shift", shape, Initial::zero, 1, false});
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::linear(std::string name, Value from, std::int64_t size) {
  Layer layer = begin(LayerKind::linear, std::move(name), {from});
  need_vector(layer);
  const std::int64_t in = layer.input.channels;
  layer.parameters.push_back({layer.name + ".weight", {size, in}, Initial::he_normal, in, true});
  layer.parameters.push_back({layer.name + ".bias", {size}, Initial::zero, 1, false});
  layer.output.channels = size;
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::pointwise(LayerKind kind, std::string name, Value from, double value) {
  Layer layer = begin(kind, std::move(name), {from});
  layer.value = value;
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::pool(LayerKind kind, std::string name, Value from,
                                       const std::array<std::int64_t, 3>& kernel) {
  Layer layer = begin(kind, std::move(name), {from});
  layer.kernel = layer.stride = kernel;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (layer.input.extent[axis] < kernel[axis]) {
      refuse(fmt::format("the {} '{}' has windows of {} cells and '{}' gives {}", trainer::name_of(kind),
                         layer.name, kernel[axis], name_of(from), text_of(layer.input)));
    }
    layer.output.extent[axis] /= kernel[axis];
  }
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::upsample(std::string name, Value from, std::int64_t factor) {
  Layer layer = begin(LayerKind::upsample, std::move(name), {from});
  layer.kernel = along_axes(factor);
  for (std::size_t axis = 0; axis < 3; ++axis) layer.output.extent[axis] *= layer.kernel[axis];
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::resize(std::string name, Value from,
                                         const std::array<std::int64_t, 3>& extent) {
  Layer layer = begin(LayerKind::resize, std::move(name), {from});
  layer.output.extent = extent;
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::pixel_shuffle(std::string name, Value from, std::int64_t factor) {
  Layer layer = begin(LayerKind::pixel_shuffle, std::move(name), {from});
  layer.kernel = along_axes(factor);
  const std::int64_t cells = layer.kernel[0] * layer.kernel[1] * layer.kernel[2];
  if (layer.input.channels % cells != 0) {
    refuse(fmt::format(
        "the pixel_shuffle '{}' makes {} cells of as many channels, and '{}' gives {} channels, which is no "
        "multiple",
        layer.name, cells, name_of(from), layer.input.channels));
  }
  layer.output.channels /= cells;
  for (std::size_t axis = 0; axis < 3; ++axis) layer.output.extent[axis] *= layer.kernel[axis];
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::slice(std::string name, Value from, LayerAxis axis, std::int64_t first,
                                        std::int64_t end) {
  Layer layer = begin(LayerKind::slice, std::move(name), {from});
  layer.axis = static_cast<std::size_t>(axis);
  layer.first = first;
  std::int64_t& size = layer.axis == 0 ? layer.output.channels : layer.output.extent[layer.axis - 1];
  if (first < 0 || first >= end || end > size) {
    refuse(fmt::format("the slice '{}' takes {} to {} of the {} {} of '{}', which are numbered 0 to {}",
                       layer.name, first, end - 1, size, layer.axis == 0 ? "channels" : "cells",
                       name_of(from), size - 1));
  }
  size = end - first;
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::gather(std::string name, Value from, std::vector<std::int64_t> channels) {
  Layer layer = begin(LayerKind::gather, std::move(name), {from});
  for (const std::int64_t channel : channels) {
    if (channel >= 0 && channel < layer.input.channels) continue;
    refuse(fmt::format("the gather '{}' takes channel {} of '{}', whose channels are 0 to {}", layer.name,
                       channel, name_of(from), layer.input.channels - 1));
  }
  layer.output.channels = static_cast<std::int64_t>(channels.size());
  layer.channels = std::move(channels);
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::embedding(std::string name, Value from, std::int64_t classes,
                                            std::int64_t size) {
  Layer layer = begin(LayerKind::embedding, std::move(name), {from});
  if (from >= graph_.inputs.size() || layer.input.channels != 1) {
    refuse(fmt::format(
        "the embedding '{}' reads class numbers: 'from' must name an input of one channel, and '{}' is {}",
        layer.name, name_of(from),
        from >= graph_.inputs.size() ? "a layer"
                                     : fmt::format("an input of {} channels", layer.input.channels)));
  }
  layer.output.channels = size;
  // A normal distribution of variance 1, as in PyTorch.
  layer.parameters.push_back({layer.name + ".weight", {classes, size}, Initial::he_normal, 2, true});
  layer.parameters.back().used_alone.assign(static_cast<std::size_t>(classes), size);
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::flatten(std::string name, Value from) {
  Layer layer = begin(LayerKind::flatten, std::move(name), {from});
  layer.output = {layer.input.count(), {1, 1, 1}};
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::global_pool(LayerKind kind, std::string name, Value from) {
  Layer layer = begin(kind, std::move(name), {from});
  layer.output.extent = {1, 1, 1};
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::softmax(std::string name, Value from) {
  return push(begin(LayerKind::softmax, std::move(name), {from}));
}

GraphBuilder::Value GraphBuilder::reshape(std::string name, Value from, const TensorShape& shape) {
  Layer layer = begin(LayerKind::reshape, std::move(name), {from});
  if (shape.count() != layer.input.count()) {
    refuse(fmt::format("the reshape '{}' makes {} ({} values) of '{}', which gives {} values", layer.name,
                       text_of(shape), shape.count(), name_of(from), layer.input.count()));
  }
  layer.output = shape;
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::add(std::string name, const std::vector<Value>& from) {
  Layer layer = begin(LayerKind::add, std::move(name), from);
  need_equal_extents(layer, true);
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::concatenate(std::string name, const std::vector<Value>& from) {
  Layer layer = begin(LayerKind::concatenate, std::move(name), from);
  need_equal_extents(layer, false);
  layer.output.channels = 0;
  for (const Value value : from) layer.output.channels += shape(value).channels;
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::sample(std::string name, Value mean, Value log_variance) {
  Layer layer = begin(LayerKind::sample, std::move(name), {mean, log_variance});
  need_vector(layer);
  need_equal_extents(layer, true);
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::stop(std::string name, Value from) {
  return push(begin(LayerKind::stop, std::move(name), {from}));
}

GraphBuilder::Value GraphBuilder::subtract(std::string name, Value from, Value other) {
  Layer layer = begin(LayerKind::subtract, std::move(name), {from, other});
  need_equal_extents(layer, true);
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::mix(std::string name, Value from, Value other) {
  Layer layer = begin(LayerKind::mix, std::move(name), {from, other});
  need_equal_extents(layer, true);
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::film(std::string name, Value field, Value numbers) {
  Layer layer = begin(LayerKind::film, std::move(name), {field, numbers});
  if (shape(numbers) != TensorShape{2 * layer.input.channels, {1, 1, 1}}) {
    refuse(fmt::format(
        "the film layer '{}' needs {} numbers, a scale and a shift for each channel of '{}', and "
        "'{}' gives {}",
        layer.name, 2 * layer.input.channels, name_of(field), name_of(numbers), text_of(shape(numbers))));
  }
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::spread(std::string name, Value numbers, Value field) {
  Layer layer = begin(LayerKind::spread, std::move(name), {numbers, field});
  need_vector(layer);
  layer.output.extent = shape(field).extent;
  return push(std::move(layer));
}

void GraphBuilder::share_weights(Value original) {
  const Layer& owner = graph_.layers.at(original - graph_.inputs.size());
  Layer& layer = graph_.layers.back();
  const auto take = [&](const std::vector<ParameterSpec>& from, std::vector<ParameterSpec>& to) {
    WFLOW_CHECK(from.size() == to.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (from[i].shape != to[i].shape) {
        refuse(fmt::format("'apply' uses the weights of '{}', which reads {}, where the layer '{}' reads {}",
                           owner.name, text_of(owner.input), layer.name, text_of(layer.input)));
      }
      to[i].name = from[i].name;
    }
  };
  take(owner.parameters, layer.parameters);
  take(owner.buffers, layer.buffers);
  layer.init = owner.init;
  layer.part = owner.part;
  layer.is_repeated = true;
  const Value from = layer.inputs.front();
  if (from < graph_.inputs.size()) return;
  Layer& before = graph_.layers[from - graph_.inputs.size()];
  if (before.kind == LayerKind::wrap) before.part = owner.part;
}

void choose_initial_weights(ModelGraph& graph, InitialWeights rule) {
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    Layer& layer = graph.layers[i];
    if (!draws_weights(layer.kind)) continue;
    Initial weights = Initial::uniform;
    Initial biases = Initial::uniform;
    const bool zero = layer.init == LayerInit::zero;
    const bool by_rule = layer.init == LayerInit::automatic;
    const bool he = layer.init == LayerInit::he ||
                    (by_rule && (rule == InitialWeights::he || rule == InitialWeights::data));
    if (zero || he) {
      weights = he ? Initial::he_normal : Initial::zero;
      biases = Initial::zero;
    } else if (by_rule && rule == InitialWeights::automatic && layer.kind != LayerKind::linear &&
               leads_to_rectifier(graph, graph.inputs.size() + i)) {
      weights = Initial::he_normal;
    }
    const std::int64_t uniform_fan_in = fan_in_of_torch(layer);
    layer.parameters[0].initial = weights;
    if (weights == Initial::uniform) layer.parameters[0].fan_in = uniform_fan_in;
    if (layer.parameters.size() < 2) continue;
    layer.parameters[1].initial = biases;
    layer.parameters[1].fan_in = uniform_fan_in;
  }
}

}  // namespace wflow::trainer
