// SPDX-License-Identifier: Apache-2.0
// From what a chunk holds to float32 in a batch: unshuffled, cast and scaled in one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "converters/dtype.h"

namespace wflow::converters {

// value = (stored - centre) * factor + offset. The difference is float64 where `centre` is not 0: 2460000.5 and
// 2460000.6 are the same float32. All else is float32, rounded after each operation.
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

// The values from `first` on, as many as `to` holds. Without a scale as they are.
void copy_as_float(const ChunkValues& chunk, std::size_t first, std::span<float> to, const Scale* scale);

}  // namespace wflow::converters
