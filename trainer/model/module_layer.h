// SPDX-License-Identifier: Apache-2.0
// The layer of module_graph.h. Included by the torch translation units of this folder alone.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>

#include "trainer/model/torch_layers.h"

namespace wflow::trainer {

// Its parameters are the layer's tensors. In training its own norms move its buffers, each by the change that
// it found on this rank: layer.statistics has the change times the samples.
std::unique_ptr<TorchLayer> make_module_layer(const Layer& layer, const LayerTensors& tensors);

// The module with the state's values, to be exported.
torch::jit::Module module_with_values(const Layer& layer, const FlatState& state);

}  // namespace wflow::trainer
