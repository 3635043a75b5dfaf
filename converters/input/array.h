// SPDX-License-Identifier: Apache-2.0
// One field of a sample in memory, as the simulation wrote it, and selections of its parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "converters/dtype.h"

namespace wflow::converters {

// The limit of a chunk in HDF5, because a sample is a chunk.
inline constexpr std::size_t kMostSampleBytes = (std::size_t{1} << 32) - 1;

// Values in C order and in this machine's byte order; without axes: one value.
struct Array {
  DType dtype = DType::float32;
  std::vector<std::size_t> shape;
  std::vector<std::uint8_t> bytes;
};

// The size of such an array in bytes; nothing if that exceeds kMostSampleBytes.
std::optional<std::size_t> array_bytes(DType dtype, std::span<const std::size_t> shape);

// Reverses the bytes of each value of `width` bytes.
void swap_byte_order(std::span<std::uint8_t> bytes, std::size_t width);

// From Fortran order (first index fastest) to C order; `width`: bytes of a value.
void to_c_order(std::vector<std::uint8_t>& bytes, const std::vector<std::size_t>& shape, std::size_t width);
void to_c_order(Array& array);

// Axis k of the result is axis order[k] of the array.
void transpose(Array& array, const std::vector<std::size_t>& order);

void convert_values(Array& array, DType target);

// For each axis of an array: start, start + step, ..., `count` of them. `drop`: one index, which removes the
// axis.
struct AxisRange {
  std::uint64_t start = 0;
  std::uint64_t count = 0;
  std::uint64_t step = 1;
  bool drop = false;
};
using Selection = std::vector<AxisRange>;

// A slice as in NumPy ("0, :, 2:8"), behind the index `row` of the slowest axis. Error{data}, which names
// `path`, if the array has no such part.
Selection resolve_selection(const std::filesystem::path& path, std::string_view slice,
                            std::optional<std::uint64_t> row, const std::vector<std::size_t>& shape);
std::vector<std::size_t> selected_shape(const Selection& selection);
bool is_whole(const Selection& selection, const std::vector<std::size_t>& shape);

// Copies the selected values, of `width` bytes each.
void take_selection(std::span<const std::uint8_t> bytes, const std::vector<std::size_t>& shape,
                    std::size_t width, const Selection& selection, std::span<std::uint8_t> into);

}  // namespace wflow::converters
