// SPDX-License-Identifier: Apache-2.0
// The distribution that the weights of each layer are drawn from, by its kind, its place and what follows it.
//
//   he      weights of variance 2 / fan_in, biases 0 (He et al. 2015)
//   torch   weights and biases within 1 / sqrt(fan_in) of 0, as PyTorch's own layers
//   auto    convolutions before a rectifier: he's weights and torch's biases; all other layers: torch
//   data    he, and scaled by the data afterwards (trainer/training/data_initial.h)
//
// Dense layers learn best from small weights: with those of He, errors on small regressions are up to three
// times as large. A deep trunk of convolutions loses its signal with them. bench/README.md has the figures.
#pragma once

#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// Sets `initial` and `fan_in` of the weights and biases of convolutions and dense layers. A layer's own `init`
// comes before the network's rule.
void choose_initial_weights(ModelGraph& graph, InitialWeights rule);

}  // namespace wflow::trainer
