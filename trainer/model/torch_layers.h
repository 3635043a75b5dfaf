// SPDX-License-Identifier: Apache-2.0
// One object a layer (or a fused group of layers), with forward and backward as plain ATen calls: a chain
// needs no autograd graph, and a layer knows best which of its arrays may be overwritten.
// Included by the torch translation units of this folder alone.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "trainer/model/flat_state.h"
#include "trainer/model/network.h"

namespace wflow::trainer {

struct ParameterTensors {
  at::Tensor value;
  at::Tensor gradient;
};

class TorchLayer {
 public:
  virtual ~TorchLayer() = default;
  // `x` may be overwritten when the layer works in place.
  virtual at::Tensor forward(const at::Tensor& x, const StepKey& key) = 0;
  virtual at::Tensor predict(const at::Tensor& x) = 0;
  // Gives the gradient of the input; an undefined tensor where `wants_input` is false.
  virtual at::Tensor backward(const at::Tensor& gradient, bool wants_input) = 0;
};

// Tensors of a layer that alias the flat arrays, in order of layer.parameters and layer.buffers.
struct LayerTensors {
  std::vector<ParameterTensors> parameters;
  std::vector<at::Tensor> running;     // buffers
  std::vector<at::Tensor> statistics;  // of this batch, times samples
};

std::unique_ptr<TorchLayer> make_torch_layer(const Layer& layer, const LayerTensors& tensors);

}  // namespace wflow::trainer
