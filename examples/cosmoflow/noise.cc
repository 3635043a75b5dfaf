// SPDX-License-Identifier: Apache-2.0
#include "noise.h"

#include <cmath>
#include <cstddef>
#include <numbers>

namespace cola {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;  // the increment of SplitMix64

// The output function of SplitMix64 (Steele, Lea & Flood 2014).
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double open_unit(std::uint64_t bits) {
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

}  // namespace

std::uint64_t universe_seed(std::uint64_t campaign_seed, std::uint64_t index) {
  return mix(mix(campaign_seed + kGolden) + (index + 1) * kGolden);
}

std::vector<float> white_noise(std::uint64_t seed, int n) {
  const std::size_t size = static_cast<std::size_t>(n) * n * n;
  const std::uint64_t base = mix(seed);
  std::vector<float> noise(size);
  // Box-Muller gives two values a draw: cells 2i and 2i + 1 share one.
  for (std::size_t i = 0; i < size; i += 2) {
    const double u = open_unit(mix(base + (i + 1) * kGolden));
    const double v = open_unit(mix(base + (i + 2) * kGolden));
    const double radius = std::sqrt(-2 * std::log(u));
    const double angle = 2 * std::numbers::pi * v;
    noise[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < size) noise[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return noise;
}

}  // namespace cola
