// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/encode.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace wflow::converters {

namespace {

// The axes before and after the ragged one, each as one.
struct Around {
  Around(const std::vector<std::size_t>& shape, std::size_t axis) {
    for (std::size_t k = 0; k < axis; ++k) outer *= shape[k];
    for (std::size_t k = axis + 1; k < shape.size(); ++k) inner *= shape[k];
  }
  std::size_t outer = 1;
  std::size_t inner = 1;
};

}  // namespace

std::vector<std::uint8_t> ragged_axis_first(std::vector<std::uint8_t> values,
                                            const std::vector<std::size_t>& shape, std::size_t axis,
                                            std::size_t width) {
  const Around around(shape, axis);
  if (around.outer == 1) return values;
  const std::size_t run = around.inner * width;
  std::vector<std::uint8_t> moved(values.size());
  const std::uint8_t* from = values.data();
  for (std::size_t o = 0; o < around.outer; ++o) {
    for (std::size_t step = 0; step < shape[axis]; ++step, from += run)
      std::memcpy(moved.data() + (step * around.outer + o) * run, from, run);
  }
  return moved;
}

void put_steps(std::span<const std::uint8_t> steps, const std::vector<std::size_t>& shape, StepRange range,
               std::size_t width, std::span<std::uint8_t> to) {
  const Around around(shape, range.axis);
  const std::size_t run = around.inner * width;
  const std::size_t together =
      around.outer == 1 ? range.count : 1;  // steps that are neighbours on both sides
  for (std::size_t o = 0; o < around.outer; ++o) {
    for (std::size_t step = 0; step < range.count; step += together)
      std::memcpy(to.data() + (o * shape[range.axis] + range.first + step) * run,
                  steps.data() + (step * around.outer + o) * run, together * run);
  }
}

void fill_values(DType dtype, double value, std::span<std::uint8_t> to) {
  if (value == 0) {
    std::fill(to.begin(), to.end(), std::uint8_t{0});
    return;
  }
  with_type(dtype, [&](auto typed) {
    typed = static_cast<decltype(typed)>(value);
    for (std::size_t at = 0; at + sizeof typed <= to.size(); at += sizeof typed)
      std::memcpy(to.data() + at, &typed, sizeof typed);
  });
}

}  // namespace wflow::converters
