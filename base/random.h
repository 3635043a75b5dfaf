// SPDX-License-Identifier: Apache-2.0
// Counter-based randomness: value i depends on (seed, i) alone, so that it can be computed on any
// machine, in any order, with no state to save.
#pragma once

#include <cstdint>

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

}  // namespace wflow
