// SPDX-License-Identifier: Apache-2.0
// Groups of layers that one pass computes (onednn_block.h): a convolution with the norm, activation and pool
// after it. Needs no library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/model/distribution.h"
#include "trainer/model/graph_uses.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// Number of layers, from the first on, that one block can replace; 0: the first is not a convolution, plain
// or transposed.
std::size_t onednn_block_length(std::span<const Layer> layers);
// The same for layers of fields that are in blocks already; 0: they begin with no norm, activation or pool.
std::size_t blocked_tail_length(std::span<const Layer> layers);

// oneDNN computes a convolution whose channels fill this part of its blocks; hand-written kernels the others,
// where each rank has whole samples.
inline constexpr double kLeastUsefulPart = 0.6;

// The padding of a "same" convolution of 3^3 or 1 x 3 x 3 cells.
std::array<std::int64_t, 3> border_of(const Layer& layer);
// True for the hand-written weight gradient of a first layer: few channels, 3^3 or 1 x 3 x 3 cells.
bool has_own_weight_gradient(const Layer& layer);

// The layers from `first` on, each the only reader of the one before, that a rank can compute of its own
// cells once it has those that the first one reads.
std::span<const Layer> own_chain(const ModelGraph& graph, const GraphUses& uses,
                                 const Distribution& distribution, std::size_t first);

}  // namespace wflow::trainer
