// SPDX-License-Identifier: Apache-2.0
// Ragged fields: samples of different lengths along one axis. A shard holds their values one behind the
// other, with the ragged axis first, and the offset of each sample; readers return them padded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "converters/dtype.h"

namespace wflow::converters {

// Neighbouring steps along an axis.
struct StepRange {
  std::size_t axis = 0;
  std::size_t first = 0;
  std::size_t count = 0;
};

// Moves the axis of values in C order of `shape` to the front. The reverse function writes such values into a
// range of steps of an array of `shape`, and leaves its other values unchanged.
std::vector<std::uint8_t> ragged_axis_first(std::vector<std::uint8_t> values,
                                            const std::vector<std::size_t>& shape, std::size_t axis,
                                            std::size_t width);
void put_steps(std::span<const std::uint8_t> steps, const std::vector<std::size_t>& shape, StepRange range,
               std::size_t width, std::span<std::uint8_t> to);

// Fills `to` with one value.
void fill_values(DType dtype, double value, std::span<std::uint8_t> to);

}  // namespace wflow::converters
