// SPDX-License-Identifier: Apache-2.0
// Plain loops over fixed blocks, for the vectoriser (this file is compiled with -O3, and without a*b+c in one
// rounding: the bits are the same as of two passes, and on every processor).
#include "converters/shards/planes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace wflow::converters {

namespace {

constexpr std::size_t kBlockValues = 1024;

template <std::size_t Bytes>
struct WordOf;
template <>
struct WordOf<1> {
  using Type = std::uint8_t;
};
template <>
struct WordOf<2> {
  using Type = std::uint16_t;
};
template <>
struct WordOf<4> {
  using Type = std::uint32_t;
};
template <>
struct WordOf<8> {
  using Type = std::uint64_t;
};

// `length` values from `first` on into `words`, put together from `count` bytes a plane.
template <typename Word>
void gather_words(const std::uint8_t* __restrict planes, std::size_t count, std::size_t first,
                  std::size_t length, Word* __restrict words) {
  const std::uint8_t* __restrict lowest = planes + first;
  for (std::size_t i = 0; i < length; ++i) words[i] = lowest[i];
  for (std::size_t byte = 1; byte < sizeof(Word); ++byte) {
    const std::uint8_t* __restrict plane = planes + byte * count + first;
    const unsigned shift = static_cast<unsigned>(8 * byte);
    for (std::size_t i = 0; i < length; ++i)
      words[i] = static_cast<Word>(words[i] | static_cast<Word>(static_cast<Word>(plane[i]) << shift));
  }
}

template <typename Value>
void copy_values(const ChunkValues& chunk, std::size_t first, std::span<float> to, const Scale* scale) {
  using Word = typename WordOf<sizeof(Value)>::Type;
  const std::size_t count = chunk.bytes.size() / sizeof(Value);
  WFLOW_CHECK(first <= count && to.size() <= count - first);
  std::array<Value, kBlockValues> values;
  for (std::size_t at = 0; at < to.size(); at += kBlockValues) {
    const std::size_t length = std::min(kBlockValues, to.size() - at);
    if (chunk.shuffled && sizeof(Value) > 1) {
      std::array<Word, kBlockValues> words;
      gather_words<Word>(chunk.bytes.data(), count, first + at, length, words.data());
      std::memcpy(values.data(), words.data(), length * sizeof(Value));
    } else {
      std::memcpy(values.data(), chunk.bytes.data() + (first + at) * sizeof(Value), length * sizeof(Value));
    }
    float* __restrict out = to.data() + at;
    if (scale == nullptr) {
      for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<float>(values[i]);
    } else {
      const Scale s = *scale;
      for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<float>(values[i]) * s.factor + s.offset;
    }
  }
}

}  // namespace

void copy_as_float(const ChunkValues& chunk, std::size_t first, std::span<float> to, const Scale* scale) {
  with_type(chunk.dtype, [&](auto zero) { copy_values<decltype(zero)>(chunk, first, to, scale); });
}

}  // namespace wflow::converters
