// SPDX-License-Identifier: Apache-2.0
// Named networks of spectral and recurrent layers. Each gives a field on the cells that it reads, or numbers.
#include <fmt/format.h>

#include <algorithm>

#include "trainer/model/graph_builder.h"

namespace wflow::trainer {
namespace {

using Value = GraphBuilder::Value;

constexpr GraphBuilder::Window kPoint = {.kernel = 1};
constexpr double kOvershoot = 1.2;  // as MLPerf's networks: targets lie in [-1, 1]

Value activated(GraphBuilder& graph, const ModelConfig& config, Value from, const std::string& after) {
  const double slope = config.activation == LayerKind::leaky_relu ? config.leaky_slope : 0;
  return graph.pointwise(config.activation, fmt::format("{}.{}", after, name_of(config.activation)), from,
                         slope);
}

// The hidden layers of `dense` and the output, each cell by itself.
Value projected(GraphBuilder& graph, const ModelConfig& config, Value from, std::int64_t channels) {
  graph.begin_part("head");
  for (std::size_t i = 0; i < config.dense.size(); ++i) {
    const std::string name = fmt::format("project{}", i + 1);
    from = activated(graph, config, graph.convolution(name, from, config.dense[i], kPoint), name);
  }
  return graph.convolution("out", from, channels, kPoint);
}

Value dense_head(GraphBuilder& graph, const ModelConfig& config, Value from, std::int64_t outputs) {
  graph.begin_part("head");
  for (std::size_t i = 0; i < config.dense.size(); ++i) {
    const std::string name = fmt::format("dense{}", i + 1);
    from = activated(graph, config, graph.linear(name, from, config.dense[i]), name);
    if (config.dropout > 0)
      from = graph.pointwise(LayerKind::dropout, fmt::format("dropout{}", i + 1), from, config.dropout);
  }
  from = graph.linear("out", from, outputs);
  return config.tanh_output ? graph.pointwise(LayerKind::tanh_scale, "tanh", from, kOvershoot) : from;
}

ModelGraph finished(GraphBuilder graph, Value output) {
  graph.output("out", output);
  return graph.finish();
}

Value joined(GraphBuilder& graph, const std::vector<Value>& inputs) {
  return inputs.size() == 1 ? inputs.front() : graph.concatenate("inputs", inputs);
}

[[noreturn]] void refuse_target(const char* network, const TensorShape& input, const TensorShape& target) {
  refuse(
      fmt::format("the network '{}' reads {} and gives numbers or a field on the same cells, and the target "
                  "has {}",
                  network, text_of(input), text_of(target)));
}

// Li et al. 2021 (arXiv 2010.08895). Channels with the coordinates let the network know the edges.
ModelGraph build_fno(const ModelConfig& config, const ModelTask& task) {
  GraphBuilder graph(task.inputs, {task.output});
  graph.begin_part("encoder");
  std::vector<Value> inputs;
  for (Value input = 0; input < task.inputs.size(); ++input) inputs.push_back(input);
  const TensorShape grid = task.inputs.front().shape;
  std::array<std::int64_t, 3> modes = {1, 1, 1};
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (grid.extent[axis] > 1) modes[axis] = std::min(config.modes, grid.extent[axis] / 2);
  Value at = graph.coordinates("coordinates", joined(graph, inputs));
  at = graph.convolution("lift", at, config.width, kPoint);
  for (std::int64_t i = 1; i <= config.depth; ++i) {
    const std::string name = fmt::format("spectral{}", i);
    const Value spectral = graph.spectral_convolution(name, at, config.width, modes);
    const Value bypass = graph.convolution(fmt::format("bypass{}", i), at, config.width, kPoint);
    at = graph.add(fmt::format("sum{}", i), {spectral, bypass});
    at = graph.norm(fmt::format("norm{}", i), at, config.norm);
    if (i < config.depth) at = activated(graph, config, at, name);
  }
  const bool field = task.output.voxels() > 1;
  if (field && task.output.extent != grid.extent) refuse_target("fno", grid, task.output);
  if (field) return finished(std::move(graph), projected(graph, config, at, task.output.channels));
  at = graph.global_pool(LayerKind::global_mean, "global_mean", at);
  return finished(std::move(graph), dense_head(graph, config, at, task.output.channels));
}

bool is_mask_of_another(const NamedShape& input, const ModelTask& task) {
  return std::ranges::any_of(task.inputs,
                             [&](const NamedShape& other) { return input.name == other.name + "_mask"; });
}

// An input NAME_mask beside NAME says which steps are padding.
ModelGraph build_lstm(const ModelConfig& config, const ModelTask& task) {
  GraphBuilder graph(task.inputs, {task.output});
  graph.begin_part("encoder");
  std::vector<Value> series;
  std::vector<Value> masks;
  for (Value input = 0; input < task.inputs.size(); ++input)
    (is_mask_of_another(task.inputs[input], task) ? masks : series).push_back(input);
  if (masks.size() > 1) refuse("the network 'lstm' reads one mask, and 'inputs' names several");
  const TensorShape steps = task.inputs.front().shape;
  const bool field = task.output.voxels() > 1;
  if (field && task.output.extent != steps.extent) refuse_target("lstm", steps, task.output);
  Value at = joined(graph, series);
  for (std::int64_t i = 1; i <= config.depth; ++i) {
    std::vector<Value> from = {at};
    from.insert(from.end(), masks.begin(), masks.end());
    const bool sequence = field || i < config.depth;
    at = graph.recurrent(LayerKind::lstm, fmt::format("lstm{}", i), from, config.width,
                         {.output = sequence ? StepOutput::sequence : StepOutput::last});
  }
  const Value output = field ? projected(graph, config, at, task.output.channels)
                             : dense_head(graph, config, at, task.output.channels);
  return finished(std::move(graph), output);
}

// Shi et al. 2015 (arXiv 1506.04214): frames to as many frames, to one, or to numbers.
ModelGraph build_conv_lstm(const ModelConfig& config, const ModelTask& task) {
  GraphBuilder graph(task.inputs, {task.output});
  graph.begin_part("encoder");
  std::vector<Value> inputs;
  for (Value input = 0; input < task.inputs.size(); ++input) inputs.push_back(input);
  const TensorShape frames = task.inputs.front().shape;
  const bool field = task.output.voxels() > 1;
  const bool sequence = field && task.output.extent == frames.extent;
  Value at = joined(graph, inputs);
  for (std::int64_t i = 1; i <= config.depth; ++i) {
    at = graph.conv_lstm(fmt::format("conv_lstm{}", i), at, config.width, 3,
                         sequence || i < config.depth ? StepOutput::sequence : StepOutput::last);
  }
  if (field && graph.shape(at).extent != task.output.extent) refuse_target("conv_lstm", frames, task.output);
  if (field) return finished(std::move(graph), projected(graph, config, at, task.output.channels));
  at = graph.global_pool(LayerKind::global_mean, "global_mean", at);
  return finished(std::move(graph), dense_head(graph, config, at, task.output.channels));
}

}  // namespace

bool is_sequence_family(ModelName name) {
  return name == ModelName::fno || name == ModelName::lstm || name == ModelName::conv_lstm;
}

ModelGraph build_sequence_family(const ModelConfig& config, const ModelTask& task) {
  if (!task.further.empty())
    refuse(fmt::format("the network '{}' has one head, and 'heads' names {}; write its layers as a list",
                       name_of(config.name), 1 + task.further.size()));
  const NamedShape& input = task.inputs.front();
  if (input.shape.voxels() == 1) {
    refuse(fmt::format("the network '{}' reads {}, and '{}' has {} numbers; use 'mlp'", name_of(config.name),
                       config.name == ModelName::lstm ? "series" : "fields", input.name,
                       input.shape.channels));
  }
  if (config.name == ModelName::fno) return build_fno(config, task);
  return config.name == ModelName::lstm ? build_lstm(config, task) : build_conv_lstm(config, task);
}

}  // namespace wflow::trainer
