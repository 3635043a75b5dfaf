// SPDX-License-Identifier: Apache-2.0
// Sums of arrays that do not depend on the order of the terms, nor on the ranks that add them: the terms are
// whole multiples of one small quantum, in integers wide enough that no addition rounds (Kulisch's
// accumulator, with a range for gradients and losses; Demmel and Nguyen 2015, "Parallel reproducible
// summation", is the same idea with floating-point bins).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

class ExactSums {
 public:
  // Terms are rounded towards zero to multiples of 2^-80, about 8e-25: floats from 2^-57 (7e-18) on are
  // exact. Sums of 2^38 and more count as not finite.
  static constexpr int kQuantum = -80;
  static constexpr int kBytes = 16;  // of a sum
  // More ranks could carry in the sums of the digits.
  static constexpr int kMostRanks = 256;

  explicit ExactSums(std::size_t count) : sums_(count, 0) {}

  // Adds the terms to the sums from position `begin` on.
  void add(std::size_t begin, std::span<const float> terms);
  // A collective call: the sums over all ranks, rounded to the nearest float, on every rank. If a term on any
  // rank was not finite, or too large, all sums are NaN. Begins anew.
  void take(Communicator& ranks, std::span<float> sums);

 private:
  __extension__ using Wide = __int128;
  static_assert(sizeof(Wide) == kBytes);
  void add_other_ranks(Communicator& ranks, std::span<Wide> sums);

  std::vector<Wide> sums_;
  bool is_finite_ = true;
  std::vector<float> digits_;
};

}  // namespace wflow::trainer
