// SPDX-License-Identifier: Apache-2.0
// Byte planes: HDF5's shuffle of a chunk, and the way back to float32 in a batch, unshuffled, cast and scaled
// in one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "converters/dtype.h"

namespace wflow::converters {

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
