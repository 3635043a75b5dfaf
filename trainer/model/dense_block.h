// SPDX-License-Identifier: Apache-2.0
// A dense layer with oneDNN's matrix products, which are made for the processor at hand: OpenBLAS 0.3.21
// takes AVX2 kernels on processors with AVX-512 that are newer than it, at 0.4 of the speed, and the
// reference BLAS a hundredth. Included by the torch translation units of this folder alone.
#pragma once

#include <memory>

#include "trainer/model/torch_layers.h"

namespace wflow::trainer {

std::unique_ptr<TorchLayer> make_dense_block(const LayerTensors& tensors);

}  // namespace wflow::trainer
