// SPDX-License-Identifier: Apache-2.0
#include "particles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace cola {
namespace {

constexpr int kN = 32;
constexpr double kBox = 100;

template <typename Function>
std::vector<float> on_lattice(const Function& f) {
  std::vector<float> values;
  for (int x = 0; x < kN; ++x) {
    for (int y = 0; y < kN; ++y) {
      for (int z = 0; z < kN; ++z) values.push_back(static_cast<float>(f(x * kBox / kN, y * kBox / kN)));
    }
  }
  return values;
}

// Validation 3.
TEST(Lpt, APlaneWaveHasNoSecondOrder) {
  const double k = 2 * std::numbers::pi / kBox;
  const auto d = displacements_of_density(
      on_lattice([&](double x, double) { return 0.5 * std::cos(2 * k * x); }), kN, kBox);
  const double amplitude = 0.5 / (2 * k);
  for (std::size_t i = 0; i < d.first.size(); ++i) {
    const double x = static_cast<double>(i / (kN * kN)) * kBox / kN;
    EXPECT_NEAR(d.first[i].v[0], -amplitude * std::sin(2 * k * x), 2e-6 * amplitude);
    EXPECT_NEAR(d.first[i].v[1], 0, 2e-6 * amplitude);
    EXPECT_NEAR(d.first[i].v[2], 0, 2e-6 * amplitude);
    for (int axis = 0; axis < 3; ++axis) ASSERT_NEAR(d.second[i].v[axis], 0, 1e-5 * amplitude);
  }
}

TEST(Lpt, TwoCrossedWavesHaveTheKnownSecondOrder) {
  const double k = 2 * std::numbers::pi / kBox, a = 0.4;
  const auto d = displacements_of_density(
      on_lattice([&](double x, double y) { return a * (std::cos(k * x) + std::cos(k * y)); }), kN, kBox);
  const double amplitude = a * a / (2 * k);
  for (std::size_t i = 0; i < d.first.size(); ++i) {
    const double x = static_cast<double>(i / (kN * kN)) * kBox / kN;
    const double y = static_cast<double>(i / kN % kN) * kBox / kN;
    ASSERT_NEAR(d.second[i].v[0], amplitude * std::sin(k * x) * std::cos(k * y), 1e-5 * amplitude);
    ASSERT_NEAR(d.second[i].v[1], amplitude * std::cos(k * x) * std::sin(k * y), 1e-5 * amplitude);
    ASSERT_NEAR(d.second[i].v[2], 0, 1e-5 * amplitude);
  }
}

TEST(Noise, IsStandardNormalAndFollowsFromTheSeedAlone) {
  const auto noise = white_noise(7, 32);
  double mean = 0, square = 0, fourth = 0, neighbours = 0;
  for (std::size_t i = 0; i < noise.size(); ++i) {
    mean += noise[i];
    square += noise[i] * noise[i];
    fourth += std::pow(noise[i], 4);
    if (i > 0) neighbours += noise[i] * noise[i - 1];
  }
  const double n = static_cast<double>(noise.size());
  EXPECT_NEAR(mean / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(square / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96 / n));
  EXPECT_NEAR(neighbours / n, 0, 5 / std::sqrt(n));
  EXPECT_EQ(noise, white_noise(7, 32));
  EXPECT_NE(universe_seed(1, 2), universe_seed(2, 1));
  EXPECT_NE(universe_seed(0, 0), universe_seed(0, 1));
}

TEST(Noise, NeverChanges) {
  // Published campaigns are named by their seeds: these values are a format.
  EXPECT_EQ(universe_seed(1, 17), 14737300362313292779u);
  EXPECT_FLOAT_EQ(white_noise(1, 8)[5], -1.0123568f);
}

}  // namespace
}  // namespace cola
