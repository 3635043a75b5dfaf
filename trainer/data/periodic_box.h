// SPDX-License-Identifier: Apache-2.0
// A part of the cells of a stored sample, whose axes are periodic: behind the last cell comes the first one.
#pragma once

#include <array>
#include <cstdint>

#include "trainer/model/layout.h"

namespace wflow::trainer {

// Cells along depth, height and width: `count` from `start` on.
struct PeriodicBox {
  std::array<std::int64_t, 3> start = {0, 0, 0};
  std::array<std::int64_t, 3> count = {1, 1, 1};

  PeriodicBox() = default;
  explicit PeriodicBox(const Box& box) : count(box.extent()) {
    for (std::size_t axis = 0; axis < start.size(); ++axis) start[axis] = box.axes[axis].begin;
  }
  std::int64_t cells() const { return count[0] * count[1] * count[2]; }
  // The place of a cell in the box, along an axis of `length` cells; `count` or more if it is outside.
  std::int64_t place(std::size_t axis, std::int64_t cell, std::int64_t length) const {
    const std::int64_t place = cell - start[axis];
    return place < 0 ? place + length : place;
  }
  bool operator==(const PeriodicBox&) const = default;
};

// True if all cells of `inner` are in `box`, for axes of these lengths.
inline bool covers(const Box& box, const PeriodicBox& inner, const std::array<std::int64_t, 3>& lengths) {
  for (std::size_t axis = 0; axis < lengths.size(); ++axis) {
    const Range& range = box.axes[axis];
    const bool inside =
        inner.start[axis] >= range.begin && inner.start[axis] + inner.count[axis] <= range.end;
    if (range.count() != lengths[axis] && !inside) return false;
  }
  return true;
}

}  // namespace wflow::trainer
