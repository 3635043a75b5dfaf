// SPDX-License-Identifier: Apache-2.0
// The filter pipeline of HDF5 (shuffle, then deflate) for a chunk, on the calling thread. Use one Encoder or
// Decoder for each thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "converters/deflate/field_deflate.h"
#include "converters/dtype.h"

struct libdeflate_compressor;
struct libdeflate_decompressor;

namespace wflow::converters {

// The filters of a data set, in HDF5's order. Bit k of a chunk's mask means that filter k was skipped for it.
struct Filters {
  bool shuffle = false;
  bool deflate = false;
  std::uint32_t all() const { return (std::uint32_t{1} << (int{shuffle} + int{deflate})) - 1; }
  bool shuffled(std::uint32_t mask) const { return shuffle && (mask & 1) == 0; }
  bool deflated(std::uint32_t mask) const { return deflate && (mask & (shuffle ? 2 : 1)) == 0; }
  bool operator==(const Filters&) const = default;
};

// The coder of the deflate streams. runs: field_deflate, which uses only runs of a byte. matches: libdeflate,
// which searches all repeated strings.
enum class Coder { runs, matches };

struct EncodedChunk {
  std::vector<std::uint8_t> bytes;
  std::uint32_t mask = 0;
  std::uint64_t hash = 0;  // XXH3-64 of `bytes`
};

std::uint64_t chunk_hash(std::span<const std::uint8_t> stored);

class Encoder {
 public:
  Encoder(Filters filters, Coder coder, int level);  // `level` for libdeflate, 1 to 12
  // A chunk that shrinks by less than a twentieth is stored uncompressed: reading it is then a copy.
  EncodedChunk encode(std::span<const std::uint8_t> raw, std::size_t width);

 private:
  std::size_t compress(std::span<const std::uint8_t> in, std::size_t planes, std::span<std::uint8_t> out);

  struct Free {
    void operator()(libdeflate_compressor* compressor) const;
  };
  Filters filters_;
  std::optional<FieldDeflater> runs_;
  std::unique_ptr<libdeflate_compressor, Free> compressor_;
  std::vector<std::uint8_t> shuffled_;
  std::vector<std::uint8_t> packed_;
};

class Decoder {
 public:
  Decoder();
  // Fills `raw` exactly; false if the bytes are not a chunk of that size.
  bool decode(std::span<const std::uint8_t> stored, Filters filters, std::uint32_t mask, std::size_t width,
              std::span<std::uint8_t> raw);
  // Fills `out` exactly, from one stream or two at once; false if the bytes are not such a stream.
  bool inflate(std::span<const std::uint8_t> stored, std::span<std::uint8_t> out);
  std::array<bool, 2> inflate_two(const std::array<std::span<const std::uint8_t>, 2>& stored,
                                  const std::array<std::span<std::uint8_t>, 2>& outs);

 private:
  bool inflate_matches(std::span<const std::uint8_t> stored, std::span<std::uint8_t> out);

  struct Free {
    void operator()(libdeflate_decompressor* decompressor) const;
  };
  FieldInflater runs_;
  std::unique_ptr<libdeflate_decompressor, Free> decompressor_;
  std::vector<std::uint8_t> shuffled_;
};

// Byte planes: HDF5's shuffle of a chunk, and the way back to float32 in a batch, unshuffled, cast and scaled
// in one pass.

// value = (stored - centre) * factor + offset. The difference is float64 where `centre` is not 0: 2460000.5
// and 2460000.6 are the same float32. All else is float32, rounded after each operation.
struct Scale {
  float factor = 1;
  float offset = 0;
  double centre = 0;
  bool operator==(const Scale&) const = default;
};

// An inflated chunk.
struct ChunkValues {
  std::span<const std::uint8_t> bytes;
  DType dtype = DType::float32;
  bool shuffled = false;  // in byte planes
};

// Copies values from `first` on, as many as `to` holds; unchanged without a scale.
void copy_as_float(const ChunkValues& chunk, std::size_t first, std::span<float> to, const Scale* scale);

// HDF5's byte shuffle: all first bytes, then all second bytes, ... Deflate compresses this order better.
// `in` and `out` are equally long, a multiple of `width` (1, 2, 4 or 8), and do not overlap.
void shuffle_bytes(std::span<const std::uint8_t> in, std::span<std::uint8_t> out, std::size_t width);
void unshuffle_bytes(std::span<const std::uint8_t> in, std::span<std::uint8_t> out, std::size_t width);

// Unshuffles the values of `in` from number `first` on, as many as `out` holds.
void unshuffle_part(std::span<const std::uint8_t> in, std::size_t width, std::size_t first,
                    std::span<std::uint8_t> out);

}  // namespace wflow::converters
