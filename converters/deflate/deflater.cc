// SPDX-License-Identifier: Apache-2.0
#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "converters/deflate/field_deflate.h"
#include "converters/deflate/huffman.h"
#include "converters/deflate/kernels.h"

namespace wflow::converters {

// The types of FieldDeflater::State's members are not in the anonymous namespace.

// Code lengths as deflate's block header has them: repeats are symbols 16, 17 and 18 with extra bits.
struct HeaderSymbol {
  std::uint8_t symbol = 0;
  std::uint8_t extra = 0;
  std::uint8_t extra_bits = 0;
};

struct HeaderCode {
  std::vector<HeaderSymbol> symbols;
  std::array<std::uint8_t, kHeaderSymbols> lengths{};
  std::array<std::uint16_t, kHeaderSymbols> codes{};
  std::size_t literal_symbols = 0;
  std::size_t used = 0;  // entries of kHeaderOrder

  std::size_t bits() const {
    std::size_t total = 3 + 5 + 5 + 4 + 3 * used;
    for (const HeaderSymbol& s : symbols) total += std::size_t{lengths[s.symbol]} + s.extra_bits;
    return total;
  }
};

namespace {

constexpr std::size_t kLeastBlock = 1024;  // bytes; a header is 50 to 100
constexpr std::size_t kMostStored = 65535;
constexpr std::size_t kDistanceSymbols = 2;  // one bit each; the second does not occur

// Runs shorter than this are cheaper as literals. A match costs a rare symbol and the distance's bit. If
// equal neighbours are common and their literal is short, only longer runs pay.
std::size_t least_run(std::size_t equal, std::size_t size) {
  const double share = static_cast<double>(equal) / static_cast<double>(size);
  if (share < 0.3) return 4;
  return share < 0.95 ? 16 : 5;
}

void add_repeats(std::vector<HeaderSymbol>& symbols, std::uint8_t length, std::size_t count) {
  const auto byte = [](std::size_t value) { return static_cast<std::uint8_t>(value); };
  while (length == 0 && count >= 3) {
    const std::size_t step = std::min<std::size_t>(count, 138);
    if (step >= 11) {
      symbols.push_back({18, byte(step - 11), 7});
    } else {
      symbols.push_back({17, byte(step - 3), 3});
    }
    count -= step;
  }
  if (count > 0) {
    symbols.push_back({length, 0, 0});
    --count;
  }
  while (count >= 3) {
    const std::size_t step = std::min<std::size_t>(count, 6);
    symbols.push_back({16, byte(step - 3), 2});
    count -= step;
  }
  for (; count > 0; --count) symbols.push_back({length, 0, 0});
}

HeaderCode header_code(std::span<const std::uint8_t> lengths) {
  HeaderCode header;
  header.literal_symbols = kLiteralSymbols;
  while (header.literal_symbols > kEndOfBlock + 1 && lengths[header.literal_symbols - 1] == 0)
    --header.literal_symbols;
  std::array<std::uint8_t, kLiteralSymbols + kDistanceSymbols> all{};
  std::copy_n(lengths.begin(), header.literal_symbols, all.begin());
  const std::size_t count = header.literal_symbols + kDistanceSymbols;
  all[count - 2] = all[count - 1] = 1;
  for (std::size_t k = 0; k < count;) {
    std::size_t next = k + 1;
    while (next < count && all[next] == all[k]) ++next;
    add_repeats(header.symbols, all[k], next - k);
    k = next;
  }
  std::array<std::uint32_t, kHeaderSymbols> counts{};
  for (const HeaderSymbol& s : header.symbols) ++counts[s.symbol];
  // A code needs two symbols.
  if (std::count_if(counts.begin(), counts.end(), [](auto n) { return n > 0; }) < 2)
    ++counts[counts[0] > 0 ? 1 : 0];
  code_lengths(counts, kMostHeaderBits, header.lengths);
  canonical_codes(header.lengths, header.codes);
  header.used = kHeaderSymbols;
  while (header.used > 4 && header.lengths[kHeaderOrder[header.used - 1]] == 0) --header.used;
  return header;
}

}  // namespace

// A block before writing.
struct BlockPlan {
  std::array<std::uint32_t, kLiteralSymbols> counts{};
  std::array<std::uint8_t, kLiteralSymbols> lengths{};
  HeaderCode header;
  std::size_t bits = 0;  // size of the dynamic form

  void make_codes() {
    counts[kEndOfBlock] = 1;
    code_lengths(counts, kMostCodeBits, lengths);
    header = header_code(lengths);
    bits = header.bits();
    for (std::size_t k = 0; k < kLiteralSymbols; ++k) {
      std::size_t each = lengths[k];
      if (k > kEndOfBlock) each += 1U + length_of_symbol(k).extra_bits;
      bits += each * counts[k];
    }
  }
};

namespace {

class BitOutput {
 public:
  explicit BitOutput(std::span<std::uint8_t> out) : begin_(out.data()), position_{out.data(), 0, 0} {}
  void put(std::uint64_t bits, unsigned count) {
    position_.bits |= bits << position_.count;
    position_.count += count;
    for (; position_.count >= 8; position_.count -= 8, position_.bits >>= 8)
      *position_.out++ = static_cast<std::uint8_t>(position_.bits);
  }
  void align() {
    if (position_.count > 0) put(0, 8 - position_.count);
  }
  void copy(const std::uint8_t* from, std::size_t size) {
    std::memcpy(position_.out, from, size);
    position_.out += size;
  }
  std::size_t size() const { return static_cast<std::size_t>(position_.out - begin_); }
  BitPosition& position() { return position_; }

 private:
  std::uint8_t* begin_;
  BitPosition position_;
};

std::size_t stored_bytes(std::size_t size) {
  return size + 5 * ((size + kMostStored - 1) / kMostStored) + 1;
}

void write_stored(BitOutput& output, std::span<const std::uint8_t> block, bool last) {
  for (std::size_t at = 0; at == 0 || at < block.size(); at += kMostStored) {
    const std::size_t size = std::min(kMostStored, block.size() - at);
    output.put(last && at + size == block.size() ? 1 : 0, 3);
    output.align();
    output.put(size, 16);
    output.put(~size & 0xffff, 16);
    if (size > 0) output.copy(block.data() + at, size);
  }
}

void write_header(BitOutput& output, const BlockPlan& plan, bool last) {
  output.put(last ? 1 : 0, 1);
  output.put(2, 2);  // dynamic codes
  output.put(plan.header.literal_symbols - 257, 5);
  output.put(kDistanceSymbols - 1, 5);
  output.put(plan.header.used - 4, 4);
  for (std::size_t k = 0; k < plan.header.used; ++k) output.put(plan.header.lengths[kHeaderOrder[k]], 3);
  for (const HeaderSymbol& s : plan.header.symbols) {
    output.put(plan.header.codes[s.symbol], plan.header.lengths[s.symbol]);
    output.put(s.extra, s.extra_bits);
  }
}

constexpr std::size_t kPairTableFrom = 16384;  // bytes of a block from which the table pays

void make_pairs(BlockCodes& block) {
  for (std::size_t second = 0; second < kSmallSymbols; ++second) {
    const std::uint32_t after = block.literal[second];
    for (std::size_t first = 0; first < kSmallSymbols; ++first) {
      const std::uint32_t before = block.literal[first];
      block.pair[second * kSmallSymbols + first] =
          ((after & 0xffffff) << (before >> 24) | (before & 0xffffff)) + (before & 0xff000000) +
          (after & 0xff000000);
    }
  }
}

// By length, because searching it for each block is too slow.
const std::array<LengthSymbol, kMostMatch + 1>& length_symbols() {
  static const std::array<LengthSymbol, kMostMatch + 1> kSymbols = [] {
    std::array<LengthSymbol, kMostMatch + 1> symbols{};
    for (std::size_t k = kLeastMatch; k <= kMostMatch; ++k) symbols[k] = length_symbol(k);
    return symbols;
  }();
  return kSymbols;
}

void make_block_codes(const BlockPlan& plan, BlockCodes& block) {
  std::array<std::uint16_t, kLiteralSymbols> codes;
  canonical_codes(plan.lengths, codes);
  const auto entry = [](std::uint32_t bits, unsigned count) { return bits | std::uint32_t{count} << 24; };
  for (std::size_t k = 0; k < 256; ++k) block.literal[k] = entry(codes[k], plan.lengths[k]);
  block.end = entry(codes[kEndOfBlock], plan.lengths[kEndOfBlock]);
  for (std::size_t length = kLeastMatch; length <= kMostMatch; ++length) {
    const LengthSymbol s = length_symbols()[length];
    const unsigned count = plan.lengths[s.symbol];
    const auto extra = static_cast<std::uint32_t>(length - s.base);
    // The distance's bit, a zero, follows them.
    block.match[length] = entry(codes[s.symbol] | extra << count, count + s.extra_bits + 1);
  }
}

}  // namespace

struct FieldDeflater::State {
  std::vector<std::uint64_t> equal;
  std::vector<ByteRun> runs;
  std::size_t run_count = 0;
  EqualBytes marked;
  BlockPlan plan;
  BlockCodes codes;

  void find(std::span<const std::uint8_t> block);
  bool write(std::span<const std::uint8_t> block, bool last, std::size_t capacity, BitOutput& output);
};

FieldDeflater::FieldDeflater() : state_(std::make_unique<State>()) {}
FieldDeflater::~FieldDeflater() = default;
FieldDeflater::FieldDeflater(FieldDeflater&&) noexcept = default;

// Finds runs, and counts each symbol.
void FieldDeflater::State::find(std::span<const std::uint8_t> block) {
  const DeflateKernels& kernels = deflate_kernels();
  equal.resize(std::max(equal.size(), (block.size() + 63) / 64 + 1));
  marked = kernels.mark_equal(block.data(), block.size(), equal.data());
  const std::size_t least = least_run(marked.count, block.size());
  runs.resize(std::max(runs.size(), block.size() / least + 1));
  run_count = kernels.find_runs(equal.data(), block.size(), least, runs.data());
  plan.counts.fill(0);
  kernels.count_literals(block.data(), block.size(), runs.data(), run_count, marked.small,
                         plan.counts.data());
  const auto& symbols = length_symbols();
  for (std::size_t k = 0; k < run_count; ++k) {
    const std::size_t rest = runs[k].length % kMostMatch;
    plan.counts[symbols[kMostMatch].symbol] += static_cast<std::uint32_t>(runs[k].length / kMostMatch);
    if (rest >= kLeastMatch) {
      ++plan.counts[symbols[rest].symbol];
    } else {
      plan.counts[block[runs[k].start]] += static_cast<std::uint32_t>(rest);
    }
  }
}

// False if the block does not fit into `capacity` bytes.
bool FieldDeflater::State::write(std::span<const std::uint8_t> block, bool last, std::size_t capacity,
                                 BitOutput& output) {
  find(block);
  plan.make_codes();
  const std::size_t dynamic = plan.bits / 8 + 2;
  const std::size_t stored = stored_bytes(block.size());
  if (output.size() + std::min(dynamic, stored) + sizeof(std::uint64_t) > capacity) return false;
  if (stored <= dynamic) {
    write_stored(output, block, last);
    return true;
  }
  write_header(output, plan, last);
  make_block_codes(plan, codes);
  codes.pairs = marked.small && block.size() >= kPairTableFrom;
  if (codes.pairs) make_pairs(codes);
  deflate_kernels().write_block(block.data(), block.size(), runs.data(), run_count, codes, output.position());
  return true;
}

std::size_t FieldDeflater::compress(std::span<const std::uint8_t> in, std::size_t plane,
                                    std::span<std::uint8_t> out) {
  WFLOW_CHECK(plane > 0 || in.empty());
  // Several small planes share a block.
  plane = plane < kLeastBlock ? (kLeastBlock + plane - 1) / std::max<std::size_t>(1, plane) * plane : plane;
  if (out.size() < kZlibHeader + kZlibTrailer + stored_bytes(0) + sizeof(std::uint64_t)) return 0;
  BitOutput output(out);
  output.put(0x78, 8);  // deflate with a window of 32 KiB
  output.put(0x01, 8);  // no dictionary, fastest; makes the pair a multiple of 31
  const std::size_t capacity = out.size() - kZlibTrailer;
  for (std::size_t at = 0; at < in.size();) {
    const std::size_t left = std::min(plane - at % plane, in.size() - at);
    // Equal parts, to avoid a small last part of a plane with a header of its own.
    const std::size_t parts = (left + kMostBlock - 1) / kMostBlock;
    const std::size_t size = (left + parts - 1) / parts;
    if (!state_->write(in.subspan(at, size), at + size == in.size(), capacity, output)) return 0;
    at += size;
  }
  if (in.empty()) write_stored(output, in, true);
  output.align();
  const std::uint32_t sum = libdeflate_adler32(1, in.data(), in.size());
  for (int shift = 24; shift >= 0; shift -= 8) output.put(sum >> shift & 0xff, 8);
  return output.size();
}

}  // namespace wflow::converters
