// SPDX-License-Identifier: Apache-2.0
// A group of layers (convolution, norm, leaky ReLU, average pool) as one pass of hand-written kernels.
// Included by the torch translation units of this folder alone.
#pragma once

#include <memory>
#include <span>

#include "trainer/model/torch_layers.h"

namespace wflow::trainer {

// How many layers from the first on one block can stand for; 0: none (other kernel, odd size, many channels).
std::size_t direct_block_length(std::span<const Layer> layers);

// `tensors`: of each of the layers.
std::unique_ptr<TorchLayer> make_direct_block(std::span<const Layer> layers,
                                              std::span<const LayerTensors> tensors);

}  // namespace wflow::trainer
