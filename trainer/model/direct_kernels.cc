// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/direct_kernels.h"

#include <cstdlib>
#include <string_view>

#include "trainer/model/blocked_kernels.h"

namespace wflow::trainer {

extern const DirectKernels plain_kernels;
extern const BlockedKernels plain_blocked_kernels;
#ifdef WFLOW_X86_KERNELS
extern const DirectKernels avx2_kernels;
extern const BlockedKernels avx2_blocked_kernels;
extern const DirectKernels avx512_kernels;
extern const BlockedKernels avx512_blocked_kernels;
#endif

namespace {

const DirectKernels& choose() {
#ifdef WFLOW_X86_KERNELS
  const char* wish = std::getenv("WFLOW_KERNELS");
  const std::string_view wanted = wish == nullptr ? "" : wish;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx512 && wanted != "avx2" && wanted != "plain") return avx512_kernels;
  if (avx2 && wanted != "plain") return avx2_kernels;
#endif
  return plain_kernels;
}

}  // namespace

const DirectKernels& direct_kernels() {
  static const DirectKernels& chosen = choose();
  return chosen;
}

const BlockedKernels& blocked_kernels() {
#ifdef WFLOW_X86_KERNELS
  if (&direct_kernels() == &avx512_kernels) return avx512_blocked_kernels;
  if (&direct_kernels() == &avx2_kernels) return avx2_blocked_kernels;
#endif
  return plain_blocked_kernels;
}

// Space for a vector that begins at any cell and reads beyond the row.
std::int64_t padded_row(const BoxSize& box) {
  const std::int64_t vector = box.w <= 4 ? 4 : box.w <= 8 ? 8 : 16;
  return (box.w + vector - 1) / vector * vector + 2;
}

std::int64_t packed_size(std::int64_t in, std::int64_t out) {
  return (out + kChannelBlock - 1) / kChannelBlock * in * 27 * kChannelBlock;
}

void pack_weights(const float* weights, std::int64_t in, std::int64_t out, bool backward, float* packed) {
  const std::int64_t from = backward ? out : in;
  const std::int64_t to = backward ? in : out;
  for (std::int64_t o = 0; o < (to + kChannelBlock - 1) / kChannelBlock * kChannelBlock; ++o) {
    for (std::int64_t i = 0; i < from; ++i) {
      for (std::int64_t k = 0; k < 27; ++k) {
        const float value = o >= to    ? 0.0F
                            : backward ? weights[(i * in + o) * 27 + 26 - k]
                                       : weights[(o * in + i) * 27 + k];
        packed[((o / kChannelBlock * from + i) * 27 + k) * kChannelBlock + o % kChannelBlock] = value;
      }
    }
  }
}

}  // namespace wflow::trainer
