// SPDX-License-Identifier: Apache-2.0
// The inner loops of field_deflate, compiled once for each instruction set (kernels.inc).
#pragma once

#include <cstddef>
#include <cstdint>

namespace wflow::converters {

constexpr unsigned kMostCodeBits = 11;  // five codes and a flush fit into 64 bits
constexpr std::size_t kTableSize = std::size_t{1} << kMostCodeBits;
constexpr std::size_t kMostBlock = std::size_t{256} << 10;  // uncompressed bytes of a block
constexpr std::size_t kMostMatch = 258;
constexpr std::size_t kLeastMatch = 3;
constexpr std::size_t kReadSlack = 8;    // bytes that a refill reads at once
constexpr std::size_t kWriteSlack = 64;  // bytes beyond the next that the fast loop of the decoder may write

// `length` bytes from `start` on, each equal to the one before it.
struct ByteRun {
  std::uint32_t start = 0;
  std::uint32_t length = 0;
};

// Counts and other small numbers are below this: their literals are counted and written two at a time.
constexpr std::size_t kSmallSymbols = 64;

struct EqualBytes {
  std::size_t count = 0;
  bool small = false;  // nearly all groups of eight have only bytes below kSmallSymbols
};

// Codes of a block, to be written lowest bit first: bits, then their number from bit 24 on.
struct BlockCodes {
  std::uint32_t literal[256];
  std::uint32_t pair[kSmallSymbols * kSmallSymbols];  // by first + 64 * second
  bool pairs = false;                                 // use `pair` where possible
  std::uint32_t match[kMostMatch + 1];                // by length; with its extra bits and the distance's bit
  std::uint32_t end = 0;
};

// The output, with bits that do not yet fill a byte.
struct BitPosition {
  std::uint8_t* out = nullptr;  // eight bytes beyond it may be overwritten
  std::uint64_t bits = 0;
  unsigned count = 0;  // less than 8
};

// An entry of the decoder's table, by the next kMostCodeBits bits of the stream: from bit 0 how many of them
// it uses; from bit 8 the number of literals, up to six, which follow from bit 16 on. Number 0: a special
// symbol, with its kind from bit 16, and from bit 32 on the length, from bit 48 the number of extra bits.
enum class Special : std::uint8_t { invalid = 0, end = 1, run = 2, long_run = 3 };
constexpr unsigned kMostLiterals = 6;
constexpr unsigned kMostSpecialBits = kMostCodeBits + 5 + 1;  // a code, its extra bits and the distance's

enum class BlockEnd : std::uint8_t { end, refused, near_border };

// The state of the decoder.
struct InflatePosition {
  const std::uint8_t* in = nullptr;
  const std::uint8_t* in_end = nullptr;
  std::uint64_t bits = 0;
  unsigned count = 0;  // valid in `bits`
  std::uint8_t* out = nullptr;
  std::uint8_t* out_begin = nullptr;
  std::uint8_t* out_end = nullptr;
};

struct DeflateKernels {
  const char* name;
  // Bit i of `equal`: in[i] == in[i - 1], 0 for the first byte; (size + 63) / 64 words and a zero one
  // behind them.
  EqualBytes (*mark_equal)(const std::uint8_t* in, std::size_t size, std::uint64_t* equal);
  // The maximal runs of at least `least` (up to 64) marked bytes, in order; `runs` holds size / least + 1 of
  // them.
  std::size_t (*find_runs)(const std::uint64_t* equal, std::size_t size, std::size_t least, ByteRun* runs);
  // Adds the bytes outside of runs to counts[256]. `small`: as mark_equal found.
  void (*count_literals)(const std::uint8_t* in, std::size_t size, const ByteRun* runs, std::size_t run_count,
                         bool small, std::uint32_t* counts);
  void (*write_block)(const std::uint8_t* in, std::size_t size, const ByteRun* runs, std::size_t run_count,
                      const BlockCodes& codes, BitPosition& position);
  // Decodes until the block ends or either border is near: then the caller continues symbol by symbol.
  BlockEnd (*read_block)(const std::uint64_t* table, InflatePosition& position);
  // Two streams at once, until either block ends or is near a border: the processor looks up in both tables
  // while it would wait for one.
  void (*read_two_blocks)(const std::uint64_t* const* tables, InflatePosition* const* positions,
                          BlockEnd* ends);
};

const DeflateKernels& deflate_kernels();

}  // namespace wflow::converters
