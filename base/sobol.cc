// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include "base/error.h"

namespace wflow {

namespace {

struct Direction {
  std::uint32_t polynomial;              // primitive modulo 2; bit i is the coefficient of x^i
  std::array<std::uint32_t, 8> initial;  // odd numbers m_1 .. m_degree, zeros after
};

// Sobol and Levitan's table as printed by Bratley and Fox (1988).
constexpr std::array<Direction, Sobol::kMaxDimensions> kDirections = {{
    {1, {1}},
    {3, {1}},
    {7, {1, 1}},
    {11, {1, 3, 7}},
    {13, {1, 1, 5}},
    {19, {1, 3, 1, 1}},
    {25, {1, 1, 3, 7}},
    {37, {1, 3, 3, 9, 9}},
    {59, {1, 3, 7, 13, 3}},
    {47, {1, 1, 5, 11, 27}},
    {61, {1, 3, 5, 1, 15}},
    {55, {1, 1, 7, 3, 29}},
    {41, {1, 3, 7, 7, 21}},
    {67, {1, 1, 1, 9, 23, 37}},
    {97, {1, 3, 3, 5, 19, 33}},
    {91, {1, 1, 3, 13, 11, 7}},
    {109, {1, 1, 7, 13, 25, 5}},
    {103, {1, 3, 5, 11, 7, 11}},
    {115, {1, 1, 1, 3, 13, 39}},
    {131, {1, 3, 1, 15, 17, 63, 13}},
    {193, {1, 1, 5, 5, 1, 27, 33}},
    {137, {1, 3, 3, 3, 25, 17, 115}},
    {145, {1, 1, 3, 15, 29, 15, 41}},
    {143, {1, 3, 1, 7, 3, 23, 79}},
    {241, {1, 3, 7, 9, 31, 29, 17}},
    {157, {1, 1, 5, 13, 11, 3, 29}},
    {185, {1, 3, 1, 9, 5, 21, 119}},
    {167, {1, 1, 3, 1, 23, 13, 75}},
    {229, {1, 3, 3, 11, 27, 31, 73}},
    {171, {1, 1, 7, 7, 19, 25, 105}},
    {213, {1, 3, 5, 5, 21, 9, 7}},
    {191, {1, 1, 1, 15, 5, 49, 59}},
    {253, {1, 1, 1, 1, 1, 33, 65}},
    {203, {1, 3, 5, 15, 17, 19, 21}},
    {211, {1, 1, 7, 11, 13, 29, 3}},
    {239, {1, 3, 7, 5, 7, 11, 113}},
    {247, {1, 1, 5, 3, 15, 19, 61}},
    {285, {1, 3, 1, 1, 9, 27, 89, 7}},
    {369, {1, 1, 3, 7, 31, 15, 45, 23}},
    {299, {1, 3, 3, 9, 9, 25, 107, 39}},
}};

int degree_of(std::uint32_t polynomial) {
  int degree = -1;
  for (; polynomial != 0; polynomial >>= 1) ++degree;
  return degree;
}

std::array<std::uint64_t, Sobol::kBits> expand(const Direction& direction) {
  std::array<std::uint64_t, Sobol::kBits> v{};
  const int degree = degree_of(direction.polynomial);
  for (int k = 0; k < Sobol::kBits; ++k) {
    const int shift = Sobol::kBits - 1 - k;
    if (degree == 0) {  // the first dimension: van der Corput's sequence
      v[static_cast<std::size_t>(k)] = std::uint64_t{1} << shift;
      continue;
    }
    if (k < degree) {
      v[static_cast<std::size_t>(k)] = std::uint64_t{direction.initial[static_cast<std::size_t>(k)]} << shift;
      continue;
    }
    const std::uint64_t oldest = v[static_cast<std::size_t>(k - degree)];
    std::uint64_t next = oldest ^ (oldest >> degree);
    for (int i = 1; i < degree; ++i) {
      if ((direction.polynomial >> (degree - i)) & 1U) next ^= v[static_cast<std::size_t>(k - i)];
    }
    v[static_cast<std::size_t>(k)] = next;
  }
  return v;
}

}  // namespace

Sobol::Sobol(std::size_t dimensions) {
  WFLOW_CHECK(dimensions <= kMaxDimensions);
  for (std::size_t d = 0; d < dimensions; ++d) directions_.push_back(expand(kDirections[d]));
}

std::uint64_t Sobol::bits(std::uint64_t point, std::size_t dimension) const {
  const auto& v = directions_[dimension];
  std::uint64_t result = 0;
  std::uint64_t gray = point ^ (point >> 1);
  for (std::size_t k = 0; gray != 0 && k < v.size(); gray >>= 1, ++k) {
    if (gray & 1U) result ^= v[k];
  }
  return result;
}

}  // namespace wflow
