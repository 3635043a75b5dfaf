// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/model_graph.h"

#include <cstddef>
#include <vector>

namespace wflow::trainer {

GraphUses uses_of(const ModelGraph& graph) {
  const auto value_of = [&](std::size_t layer) { return graph.inputs.size() + layer; };
  GraphUses uses;
  uses.readers.assign(value_of(graph.layers.size()), 0);
  uses.learned.assign(uses.readers.size(), false);
  uses.learned.front() = graph.learns_input;
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    const Layer& layer = graph.layers[i];
    uses.learned[value_of(i)] = !layer.parameters.empty() && !layer.frozen;
    for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
      ++uses.readers[layer.inputs[k]];
      if (uses.learned[layer.inputs[k]] && layer.passes_gradient(k)) uses.learned[value_of(i)] = true;
    }
  }
  std::vector<bool> reached(uses.readers.size(), false);
  for (const ModelGraph::Output& output : graph.outputs) {
    ++uses.readers[output.value];
    reached[output.value] = true;
  }
  for (std::size_t i = graph.layers.size(); i-- > 0;) {
    const Layer& layer = graph.layers[i];
    for (std::size_t k = 0; k < layer.inputs.size(); ++k)
      if (reached[value_of(i)] && layer.passes_gradient(k)) reached[layer.inputs[k]] = true;
  }
  for (std::size_t value = 0; value < reached.size(); ++value)
    if (!reached[value]) uses.learned[value] = false;
  return uses;
}

std::size_t chain_length(const ModelGraph& graph, const GraphUses& uses, std::size_t first) {
  std::size_t length = 1;
  for (std::size_t next = first + 1; next < graph.layers.size(); ++next, ++length) {
    const std::size_t previous = graph.inputs.size() + next - 1;
    if (graph.layers[next].inputs != std::vector{previous} || uses.readers[previous] != 1) break;
  }
  return length;
}

bool may_overwrite_input(const ModelGraph& graph, const GraphUses& uses, const Layer& layer) {
  const std::size_t value = layer.inputs.front();
  if (value < graph.inputs.size() || uses.readers[value] != 1) return false;
  switch (graph.layers[value - graph.inputs.size()].kind) {
    case LayerKind::convolution:
    case LayerKind::linear:
    case LayerKind::batch_norm:
    case LayerKind::average_pool:
    case LayerKind::max_pool:
      return true;
    default:
      return false;
  }
}

}  // namespace wflow::trainer
