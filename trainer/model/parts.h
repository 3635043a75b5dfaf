// SPDX-License-Identifier: Apache-2.0
// Named parts of a network, such as an encoder: frozen, or written as models of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config.h"
#include "trainer/model/flat_state.h"
#include "trainer/model/model_export.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// The names of all parts, in order of their first layers.
std::vector<std::string> part_names(const ModelGraph& graph);

// True for a layer that `init: data` scales by its outputs: one with weights [outputs, ...] and a bias for
// each output. The parts `kept` have the weights of another training.
bool is_scaled_by_data(const ModelGraph& graph, std::size_t layer, std::span<const std::string> kept);

// Marks the layers of frozen parts. Error{spec} for a part that the network does not have, or if nothing is
// left that learns.
void apply_parts(ModelGraph& graph, std::span<const PartConfig> parts);

// The layers that lead to some of the graph's outputs and to a further value, for an update of a step; all
// inputs stay. Parts outside `learn` are frozen, unless it is empty.
ModelGraph update_graph(const ModelGraph& graph, std::span<const ModelGraph::Output> outputs,
                        std::span<const std::string> learn);

// The layers from one value to another, with the first as the only input, whose gradient is wanted.
// Error{spec} if they read other values too, or have a batch norm: then the gradient of a sample depends on
// the other samples.
ModelGraph path_graph(const ModelGraph& graph, std::size_t from, const ModelGraph::Output& to,
                      std::span<const std::string> learn);

// A part as a network of its own. Its inputs are the values that it reads from outside: inputs of the network
// in physical units, values of other layers as they are. Its outputs are its values that the rest of the
// network reads, or that are outputs of the network; only heads are in physical units.
struct PartModel {
  ModelGraph graph;
  ExportedUnits units;
};
PartModel part_model(const ModelGraph& graph, const ExportedUnits& units, const std::string& part);

// Positions in the arrays of all weights from the first to behind the last one that learns; equal ones if
// none does. `layout` has at least the weights of the graph.
std::pair<std::int64_t, std::int64_t> learned_range(const ModelGraph& graph, const FlatLayout& layout);

// The layers and the inputs that some of the heads need; `heads` are ascending numbers. All of them give the
// whole graph.
PartModel model_of_heads(const ModelGraph& graph, const ExportedUnits& units,
                         std::span<const std::size_t> heads);

}  // namespace wflow::trainer
