// SPDX-License-Identifier: Apache-2.0
// A convolution, plain or transposed, by oneDNN on its blocked layout, [samples][channels / B][cells][B]:
// forward, and the gradients of input and weights. Does not need libtorch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// Converts fields in libtorch's layout, [samples][channels][cells], to blocks and back. Channels that only
// fill the last block are 0.
class BlockedReorder {
 public:
  BlockedReorder(const TensorShape& shape, int block);
  ~BlockedReorder();
  std::int64_t blocked_count() const;  // floats per sample
  void to_blocked(std::int64_t samples, const float* plain, float* blocked);
  void to_plain(std::int64_t samples, const float* blocked, float* plain);

 private:
  struct Plans;
  std::unique_ptr<Plans> plans_;
};

class OnednnConvolution {
 public:
  // The gradient passes that oneDNN must compute. For a first layer of few channels, blocked_kernels.h
  // computes the weight gradient.
  struct Wanted {
    bool bias = false;  // never for a transposed convolution: its caller adds the bias
    bool input_gradient = true;
    bool weight_gradient = true;
    // bf16: x, dy and weights are rounded to 16 bits before the product; sums have 32 bits. An input of fewer
    // channels than a block is not rounded.
    Precision precision = Precision::full;
  };

  // nullptr if oneDNN has only its reference or its matrix product on plain layouts for one of the passes on
  // this processor; the weight gradient may be that product.
  static std::unique_ptr<OnednnConvolution> make(const Layer& layer, const Wanted& wanted);
  ~OnednnConvolution();

  int block() const;                         // B for the output: 8 or 16 channels
  bool plain_input() const;                  // reads [samples][channels][cells]: fewer channels than a block
  std::vector<std::string> kernels() const;  // oneDNN's names of the kernels for forward, input, weights

  // weights: [out][in][kernel], transposed [in][out][kernel]; bias: [out]; both plain. Throws
  // Error{unsupported} for a number of samples for which make()'s promise does not hold; none is known.
  void forward(std::int64_t samples, const float* x, const float* weights, const float* bias, float* y);
  void input_gradient(std::int64_t samples, const float* dy, const float* weights, float* dx);
  // Writes the gradient in the weights' plain order.
  void weight_gradient(std::int64_t samples, const float* x, const float* dy, float* gradient);

 private:
  struct Plans;
  explicit OnednnConvolution(std::unique_ptr<Plans> plans);
  std::unique_ptr<Plans> plans_;
};

// True if the processor multiplies bf16 (oneDNN would emulate it, slower than 32 bits).
bool onednn_has_bf16();
std::string onednn_instruction_set();  // "AVX512_CORE_BF16"

}  // namespace wflow::trainer
