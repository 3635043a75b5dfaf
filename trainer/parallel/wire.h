// SPDX-License-Identifier: Apache-2.0
// How the values of a sum travel between nodes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace wflow::trainer {

struct Wire {
  bool half = false;         // bfloat16, rounded as half_wire.h says; within a node values always are whole
  std::uint64_t seed = 0;    // of the rounding: another one at every step
  std::size_t position = 0;  // of the first value in the array that `seed` is for
  std::size_t exact = 0;     // values at lower positions travel whole all the same

  // The same, `by` values further on.
  Wire at(std::size_t by) const { return {half, seed, position + by, exact}; }
};

}  // namespace wflow::trainer
