// SPDX-License-Identifier: Apache-2.0
// Recurrent, attention and spectral layers of GraphBuilder.
#include <fmt/format.h>

#include "traces/proposal_network.h"
#include "trainer/model/graph_builder.h"

namespace wflow::trainer {
namespace {

// Uniform as PyTorch's: the bound depends on `fan_in`, for the bias too.
ParameterSpec drawn(std::string name, std::vector<std::int64_t> shape, std::int64_t fan_in, bool weight) {
  return {std::move(name), std::move(shape), Initial::uniform, fan_in, weight};
}

}  // namespace

void GraphBuilder::need_field(const Layer& layer) const {
  if (layer.input.voxels() > 1) return;
  refuse(fmt::format("the {} layer '{}' takes a field, and '{}' gives {} numbers; put reshape between them",
                     trainer::name_of(layer.kind), layer.name, name_of(layer.inputs.front()),
                     layer.input.channels));
}

void GraphBuilder::need_mask(const Layer& layer) const {
  if (layer.inputs.size() < 2) return;
  const Value mask = layer.inputs[1];
  if (mask >= graph_.inputs.size()) {
    refuse(fmt::format("the {} layer '{}' reads its mask from '{}': a mask must be an input of the network",
                       trainer::name_of(layer.kind), layer.name, name_of(mask)));
  }
  if (shape(mask) == TensorShape{1, layer.input.extent}) return;
  refuse(fmt::format(
      "the mask '{}' of the {} layer '{}' has {} and '{}' gives {}; a mask has one channel and the "
      "same cells",
      name_of(mask), trainer::name_of(layer.kind), layer.name, text_of(shape(mask)),
      name_of(layer.inputs.front()), text_of(layer.input)));
}

GraphBuilder::Value GraphBuilder::recurrent(LayerKind kind, std::string name, const std::vector<Value>& from,
                                            std::int64_t units, const Steps& steps) {
  Layer layer = begin(kind, std::move(name), from);
  const auto& e = layer.input.extent;
  if (e[0] > 1 || e[1] > 1 || e[2] == 1) {
    refuse(
        fmt::format("the {} layer '{}' reads a series [channels, steps], and '{}' gives {}; put reshape "
                    "between them",
                    trainer::name_of(kind), layer.name, name_of(from.front()), text_of(layer.input)));
  }
  need_mask(layer);
  const std::int64_t gates = (kind == LayerKind::lstm ? 4 : 3) * units;
  for (const char* direction : {"", "_reverse"}) {
    if (*direction != '\0' && !steps.bidirectional) continue;
    const auto add = [&](const char* part, std::vector<std::int64_t> shape, bool weight) {
      layer.parameters.push_back(
          drawn(fmt::format("{}.{}{}", layer.name, part, direction), std::move(shape), units, weight));
    };
    add("weight_ih", {gates, layer.input.channels}, true);
    add("weight_hh", {gates, units}, true);
    add("bias_ih", {gates}, false);
    add("bias_hh", {gates}, false);
  }
  layer.bidirectional = steps.bidirectional;
  layer.every_step = steps.output == StepOutput::sequence;
  layer.output.channels = (steps.bidirectional ? 2 : 1) * units;
  if (!layer.every_step) layer.output.extent = {1, 1, 1};
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::attention(std::string name, const std::vector<Value>& from,
                                            std::int64_t heads) {
  Layer layer = begin(LayerKind::attention, std::move(name), from);
  need_field(layer);
  need_mask(layer);
  const std::int64_t channels = layer.input.channels;
  if (channels % heads != 0) {
    refuse(fmt::format("the attention layer '{}' can't divide the {} channels of '{}' among {} heads",
                       layer.name, channels, name_of(from.front()), heads));
  }
  layer.groups = heads;
  layer.parameters.push_back(drawn(layer.name + ".in_weight", {3 * channels, channels}, channels, true));
  layer.parameters.push_back(drawn(layer.name + ".in_bias", {3 * channels}, channels, false));
  layer.parameters.push_back(drawn(layer.name + ".out_weight", {channels, channels}, channels, true));
  layer.parameters.push_back(drawn(layer.name + ".out_bias", {channels}, channels, false));
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::trace_density(std::string name, Value from, Value trace, std::int64_t units,
                                                std::int64_t components) {
  Layer layer = begin(LayerKind::trace_density, std::move(name), {from, trace});
  need_vector(layer);
  const TensorShape& rows = shape(trace);
  if (trace >= graph_.inputs.size() || rows.channels != static_cast<std::int64_t>(traces::kRowValues))
    refuse(
        fmt::format("the trace_density '{}' reads a trace: its second value must be an input of {} "
                    "channels, and '{}' is {} of {}",
                    layer.name, traces::kRowValues, name_of(trace),
                    trace >= graph_.inputs.size() ? "a layer" : "an input", text_of(rows)));
  if (addresses_ == nullptr)
    refuse(
        fmt::format("the trace_density '{}' needs the addresses of the traces, and the data set has no {}: "
                    "convert the traces of a plugin (docs/traces.md)",
                    layer.name, traces::kAddressFile));
  layer.addresses = addresses_;
  layer.components = components;
  layer.groups = units;
  layer.steps = rows.voxels();
  const traces::ProposalNetwork::Sizes sizes = {static_cast<std::size_t>(layer.input.channels),
                                                static_cast<std::size_t>(units),
                                                static_cast<std::size_t>(components)};
  const auto shapes = traces::ProposalNetwork::shapes(sizes, *addresses_);
  constexpr const char* kNames[] = {"address",       "weight_ih",   "weight_hh",   "bias_ih",  "bias_hh",
                                    "hidden_weight", "hidden_bias", "head_weight", "head_bias"};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const bool weight = shapes[i].size() > 1;
    layer.parameters.push_back(
        drawn(fmt::format("{}.{}", layer.name, kNames[i]), shapes[i], i == 0 ? 1 : units, weight && i > 0));
  }
  const auto use_alone = [&](ParameterSpec& parameter, const std::vector<std::int64_t>& rows) {
    const std::int64_t row = parameter.count() / std::max<std::int64_t>(1, parameter.shape[0]);
    for (const std::int64_t count : rows) parameter.used_alone.push_back(count * row);
  };
  std::vector<std::int64_t> head_rows;
  for (const auto& head : traces::heads_of(*addresses_, sizes.components).heads)
    head_rows.push_back(static_cast<std::int64_t>(head.count));
  use_alone(layer.parameters[0], std::vector<std::int64_t>(addresses_->size() + 1, 1));
  use_alone(layer.parameters[7], head_rows);
  use_alone(layer.parameters[8], head_rows);
  layer.output = {1, {1, 1, 1}};
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::positions(std::string name, Value from, bool learned) {
  Layer layer = begin(LayerKind::positions, std::move(name), {from});
  need_field(layer);
  if (learned) {
    const auto& e = layer.input.extent;
    layer.parameters.push_back(
        {layer.name + ".table", {layer.input.channels, e[0], e[1], e[2]}, Initial::zero, 1, false});
  }
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::coordinates(std::string name, Value from) {
  Layer layer = begin(LayerKind::coordinates, std::move(name), {from});
  need_field(layer);
  for (const std::int64_t n : layer.input.extent) layer.output.channels += n > 1 ? 1 : 0;
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::spectral_convolution(std::string name, Value from, std::int64_t channels,
                                                       const std::array<std::int64_t, 3>& modes) {
  Layer layer = begin(LayerKind::spectral_convolution, std::move(name), {from});
  need_field(layer);
  std::int64_t kept = 1;
  bool last = true;  // the innermost axis has the modes from 0 on, the others also the negative ones
  for (std::size_t axis = 3; axis-- > 0;) {
    const std::int64_t cells = layer.input.extent[axis];
    if (cells == 1) continue;
    if (modes[axis] > cells / 2) {
      refuse(fmt::format(
          "the spectral_convolution '{}' keeps {} modes along an axis of {} cells of '{}'; use at "
          "most {}",
          layer.name, modes[axis], cells, name_of(from), cells / 2));
    }
    layer.kernel[axis] = modes[axis];
    kept *= last ? modes[axis] : 2 * modes[axis];
    last = false;
  }
  layer.output.channels = channels;
  layer.parameters.push_back(drawn(layer.name + ".weight", {kept, layer.input.channels, 2, channels},
                                   2 * layer.input.channels, true));
  return push(std::move(layer));
}

GraphBuilder::Value GraphBuilder::conv_lstm(std::string name, Value from, std::int64_t channels,
                                            std::int64_t kernel, StepOutput output) {
  Layer layer = begin(LayerKind::conv_lstm, std::move(name), {from});
  const auto& e = layer.input.extent;
  while (layer.time_axis > 0 && !flat_[layer.time_axis - 1]) --layer.time_axis;
  if (layer.time_axis == 2 || layer.input.voxels() == e[layer.time_axis]) {
    refuse(
        fmt::format("the conv_lstm layer '{}' reads frames [channels, steps, cells ...], and '{}' gives {}; "
                    "for a series use lstm",
                    layer.name, name_of(from), text_of(layer.input)));
  }
  if (kernel % 2 == 0) {
    refuse(
        fmt::format("the kernel of the conv_lstm layer '{}' is {}; use an odd one, so that its windows have "
                    "a middle",
                    layer.name, kernel));
  }
  std::int64_t window = 1;
  for (std::size_t axis = layer.time_axis + 1; axis < 3; ++axis) {
    layer.kernel[axis] = kernel;
    layer.pad_low[axis] = layer.pad_high[axis] = kernel / 2;
    window *= kernel;
  }
  const auto& k = layer.kernel;
  const std::int64_t inputs = layer.input.channels;
  layer.parameters.push_back(
      drawn(layer.name + ".weight_x", {4 * channels, inputs, k[0], k[1], k[2]}, inputs * window, true));
  layer.parameters.push_back(
      drawn(layer.name + ".weight_h", {4 * channels, channels, k[0], k[1], k[2]}, channels * window, true));
  layer.parameters.push_back(drawn(layer.name + ".bias", {4 * channels}, inputs * window, false));
  layer.every_step = output == StepOutput::sequence;
  layer.output.channels = channels;
  if (!layer.every_step) layer.output.extent[layer.time_axis] = 1;
  return push(std::move(layer));
}

}  // namespace wflow::trainer
