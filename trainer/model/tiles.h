// SPDX-License-Identifier: Apache-2.0
// Chains of layers that a step computes tile by tile (`recompute: tiles`): convolutions, pools and
// activations, of which only the input and the output exist as a whole. A tile is a slab of cells along one
// axis with those that its windows reach into; the backward pass computes it again. Needs no library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// All tiles of a chain have one shape, and so the same kernels. Each begins at a whole stride of the chain,
// where its cells are computed as in the whole field, with the padding of the layers: at its inner faces,
// cells are wrong that no other cell of the tile's own part reads, and their gradient is 0.
struct TiledChain {
  struct Tile {
    std::int64_t input = 0;   // its first cell of the chain's input
    std::int64_t output = 0;  // and of the chain's output, both along the axis
    // The cells of the output that belong to this tile.
    std::int64_t own_begin = 0;
    std::int64_t own_end = 0;
  };

  std::size_t first = 0;  // number of the first layer
  std::size_t count = 0;  // of layers
  std::size_t axis = 0;
  ModelGraph graph;  // of one tile
  std::vector<Tile> tiles;

  // The arithmetic of all tiles over that of the chain.
  double work = 1;
};

// Throws an internal error for a chain that best_tiles() would not find: see tiles_fit().
TiledChain cut_into_tiles(const ModelGraph& graph, const ModelGraph::Tiled& layers);

// False if one of the layers is no convolution, pool or activation, none is a convolution, or the tiles would
// not be shorter than the field.
bool tiles_fit(const ModelGraph& graph, const ModelGraph::Tiled& layers);

// The chains that make the graph's step smallest. None of them computes more than a quarter again of what the
// whole field needs, and each saves a tenth of the step's memory.
std::vector<ModelGraph::Tiled> best_tiles(ModelGraph graph);

// "conv1 .. pool2 in 8 tiles of 72 cells of depth, 1.13 of the arithmetic"
std::string describe(const TiledChain& chain, const ModelGraph& graph);

}  // namespace wflow::trainer
