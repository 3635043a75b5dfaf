// SPDX-License-Identifier: Apache-2.0
// Sixteen values at once, by the compiler's own vectors, which every processor of the two architectures has.
#include "converters/shards/shuffle.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

static_assert(std::endian::native == std::endian::little, "shards are little-endian, and so is every target");

namespace wflow::converters {

namespace {

using Bytes = std::uint8_t __attribute__((vector_size(16)));
constexpr std::size_t kStep = sizeof(Bytes);  // values

inline Bytes even_bytes(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
inline Bytes odd_bytes(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
inline Bytes low_pairs(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Bytes high_pairs(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// Each round doubles the distance between neighbouring bytes of a value; after log2(Width) rounds a vector
// holds one byte of each value.
template <std::size_t Width>
inline void to_planes(Bytes (&v)[Width]) {
  for (std::size_t round = 1; round < Width; round *= 2) {
    Bytes next[Width];
    for (std::size_t i = 0; i < Width / 2; ++i) {
      next[i] = even_bytes(v[2 * i], v[2 * i + 1]);
      next[Width / 2 + i] = odd_bytes(v[2 * i], v[2 * i + 1]);
    }
    std::memcpy(v, next, sizeof next);
  }
}

template <std::size_t Width>
inline void to_values(Bytes (&v)[Width]) {
  for (std::size_t round = 1; round < Width; round *= 2) {
    Bytes next[Width];
    for (std::size_t i = 0; i < Width / 2; ++i) {
      next[2 * i] = low_pairs(v[i], v[Width / 2 + i]);
      next[2 * i + 1] = high_pairs(v[i], v[Width / 2 + i]);
    }
    std::memcpy(v, next, sizeof next);
  }
}

template <std::size_t Width>
void shuffle_values(const std::uint8_t* __restrict in, std::uint8_t* __restrict out, std::size_t count) {
  std::size_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    Bytes v[Width];
    std::memcpy(v, in + i * Width, sizeof v);
    to_planes<Width>(v);
    for (std::size_t byte = 0; byte < Width; ++byte) std::memcpy(out + byte * count + i, &v[byte], kStep);
  }
  for (; i < count; ++i) {
    for (std::size_t byte = 0; byte < Width; ++byte) out[byte * count + i] = in[i * Width + byte];
  }
}

// `length` values of planes of `count` bytes.
template <std::size_t Width>
void unshuffle_values(const std::uint8_t* __restrict in, std::size_t count, std::uint8_t* __restrict out,
                      std::size_t length) {
  std::size_t i = 0;
  for (; i + kStep <= length; i += kStep) {
    Bytes v[Width];
    for (std::size_t byte = 0; byte < Width; ++byte) std::memcpy(&v[byte], in + byte * count + i, kStep);
    to_values<Width>(v);
    std::memcpy(out + i * Width, v, sizeof v);
  }
  for (; i < length; ++i) {
    for (std::size_t byte = 0; byte < Width; ++byte) out[i * Width + byte] = in[byte * count + i];
  }
}

}  // namespace

void shuffle_bytes(std::span<const std::uint8_t> in, std::span<std::uint8_t> out, std::size_t width) {
  WFLOW_CHECK(in.size() == out.size() && in.size() % width == 0);
  const std::size_t count = in.size() / width;
  switch (width) {
    case 1:
      std::copy(in.begin(), in.end(), out.begin());
      break;
    case 2:
      shuffle_values<2>(in.data(), out.data(), count);
      break;
    case 4:
      shuffle_values<4>(in.data(), out.data(), count);
      break;
    case 8:
      shuffle_values<8>(in.data(), out.data(), count);
      break;
    default:
      WFLOW_CHECK(false);
  }
}

void unshuffle_bytes(std::span<const std::uint8_t> in, std::span<std::uint8_t> out, std::size_t width) {
  WFLOW_CHECK(in.size() == out.size());
  unshuffle_part(in, width, 0, out);
}

void unshuffle_part(std::span<const std::uint8_t> in, std::size_t width, std::size_t first,
                    std::span<std::uint8_t> out) {
  WFLOW_CHECK(in.size() % width == 0 && out.size() % width == 0);
  const std::size_t count = in.size() / width;
  const std::size_t length = out.size() / width;
  WFLOW_CHECK(first <= count && length <= count - first);
  const std::uint8_t* from = in.data() + first;
  switch (width) {
    case 1:
      std::copy_n(from, length, out.begin());
      break;
    case 2:
      unshuffle_values<2>(from, count, out.data(), length);
      break;
    case 4:
      unshuffle_values<4>(from, count, out.data(), length);
      break;
    case 8:
      unshuffle_values<8>(from, count, out.data(), length);
      break;
    default:
      WFLOW_CHECK(false);
  }
}

}  // namespace wflow::converters
