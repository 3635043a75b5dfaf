// SPDX-License-Identifier: Apache-2.0
#include "converters/deflate/field_deflate.h"

#include <gtest/gtest.h>
#include <libdeflate.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "converters/deflate/huffman.h"
#include "converters/deflate/kernels.h"

namespace wflow::converters {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes compressed(const Bytes& in, std::size_t plane) {
  Bytes out(in.size() + in.size() / 100 + 1000);
  FieldDeflater deflater;
  out.resize(deflater.compress(in, std::max<std::size_t>(1, plane), out));
  return out;
}

std::string inflated_by_zlib(const Bytes& stream, std::size_t size) {
  Bytes out(size + 1);
  uLongf length = out.size();
  const int code = ::uncompress(out.data(), &length, stream.data(), stream.size());
  if (code != Z_OK) return "zlib: " + std::to_string(code);
  return {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(length)};
}

std::string inflated_by_libdeflate(const Bytes& stream, std::size_t size) {
  Bytes out(size);
  libdeflate_decompressor* d = libdeflate_alloc_decompressor();
  const auto result =
      libdeflate_zlib_decompress(d, stream.data(), stream.size(), out.data(), out.size(), nullptr);
  libdeflate_free_decompressor(d);
  if (result != LIBDEFLATE_SUCCESS) return "libdeflate: " + std::to_string(result);
  return {out.begin(), out.end()};
}

void expect_round_trip(const Bytes& in, std::size_t plane) {
  const Bytes stream = compressed(in, plane);
  ASSERT_FALSE(stream.empty());
  const std::string expected(in.begin(), in.end());
  EXPECT_TRUE(inflated_by_zlib(stream, in.size()) == expected);
  EXPECT_TRUE(inflated_by_libdeflate(stream, in.size()) == expected);
  Bytes back(in.size(), 0xaa);
  ASSERT_TRUE(FieldInflater().inflate(stream, back));
  EXPECT_TRUE(back == in);
}

// Byte i is `symbols` values of a geometric distribution, in runs of the given mean length.
Bytes geometric(std::size_t size, std::uint64_t seed, double decay, std::size_t mean_run) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    const bool same = i > 0 && hash64(seed + 1, i) % mean_run != 0;
    const double u = unit_real(hash64(seed, i));
    bytes[i] = same ? bytes[i - 1] : static_cast<std::uint8_t>(std::min(255.0, -std::log(1 - u) * decay));
  }
  return bytes;
}

TEST(FieldDeflate, EverySizeComesBack) {
  for (std::size_t size = 0; size < 1500; ++size)
    expect_round_trip(geometric(size, size, 3, 2), size / 2 + 1);
  for (const std::size_t size : {4095U, 65535U, 65536U, 262143U, 262144U, 262145U, 600001U})
    expect_round_trip(geometric(size, size, 3, 2), size);
}

TEST(FieldDeflate, EveryKindOfDataComesBack) {
  constexpr std::size_t kSize = 300000;
  for (const double decay : {0.1, 0.5, 1.0, 4.0, 30.0, 400.0}) {
    for (const std::size_t mean_run : {1U, 2U, 5U, 50U, 5000U})
      expect_round_trip(geometric(kSize, 7, decay, mean_run), kSize / 4);
  }
  expect_round_trip(Bytes(kSize, 0), kSize);
  expect_round_trip(Bytes(1, 9), 1);
  Bytes noise(kSize);
  for (std::size_t i = 0; i < kSize; ++i) noise[i] = static_cast<std::uint8_t>(hash64(1, i));
  expect_round_trip(noise, kSize / 3);
  // Fibonacci's counts: the codes would exceed the limit.
  Bytes skewed;
  for (std::size_t a = 1, b = 1, symbol = 0; skewed.size() < kSize; symbol += 1) {
    skewed.insert(skewed.end(), a, static_cast<std::uint8_t>(symbol));
    b += std::exchange(a, b);
  }
  std::vector<std::uint8_t> mixed(skewed.size());
  const Permutation order(skewed.size(), 3);
  for (std::size_t i = 0; i < mixed.size(); ++i) mixed[i] = skewed[order(i)];
  expect_round_trip(mixed, mixed.size());
}

// Every length of a run, also those that need several matches, and those coded as literals.
TEST(FieldDeflate, RunsOfEveryLength) {
  Bytes bytes;
  for (std::size_t length = 1; length < 1100; ++length)
    bytes.insert(bytes.end(), length, static_cast<std::uint8_t>(length * 37));
  expect_round_trip(bytes, bytes.size());
}

TEST(FieldDeflate, IsAsSmallAsLibdeflateWhereNothingRepeats) {
  const Bytes counts = geometric(262144, 5, 2, 1);
  Bytes other(counts.size());
  libdeflate_compressor* c = libdeflate_alloc_compressor(6);
  other.resize(libdeflate_zlib_compress(c, counts.data(), counts.size(), other.data(), other.size()));
  libdeflate_free_compressor(c);
  EXPECT_LT(compressed(counts, counts.size()).size(), other.size());
}

TEST(FieldDeflate, TooLittleRoomIsNoStream) {
  const Bytes in = geometric(5000, 1, 9, 2);
  const std::size_t needed = compressed(in, in.size()).size();
  FieldDeflater deflater;
  for (std::size_t capacity = 0; capacity < needed; ++capacity) {
    Bytes out(capacity + 16, 0x5a);
    EXPECT_EQ(deflater.compress(in, in.size(), std::span(out).first(capacity)), 0U);
    EXPECT_TRUE(std::all_of(out.begin() + static_cast<std::ptrdiff_t>(capacity), out.end(),
                            [](auto b) { return b == 0x5a; }));
  }
}

TEST(FieldDeflate, AllKernelsGiveTheSameBytes) {
  // ctest runs this program again with WFLOW_DEFLATE=plain and portable.
  std::uint64_t hash = 0;
  for (const std::size_t size : {1U, 100U, 4096U, 70000U, 300000U}) {
    for (const std::uint8_t byte : compressed(geometric(size, 11, 3, 3), size / 2 + 1))
      hash = hash64(hash, byte);
  }
  RecordProperty("kernels", deflate_kernels_name());
  EXPECT_EQ(hash, 9528131348111071435U);
}

// Streams of other compressors are refused or decoded correctly.
TEST(FieldInflate, StreamsOfOthers) {
  const Bytes in = geometric(100000, 5, 2, 4);
  std::size_t taken = 0;
  for (const int strategy : {Z_DEFAULT_STRATEGY, Z_FILTERED, Z_HUFFMAN_ONLY, Z_RLE, Z_FIXED}) {
    for (const int level : {0, 1, 6, 9}) {
      Bytes stream(200000);
      z_stream z{};
      ASSERT_EQ(deflateInit2(&z, level, Z_DEFLATED, 15, 9, strategy), Z_OK);
      z.next_in = const_cast<Bytef*>(in.data());
      z.avail_in = static_cast<uInt>(in.size());
      z.next_out = stream.data();
      z.avail_out = static_cast<uInt>(stream.size());
      ASSERT_EQ(::deflate(&z, Z_FINISH), Z_STREAM_END);
      stream.resize(z.total_out);
      deflateEnd(&z);
      Bytes back(in.size());
      if (!FieldInflater().inflate(stream, back)) continue;
      ++taken;
      EXPECT_TRUE(back == in);
    }
  }
  EXPECT_GT(taken, 0U);  // at least the stored ones
}

TEST(FieldInflate, TwoAtOnce) {
  const std::vector<Bytes> inputs = {geometric(300000, 1, 3, 1),   geometric(9, 2, 3, 1),
                                     geometric(300000, 3, 200, 1), Bytes(200000, 0),
                                     geometric(100000, 4, 1, 6),   Bytes()};
  FieldInflater inflater;
  for (const Bytes& a : inputs) {
    for (const Bytes& b : inputs) {
      for (const bool damaged : {false, true}) {
        const Bytes of_a = compressed(a, a.size() / 2 + 1);
        Bytes of_b = compressed(b, b.size());
        if (damaged) of_b[of_b.size() / 2] ^= 1;
        Bytes back_a(a.size(), 1);
        Bytes back_b(b.size(), 1);
        const auto taken = inflater.inflate_two({of_a, of_b}, {back_a, back_b});
        EXPECT_TRUE(taken[0] && back_a == a);
        EXPECT_TRUE(taken[1] ? back_b == b : damaged);
      }
    }
  }
}

TEST(FieldInflate, DamagedStreamsAreRefused) {
  const Bytes in = geometric(6000, 5, 2, 4);
  const Bytes stream = compressed(in, 3000);
  FieldInflater inflater;
  Bytes back(in.size());
  for (std::size_t length = 0; length < stream.size(); ++length) {
    const Bytes cut(stream.begin(),
                    stream.begin() + static_cast<std::ptrdiff_t>(length));  // its own allocation
    EXPECT_FALSE(inflater.inflate(cut, back));
  }
  for (std::size_t bit = 0; bit < 8 * stream.size(); ++bit) {
    Bytes flipped = stream;
    flipped[bit / 8] = static_cast<std::uint8_t>(flipped[bit / 8] ^ 1U << bit % 8);
    const bool taken = inflater.inflate(flipped, back);
    // The padding bits before the checksum have no meaning.
    EXPECT_TRUE(!taken || back == in) << "bit " << bit;
    EXPECT_TRUE(!taken || bit / 8 == stream.size() - 5) << "bit " << bit;
  }
  for (const std::size_t size : {std::size_t{0}, in.size() - 1, in.size() + 1}) {
    Bytes other(size);
    EXPECT_FALSE(inflater.inflate(stream, other));
  }
}

TEST(Huffman, LengthsAreACompleteCodeWithinTheLimit) {
  for (const std::size_t symbols : {2U, 3U, 19U, 100U, 286U}) {
    for (const unsigned most : {9U, 11U, 15U}) {
      for (std::uint64_t seed = 0; seed < 30; ++seed) {
        std::vector<std::uint32_t> counts(symbols);
        for (std::size_t k = 0; k < symbols; ++k)
          counts[k] = static_cast<std::uint32_t>(
              1 + (hash64(seed, k) % (std::uint64_t{1} << hash64(seed, k + 1000) % 20)));
        Bytes lengths(symbols);
        code_lengths(counts, most, lengths);
        EXPECT_TRUE(is_complete(lengths, most));
        // In an optimal code, more frequent symbols never have longer codes.
        for (std::size_t a = 0; a < symbols; ++a) {
          for (std::size_t b = 0; b < symbols; ++b)
            EXPECT_FALSE(counts[a] > counts[b] && lengths[a] > lengths[b]);
        }
      }
    }
  }
}

TEST(Huffman, IsWithinABitOfTheEntropy) {
  std::vector<std::uint32_t> counts(200);
  double total = 0;
  for (std::size_t k = 0; k < counts.size(); ++k)
    total += counts[k] = static_cast<std::uint32_t>(100000 / (k + 1));
  Bytes lengths(counts.size());
  code_lengths(counts, 15, lengths);
  double entropy = 0;
  double bits = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    entropy -= counts[k] * std::log2(counts[k] / total);
    bits += counts[k] * double{1} * lengths[k];
  }
  EXPECT_GE(bits, entropy);
  EXPECT_LT(bits, 1.01 * entropy);
}

TEST(Huffman, SymbolsOfLengths) {
  EXPECT_EQ(length_symbol(3).symbol, 257);
  EXPECT_EQ(length_symbol(10).symbol, 264);
  EXPECT_EQ(length_symbol(12).symbol, 265);
  EXPECT_EQ(length_symbol(257).symbol, 284);
  EXPECT_EQ(length_symbol(258).symbol, 285);
}

}  // namespace
}  // namespace wflow::converters
