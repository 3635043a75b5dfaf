// SPDX-License-Identifier: Apache-2.0
#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "converters/deflate/field_deflate.h"
#include "converters/deflate/huffman.h"
#include "converters/deflate/kernels.h"

namespace wflow::converters {

// Not in the anonymous namespace, because FieldInflater::Stream has members of these types.
// A code's symbol by the next bits, and the code's length; length 0 if there is no such code.
struct SymbolEntry {
  std::uint16_t symbol = 0;
  std::uint8_t length = 0;
};

namespace {

// Reads bit by bit with checks: headers, and symbols near the ends.
class BitInput {
 public:
  explicit BitInput(InflatePosition& position) : p_(position) {}

  void refill() {
    for (; p_.count <= 56 && p_.in < p_.in_end; p_.count += 8) p_.bits |= std::uint64_t{*p_.in++} << p_.count;
  }
  bool take(unsigned count, std::uint32_t& value) {
    if (p_.count < count) refill();
    if (p_.count < count) return false;
    value = static_cast<std::uint32_t>(p_.bits & ((std::uint64_t{1} << count) - 1));
    skip(count);
    return true;
  }
  void skip(unsigned count) {
    p_.bits >>= count;
    p_.count -= count;
  }
  // Skips to the next whole byte of the input.
  void align() {
    skip(p_.count % 8);
    p_.in -= p_.count / 8;
    p_.bits = 0;
    p_.count = 0;
  }

 private:
  InflatePosition& p_;
};

void fill_symbols(std::span<const std::uint8_t> lengths, unsigned most, SymbolEntry* table) {
  std::array<std::uint16_t, kLiteralSymbols> codes;
  canonical_codes(lengths, std::span(codes).first(lengths.size()));
  for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
    if (lengths[symbol] == 0) continue;
    const std::size_t step = std::size_t{1} << lengths[symbol];
    for (std::size_t k = codes[symbol]; k < std::size_t{1} << most; k += step)
      table[k] = {static_cast<std::uint16_t>(symbol), lengths[symbol]};
  }
}

std::uint64_t special_entry(Special kind, unsigned bits, std::size_t length = 0, unsigned extra = 0) {
  return bits | static_cast<std::uint64_t>(kind) << 16 | static_cast<std::uint64_t>(length) << 32 |
         static_cast<std::uint64_t>(extra) << 48;
}

// The table entry of a symbol that is not a literal, whose code is in the lowest bits of `index`.
std::uint64_t entry_of_special(SymbolEntry s, std::size_t index) {
  if (s.symbol == kEndOfBlock) return special_entry(Special::end, s.length);
  const LengthSymbol length = length_of_symbol(s.symbol);
  const unsigned all = s.length + length.extra_bits + 1U;
  if (all > kMostCodeBits) return special_entry(Special::long_run, s.length, length.base, length.extra_bits);
  if ((index >> (all - 1) & 1) != 0) return special_entry(Special::invalid, s.length);
  const std::size_t extra = index >> s.length & ((std::size_t{1} << length.extra_bits) - 1);
  return special_entry(Special::run, all, length.base + extra);
}

void fill_table(const SymbolEntry* symbols, std::uint64_t* table) {
  for (std::size_t index = 0; index < kTableSize; ++index) {
    SymbolEntry s = symbols[index];
    if (s.symbol >= kEndOfBlock) {
      table[index] = entry_of_special(s, index);
      continue;
    }
    std::uint64_t literals = 0;
    unsigned bits = 0;
    unsigned count = 0;
    // The shifted index has zeros beyond its bits, so a code that fits is the stream's.
    while (count < kMostLiterals && s.symbol < kEndOfBlock && bits + s.length <= kMostCodeBits) {
      literals |= std::uint64_t{s.symbol} << (16 + 8 * count++);
      bits += s.length;
      s = symbols[index >> bits];
    }
    table[index] = literals | count << 8 | bits;
  }
}

}  // namespace

// The state of reading a stream.
struct FieldInflater::Stream {
  std::array<SymbolEntry, kTableSize> symbols;
  std::array<std::uint64_t, kTableSize> table;
  InflatePosition position;
  bool last = false;      // this is the stream's last block
  bool in_block = false;  // inside a block with dynamic codes

  bool begin(std::span<const std::uint8_t> stream, std::span<std::uint8_t> out);
  bool to_symbols();
  bool ended() const { return !in_block; }  // after to_symbols()
  bool after(BlockEnd end);
  bool is_whole();
  bool go_on();
  bool is_near_border() const;
  bool read_codes();
  bool read_lengths(std::span<std::uint8_t> lengths);
  bool read_stored();
  bool read_symbols(bool& ended);
  bool repeat(std::size_t length);
};

FieldInflater::FieldInflater() : first_(std::make_unique<Stream>()), second_(std::make_unique<Stream>()) {}
FieldInflater::~FieldInflater() = default;
FieldInflater::FieldInflater(FieldInflater&&) noexcept = default;

// The lengths of literals and distances, which are in one list.
bool FieldInflater::Stream::read_lengths(std::span<std::uint8_t> lengths) {
  BitInput input(position);
  std::uint32_t used = 0;
  if (!input.take(4, used)) return false;
  std::array<std::uint8_t, kHeaderSymbols> header_lengths{};
  for (std::size_t k = 0; k < used + 4; ++k) {
    std::uint32_t length = 0;
    if (!input.take(3, length)) return false;
    header_lengths[kHeaderOrder[k]] = static_cast<std::uint8_t>(length);
  }
  if (!is_complete(header_lengths, kMostHeaderBits)) return false;
  std::array<SymbolEntry, std::size_t{1} << kMostHeaderBits> header;
  fill_symbols(header_lengths, kMostHeaderBits, header.data());
  for (std::size_t k = 0; k < lengths.size();) {
    input.refill();
    const SymbolEntry s = header[position.bits & (header.size() - 1)];
    if (position.count < s.length) return false;
    input.skip(s.length);
    if (s.symbol < 16) {
      lengths[k++] = static_cast<std::uint8_t>(s.symbol);
      continue;
    }
    if (s.symbol == 16 && k == 0) return false;
    const std::uint8_t value = s.symbol == 16 ? lengths[k - 1] : std::uint8_t{0};
    std::uint32_t more = 0;
    if (!input.take(s.symbol == 16 ? 2 : s.symbol == 17 ? 3 : 7, more)) return false;
    const std::size_t count = more + (s.symbol == 18 ? 11U : 3U);
    if (count > lengths.size() - k) return false;
    std::fill_n(lengths.begin() + static_cast<std::ptrdiff_t>(k), count, value);
    k += count;
  }
  return true;
}

bool FieldInflater::Stream::read_codes() {
  BitInput input(position);
  std::uint32_t literals = 0;
  std::uint32_t distances = 0;
  if (!input.take(5, literals) || !input.take(5, distances)) return false;
  literals += 257;
  distances += 1;
  if (literals > kLiteralSymbols) return false;
  std::array<std::uint8_t, kLiteralSymbols + 32> lengths{};
  if (!read_lengths(std::span(lengths).first(literals + distances))) return false;
  // Distance 1 has the code 0; FieldDeflater writes no other code.
  const auto of_distances = std::span(lengths).subspan(literals, distances);
  for (std::size_t k = 0; k < distances; ++k) {
    if (of_distances[k] != (k < 2 ? 1 : 0)) return false;
  }
  const auto of_literals = std::span(lengths).first(literals);
  if (lengths[kEndOfBlock] == 0 || !is_complete(of_literals, kMostCodeBits)) return false;
  fill_symbols(of_literals, kMostCodeBits, symbols.data());
  fill_table(symbols.data(), table.data());
  return true;
}

bool FieldInflater::Stream::read_stored() {
  BitInput(position).align();
  InflatePosition& p = position;
  if (p.in_end - p.in < 4) return false;
  const std::size_t size = p.in[0] | std::size_t{p.in[1]} << 8;
  const std::size_t inverse = p.in[2] | std::size_t{p.in[3]} << 8;
  p.in += 4;
  const bool fits = size <= static_cast<std::size_t>(p.in_end - p.in) &&
                    size <= static_cast<std::size_t>(p.out_end - p.out);
  if ((size ^ inverse) != 0xffff || !fits) return false;
  if (size > 0) std::memcpy(p.out, p.in, size);
  p.in += size;
  p.out += size;
  return true;
}

bool FieldInflater::Stream::repeat(std::size_t length) {
  InflatePosition& p = position;
  if (p.out == p.out_begin || length > static_cast<std::size_t>(p.out_end - p.out)) return false;
  std::memset(p.out, p.out[-1], length);
  p.out += length;
  return true;
}

// The fast loop needs less space on either side.
bool FieldInflater::Stream::is_near_border() const {
  constexpr std::ptrdiff_t kOutput = 512;
  constexpr std::ptrdiff_t kInput = 16;
  return position.out_end - position.out < kOutput || position.in_end - position.in < kInput;
}

// Decodes symbol by symbol near the borders.
bool FieldInflater::Stream::read_symbols(bool& ended) {
  InflatePosition& p = position;
  BitInput input(p);
  do {
    input.refill();
    const SymbolEntry s = symbols[p.bits & (kTableSize - 1)];
    if (p.count < s.length) return false;
    input.skip(s.length);
    if (s.symbol == kEndOfBlock) {
      ended = true;
      return true;
    }
    if (s.symbol < kEndOfBlock) {
      if (p.out == p.out_end) return false;
      *p.out++ = static_cast<std::uint8_t>(s.symbol);
      continue;
    }
    const LengthSymbol length = length_of_symbol(s.symbol);
    std::uint32_t extra = 0;
    std::uint32_t distance = 0;
    if (!input.take(length.extra_bits, extra) || !input.take(1, distance) || distance != 0) return false;
    if (!repeat(length.base + std::size_t{extra})) return false;
  } while (is_near_border());
  return true;
}

bool FieldInflater::Stream::begin(std::span<const std::uint8_t> stream, std::span<std::uint8_t> out) {
  constexpr std::uint8_t kDeflate = 8;
  constexpr std::uint8_t kDictionary = 0x20;
  if (stream.size() < kZlibHeader + kZlibTrailer) return false;
  const unsigned header = unsigned{stream[0]} << 8 | stream[1];
  if (header % 31 != 0 || (stream[0] & 15) != kDeflate || stream[0] >> 4 > 7 ||
      (stream[1] & kDictionary) != 0)
    return false;
  position = {stream.data() + kZlibHeader, stream.data() + stream.size(), 0, 0, out.data(), out.data(),
              out.data() + out.size()};
  last = in_block = false;
  return true;
}

// Reads up to the symbols of the next block that has any, or to the stream's end; false if the stream is
// another compressor's.
bool FieldInflater::Stream::to_symbols() {
  BitInput input(position);
  while (!in_block && !last) {
    std::uint32_t is_last = 0;
    std::uint32_t kind = 0;
    if (!input.take(1, is_last) || !input.take(2, kind)) return false;
    last = is_last != 0;
    if (kind == 1 || kind == 3) return false;
    if (kind == 0 && !read_stored()) return false;
    in_block = kind == 2;
    if (in_block && !read_codes()) return false;
  }
  return true;
}

// Continues after the fast loop.
bool FieldInflater::Stream::after(BlockEnd end) {
  if (end == BlockEnd::refused) return false;
  bool ended = end == BlockEnd::end;
  // The other stream may have stopped the loop.
  if (!ended && is_near_border() && !read_symbols(ended)) return false;
  in_block = !ended;
  return to_symbols();
}

bool FieldInflater::Stream::go_on() {
  while (!ended()) {
    if (!after(deflate_kernels().read_block(table.data(), position))) return false;
  }
  return is_whole();
}

bool FieldInflater::Stream::is_whole() {
  InflatePosition& p = position;
  BitInput(p).align();
  if (p.out != p.out_end || p.in_end - p.in < static_cast<std::ptrdiff_t>(kZlibTrailer)) return false;
  const std::uint32_t sum =
      std::uint32_t{p.in[0]} << 24 | std::uint32_t{p.in[1]} << 16 | std::uint32_t{p.in[2]} << 8 | p.in[3];
  const auto size = static_cast<std::size_t>(p.out - p.out_begin);
  return libdeflate_adler32(1, p.out_begin, size) == sum;
}

bool FieldInflater::inflate(std::span<const std::uint8_t> stream, std::span<std::uint8_t> out) {
  return first_->begin(stream, out) && first_->to_symbols() && first_->go_on();
}

std::array<bool, 2> FieldInflater::inflate_two(const std::array<std::span<const std::uint8_t>, 2>& streams,
                                               const std::array<std::span<std::uint8_t>, 2>& outs) {
  const std::array<Stream*, 2> both = {first_.get(), second_.get()};
  std::array<bool, 2> good{};
  for (std::size_t k = 0; k < 2; ++k) good[k] = both[k]->begin(streams[k], outs[k]) && both[k]->to_symbols();
  while (good[0] && good[1] && !both[0]->ended() && !both[1]->ended()) {
    const std::array<const std::uint64_t*, 2> tables = {both[0]->table.data(), both[1]->table.data()};
    const std::array<InflatePosition*, 2> positions = {&both[0]->position, &both[1]->position};
    std::array<BlockEnd, 2> ends;
    deflate_kernels().read_two_blocks(tables.data(), positions.data(), ends.data());
    for (std::size_t k = 0; k < 2; ++k) good[k] = both[k]->after(ends[k]);
  }
  for (std::size_t k = 0; k < 2; ++k) good[k] = good[k] && both[k]->go_on();
  return good;
}

}  // namespace wflow::converters
