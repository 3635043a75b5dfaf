// SPDX-License-Identifier: Apache-2.0
// A group of layers (convolution, norm, leaky ReLU, pool) on oneDNN's blocked layout: the convolution by
// oneDNN, the rest in one pass of blocked_kernels.h. Consecutive blocks pass fields in the blocked layout;
// only the two ends of such a trunk reorder them. To be included only by the torch translation units of this
// folder.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

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

class OnednnBlock : public UnaryLayer {
 public:
  // Channels per block that the input may have, and that the output has; 0: a plain input.
  virtual int input_block() const = 0;
  virtual int output_block() const = 0;
  virtual void take_blocked_input() = 0;
  virtual void give_blocked_output() = 0;
  virtual std::vector<std::string> kernels() const = 0;  // oneDNN's names of the convolution's kernels
};

// Number of layers, from the first on, that one block can replace; 0: the first is not a convolution.
std::size_t onednn_block_length(std::span<const Layer> layers);

// nullptr if oneDNN has only its reference kernels for the convolution. `tensors`: one entry per layer.
std::unique_ptr<OnednnBlock> make_onednn_block(std::span<const Layer> layers,
                                               std::span<const LayerTensors> tensors, bool wants_input,
                                               Precision precision, std::shared_ptr<BlockScratch> scratch);

}  // namespace wflow::trainer
