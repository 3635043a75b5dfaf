// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <vector>

#include "trainer/model/distribution.h"
#include "trainer/model/model_graph.h"
#include "trainer/model/tiles.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kBlock = 16;

// Values that a recurrent, attention or spectral layer keeps for its backward pass beside its output.
std::int64_t kept_values(const Layer& layer) {
  const std::int64_t cells = layer.input.voxels();
  switch (layer.kind) {
    case LayerKind::lstm:
    case LayerKind::gru:
      return 8 * layer.output.channels * cells;
    case LayerKind::attention:
      return 2 * layer.groups * cells * cells + 4 * layer.input.count();
    case LayerKind::spectral_convolution:
      return 2 * layer.parameters[0].shape[0] * (layer.input.channels + 2 * layer.output.channels);
    case LayerKind::trace_density:
      return (10 * layer.groups + layer.parameters[1].shape[1] + 6 * layer.components) * layer.steps;
    case LayerKind::conv_lstm:
      return 10 * layer.output.channels * cells;
    default:
      return 0;
  }
}

std::int64_t filled(std::int64_t channels) {
  return (channels + kBlock - 1) / kBlock * kBlock;
}

class StepCounter {
 public:
  StepCounter(const ModelGraph& graph, const Distribution* distribution, int rank, bool copies_fields)
      : graph_(graph),
        distribution_(distribution),
        rank_(static_cast<std::size_t>(rank)),
        copies_fields_(copies_fields),
        uses_(uses_of(graph)),
        bytes_(uses_.readers.size(), 0),
        in_blocks_(uses_.readers.size(), false) {}

  std::int64_t count() {
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i)
      bytes_[i] = cells(i) * graph_.shape_of(i).channels * kFloatBytes;
    for (std::size_t at = 0; at < graph_.layers.size();) at += add_stage(at);
    return most_at_once() + scratch_ + padded_ + copied_;
  }

 private:
  // A layer, or several that one pass computes.
  struct Stage {
    std::vector<std::size_t> inputs;
    std::size_t output = 0;
    std::int64_t kept = 0;  // until its backward pass
    std::int64_t used = 0;  // only while it is computed
  };

  bool is_split(std::size_t value) const {
    return distribution_ != nullptr && distribution_->values[value].layout == Layout::split;
  }
  // The rank's own cells of a value.
  std::int64_t cells(std::size_t value) const {
    return is_split(value) ? distribution_->values[value].boxes[rank_].cells()
                           : graph_.shape_of(value).voxels();
  }
  // Those that a layer reads of its first input: its own and the halo.
  std::int64_t cells_read(std::size_t layer) const {
    if (distribution_ == nullptr || distribution_->layers[layer].needed.empty())
      return cells(graph_.layers[layer].inputs.front());
    return distribution_->layers[layer].needed[rank_].cells();
  }
  std::size_t value_of(std::size_t layer) const { return graph_.inputs.size() + layer; }

  std::span<const Layer> chain(std::size_t first) const {
    if (distribution_ != nullptr) return own_chain(graph_, uses_, *distribution_, first);
    return std::span(graph_.layers).subspan(first, chain_length(graph_, uses_, first));
  }

  // The output as the next convolution reads it.
  std::int64_t stored_cells(std::size_t value) const {
    for (std::size_t i = 0; i < graph_.layers.size(); ++i) {
      const Layer& layer = graph_.layers[i];
      if (layer.kind == LayerKind::convolution && layer.inputs.front() == value)
        return std::max(cells(value), cells_read(i));
    }
    return cells(value);
  }

  std::int64_t channels_of_group(const Layer& convolution, std::int64_t channels) const {
    const auto useful = [](std::int64_t n) {
      return static_cast<double>(n) / static_cast<double>(filled(n));
    };
    const bool reads_blocks = uses_.learned[convolution.inputs.front()];
    const double part =
        useful(convolution.output.channels) * (reads_blocks ? useful(convolution.input.channels) : 1);
    const bool has_own_kernels = distribution_ == nullptr && convolution.kind == LayerKind::convolution;
    return has_own_kernels && part < kLeastUsefulPart ? channels : filled(channels);
  }

  std::size_t add_stage(std::size_t first) {
    const auto tiled = std::ranges::find(graph_.tiled, first, &ModelGraph::Tiled::first);
    if (tiled != graph_.tiled.end() && distribution_ == nullptr) {
      add_tiles(cut_into_tiles(graph_, *tiled));
      return tiled->count;
    }
    const Layer& layer = graph_.layers[first];
    const std::span<const Layer> layers = chain(first);
    const std::size_t input = layer.inputs.front();
    std::size_t length = onednn_block_length(layers);
    if (length > 0) {
      add_group(layers.first(length), first);
      return length;
    }
    const bool joins = layer.kind == LayerKind::add || layer.kind == LayerKind::concatenate;
    if (in_blocks_[input] && (joins || blocked_tail_length(layers) > 0)) {
      length = joins ? 1 : blocked_tail_length(layers);
      const std::size_t output = value_of(first + length - 1);
      in_blocks_[output] = true;
      bytes_[output] = stored_cells(output) * filled(graph_.shape_of(output).channels) * kFloatBytes;
      stages_.push_back({layer.inputs, output, bytes_[output] + places(layers.first(length), output)});
      return length;
    }
    add_alone(layer, first);
    return 1;
  }

  void add_group(std::span<const Layer> group, std::size_t first) {
    const Layer& convolution = group.front();
    const std::size_t output = value_of(first + group.size() - 1);
    const std::int64_t y =
        cells(value_of(first)) * channels_of_group(convolution, convolution.output.channels) * kFloatBytes;
    bytes_[output] =
        stored_cells(output) * channels_of_group(convolution, graph_.shape_of(output).channels) * kFloatBytes;
    in_blocks_[output] = true;
    std::int64_t kept = bytes_[output] + places(group, output);
    if (std::any_of(group.begin(), group.end(),
                    [](const Layer& layer) {
                      return layer.kind == LayerKind::batch_norm || layer.kind == LayerKind::group_norm ||
                             layer.kind == LayerKind::average_pool;
                    }) &&
        !graph_.recomputes) {
      kept += y;
    } else {
      scratch_ = std::max(scratch_, y);
    }
    if (!uses_.learned[convolution.inputs.front()] && has_own_weight_gradient(convolution))
      padded_ += cells_read(first) * convolution.input.channels * kFloatBytes;
    // A field of another order, with its halo.
    const std::size_t input = convolution.inputs.front();
    if (is_split(input) && !in_blocks_[input])
      kept += cells_read(first) * convolution.input.channels * kFloatBytes;
    copied_ = std::max(copied_, copied(convolution, first));
    stages_.push_back({convolution.inputs, output, kept});
  }

  // The copies that the weight gradient of a convolution on a volume reads.
  std::int64_t copied(const Layer& convolution, std::size_t first) const {
    if (!copies_fields_ || is_flat(convolution) || has_own_weight_gradient(convolution)) return 0;
    return (cells_read(first) * convolution.input.channels +
            cells(value_of(first)) * convolution.output.channels) *
           kFloatBytes;
  }

  // The chain keeps its input, in libtorch's order; a tile has copies of its cells of input, output and
  // gradients.
  void add_tiles(const TiledChain& chain) {
    const std::size_t input = graph_.layers[chain.first].inputs.front();
    const std::size_t output = value_of(chain.first + chain.count - 1);
    bytes_[output] = graph_.shape_of(output).count() * kFloatBytes;
    std::int64_t kept = bytes_[output];
    if (in_blocks_[input]) kept += graph_.shape_of(input).count() * kFloatBytes;
    ModelGraph tile = chain.graph;
    tile.learns_input = uses_.learned[input];
    const std::int64_t copies = (tile.learns_input ? 2 : 1) * tile.input().count() + 2 * tile.output_count();
    stages_.push_back(
        {{input}, output, kept, step_bytes(tile, nullptr, 0, copies_fields_) + copies * kFloatBytes});
  }

  // A byte for each value after a maximum.
  std::int64_t places(std::span<const Layer> group, std::size_t output) const {
    const bool maximum = std::any_of(group.begin(), group.end(),
                                     [](const Layer& layer) { return layer.kind == LayerKind::max_pool; });
    return maximum ? bytes_[output] / kFloatBytes : 0;
  }

  void add_alone(const Layer& layer, std::size_t first) {
    const std::size_t output = value_of(first);
    const std::size_t input = layer.inputs.front();
    bytes_[output] = cells(output) * layer.output.channels * kFloatBytes;
    std::int64_t kept = layer.in_place() ? 0 : bytes_[output];
    kept += kept_values(layer) * kFloatBytes;
    // It reads another array than the stored one: with a halo, all cells of a split value, or another order.
    const bool gathers = is_split(input) && distribution_->layers[first].reads == Layout::whole;
    const std::int64_t channels = graph_.shape_of(input).channels * kFloatBytes;
    if (gathers) {
      kept += graph_.shape_of(input).voxels() * channels;
    } else if (in_blocks_[input] || cells_read(first) != cells(input)) {
      kept += cells_read(first) * channels;
    }
    stages_.push_back({layer.inputs, output, kept});
  }

  // Walks through the backward pass: what is kept falls, stage by stage, while gradients come and go.
  std::int64_t most_at_once() const {
    std::int64_t kept = 0;
    for (const Stage& stage : stages_) kept += stage.kept;
    std::vector<bool> lives(bytes_.size(), false);
    std::int64_t gradients = 0;
    const auto begin = [&](std::size_t value) {
      if (lives[value] || !uses_.learned[value]) return;
      lives[value] = true;
      gradients += bytes_[value];
    };
    for (const ModelGraph::Output& output : graph_.outputs) begin(output.value);
    std::int64_t most = kept + gradients;
    for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
      for (const std::size_t value : stage->inputs) begin(value);
      most = std::max(most, kept + gradients + stage->used);
      kept -= stage->kept;
      if (lives[stage->output]) gradients -= bytes_[stage->output];
    }
    return most;
  }

  const ModelGraph& graph_;
  const Distribution* distribution_;
  std::size_t rank_;
  bool copies_fields_;
  GraphUses uses_;
  std::vector<std::int64_t> bytes_;  // of each value, as it is stored
  std::vector<bool> in_blocks_;
  std::vector<Stage> stages_;
  std::int64_t scratch_ = 0;  // of the largest output of a convolution that is not kept
  std::int64_t copied_ = 0;   // for the largest weight gradient; the allocator keeps the memory
  std::int64_t padded_ = 0;   // inputs with a border, for the hand-written weight gradient
};

}  // namespace

std::int64_t step_bytes(const ModelGraph& graph, const Distribution* distribution, int rank,
                        bool copies_fields) {
  return StepCounter(graph, distribution, rank, copies_fields).count();
}

}  // namespace wflow::trainer
