// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/error.h"
#include "trainer/model/distribution.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {
namespace {

constexpr double kMostWork = 1.25;
constexpr double kLeastGain = 0.9;   // of the memory of a step without the chain
constexpr double kWorthMore = 0.95;  // of the memory with fewer tiles, for more of them
constexpr std::int64_t kMostTiles = 64;

bool is_local(const Layer& layer) {
  switch (layer.kind) {
    case LayerKind::convolution:
    case LayerKind::average_pool:
    case LayerKind::max_pool:
    case LayerKind::relu:
    case LayerKind::leaky_relu:
    case LayerKind::elu:
    case LayerKind::gelu:
    case LayerKind::silu:
    case LayerKind::sigmoid:
    case LayerKind::tanh:
    case LayerKind::softplus:
      return !layer.is_repeated;
    default:
      return false;
  }
}

std::size_t first_long_axis(const TensorShape& shape) {
  for (std::size_t axis = 0; axis < shape.extent.size(); ++axis)
    if (shape.extent[axis] > 1) return axis;
  return 0;
}

// Along the axis, in cells of the chain's input: output j reads [j * stride - low, j * stride - low + reach).
struct Window {
  std::int64_t stride = 1;
  std::int64_t low = 0;
  std::int64_t reach = 1;
};

Window window_of(std::span<const Layer> layers, std::size_t axis) {
  Window window;
  for (const Layer& layer : layers) {
    window.low += layer.pad_low[axis] * window.stride;
    window.reach += (layer.reach(axis) - 1) * window.stride;
    window.stride *= layer.stride[axis];
  }
  return window;
}

std::int64_t rounded_up(std::int64_t a, std::int64_t b) {
  return a <= 0 ? 0 : (a + b - 1) / b;
}

// The chain with another number of cells along the axis.
ModelGraph graph_of_tile(const ModelGraph& graph, std::span<const Layer> layers, std::size_t axis,
                         std::int64_t cells) {
  ModelGraph tile;
  TensorShape shape = layers.front().input;
  shape.extent[axis] = cells;
  tile.inputs = {{"tile", shape}};
  for (const Layer& from : layers) {
    Layer layer = from;
    layer.inputs = {tile.layers.size()};
    layer.input.extent[axis] = shape.extent[axis];
    shape = layer.output;
    shape.extent[axis] =
        (layer.input.extent[axis] + layer.pad_low[axis] + layer.pad_high[axis] - layer.reach(axis)) /
            layer.stride[axis] +
        1;
    layer.output = shape;
    tile.layers.push_back(std::move(layer));
  }
  tile.outputs = {{"tile", tile.layers.size()}};
  tile.recomputes = graph.recomputes;
  return tile;
}

std::int64_t flops_of(std::span<const Layer> layers) {
  std::int64_t flops = 0;
  for (const Layer& layer : layers) flops += layer.forward_flops();
  return flops;
}

// The tiles of a chain differ only in where they begin.
struct Cut {
  std::size_t axis = 0;
  std::int64_t stride = 1;
  std::int64_t rest = 0;    // cells of the input beyond a whole stride for each cell of the output
  std::int64_t cells = 0;   // of the output
  std::int64_t own = 0;     // of them, of a tile
  std::int64_t below = 0;   // and before those
  std::int64_t length = 0;  // of them, that a tile computes
};

Cut cut_of(std::span<const Layer> layers, std::int64_t tiles) {
  Cut cut;
  cut.axis = first_long_axis(layers.front().input);
  const Window window = window_of(layers, cut.axis);
  cut.stride = window.stride;
  cut.cells = layers.back().output.extent[cut.axis];
  cut.rest = layers.front().input.extent[cut.axis] - cut.cells * window.stride;
  cut.own = (cut.cells + tiles - 1) / tiles;
  // Its own cells read no others of the input than the tile has.
  cut.below = rounded_up(window.low, window.stride);
  cut.length =
      cut.own + cut.below + rounded_up(window.reach - window.low - window.stride - cut.rest, window.stride);
  return cut;
}

std::span<const Layer> layers_of(const ModelGraph& graph, const ModelGraph::Tiled& tiled) {
  return std::span(graph.layers).subspan(tiled.first, tiled.count);
}

// Appends the chain from `first` on that leaves the least memory, if one is worth it, to graph.tiled.
bool add_best(ModelGraph& graph, std::size_t first, std::size_t longest) {
  double least = kLeastGain * static_cast<double>(step_bytes(graph, nullptr, 0));
  graph.tiled.push_back({first, 0, 0});
  ModelGraph::Tiled best;
  for (std::size_t count = 1; count <= longest; ++count) {
    for (std::int64_t tiles = 2; tiles <= kMostTiles; tiles *= 2) {
      graph.tiled.back() = {first, count, tiles};
      if (!tiles_fit(graph, graph.tiled.back())) break;
      if (cut_into_tiles(graph, graph.tiled.back()).work > kMostWork) break;
      const auto bytes = static_cast<double>(step_bytes(graph, nullptr, 0));
      if (bytes > least) continue;
      least = bytes * kWorthMore;
      best = graph.tiled.back();
    }
  }
  graph.tiled.pop_back();
  if (best.tiles > 0) graph.tiled.push_back(best);
  return best.tiles > 0;
}

}  // namespace

bool tiles_fit(const ModelGraph& graph, const ModelGraph::Tiled& tiled) {
  const std::span<const Layer> layers = layers_of(graph, tiled);
  const auto convolves = [](const Layer& layer) { return layer.kind == LayerKind::convolution; };
  if (tiled.tiles < 2 || !std::all_of(layers.begin(), layers.end(), is_local) ||
      std::none_of(layers.begin(), layers.end(), convolves))
    return false;
  const Cut cut = cut_of(layers, tiled.tiles);
  return cut.own > 0 && cut.length < cut.cells;
}

TiledChain cut_into_tiles(const ModelGraph& graph, const ModelGraph::Tiled& tiled) {
  WFLOW_CHECK(tiles_fit(graph, tiled));
  const std::span<const Layer> layers = layers_of(graph, tiled);
  const Cut cut = cut_of(layers, tiled.tiles);
  TiledChain chain;
  chain.first = tiled.first;
  chain.count = tiled.count;
  chain.axis = cut.axis;
  // The last tile has the cells beyond the last whole stride, and all others are as long.
  chain.graph = graph_of_tile(graph, layers, cut.axis, cut.length * cut.stride + cut.rest);
  WFLOW_CHECK(chain.graph.layers.back().output.extent[cut.axis] == cut.length);
  for (std::int64_t begin = 0; begin < cut.cells; begin += cut.own) {
    const std::int64_t output = std::clamp<std::int64_t>(begin - cut.below, 0, cut.cells - cut.length);
    chain.tiles.push_back({output * cut.stride, output, begin, std::min(begin + cut.own, cut.cells)});
  }
  chain.work = static_cast<double>(flops_of(chain.graph.layers)) * static_cast<double>(chain.tiles.size()) /
               static_cast<double>(std::max<std::int64_t>(1, flops_of(layers)));
  return chain;
}

std::vector<ModelGraph::Tiled> best_tiles(ModelGraph graph) {
  graph.tiled.clear();
  const GraphUses uses = uses_of(graph);
  for (std::size_t at = 0; at < graph.layers.size();) {
    const std::size_t chained = chain_length(graph, uses, at);
    std::size_t longest = 0;
    while (longest < chained && is_local(graph.layers[at + longest])) ++longest;
    const bool tiled = longest > 0 && add_best(graph, at, longest);
    at += tiled ? graph.tiled.back().count : std::max<std::size_t>(1, longest);
  }
  return graph.tiled;
}

std::string describe(const TiledChain& chain, const ModelGraph& graph) {
  static constexpr std::array<const char*, 3> kAxes = {"depth", "height", "width"};
  const std::string& first = graph.layers[chain.first].name;
  const std::string& last = graph.layers[chain.first + chain.count - 1].name;
  return fmt::format("{}{} in {} tiles of {} cells of {}, {:.2f} of the arithmetic", first,
                     chain.count > 1 ? " .. " + last : "", chain.tiles.size(),
                     chain.graph.input().extent[chain.axis], kAxes[chain.axis], chain.work);
}

}  // namespace wflow::trainer
