// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/half_wire.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/random.h"

namespace wflow::trainer {
namespace {

constexpr std::uint32_t kInfinityBits = 0x7f800000U;
constexpr std::uint32_t kQuietNan = 0x40U;

// MurmurHash3's finaliser: 32 bits, as vector units multiply them.
constexpr std::uint32_t mix32(std::uint32_t z) {
  z = (z ^ (z >> 16)) * 0x85ebca6bU;
  z = (z ^ (z >> 13)) * 0xc2b2ae35U;
  return z ^ (z >> 16);
}

constexpr std::uint32_t half_bits(std::uint32_t bits, std::uint32_t random) {
  const bool nan = (bits & ~0x80000000U) > kInfinityBits;
  const bool finite = (bits & kInfinityBits) != kInfinityBits;
  return ((bits + (finite ? random & 0xffffU : 0U)) >> 16) | (nan ? kQuietNan : 0U);
}

}  // namespace

void round_to_half(std::span<const float> values, std::uint64_t seed, std::uint64_t first,
                   std::uint16_t* out) {
  constexpr std::uint64_t kBlock = 1U << 20;  // a new key so often: positions have 64 bits, the hash 32
  for (std::uint64_t at = 0; at < values.size();) {
    const std::uint64_t position = first + at;
    const auto key = static_cast<std::uint32_t>(hash64(seed, position / kBlock));
    const std::uint64_t end = std::min<std::uint64_t>(values.size(), at + kBlock - position % kBlock);
    auto low = static_cast<std::uint32_t>(position % kBlock);
    for (; at < end; ++at, ++low)
      out[at] = static_cast<std::uint16_t>(
          half_bits(std::bit_cast<std::uint32_t>(values[at]), mix32(low * 0x9e3779b9U ^ key)));
  }
}

void widen_half(std::span<const std::uint16_t> values, float* out) {
  for (std::size_t i = 0; i < values.size(); ++i)
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(values[i]) << 16);
}

}  // namespace wflow::trainer
