// SPDX-License-Identifier: Apache-2.0
// Plain loops over whole words, written so that the compiler turns them into vector code (this file is
// compiled with -O3): inflate is several times slower than either, so intrinsics would gain nothing.
#include "converters/shards/shuffle.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

static_assert(std::endian::native == std::endian::little, "shards are little-endian, and so is every target");

namespace wflow::converters {

namespace {

// Blocks that stay in the first-level cache, through a local array that the compiler knows to be disjoint.
constexpr std::size_t kBlock = 1024;

template <typename Word>
void unshuffle_words(const std::uint8_t* __restrict in, std::uint8_t* __restrict out, std::size_t count) {
  for (std::size_t start = 0; start < count; start += kBlock) {
    const std::size_t length = std::min(kBlock, count - start);
    Word words[kBlock];
    for (std::size_t i = 0; i < length; ++i) words[i] = in[start + i];
    for (std::size_t byte = 1; byte < sizeof(Word); ++byte) {
      const std::uint8_t* __restrict plane = in + byte * count + start;
      const unsigned shift = static_cast<unsigned>(8 * byte);
      for (std::size_t i = 0; i < length; ++i) {
        words[i] = static_cast<Word>(words[i] | static_cast<Word>(static_cast<Word>(plane[i]) << shift));
      }
    }
    std::memcpy(out + start * sizeof(Word), words, length * sizeof(Word));
  }
}

template <typename Word>
void shuffle_words(const std::uint8_t* __restrict in, std::uint8_t* __restrict out, std::size_t count) {
  for (std::size_t start = 0; start < count; start += kBlock) {
    const std::size_t length = std::min(kBlock, count - start);
    Word words[kBlock];
    std::memcpy(words, in + start * sizeof(Word), length * sizeof(Word));
    for (std::size_t byte = 0; byte < sizeof(Word); ++byte) {
      std::uint8_t* __restrict plane = out + byte * count + start;
      const unsigned shift = static_cast<unsigned>(8 * byte);
      for (std::size_t i = 0; i < length; ++i) plane[i] = static_cast<std::uint8_t>(words[i] >> shift);
    }
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
      shuffle_words<std::uint16_t>(in.data(), out.data(), count);
      break;
    case 4:
      shuffle_words<std::uint32_t>(in.data(), out.data(), count);
      break;
    case 8:
      shuffle_words<std::uint64_t>(in.data(), out.data(), count);
      break;
    default:
      WFLOW_CHECK(false);
  }
}

void unshuffle_bytes(std::span<const std::uint8_t> in, std::span<std::uint8_t> out, std::size_t width) {
  WFLOW_CHECK(in.size() == out.size() && in.size() % width == 0);
  const std::size_t count = in.size() / width;
  switch (width) {
    case 1:
      std::copy(in.begin(), in.end(), out.begin());
      break;
    case 2:
      unshuffle_words<std::uint16_t>(in.data(), out.data(), count);
      break;
    case 4:
      unshuffle_words<std::uint32_t>(in.data(), out.data(), count);
      break;
    case 8:
      unshuffle_words<std::uint64_t>(in.data(), out.data(), count);
      break;
    default:
      WFLOW_CHECK(false);
  }
}

}  // namespace wflow::converters
