// SPDX-License-Identifier: Apache-2.0
// Prefix codes of deflate (RFC 1951, section 3.2), and the other parts of its streams.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace wflow::converters {

// Deflate's alphabet of literals and match lengths: 256 bytes, the end of the block, 29 lengths.
constexpr std::size_t kEndOfBlock = 256;
constexpr std::size_t kLiteralSymbols = 286;

// The code of a block's code lengths (section 3.2.7).
constexpr std::size_t kHeaderSymbols = 19;
constexpr unsigned kMostHeaderBits = 7;
constexpr std::array<std::uint8_t, kHeaderSymbols> kHeaderOrder = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                                   11, 4,  12, 3, 13, 2, 14, 1, 15};

constexpr std::size_t kMostStored = 65535;  // bytes of an uncompressed block

// RFC 1950: bytes before and behind a stream of deflate.
constexpr std::size_t kZlibHeader = 2;
constexpr std::size_t kZlibTrailer = 4;

constexpr std::array<std::uint16_t, 29> kLengthBase = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                                       15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                                       67, 83, 99, 115, 131, 163, 195, 227, 258};
constexpr std::array<std::uint8_t, 29> kLengthExtra = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                       2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};

struct LengthSymbol {
  std::uint16_t symbol = 0;
  std::uint16_t base = 0;
  std::uint8_t extra_bits = 0;
};
// For a match of 3 to 258 bytes.
LengthSymbol length_symbol(std::size_t length);
// For a symbol from 257 to 285.
constexpr LengthSymbol length_of_symbol(std::size_t symbol) {
  const std::size_t k = symbol - kEndOfBlock - 1;
  return {static_cast<std::uint16_t>(symbol), kLengthBase[k], kLengthExtra[k]};
}

// Lengths of a prefix code for these counts, none longer than `most` bits (so at most 2^most counts are above
// 0): Huffman's, whose longest codes are shortened if they must be. 0 for symbols that do not occur; at least
// two must.
void code_lengths(std::span<const std::uint32_t> counts, unsigned most, std::span<std::uint8_t> lengths);

// The canonical codes of these lengths, bits reversed as deflate writes them.
void canonical_codes(std::span<const std::uint8_t> lengths, std::span<std::uint16_t> codes);

// True if the lengths belong to a complete code, which uses every bit sequence exactly once.
bool is_complete(std::span<const std::uint8_t> lengths, unsigned most);

}  // namespace wflow::converters
