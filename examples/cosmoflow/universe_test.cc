// SPDX-License-Identifier: Apache-2.0
#include "universe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "cosmology.h"

namespace cola {
namespace {

UniverseSpec small() {
  UniverseSpec spec;
  spec.particles = 16;
  spec.cells = 16;
  spec.box = 64;
  spec.seed = 42;
  spec.output = "unused.h5";
  return spec;
}

std::vector<unsigned char> bytes_of(const UniverseSpec& spec) {
  Simulation simulation(spec.particles, spec.mesh_or_default());
  return density_file_image(spec, make_universe(spec, simulation));
}

// Validation 9, mass.
TEST(Universe, ConservesMass) {
  UniverseSpec spec = small();
  spec.particles = 32;
  Simulation simulation(32, 64);
  const auto density = std::get<std::vector<float>>(make_universe(spec, simulation));
  ASSERT_EQ(density.size(), 2u * 16 * 16 * 16);
  for (int channel = 0; channel < 2; ++channel) {
    const auto first = density.begin() + channel * 4096;
    EXPECT_NEAR(std::accumulate(first, first + 4096, 0.0) / 4096, 1, 1e-6);
  }
  spec.assign = Assign::ngp;
  const auto counts = std::get<std::vector<std::uint16_t>>(make_universe(spec, simulation));
  EXPECT_EQ(std::accumulate(counts.begin(), counts.begin() + 4096, 0u), 32u * 32 * 32);
  EXPECT_EQ(std::accumulate(counts.begin() + 4096, counts.end(), 0u), 32u * 32 * 32);
}

TEST(Universe, CellsAndCountsAreOfTheSamePlace) {
  // One particle a cell and no fluctuations to speak of: both ways of assignment give ones.
  UniverseSpec spec = small();
  spec.cosmology.sigma_8 = 0.05;
  spec.redshifts = {9};
  Simulation simulation(16, 32);
  const Cubes density = make_universe(spec, simulation);
  for (float value : std::get<std::vector<float>>(density)) EXPECT_NEAR(value, 1, 0.2);
  spec.assign = Assign::ngp;
  const Cubes counts = make_universe(spec, simulation);
  for (int value : std::get<std::vector<std::uint16_t>>(counts)) EXPECT_EQ(value, 1);
}

// Validation 10.
TEST(Universe, SameSeedSameBytesWhateverRanBefore) {
  const UniverseSpec spec = small();
  const auto alone = bytes_of(spec);
  EXPECT_EQ(alone, bytes_of(spec));

  Simulation simulation(16, 32);
  for (std::uint64_t index : {3u, 1u, 2u}) {
    UniverseSpec other = spec;
    other.index = index;
    other.cosmology.omega_m = 0.2;
    (void)make_universe(other, simulation);
  }
  EXPECT_EQ(alone, density_file_image(spec, make_universe(spec, simulation)));
}

TEST(Universe, OtherSeedsAreIndependent) {
  UniverseSpec spec = small();
  spec.particles = 32;
  spec.cells = 32;
  Simulation simulation(32, 64);
  const auto first = std::get<std::vector<float>>(make_universe(spec, simulation));
  for (const bool other_index : {true, false}) {
    UniverseSpec other = spec;
    (other_index ? other.index : other.seed) += 1;
    const auto second = std::get<std::vector<float>>(make_universe(other, simulation));
    double xy = 0, xx = 0, yy = 0;
    for (std::size_t i = 32768; i < 65536; ++i) {
      const double x = first[i] - 1, y = second[i] - 1;
      xy += x * y, xx += x * x, yy += y * y;
    }
    EXPECT_LT(std::abs(xy / std::sqrt(xx * yy)), 0.1);
  }
}

TEST(Universe, RefusesWhatCannotBe) {
  const auto sentence = [](auto&& change) -> std::string {
    UniverseSpec spec = small();
    change(spec);
    try {
      check(spec);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(sentence([](UniverseSpec&) {}), "");
  EXPECT_EQ(sentence([](UniverseSpec& s) { s.cosmology.omega_m = -0.3; }),
            "--omega-m is -0.3, but must be from 0.05 to 1.");
  EXPECT_EQ(sentence([](UniverseSpec& s) { s.cosmology.sigma_8 = std::nan(""); }),
            "--sigma8 is nan, but must be from 0.05 to 3.");
  EXPECT_EQ(sentence([](UniverseSpec& s) { s.particles = 31; }),
            "--particles is 31, but must be an even number from 8 to 1024.");
  EXPECT_EQ(sentence([](UniverseSpec& s) {
              s.redshifts = {1, -1};
            }),
            "--redshifts is -1, but must be from 0 to 9, where the run starts.");
  EXPECT_EQ(sentence([](UniverseSpec& s) { s.cosmology.omega_b = 0.4; }),
            "--omega-b is 0.4, but must be at least 0.0001 and below --omega-m.");
}

}  // namespace
}  // namespace cola
