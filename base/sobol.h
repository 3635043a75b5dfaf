// SPDX-License-Identifier: Apache-2.0
// The sequence of Sobol.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace wflow {

// Sobol's sequence by index: computes any point without the points before. Point n is the n-th in Gray code
// order, as in GSL and in Bratley and Fox (1988, TOMS 659), with point 0 at the origin: GSL's first point is
// point 1 here.
class Sobol {
 public:
  static constexpr std::size_t kMaxDimensions = 40;
  static constexpr int kBits = 52;  // so that a point is exact in a double; GSL has the first 30 of them

  explicit Sobol(std::size_t dimensions);

  // The point's coordinate as a binary fraction of kBits bits: a digital shift is an exclusive or with it.
  std::uint64_t bits(std::uint64_t point, std::size_t dimension) const;

 private:
  std::vector<std::array<std::uint64_t, kBits>> directions_;
};

}  // namespace wflow
