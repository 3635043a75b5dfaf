// SPDX-License-Identifier: Apache-2.0
// Physics: the numbers of tests are those of the table in README.md.
#include "simulation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <numbers>

#include "particles.h"
#include "test_support.h"

namespace cola {
namespace {

using testing::add_power;
using testing::RatioBin;

const Cosmology kCosmology;

struct Snapshots {
  std::vector<std::vector<float>> density;
};

Snapshots evolve(const Displacements& displacements, int particles, int mesh, double box,
                 const std::vector<double>& scale_factors, StepPlan plan = {}) {
  Simulation simulation(particles, mesh);
  Snapshots result;
  result.density.resize(scale_factors.size());
  simulation.run(kCosmology, displacements, box, plan, scale_factors,
                 [&](std::size_t which, const Simulation::View& view) {
                   result.density[which] = testing::density_of(view, mesh, particles);
                 });
  return result;
}

// Validation 4: before crossing, Zel'dovich is exact for a plane wave.
TEST(Simulation, PlaneWaveFollowsZeldovich) {
  constexpr int kN = 32, kMesh = 64;
  constexpr double kBox = 64;
  std::vector<float> delta;
  for (int i = 0; i < kN * kN * kN; ++i) {
    delta.push_back(static_cast<float>(0.6 * std::cos(2 * std::numbers::pi * (i / (kN * kN)) / kN)));
  }
  const auto displacements = displacements_of_density(delta, kN, kBox);
  Simulation simulation(kN, kMesh);
  const double amplitude = 0.6 * kMesh / (2 * std::numbers::pi);
  double worst = 0, transverse = 0;
  const double end = 1;
  simulation.run(
      kCosmology, displacements, kBox, {}, {&end, 1}, [&](std::size_t, const Simulation::View& view) {
        for (std::size_t i = 0; i < view.particles.size(); ++i) {
          const std::size_t lattice[3] = {i / (kN * kN), i / kN % kN, i % kN};
          for (int axis = 0; axis < 3; ++axis) {
            double moved =
                view.particles[i].position.v[axis] - static_cast<double>(lattice[axis] * kMesh / kN);
            moved -= kMesh * std::round(moved / kMesh);
            if (axis == 0) {
              const double expected =
                  -amplitude * std::sin(2 * std::numbers::pi * static_cast<double>(lattice[0]) / kN);
              worst = std::max(worst, std::abs(moved - expected));
            } else {
              transverse = std::max(transverse, std::abs(moved));
            }
          }
        }
      });
  std::printf("plane wave: error / amplitude %.4f, transverse %.1e\n", worst / amplitude,
              transverse / amplitude);
  EXPECT_LT(worst, 0.025 * amplitude);
  EXPECT_LT(transverse, 1e-6 * amplitude);
}

// Validation 5, 6 and 7 look at the same runs: fixed amplitudes, and each seed with its mirror image (all
// phases turned by pi; Angulo & Pontzen 2016), which cancels the leading effect of the phases on mode
// coupling.
class LargeBox : public ::testing::Test {
 protected:
  static constexpr int kParticles = 64, kMesh = 128;
  static constexpr double kBox = 256;

  static void SetUpTestSuite() {
    for (const std::uint64_t seed : {1u, 2u}) {
      auto noise = white_noise(seed, kParticles);
      for (int side = 0; side < 2; ++side) {
        const auto displacements =
            make_displacements(noise, kParticles, kBox, LinearPower(kCosmology), Amplitude::fixed);
        runs_.push_back(evolve(displacements, kParticles, kMesh, kBox, {0.1, 1.0}));
        for (float& value : noise) value = -value;
      }
    }
  }
  static void TearDownTestSuite() { runs_.clear(); }

  template <typename Power>
  static std::vector<RatioBin> ratios(std::size_t snapshot, const std::vector<double>& edges,
                                      const Power& power) {
    std::vector<RatioBin> bins;
    for (const Snapshots& run : runs_) add_power(run.density[snapshot], kMesh, kBox, edges, power, bins);
    return bins;
  }

  static std::vector<Snapshots> runs_;
};
std::vector<Snapshots> LargeBox::runs_;

TEST_F(LargeBox, StartsOnTheLinearSpectrum) {
  const LinearPower linear(kCosmology);
  const double growth = std::pow(Growth(kCosmology.omega_m).d1(0.1), 2);
  for (const RatioBin& bin :
       ratios(0, {0.01, 0.03, 0.06, 0.1, 0.15, 0.2}, [&](double k) { return growth * linear(k); })) {
    std::printf("z=9 P/linear at k=%.3f: %.4f\n", bin.k, bin.ratio());
    EXPECT_NEAR(bin.ratio(), 1, 0.03) << "k = " << bin.k;
  }
}

TEST_F(LargeBox, GrowsLinearlyOnLargeScales) {
  const LinearPower linear(kCosmology);
  const std::vector<double> edges = {0.01, 0.03, 0.06};
  const auto late = ratios(1, edges, linear);
  const auto early = ratios(0, edges, linear);
  const double growth = std::pow(Growth(kCosmology.omega_m).d1(0.1), 2);
  for (std::size_t b = 0; b < late.size(); ++b) {
    std::printf("z=0 P/linear at k=%.3f: %.4f, growth %.4f\n", late[b].k, late[b].ratio(),
                late[b].measured / early[b].measured * growth);
    EXPECT_NEAR(late[b].ratio(), 1, 0.02) << "k = " << late[b].k;
    EXPECT_NEAR(late[b].measured / early[b].measured * growth, 1, 0.02) << "k = " << late[b].k;
  }
}

TEST_F(LargeBox, FollowsHalofit) {
  const LinearPower linear(kCosmology);
  const testing::Halofit halofit(linear, kCosmology.omega_m);
  for (const RatioBin& bin : ratios(1, {0.03, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6},
                                    [&](double k) { return halofit(k, linear(k)); })) {
    std::printf("z=0 P/halofit at k=%.3f: %.4f\n", bin.k, bin.ratio());
    EXPECT_GT(bin.ratio(), 0.85) << "k = " << bin.k;
    EXPECT_LT(bin.ratio(), 1.1) << "k = " << bin.k;
  }
}

// Validation 8.
TEST(Simulation, TenColaStepsMatchFortyPlainSteps) {
  constexpr int kN = 64, kMesh = 128;
  constexpr double kBox = 128;
  const auto displacements = make_displacements(white_noise(5, kN), kN, kBox, LinearPower(kCosmology));
  const auto cola = evolve(displacements, kN, kMesh, kBox, {1.0});
  const auto plain = evolve(displacements, kN, kMesh, kBox, {1.0}, {40, 0.1, Scheme::plain_pm});
  const std::vector<double> edges = {0.04, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0};
  std::vector<RatioBin> ours, theirs;
  add_power(
      cola.density[0], kMesh, kBox, edges, [](double) { return 1.0; }, ours);
  add_power(
      plain.density[0], kMesh, kBox, edges, [](double) { return 1.0; }, theirs);
  for (std::size_t b = 0; b < ours.size(); ++b) {
    std::printf("COLA 10 / PM 40 at k=%.3f: %.4f\n", ours[b].k, ours[b].measured / theirs[b].measured);
    EXPECT_NEAR(ours[b].measured / theirs[b].measured, 1, 0.03) << "k = " << ours[b].k;
  }
}

// Validation 9, momentum.
TEST(Simulation, ConservesMomentum) {
  constexpr int kN = 32, kMesh = 64;
  const auto displacements = make_displacements(white_noise(3, kN), kN, 128, LinearPower(kCosmology));
  Simulation simulation(kN, kMesh);
  const double end = 1;
  simulation.run(kCosmology, displacements, 128, {}, {&end, 1}, [](std::size_t, const Simulation::View&) {});
  for (int axis = 0; axis < 3; ++axis) {
    double sum = 0, square = 0;
    for (const Particle& p : simulation.particles()) {
      sum += p.velocity.v[axis];
      square += static_cast<double>(p.velocity.v[axis]) * p.velocity.v[axis];
    }
    const double n = static_cast<double>(simulation.particles().size());
    std::printf("mean velocity / rms: %.1e\n", std::abs(sum / n) / std::sqrt(square / n));
    EXPECT_LT(std::abs(sum / n) / std::sqrt(square / n), 1e-5);
  }
}

// Validation 11.
TEST(Simulation, SnapshotsLeaveNoTrace) {
  constexpr int kN = 16, kMesh = 32;
  const auto displacements = make_displacements(white_noise(3, kN), kN, 64, LinearPower(kCosmology));
  const auto alone = evolve(displacements, kN, kMesh, 64, {1.0});
  const auto among = evolve(displacements, kN, kMesh, 64, {0.5, 1.0, 0.1, 0.3});
  EXPECT_EQ(alone.density[0], among.density[1]);
  EXPECT_NE(among.density[0], among.density[1]);
  EXPECT_EQ(among.density[2], evolve(displacements, kN, kMesh, 64, {0.1}).density[0]);
  EXPECT_EQ(among.density[0], evolve(displacements, kN, kMesh, 64, {0.5}).density[0]);
}

// Validation 12.
TEST(Simulation, TranslatedNoiseGivesATranslatedUniverse) {
  constexpr int kN = 32, kMesh = 64;
  const auto noise = white_noise(11, kN);
  const auto shifted_index = [](int i, int n, int by) {
    const int x = i / (n * n), y = i / n % n, z = i % n;
    return (((x + by) % n) * n + (y + by) % n) * n + (z + by) % n;
  };
  std::vector<float> moved(noise.size());
  for (int i = 0; i < kN * kN * kN; ++i) moved[shifted_index(i, kN, 1)] = noise[i];
  const auto density = [&](const std::vector<float>& from) {
    return evolve(make_displacements(from, kN, 64, LinearPower(kCosmology)), kN, kMesh, 64, {1.0}).density[0];
  };
  const auto here = density(noise), there = density(moved);
  double square = 0, difference = 0;
  for (int i = 0; i < kMesh * kMesh * kMesh; ++i) {
    square += here[i] * here[i];
    difference += std::pow(here[i] - there[shifted_index(i, kMesh, kMesh / kN)], 2);
  }
  std::printf("relative difference after translation: %.2e\n", std::sqrt(difference / square));
  EXPECT_LT(std::sqrt(difference / square), 1e-3);
}

TEST(Simulation, OddRatiosOfMeshAndParticlesStayInBounds) {
  // A high sigma_8 in a small box sends particles over several boxes.
  Cosmology wild = kCosmology;
  wild.sigma_8 = 3;
  const auto displacements = make_displacements(white_noise(2, 10), 10, 5, LinearPower(wild));
  Simulation simulation(10, 18);
  const double end = 1;
  simulation.run(wild, displacements, 5, {3, 0.1, Scheme::cola}, {&end, 1},
                 [&](std::size_t, const Simulation::View& view) {
                   std::vector<float> cube(7 * 7 * 7);
                   deposit_output(view.particles, view.drift, {18, 10, 7}, cube);
                   double mass = 0;
                   for (float value : cube) mass += value;
                   EXPECT_NEAR(mass, 1000, 1e-3);
                 });
}

}  // namespace
}  // namespace cola
