// SPDX-License-Identifier: Apache-2.0
// Counter-based randomness: value i depends on (seed, i) alone, so that it can be computed on any
// machine, in any order, with no state to save.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

namespace wflow {

// SplitMix64's finaliser (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

constexpr std::uint64_t hash64(std::uint64_t seed, std::uint64_t counter) {
  return mix64(mix64(seed + 0x9e3779b97f4a7c15ULL) + (counter + 1) * 0x9e3779b97f4a7c15ULL);
}

// Uniform in [0, 1), 53 bits.
constexpr double unit_real(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// A keyed bijection of 0..count-1, computed by index in constant time: a four-round Feistel network on the
// smallest even-bit domain that holds `count`, cycle-walked into the range (Black and Rogaway 2002, section
// 3).
class Permutation {
 public:
  Permutation(std::uint64_t count, std::uint64_t key) : count_(count), key_(key) {
    while ((std::uint64_t{1} << (2 * half_bits_)) < count) ++half_bits_;
  }
  std::uint64_t size() const { return count_; }
  std::uint64_t operator()(std::uint64_t index) const {
    do {
      index = feistel(index);
    } while (index >= count_);
    return index;
  }
  // The index whose image is `value`.
  std::uint64_t inverse(std::uint64_t value) const {
    do {
      value = feistel_back(value);
    } while (value >= count_);
    return value;
  }

 private:
  std::uint64_t feistel(std::uint64_t value) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t next = left ^ (hash64(key_ + round, right) & mask);
      left = right;
      right = next;
    }
    return (left << half_bits_) | right;
  }

  std::uint64_t feistel_back(std::uint64_t value) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 4; round-- > 0;) {
      const std::uint64_t before = right ^ (hash64(key_ + round, left) & mask);
      right = left;
      left = before;
    }
    return (left << half_bits_) | right;
  }

  std::uint64_t count_;
  std::uint64_t key_;
  unsigned half_bits_ = 1;
};

// The normal distribution.

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
