// SPDX-License-Identifier: Apache-2.0
// Counts the readers of each value of a graph and finds the values that have a gradient.
#pragma once

#include <cstddef>
#include <vector>

#include "trainer/model/model_graph.h"

namespace wflow::trainer {

struct GraphUses {
  std::vector<int> readers;   // per value: number of layers and outputs that read it
  std::vector<bool> learned;  // true for values that depend on a parameter and on which an output depends
};
GraphUses uses_of(const ModelGraph& graph);

// True if a layer may overwrite its first input: nothing else reads it, and the layer before returns a new
// array that its backward pass does not need.
bool may_overwrite_input(const ModelGraph& graph, const GraphUses& uses, const Layer& layer);

// Number of layers, from `first` on, each of which but the first reads only the one before and is its only
// reader.
std::size_t chain_length(const ModelGraph& graph, const GraphUses& uses, std::size_t first);

}  // namespace wflow::trainer
