// SPDX-License-Identifier: Apache-2.0
// Hand-written passes over fields in oneDNN's blocked layout, [channels / B][cells][B] with B = 8 or 16:
// norm, leaky ReLU and pooling in one pass, forward and backward, and the weight gradient of a first layer,
// for which oneDNN has only its reference kernel. Each call works on one sample, one block of channels (the
// weight gradient: all blocks) and the planes [first, last) of the output, so that the caller spreads the
// planes over threads.
#pragma once

#include <array>
#include <cstdint>

#include "trainer/model/direct_kernels.h"

namespace wflow::trainer {

enum class BlockedPool { average, maximum };  // the average of one cell: no pooling

struct BlockedShape {
  BoxSize in;
  BoxSize out;                                // cells beyond the last whole window belong to none
  BoxSize frame;                              // cells of the fields that the output is stored in
  std::array<std::int64_t, 3> pool{1, 1, 1};  // 1 or 2 along each axis
  BlockedPool kind = BlockedPool::average;
  // The rows [first, last) of the output that `activate` computes; a last one of -1: to the end.
  std::array<std::int64_t, 2> rows{0, -1};
};

// pool(leaky(factor * y + constant)), B values each. Channels that only fill the last block have factor 0.
struct BlockedActivation {
  const float* factor = nullptr;
  const float* constant = nullptr;
  float slope = 1;
};

// dy = factor * g - offset - (y - mean) * linear, g being the gradient of the norm's output.
struct BlockedNorm {
  const float* mean = nullptr;
  const float* offset = nullptr;
  const float* linear = nullptr;
};

struct BlockedPass {
  const float* y;        // the convolution's output; not read by backward without norm after a maximum
  float* z;              // the result; may be y without pooling
  unsigned char* place;  // cell of the window with each maximum; may be null in `activate`, and for one cell
  const float* dz = nullptr;
};

struct BlockedKernels {
  void (*activate)(std::int64_t block, const BlockedShape& shape, const BlockedActivation& how,
                   const BlockedPass& pass, std::int64_t first, std::int64_t last);

  // Adds the sums of g and of g * (y - mean), B doubles each.
  void (*gradient_sums)(std::int64_t block, const BlockedShape& shape, const BlockedActivation& how,
                        const BlockedPass& pass, const float* mean, std::int64_t first, std::int64_t last,
                        double* sum_g, double* sum_gy);

  // Writes dy of the planes; adds the sums of g, B doubles. norm: null without one; factors are then 1 or 0.
  void (*gradient)(std::int64_t block, const BlockedShape& shape, const BlockedActivation& how,
                   const BlockedPass& pass, const BlockedNorm* norm, std::int64_t first, std::int64_t last,
                   float* dy, double* sum_g);

  // Adds the sums of (y - shift) and of its square over `cells` cells, B doubles each.
  void (*moments)(std::int64_t block, const float* y, std::int64_t cells, const float* shift, double* sum,
                  double* squares);

  // Weight gradient of a convolution of 3^3 cells (`flat`: 1 x 3 x 3) with a border of zeros. padded: this
  // sample as DirectKernels::pad writes it; dy: [out_blocks][cells][B]. Adds to sums,
  // [out_blocks][in][27][B].
  void (*weight_gradient)(std::int64_t block, const float* padded, std::int64_t in, const BoxSize& box,
                          bool flat, const float* dy, std::int64_t out_blocks, std::int64_t first,
                          std::int64_t last, float* sums);
};

// The kernels for the same instruction set as direct_kernels().
const BlockedKernels& blocked_kernels();

}  // namespace wflow::trainer
