// SPDX-License-Identifier: Apache-2.0
// A field with a border from its other ends: what a convolution with `padding: periodic` reads. The
// convolution itself has no padding, so that every kernel for convolutions fits.
// To be included only by the torch translation units of this folder.
#pragma once

#include <cstdint>
#include <memory>

#include "trainer/model/torch_layers.h"

namespace wflow::trainer {

// On a processor. `block`: channels of a block in oneDNN's layout, for flat tensors
// [samples][channels / B][cells][B]; 0: libtorch's layout.
std::unique_ptr<TorchLayer> make_wrap_layer(const Layer& layer, int block);

// The border along one axis of a tensor, on any device.
at::Tensor wrapped_along(const at::Tensor& x, std::int64_t axis, std::int64_t low, std::int64_t high);

}  // namespace wflow::trainer
