// SPDX-License-Identifier: Apache-2.0
// Named networks of spectral and recurrent layers. Each gives a field on the cells that it reads, or numbers.
#include <fmt/format.h>

#include <algorithm>

#include "trainer/model/family_chain.h"

namespace wflow::trainer {
namespace {

using Value = GraphBuilder::Value;

constexpr GraphBuilder::Window kPoint = {.kernel = 1};

// The hidden layers of `dense` and the output, each cell by itself.
ModelGraph projected(const ModelConfig& config, Chain chain, const ModelTask& task) {
  GraphBuilder& graph = chain.graph();
  graph.begin_part("head");
  for (std::size_t i = 0; i < config.dense.size(); ++i) {
    const std::string name = fmt::format("project{}", i + 1);
    chain.set(graph.convolution(name, chain.at(), config.dense[i], kPoint));
    chain.activation(name);
  }
  chain.set(graph.convolution(Chain::layer_of(task.name, "out"), chain.at(), task.output.channels, kPoint));
  chain.output(task.name);
  return graph.finish();
}

// Numbers from the means of the field.
ModelGraph pooled(Chain chain, const ModelTask& task) {
  chain.global_mean();
  return chain.head(task.output.channels);
}

[[noreturn]] void refuse_target(const char* network, const TensorShape& input, const TensorShape& target) {
  refuse(
      fmt::format("the network '{}' reads {} and gives numbers or a field on the same cells, and the target "
                  "has {}",
                  network, text_of(input), text_of(target)));
}

// Li et al. 2021 (arXiv 2010.08895). Channels with the coordinates let the network know the edges.
ModelGraph build_fno(const ModelConfig& config, Chain chain, const ModelTask& task) {
  GraphBuilder& graph = chain.graph();
  chain.join_channels(task.inputs.size());
  const TensorShape grid = task.inputs.front().shape;
  std::array<std::int64_t, 3> modes = {1, 1, 1};
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (grid.extent[axis] > 1) modes[axis] = std::min(config.modes, grid.extent[axis] / 2);
  chain.set(graph.coordinates("coordinates", chain.at()));
  chain.set(graph.convolution("lift", chain.at(), config.width, kPoint));
  for (std::int64_t i = 1; i <= config.depth; ++i) {
    const std::string name = fmt::format("spectral{}", i);
    const Value spectral = graph.spectral_convolution(name, chain.at(), config.width, modes);
    const Value bypass = graph.convolution(fmt::format("bypass{}", i), chain.at(), config.width, kPoint);
    chain.set(graph.add(fmt::format("sum{}", i), {spectral, bypass}));
    chain.norm(fmt::format("norm{}", i));
    if (i < config.depth) chain.activation(name);
  }
  if (task.output.voxels() == 1) return pooled(std::move(chain), task);
  if (task.output.extent != grid.extent) refuse_target("fno", grid, task.output);
  return projected(config, std::move(chain), task);
}

bool is_mask_of_another(const NamedShape& input, const ModelTask& task) {
  return std::ranges::any_of(task.inputs,
                             [&](const NamedShape& other) { return input.name == other.name + "_mask"; });
}

// An input NAME_mask beside NAME says which steps are padding.
ModelGraph build_lstm(const ModelConfig& config, Chain chain, const ModelTask& task) {
  std::vector<Value> series;
  std::vector<Value> masks;
  for (Value input = 0; input < task.inputs.size(); ++input)
    (is_mask_of_another(task.inputs[input], task) ? masks : series).push_back(input);
  if (masks.size() > 1) refuse("the network 'lstm' reads one mask, and 'inputs' names several");
  const TensorShape steps = task.inputs.front().shape;
  const bool field = task.output.voxels() > 1;
  if (field && task.output.extent != steps.extent) refuse_target("lstm", steps, task.output);
  chain.join_channels(series);
  for (std::int64_t i = 1; i <= config.depth; ++i) {
    std::vector<Value> from = {chain.at()};
    from.insert(from.end(), masks.begin(), masks.end());
    const bool sequence = field || i < config.depth;
    chain.set(chain.graph().recurrent(LayerKind::lstm, fmt::format("lstm{}", i), from, config.width,
                                      {.output = sequence ? StepOutput::sequence : StepOutput::last}));
  }
  return field ? projected(config, std::move(chain), task) : chain.head(task.output.channels);
}

// Shi et al. 2015 (arXiv 1506.04214): frames to as many frames, to one, or to numbers.
ModelGraph build_conv_lstm(const ModelConfig& config, Chain chain, const ModelTask& task) {
  const TensorShape frames = task.inputs.front().shape;
  const bool field = task.output.voxels() > 1;
  const bool sequence = field && task.output.extent == frames.extent;
  chain.join_channels(task.inputs.size());
  for (std::int64_t i = 1; i <= config.depth; ++i) {
    chain.set(
        chain.graph().conv_lstm(fmt::format("conv_lstm{}", i), chain.at(), config.width, 3,
                                sequence || i < config.depth ? StepOutput::sequence : StepOutput::last));
  }
  if (!field) return pooled(std::move(chain), task);
  if (chain.shape().extent != task.output.extent) refuse_target("conv_lstm", frames, task.output);
  return projected(config, std::move(chain), task);
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
  Chain chain(config, task);
  if (config.name == ModelName::fno) return build_fno(config, std::move(chain), task);
  if (config.name == ModelName::lstm) return build_lstm(config, std::move(chain), task);
  return build_conv_lstm(config, std::move(chain), task);
}

}  // namespace wflow::trainer
