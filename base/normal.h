// SPDX-License-Identifier: Apache-2.0
// The normal distribution: its distribution function, and numbers from counter-based randomness (random.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "base/random.h"

namespace wflow {

// Value i of the numbers with this key: mean 0, variance 1 (Box and Muller 1958). 1 - u is never 0.
inline double normal_real(std::uint64_t key, std::uint64_t i) {
  const double u = 1 - unit_real(hash64(key, 2 * i));
  const double v = unit_real(hash64(key, 2 * i + 1));
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

// The probability that a standard normal number is below z.
inline double normal_below(double z) {
  return 0.5 * std::erfc(-z / std::numbers::sqrt2);
}

}  // namespace wflow
