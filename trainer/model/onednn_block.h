// SPDX-License-Identifier: Apache-2.0
// Layers on oneDNN's blocked layout: a group of them (convolution, norm, leaky ReLU, pool) with the
// convolution by oneDNN and the rest in one pass of blocked_kernels.h, and the layers between such groups.
// Fields are flat tensors, [samples][channels / B][cells][B]; the network reorders them where a layer reads
// another order. To be included only by the torch translation units of this folder.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/direct_kernels.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {

// Memory that all blocks of a network use in turn.
class BlockScratch {
 public:
  // At least `count` floats with any content.
  float* take(std::int64_t count) {
    if (buffer_.size() < count) buffer_ = FloatBuffer(count);
    return buffer_.data();
  }

 private:
  FloatBuffer buffer_;
};

// For a block that computes a part of each sample, with other ranks (split_network.h). Its layers have the
// sizes of the part.
struct BlockPart {
  // Adds up the numbers of all ranks that share a sample; empty: no other rank does.
  std::function<void(std::span<double>)> add;
  std::int64_t norm_voxels = 0;  // of the field that a norm measures, on all these ranks together
  // Gets the gradient of the input before that of the weights is computed. Empty: it is computed last.
  std::function<void(const at::Tensor&)> send;
};

// Cells of an output that other ranks read: planes at both ends of the depth, rows at both ends of the
// height.
struct OutputEdges {
  std::array<std::int64_t, 2> planes = {0, 0};
  std::array<std::int64_t, 2> rows = {0, 0};
};

class OnednnBlock : public UnaryLayer {
 public:
  // Computes these cells of each output first, and calls `ready` with the output before it computes the
  // others. To be called before the first step.
  virtual void compute_first(const OutputEdges& edges, std::function<void(const at::Tensor&)> ready) = 0;
  // Stores the output, and reads its gradient, in fields of `frame` cells, of which the output has those from
  // `first` on; the others have any content. To be called before the first step. Without a call the fields
  // have the output's cells alone.
  virtual void store_in(const BoxSize& frame, const BoxSize& first) = 0;
  // Channels per block that the input must have, and that the output has; 0: a plain input.
  virtual int input_block() const = 0;
  virtual int output_block() const = 0;
  virtual std::vector<std::string> kernels() const = 0;  // oneDNN's names of the convolution's kernels
};

// nullptr if oneDNN has only its reference kernels for the convolution. `tensors`: one entry per layer.
// `recomputes`: as in ModelGraph.
std::unique_ptr<OnednnBlock> make_onednn_block(std::span<const Layer> layers,
                                               std::span<const LayerTensors> tensors, bool wants_input,
                                               Precision precision, std::shared_ptr<BlockScratch> scratch,
                                               bool recomputes, BlockPart part = {});

// Norm, activation and pool of fields that are in blocks already.
std::unique_ptr<OnednnBlock> make_blocked_tail(std::span<const Layer> layers,
                                               std::span<const LayerTensors> tensors, int block,
                                               std::shared_ptr<BlockScratch> scratch, BlockPart part = {});

// Joins the channels of inputs in blocks. Each has a multiple of the block's channels.
std::unique_ptr<TorchLayer> make_blocked_concatenation(std::span<const TensorShape> inputs);

}  // namespace wflow::trainer
