// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/codec.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace wflow::converters {
namespace {

std::vector<std::uint8_t> random_bytes(std::size_t count, std::uint64_t seed, std::uint64_t most = 256) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(hash64(seed, i) % most);
  return bytes;
}

TEST(Shuffle, IsHdf5sOrderAndReverses) {
  for (const std::size_t width : {1U, 2U, 4U, 8U}) {
    for (const std::size_t count : {0U, 1U, 3U, 1023U, 1024U, 1025U, 5000U}) {
      const auto in = random_bytes(count * width, width + count);
      std::vector<std::uint8_t> planes(in.size());
      std::vector<std::uint8_t> out(in.size());
      shuffle_bytes(in, planes, width);
      for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t b = 0; b < width; ++b) ASSERT_EQ(planes[b * count + i], in[i * width + b]);
      }
      unshuffle_bytes(planes, out, width);
      EXPECT_EQ(out, in);
    }
  }
}

TEST(Codec, WhatGoesInComesOut) {
  Decoder decoder;
  for (const std::size_t width : {1U, 4U}) {
    for (const auto& [deflate, coder] :
         {std::pair{true, Coder::runs}, std::pair{true, Coder::matches}, std::pair{false, Coder::runs}}) {
      const Filters filters{.shuffle = deflate && width > 1, .deflate = deflate};
      Encoder encoder(filters, coder, 1);
      const auto raw = random_bytes(40000, width, 5);
      const EncodedChunk chunk = encoder.encode(raw, width);
      EXPECT_EQ(chunk.bytes.size() < raw.size(), deflate);
      EXPECT_EQ(chunk.mask, 0U);
      std::vector<std::uint8_t> back(raw.size());
      ASSERT_TRUE(decoder.decode(chunk.bytes, filters, chunk.mask, width, back));
      EXPECT_EQ(back, raw);
    }
  }
}

TEST(Codec, WhatDoesNotShrinkIsStoredAsItIs) {
  const Filters filters{.shuffle = true, .deflate = true};
  Encoder encoder(filters, Coder::runs, 1);
  const auto raw = random_bytes(40000, 9);
  const EncodedChunk chunk = encoder.encode(raw, 4);
  EXPECT_EQ(chunk.mask, 3U);
  EXPECT_EQ(chunk.bytes, raw);
}

TEST(Codec, DamagedBytesAreRefusedOrHarmless) {
  const Filters filters{.shuffle = true, .deflate = true};
  Encoder encoder(filters, Coder::runs, 1);
  Decoder decoder;
  const auto raw = random_bytes(4000, 2, 4);
  const EncodedChunk chunk = encoder.encode(raw, 4);
  std::vector<std::uint8_t> back(raw.size());
  for (std::size_t length = 0; length < chunk.bytes.size(); ++length) {
    EXPECT_FALSE(decoder.decode(std::span(chunk.bytes).first(length), filters, 0, 4, back));
  }
  for (std::uint64_t round = 0; round < 500; ++round) {
    auto bytes = chunk.bytes;
    for (int k = 0; k < 3; ++k) bytes[hash64(round, static_cast<std::uint64_t>(k)) % bytes.size()] ^= 0x55;
    if (decoder.decode(bytes, filters, 0, 4, back)) {
      EXPECT_EQ(back, raw);  // zlib's own checksum
    }
    EXPECT_NE(chunk_hash(bytes), chunk.hash);
  }
}

}  // namespace
}  // namespace wflow::converters
