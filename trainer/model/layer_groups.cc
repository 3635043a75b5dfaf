// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/distribution.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace wflow::trainer {
namespace {

bool is_convolution(const Layer& layer) {
  return layer.kind == LayerKind::convolution || layer.kind == LayerKind::transposed_convolution;
}

bool fits_pool(const Layer& layer) {
  return std::all_of(layer.kernel.begin(), layer.kernel.end(), [](auto n) { return n == 1 || n == 2; }) &&
         layer.stride == layer.kernel;
}

// Number of layers, from `length` on, that a block can add to the first `length` ones.
std::size_t extended_length(std::span<const Layer> layers, std::size_t length) {
  const auto next = [&](auto... kinds) {
    return length < layers.size() && ((layers[length].kind == kinds) || ...);
  };
  // Monotonic: the result has the sign of the argument.
  const auto next_activates = [&] {
    return next(LayerKind::relu) || (next(LayerKind::leaky_relu) && layers[length].value >= 0);
  };
  const bool has_bias = length > 0 && layers[0].parameters.size() > 1;
  if (next(LayerKind::batch_norm, LayerKind::group_norm)) {
    if (has_bias) return length;  // the norm cancels the bias
    ++length;
  }
  const bool active = next_activates();
  if (active) ++length;
  if (!next(LayerKind::average_pool, LayerKind::max_pool) || !fits_pool(layers[length])) return length;
  const bool maximum = layers[length].kind == LayerKind::max_pool;
  ++length;
  // A monotonic activation commutes with the maximum.
  if (maximum && !active && next_activates()) ++length;
  return length;
}

// True if `rule` holds for the input's and the output's cells along each axis on every rank.
template <class Rule>
bool holds_everywhere(const ModelGraph& graph, const Distribution& distribution, std::size_t layer,
                      Rule rule) {
  const std::vector<Box>& in = distribution.values[graph.layers[layer].inputs.front()].boxes;
  const std::vector<Box>& out = distribution.values[graph.inputs.size() + layer].boxes;
  for (std::size_t rank = 0; rank < in.size(); ++rank) {
    for (std::size_t axis = 0; axis < 3; ++axis)
      if (!rule(axis, in[rank].axes[axis], out[rank].axes[axis])) return false;
  }
  return true;
}

// True for a pool or transposed convolution whose windows are those of the rank's own cells.
bool keeps_to_own_cells(const ModelGraph& graph, const Distribution& distribution, std::size_t index) {
  const Layer& layer = graph.layers[index];
  if (!distribution.layers[index].halo.empty()) return false;
  if (layer.kind == LayerKind::transposed_convolution) {
    return layer.stride == layer.kernel &&
           holds_everywhere(graph, distribution, index,
                            [&](std::size_t axis, const Range& in, const Range& out) {
                              return layer.pad_low[axis] == 0 && out.begin == in.begin * layer.stride[axis] &&
                                     out.end == in.end * layer.stride[axis];
                            });
  }
  return holds_everywhere(
      graph, distribution, index, [&](std::size_t axis, const Range& in, const Range& out) {
        return out.begin * layer.stride[axis] == in.begin && out.end * layer.stride[axis] <= in.end;
      });
}

bool is_pool(const Layer& layer) {
  return layer.kind == LayerKind::average_pool || layer.kind == LayerKind::max_pool;
}

}  // namespace

std::size_t onednn_block_length(std::span<const Layer> layers) {
  if (layers.empty() || !is_convolution(layers[0])) return 0;
  return extended_length(layers, 1);
}

std::size_t blocked_tail_length(std::span<const Layer> layers) {
  return extended_length(layers, 0);
}

std::array<std::int64_t, 3> border_of(const Layer& layer) {
  return {layer.kernel[0] / 2, 1, 1};
}

bool is_flat(const Layer& layer) {
  return layer.input.extent[0] == 1 && layer.output.extent[0] == 1 && layer.kernel[0] == 1 &&
         layer.stride[0] == 1 && layer.pad_low[0] == 0 && layer.pad_high[0] == 0;
}

bool has_own_weight_gradient(const Layer& layer) {
  if (layer.kind != LayerKind::convolution) return false;
  const auto& k = layer.kernel;
  const std::array<std::int64_t, 3> ones = {1, 1, 1};
  const auto within_border = [&](const std::array<std::int64_t, 3>& padding) {
    const std::array<std::int64_t, 3> border = border_of(layer);
    return std::equal(padding.begin(), padding.end(), border.begin(), std::less_equal<>());
  };
  return layer.dilation == ones && layer.groups == 1 && layer.input.channels < 16 &&
         (k[0] == 1 || k[0] == 3) && k[1] == 3 && k[2] == 3 && (k[0] == 3 || layer.input.extent[0] == 1) &&
         layer.stride == ones && within_border(layer.pad_low) && within_border(layer.pad_high);
}

std::span<const Layer> own_chain(const ModelGraph& graph, const GraphUses& uses,
                                 const Distribution& distribution, std::size_t first) {
  const std::size_t most = chain_length(graph, uses, first);
  std::size_t length = 0;
  while (length < most && computes_parts(distribution.layers[first + length])) {
    const Layer& layer = graph.layers[first + length];
    const bool reads_windows = is_pool(layer) || layer.kind == LayerKind::transposed_convolution;
    if (reads_windows && !keeps_to_own_cells(graph, distribution, first + length)) break;
    ++length;
  }
  return std::span(graph.layers).subspan(first, length);
}

}  // namespace wflow::trainer
