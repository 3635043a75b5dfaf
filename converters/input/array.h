// SPDX-License-Identifier: Apache-2.0
// One sample as a simulation left it, in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "converters/dtype.h"

namespace wflow::converters {

// A chunk of HDF5 can't be larger, and a chunk is a sample.
inline constexpr std::size_t kMostSampleBytes = (std::size_t{1} << 32) - 1;

// Values in C order and in this machine's byte order.
struct Array {
  DType dtype = DType::float32;
  std::vector<std::size_t> shape;
  std::vector<std::uint8_t> bytes;
};

// The bytes that such an array takes; nothing where that is more than kMostSampleBytes.
std::optional<std::size_t> array_bytes(DType dtype, std::span<const std::size_t> shape);

// Reverses the bytes of each value of `width` bytes.
void swap_byte_order(std::span<std::uint8_t> bytes, std::size_t width);

// From Fortran order (first index fastest) to C order.
void to_c_order(Array& array);

void convert_values(Array& array, DType target);

}  // namespace wflow::converters
