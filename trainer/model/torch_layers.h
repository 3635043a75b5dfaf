// SPDX-License-Identifier: Apache-2.0
// One object per layer (or fused group of layers) with forward and backward. The layers that take most of the
// time call ATen directly and overwrite arrays that are not read again; each of the others keeps its own
// autograd graph. So gradients are final layer by layer, from the last one on.
// To be included only by the torch translation units of this folder.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "trainer/config.h"
#include "trainer/model/flat_state.h"
#include "trainer/model/network.h"
#include "trainer/model/tiles.h"

namespace torch::jit {
struct Module;
}

namespace wflow::trainer {

struct ParameterTensors {
  at::Tensor value;
  at::Tensor gradient;
  bool learns = true;  // false: the gradient is not read, and large layers leave it out
};

// Fields are [samples, channels, depth, height, width], vectors [samples, values].
class TorchLayer {
 public:
  using Tensors = std::vector<at::Tensor>;
  virtual ~TorchLayer() = default;
  virtual at::Tensor forward(const Tensors& inputs, const StepKey& key) = 0;
  virtual at::Tensor predict(const Tensors& inputs) = 0;
  // Returns the gradients of the inputs; an undefined tensor for an input that is not wanted.
  virtual Tensors backward(const at::Tensor& gradient, const std::vector<bool>& wanted) = 0;
};

// A layer with one input.
class UnaryLayer : public TorchLayer {
 public:
  // `x` may be overwritten when the layer works in place.
  virtual at::Tensor forward(const at::Tensor& x, const StepKey& key) = 0;
  virtual at::Tensor predict(const at::Tensor& x) = 0;
  virtual at::Tensor backward(const at::Tensor& gradient, bool wants_input) = 0;

  at::Tensor forward(const Tensors& inputs, const StepKey& key) final { return forward(inputs.front(), key); }
  at::Tensor predict(const Tensors& inputs) final { return predict(inputs.front()); }
  Tensors backward(const at::Tensor& gradient, const std::vector<bool>& wanted) final {
    return {backward(gradient, wanted.front())};
  }
};

// Tensors of a layer that alias the flat arrays, in order of layer.parameters and layer.buffers.
struct LayerTensors {
  std::vector<ParameterTensors> parameters;
  std::vector<at::Tensor> running;     // buffers
  std::vector<at::Tensor> statistics;  // statistics of this batch, times the samples
};

// `owns_input`: nothing else reads the layer's input, neither forward nor backward: it may be overwritten.
// `precision`: of the factors in convolutions and linear layers; sums and results have 32 bits. On a GPU the
// products use 16 bits in the layout of cuDNN's tensor kernels (channels last); on a processor the factors
// are rounded to 16 bits, so that a setting behaves as on a GPU.
std::unique_ptr<TorchLayer> make_torch_layer(const Layer& layer, const LayerTensors& tensors, bool owns_input,
                                             Precision precision);

// common_layers.cc: layers that need no more of libtorch than its tensors; null for other kinds.
std::unique_ptr<TorchLayer> make_common_layer(const Layer& layer);

// True for kinds that read and return [samples, channels, depth, height, width] even for a field of one cell.
bool works_on_fields(LayerKind kind);

// A layer's output, computed by operations that libtorch can differentiate.
using LayerFunction =
    std::function<at::Tensor(const TorchLayer::Tensors& inputs, const TorchLayer::Tensors& parameters)>;
// sequence_layers.cc: recurrent, attention and spectral layers; empty for other kinds.
LayerFunction sequence_function(const Layer& layer);
// trace_layer.cc: trace_density.
LayerFunction trace_function(const Layer& layer);

// recurrent_block.cc, spectral_block.cc: on a processor, with oneDNN's matrix products and their own backward
// pass.
std::unique_ptr<TorchLayer> make_recurrent_block(const Layer& layer, const LayerTensors& tensors);
std::unique_ptr<TorchLayer> make_spectral_block(const Layer& layer, const LayerTensors& tensors);

// dense_block.cc
std::unique_ptr<TorchLayer> make_dense_block(const LayerTensors& tensors);

// direct_block.cc: a group of layers (convolution, norm, leaky ReLU, average pool) in one pass of
// hand-written kernels. Number of layers, from the first on, that one block can replace; 0: none (other
// kernel, odd size, many channels).
std::size_t direct_block_length(std::span<const Layer> layers);

// `tensors`: one entry per layer. `recomputes`: as in ModelGraph.
std::unique_ptr<TorchLayer> make_direct_block(std::span<const Layer> layers,
                                              std::span<const LayerTensors> tensors, bool recomputes);

// tiled_block.cc: a chain that is computed tile by tile, each by a network of its own. `learns_input`: the
// gradient of the chain's input is wanted. On a processor.
std::unique_ptr<TorchLayer> make_tiled_block(const TiledChain& chain, std::span<const LayerTensors> tensors,
                                             bool learns_input, KernelChoice kernels, Precision precision);

// module_layer.cc: a module of module_graph() in network.h. Its parameters are the layer's tensors. In
// training its own norms change its buffers; layer.statistics has the change on this rank times the samples.
std::unique_ptr<TorchLayer> make_module_layer(const Layer& layer, const LayerTensors& tensors);

// The module with the state's values, for the export.
torch::jit::Module module_with_values(const Layer& layer, const FlatState& state);

// A field with a border from its other ends: what a convolution with `padding: periodic` reads. The
// convolution itself has no padding, so that every kernel for convolutions fits.

// On a processor. `block`: channels of a block in oneDNN's layout, for flat tensors
// [samples][channels / B][cells][B]; 0: libtorch's layout.
std::unique_ptr<TorchLayer> make_wrap_layer(const Layer& layer, int block);

// The border along one axis of a tensor, on any device.
at::Tensor wrapped_along(const at::Tensor& x, std::int64_t axis, std::int64_t low, std::int64_t high);

}  // namespace wflow::trainer
