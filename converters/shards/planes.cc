// SPDX-License-Identifier: Apache-2.0
// Plain loops over fixed blocks, for the vectoriser (this file is compiled with -O3, and without a*b+c in one
// rounding: the bits are the same as of two passes, and on every processor).
#include "converters/shards/planes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "converters/shards/shuffle.h"

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

}  // namespace wflow::converters
