// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/family_chain.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

namespace wflow::trainer {
namespace {

// The coarsest grid has at least a cell along each axis, and two in all: a batch norm needs two values.
void need_cells(const ModelConfig& config, const Chain& chain) {
  std::int64_t cells = 1;
  for (const std::int64_t n : chain.shape().extent) {
    if (n > 1) cells *= n >> config.depth;
  }
  if (cells > 1) return;
  refuse(fmt::format(
      "the network '{}' of depth {} halves each axis {} times, and the samples are {}: use a smaller 'depth'",
      name_of(config.name), config.depth, config.depth, text_of(chain.shape())));
}

// Adds the levels of residual blocks.
class Residual {
 public:
  Residual(Chain& chain, bool pre_activation) : chain_(chain), pre_activation_(pre_activation) {}

  void stem(std::int64_t channels) {
    chain_.convolution(channels, 3);
    if (pre_activation_) return;
    chain_.norm();
    chain_.activation(chain_.convolution_name());
  }
  // The first block of a level halves the grid or not; all have the dilation.
  void level(std::int64_t blocks, std::int64_t channels, std::int64_t stride, std::int64_t dilation = 1) {
    for (std::int64_t i = 0; i < blocks; ++i) block(channels, i == 0 ? stride : 1, dilation);
  }
  void finish() {
    if (pre_activation_) normed("trunk");
  }

 private:
  void normed(const std::string& name) {
    chain_.norm(name + ".norm");
    chain_.activation(name);
  }

  void block(std::int64_t channels, std::int64_t stride, std::int64_t dilation) {
    const std::string name = fmt::format("block{}", ++blocks_);
    const bool changes = stride > 1 || chain_.shape().channels != channels;
    const Chain::Value input = chain_.at();
    if (pre_activation_) normed(name);
    const Chain::Value active = chain_.at();
    chain_.convolution_block(channels, 3, stride, dilation);
    chain_.convolution(channels, 3, 1, dilation);
    if (!pre_activation_) chain_.norm();
    const Chain::Value residual = chain_.at();
    chain_.set(changes ? active : input);
    if (changes) {
      chain_.convolution(channels, 1, stride);
      if (!pre_activation_) chain_.norm();
    }
    chain_.set(chain_.graph().add(name + ".sum", {chain_.at(), residual}));
    if (!pre_activation_) chain_.activation(name);
  }

  Chain& chain_;
  bool pre_activation_;
  int blocks_ = 0;
};

// Parallel convolutions of several dilations, one of a single cell, and the mean over the field.
void parallel_dilations(const ModelConfig& config, Chain& chain, std::int64_t channels) {
  const Chain::Value input = chain.at();
  const std::array<std::int64_t, 3> extent = chain.shape().extent;
  std::vector<Chain::Value> branches;
  chain.convolution_block(channels, 1);
  branches.push_back(chain.at());
  for (const std::int64_t dilation : config.dilations) {
    chain.set(input);
    chain.convolution_block(channels, 3, 1, dilation);
    branches.push_back(chain.at());
  }
  // Without a norm: a batch of one sample has a single mean a channel.
  GraphBuilder& graph = chain.graph();
  GraphBuilder::Window point;
  point.kernel = 1;
  point.bias = config.norm == Norm::none;  // the norm behind all branches
  chain.set(graph.global_pool(LayerKind::global_mean, "context.mean", input));
  chain.set(graph.convolution("context", chain.at(), channels, point));
  chain.activation("context");
  branches.push_back(graph.resize("context.field", chain.at(), extent));
  chain.set(graph.concatenate("dilations", branches));
}

// A dense block: each layer reads all values before it and adds `growth` channels.
class DenseBlocks {
 public:
  DenseBlocks(const ModelConfig& config, Chain& chain) : config_(config), chain_(chain) {}

  // The chain is then at the new channels, on the way down after those of the block's input.
  void block(bool with_input) {
    std::vector<Chain::Value> made;
    for (std::int64_t i = 0; i < config_.blocks; ++i) {
      const Chain::Value all = chain_.at();
      layer(config_.growth, 3);
      made.push_back(chain_.at());
      if (with_input || i + 1 < config_.blocks)
        chain_.set(chain_.graph().concatenate(fmt::format("layer{}.all", layers_), {all, chain_.at()}));
    }
    if (!with_input && made.size() > 1)
      chain_.set(chain_.graph().concatenate(fmt::format("layer{}.new", layers_), made));
  }
  void layer(std::int64_t channels, std::int64_t size) {
    const std::string name = fmt::format("layer{}", ++layers_);
    chain_.norm(name + ".norm");
    chain_.activation(name);
    chain_.convolution(channels, size);
    if (config_.dropout == 0) return;
    chain_.set(chain_.graph().pointwise(LayerKind::dropout, name + ".dropout", chain_.at(), config_.dropout));
  }

 private:
  const ModelConfig& config_;
  Chain& chain_;
  int layers_ = 0;
};

// Drops the last cells of a field that is larger than `extent`.
Chain::Value cropped(GraphBuilder& graph, const std::string& name, Chain::Value from,
                     const std::array<std::int64_t, 3>& extent) {
  constexpr std::array<LayerAxis, 3> kAxes = {LayerAxis::depth, LayerAxis::height, LayerAxis::width};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (graph.shape(from).extent[axis] == extent[axis]) continue;
    from = graph.slice(fmt::format("{}.crop{}", name, axis), from, kAxes[axis], 0, extent[axis]);
  }
  return from;
}

}  // namespace

ModelGraph build_resnet(const ModelConfig& config, Chain chain, const ModelTask& task) {
  need_cells(config, chain);
  Residual residual(chain, config.pre_activation);
  residual.stem(config.width);
  for (std::int64_t level = 0; level <= config.depth; ++level)
    residual.level(config.blocks, config.width << level, level > 0 ? 2 : 1);
  residual.finish();
  chain.global_mean();
  return chain.head(task.output.channels);
}

ModelGraph build_deeplab(const ModelConfig& config, Chain chain, const ModelTask&) {
  chain.need_target_grid();
  need_cells(config, chain);
  if (config.dilations.empty())
    refuse("the network 'deeplab' needs 'dilations' of its parallel convolutions, such as [3, 6, 9]");
  const std::array<std::int64_t, 3> extent = chain.shape().extent;
  Residual residual(chain, false);
  residual.stem(config.width);
  residual.level(config.blocks, config.width, 1);
  const Chain::Value fine = chain.at();
  for (std::int64_t level = 1; level <= config.depth; ++level)
    residual.level(config.blocks, config.width << level, 2);
  residual.level(config.blocks, config.width << (config.depth + 1), 1, 2);
  const Chain::Value coarsest = chain.at();
  parallel_dilations(config, chain, config.width << config.depth);
  chain.convolution_block(2 * config.width, 1);
  chain.graph().begin_part("decoder");
  const Chain::Value risen = chain.graph().resize("up", chain.at(), extent);
  chain.set(fine);
  chain.convolution_block(config.width, 1);
  chain.set(chain.graph().concatenate("skip", {risen, chain.at()}));
  chain.convolution_block(2 * config.width);
  chain.convolution_block(2 * config.width);
  return chain.field_heads(coarsest);
}

ModelGraph build_tiramisu(const ModelConfig& config, Chain chain, const ModelTask&) {
  chain.need_target_grid();
  need_cells(config, chain);
  GraphBuilder& graph = chain.graph();
  DenseBlocks dense(config, chain);
  chain.convolution(config.width, 3);
  std::vector<Chain::Value> skips;
  for (std::int64_t level = 1; level <= config.depth; ++level) {
    dense.block(true);
    skips.push_back(chain.at());
    dense.layer(chain.shape().channels, 1);
    const auto halves = graph.along_axes(2);
    chain.set(graph.pool(LayerKind::max_pool, fmt::format("pool{}", level), chain.at(), halves));
  }
  dense.block(false);
  const Chain::Value coarsest = chain.at();
  graph.begin_part("decoder");
  // Windows of 3 cells give one cell more than twice as many, also from an odd number that lost its last
  // cell.
  GraphBuilder::Window up;
  up.kernel = 3;
  up.stride = 2;
  up.padding = Padding::valid;
  up.bias = config.norm == Norm::none;
  for (std::int64_t level = config.depth; level > 0; --level) {
    const std::string name = fmt::format("up{}", level);
    const Chain::Value skip = skips[static_cast<std::size_t>(level) - 1];
    const Chain::Value risen = graph.transposed_convolution(name, chain.at(), chain.shape().channels, up);
    chain.set(
        graph.concatenate(name + ".skip", {cropped(graph, name, risen, graph.shape(skip).extent), skip}));
    dense.block(level == 1);
  }
  return chain.field_heads(coarsest);
}

}  // namespace wflow::trainer
