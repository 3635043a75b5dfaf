// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/codec.h"

#include <libdeflate.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace wflow::converters {

std::uint64_t chunk_hash(std::span<const std::uint8_t> stored) {
  return XXH3_64bits(stored.data(), stored.size());
}

void Encoder::Free::operator()(libdeflate_compressor* compressor) const {
  libdeflate_free_compressor(compressor);
}
void Decoder::Free::operator()(libdeflate_decompressor* d) const {
  libdeflate_free_decompressor(d);
}

Encoder::Encoder(Filters filters, Coder coder, int level) : filters_(filters) {
  if (filters.deflate && coder == Coder::runs) runs_.emplace();
  if (filters.deflate && coder == Coder::matches) compressor_.reset(libdeflate_alloc_compressor(level));
  WFLOW_CHECK(!filters.deflate || runs_ || compressor_ != nullptr);
}

std::size_t Encoder::compress(std::span<const std::uint8_t> in, std::size_t planes,
                              std::span<std::uint8_t> out) {
  if (runs_) return runs_->compress(in, in.size() / planes, out);
  return libdeflate_zlib_compress(compressor_.get(), in.data(), in.size(), out.data(), out.size());
}

EncodedChunk Encoder::encode(std::span<const std::uint8_t> raw, std::size_t width) {
  EncodedChunk chunk;
  std::span<const std::uint8_t> made;
  if (filters_.deflate) {
    std::span<const std::uint8_t> input = raw;
    if (filters_.shuffle) {
      shuffled_.resize(raw.size());
      shuffle_bytes(raw, shuffled_, width);
      input = shuffled_;
    }
    packed_.resize(raw.size() - raw.size() / 20);  // a stream that does not shrink enough does not fit
    made = std::span(packed_).first(compress(input, filters_.shuffle ? width : 1, packed_));
  }
  if (made.empty()) {
    made = raw;
    chunk.mask = filters_.all();
  }
  chunk.bytes.assign(made.begin(), made.end());
  chunk.hash = chunk_hash(chunk.bytes);
  return chunk;
}

Decoder::Decoder() : decompressor_(libdeflate_alloc_decompressor()) {
  WFLOW_CHECK(decompressor_ != nullptr);
}

bool Decoder::inflate_matches(std::span<const std::uint8_t> stored, std::span<std::uint8_t> out) {
  return libdeflate_zlib_decompress(decompressor_.get(), stored.data(), stored.size(), out.data(), out.size(),
                                    nullptr) == LIBDEFLATE_SUCCESS;
}

// A stream that the fast decoder refuses is another compressor's, or damaged: libdeflate tells which.
bool Decoder::inflate(std::span<const std::uint8_t> stored, std::span<std::uint8_t> out) {
  return runs_.inflate(stored, out) || inflate_matches(stored, out);
}

std::array<bool, 2> Decoder::inflate_two(const std::array<std::span<const std::uint8_t>, 2>& stored,
                                         const std::array<std::span<std::uint8_t>, 2>& outs) {
  std::array<bool, 2> whole = runs_.inflate_two(stored, outs);
  for (std::size_t k = 0; k < whole.size(); ++k) whole[k] = whole[k] || inflate_matches(stored[k], outs[k]);
  return whole;
}

bool Decoder::decode(std::span<const std::uint8_t> stored, Filters filters, std::uint32_t mask,
                     std::size_t width, std::span<std::uint8_t> raw) {
  const bool shuffled = filters.shuffled(mask) && width > 1;
  if (!filters.deflated(mask)) {
    if (stored.size() != raw.size()) return false;
    if (shuffled) {
      unshuffle_bytes(stored, raw, width);
    } else {
      std::copy(stored.begin(), stored.end(), raw.begin());
    }
    return true;
  }
  if (!shuffled) return inflate(stored, raw);
  shuffled_.resize(raw.size());
  if (!inflate(stored, shuffled_)) return false;
  unshuffle_bytes(shuffled_, raw, width);
  return true;
}

}  // namespace wflow::converters
