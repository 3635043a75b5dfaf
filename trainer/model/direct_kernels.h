// SPDX-License-Identifier: Apache-2.0
// Hand-written kernels for layers that are slow in libtorch on a processor: 3x3x3 convolutions of few
// channels (oneDNN pads them to 16), and batch norm, leaky ReLU and average pooling in one pass instead of
// three. They work on one sample, so that the next kernel finds the output in the cache.
#pragma once

#include <cstdint>

namespace wflow::trainer {

// A sample has `channels` boxes of d x h x w cells, w fastest.
struct BoxSize {
  std::int64_t d = 0;
  std::int64_t h = 0;
  std::int64_t w = 0;
  std::int64_t voxels() const { return d * h * w; }
};

// Copies of the boxes with a border of zeros: rows of padded_row() floats, (h + 2) rows, (d + 2) planes.
std::int64_t padded_row(const BoxSize& box);
inline std::int64_t padded_voxels(const BoxSize& box) {
  return (box.d + 2) * (box.h + 2) * padded_row(box);
}

// The fused kernel's function of a channel: leaky(factor * x + constant), optionally averaged over 2^3 cells.
struct Activation {
  float factor = 1;
  float constant = 0;
  float slope = 0;
  bool pool = false;
};

struct DirectKernels {
  const char* name;  // "avx512_kernels", "avx2_kernels", "plain_kernels"

  void (*pad)(const float* x, std::int64_t channels, const BoxSize& box, float* padded);

  // packed: [out / 4 rounded up][in][27][4] as pack_weights() makes it. y: [out][d][h][w].
  void (*convolve)(const float* padded, const float* packed, const float* bias, std::int64_t in,
                   std::int64_t out, const BoxSize& box, float* y);

  // Adds this sample's part to `sums`, [out][in][27][16]: sixteen partial sums each.
  void (*weight_gradient)(const float* padded, const float* dy, std::int64_t in, std::int64_t out,
                          const BoxSize& box, float* sums);

  // Sums of (y - shift) and of its square over one channel.
  void (*moments)(const float* y, std::int64_t count, float shift, double* sum, double* squares);

  void (*activate)(const float* y, const BoxSize& box, const Activation& how, float* z);

  // Sums over one channel of g = dL/d(factor * y + constant) and of g * (y - mean).
  void (*gradient_sums)(const float* y, const float* dz, const BoxSize& box, const Activation& how,
                        float mean, double* sum_g, double* sum_gy);

  // dy = factor * (g - g_mean - (y - mean) * gy_factor). Adds the sum of g.
  void (*activate_backward)(const float* y, const float* dz, const BoxSize& box, const Activation& how,
                            float mean, float g_mean, float gy_factor, float* dy, double* sum_g);

  // The gates of recurrent layers; x and y may be the same. Errors of 3 units in the last place at most
  // (exp and tanh by the polynomials of Cephes, expf.c and tanhf.c).
  void (*sigmoid)(const float* x, std::int64_t count, float* y);
  void (*tanh)(const float* x, std::int64_t count, float* y);
};

// The best set for this processor. WFLOW_KERNELS=plain|avx2|avx512 in the environment chooses another (for
// tests).
const DirectKernels& direct_kernels();

inline constexpr std::int64_t kChannelBlock = 4;
inline constexpr std::int64_t kPartialSums = 16;
std::int64_t packed_size(std::int64_t in, std::int64_t out);
// weights: [out][in][27]. `backward`: for dx from dy, with in and out exchanged and the stencil mirrored;
// `packed` then has packed_size(out, in) floats.
void pack_weights(const float* weights, std::int64_t in, std::int64_t out, bool backward, float* packed);

}  // namespace wflow::trainer
