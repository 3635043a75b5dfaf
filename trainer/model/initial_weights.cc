// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/initial_weights.h"

#include <algorithm>
#include <vector>

namespace wflow::trainer {
namespace {

bool draws_weights(LayerKind kind) {
  return kind == LayerKind::convolution || kind == LayerKind::transposed_convolution ||
         kind == LayerKind::linear;
}

bool is_rectifier(LayerKind kind) {
  return kind == LayerKind::leaky_relu || kind == LayerKind::relu || kind == LayerKind::elu ||
         kind == LayerKind::gelu || kind == LayerKind::silu;
}

// Whether a rectifier is the next activation on a way from `value`: norms, pools and layers that only
// rearrange are passed.
bool leads_to_rectifier(const ModelGraph& graph, std::size_t value) {
  std::vector<bool> reached(graph.inputs.size() + graph.layers.size(), false);
  reached[value] = true;
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    const Layer& layer = graph.layers[i];
    if (std::ranges::none_of(layer.inputs, [&](std::size_t input) { return reached[input]; })) continue;
    if (is_activation(layer.kind)) {
      if (is_rectifier(layer.kind)) return true;
    } else if (!draws_weights(layer.kind)) {
      reached[graph.inputs.size() + i] = true;
    }
  }
  return false;
}

}  // namespace

void choose_initial_weights(ModelGraph& graph, InitialWeights rule) {
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    Layer& layer = graph.layers[i];
    if (!draws_weights(layer.kind)) continue;
    Initial weights = Initial::uniform;
    Initial biases = Initial::uniform;
    const bool zero = layer.init == LayerInit::zero;
    const bool by_rule = layer.init == LayerInit::automatic;
    const bool he = layer.init == LayerInit::he ||
                    (by_rule && (rule == InitialWeights::he || rule == InitialWeights::data));
    if (zero || he) {
      weights = he ? Initial::he_normal : Initial::zero;
      biases = Initial::zero;
    } else if (by_rule && rule == InitialWeights::automatic && layer.kind != LayerKind::linear &&
               leads_to_rectifier(graph, graph.inputs.size() + i)) {
      weights = Initial::he_normal;
    }
    layer.parameters[0].initial = weights;
    if (layer.parameters.size() < 2) continue;
    layer.parameters[1].initial = biases;
    layer.parameters[1].fan_in = layer.parameters[0].fan_in;
  }
}

}  // namespace wflow::trainer
