// SPDX-License-Identifier: Apache-2.0
// Plain loops over fixed blocks, for the vectoriser (this file is compiled with -O3, and without a*b+c in one
// rounding: the bits are the same as with two passes, and on every processor).
#include "converters/shards/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/error.h"

static_assert(std::endian::native == std::endian::little, "shards are little-endian, and so is every target");

namespace wflow::converters {

namespace {

constexpr std::size_t kBlockValues = 1024;

template <typename Value>
void copy_values(const ChunkValues& chunk, std::size_t first, std::span<float> to, const Scale* scale) {
  const std::size_t count = chunk.bytes.size() / sizeof(Value);
  WFLOW_CHECK(first <= count && to.size() <= count - first);
  const auto take = [&](std::size_t from, std::span<std::uint8_t> bytes) {
    if (chunk.shuffled) return unshuffle_part(chunk.bytes, sizeof(Value), from, bytes);
    std::memcpy(bytes.data(), chunk.bytes.data() + from * sizeof(Value), bytes.size());
  };
  if (std::is_same_v<Value, float> && scale == nullptr)
    return take(first, {reinterpret_cast<std::uint8_t*>(to.data()), to.size_bytes()});
  std::array<Value, kBlockValues> values;
  for (std::size_t at = 0; at < to.size(); at += kBlockValues) {
    const std::size_t length = std::min(kBlockValues, to.size() - at);
    take(first + at, {reinterpret_cast<std::uint8_t*>(values.data()), length * sizeof(Value)});
    float* __restrict out = to.data() + at;
    if (scale == nullptr) {
      for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<float>(values[i]);
    } else {
      const Scale s = *scale;
      if (s.centre == 0) {
        for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<float>(values[i]) * s.factor + s.offset;
      } else {
        for (std::size_t i = 0; i < length; ++i)
          out[i] = static_cast<float>(static_cast<double>(values[i]) - s.centre) * s.factor + s.offset;
      }
    }
  }
}

}  // namespace

void copy_as_float(const ChunkValues& chunk, std::size_t first, std::span<float> to, const Scale* scale) {
  with_type(chunk.dtype, [&](auto zero) { copy_values<decltype(zero)>(chunk, first, to, scale); });
}

// Handles sixteen values at once, with the compiler's vectors, which every processor of both architectures
// supports.

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
