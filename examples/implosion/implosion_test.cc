// SPDX-License-Identifier: Apache-2.0
// The validation that README.md lists, by its numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "dynamics.h"
#include "hot_spot.h"
#include "images.h"
#include "ode.h"
#include "simulation.h"
#include "wflow_plugin.h"

namespace implosion {
namespace {

const ProfileTable& table() {
  static const ProfileTable made;
  return made;
}

constexpr Physics kNothing = {
    .radiation = false, .conduction = false, .burn = false, .layers = 3, .tolerance = 1e-9};
constexpr Capsule kAsymmetric = {
    .laser_energy_mj = 1.9, .thickness_um = 65, .adiabat = 2.5, .p2 = 0.03, .p4 = -0.02};

double total_energy(const Moment& m) {
  return m.kinetic_energy + m.shell_energy + m.hot_spot_energy + m.radiated_energy - m.alpha_energy;
}

double largest_change_of_energy(const Motion& motion) {
  const double first = total_energy(motion.at(0));
  double largest = 0;
  for (int k = 1; k <= 200; ++k)
    largest = std::max(largest, std::abs(total_energy(motion.at(motion.end() * k / 200)) / first - 1));
  return largest;
}

struct Measured {
  std::vector<double> scalars = std::vector<double>(kScalars);
  std::vector<float> images = std::vector<float>(kImageValues);

  float at(int band, int row, int column) const {
    return images[(static_cast<std::size_t>(band) * kPixels + row) * kPixels + column];
  }
};

Measured measured(const Capsule& capsule) {
  Measured result;
  simulate(capsule, table(), result.scalars, result.images);
  return result;
}

// A ball of `radius` in a shell from there to 1.5 `radius`.
Moment ball(double radius, double density) {
  Moment moment;
  moment.inner_radius.fill(radius);
  moment.outer_radius.fill(1.5 * radius);
  moment.shell_column.fill(0.5 * radius * density);
  return moment;
}

// 1
TEST(Reactivity, IsThatOfThePublishedTable) {
  // Bosch and Hale 1992, table VIII: keV, cm^3/s.
  constexpr std::array<std::array<double, 2>, 15> published = {{{0.2, 1.254e-26},
                                                                {0.3, 7.292e-25},
                                                                {0.5, 5.697e-23},
                                                                {0.8, 1.662e-21},
                                                                {1, 6.857e-21},
                                                                {2, 2.977e-19},
                                                                {3, 1.867e-18},
                                                                {4, 5.974e-18},
                                                                {5, 1.366e-17},
                                                                {6, 2.554e-17},
                                                                {8, 6.222e-17},
                                                                {10, 1.136e-16},
                                                                {20, 4.330e-16},
                                                                {30, 6.681e-16},
                                                                {50, 8.649e-16}}};
  for (const auto& [kev, cubic_cm] : published)
    EXPECT_NEAR(dt_reactivity(kev) / (1e-6 * cubic_cm), 1, 5e-4) << kev << " keV";
  EXPECT_EQ(dt_reactivity(0.1), 0);
  EXPECT_NEAR(dt_reactivity(200) / dt_reactivity(100), 1, 1e-12);
}

// 2
TEST(HotSpot, TablesAreIntegralsOfTheProfile) {
  constexpr int cells = 200000;
  double mass = 0, column = 0;
  for (int k = 0; k < cells; ++k) {
    const double x = (k + 0.5) / cells;
    mass += x * x / temperature_fraction(x * x) / cells;
    column += 1 / temperature_fraction(x * x) / cells;
  }
  EXPECT_NEAR(mass, kMassIntegral, 1e-3);  // the sum converges slowly at x = 1
  EXPECT_NEAR(column, kColumnIntegral, 1e-3);
  for (const double central : {1.37, 3.3, 7.7, 21.0}) {
    double reactions = 0, heat = 0, radiation = 0;
    for (int k = 0; k < cells; ++k) {
      const double x = (k + 0.5) / cells;
      const double kev = central * temperature_fraction(x * x);
      const double rate = x * x * central * central / (kev * kev) * dt_reactivity(kev) / cells;
      reactions += rate;
      heat += rate * kev;
      radiation += x * x * std::pow(central / kev, 1.5) * std::exp(-6 / kev) / cells;
    }
    EXPECT_NEAR(table().reactions(central) / reactions, 1, 1e-3) << central;
    EXPECT_NEAR(table().reacting_kev(central) * reactions / heat, 1, 1e-3) << central;
    EXPECT_NEAR(table().radiation(central) / radiation, 1, 2e-3) << central;
  }
}

TEST(HotSpot, TheSpectrumAddsUpToThePower) {
  double power = 0;
  for (double kev = 0.005; kev < 200; kev += 0.01) power += 0.01 * radiated_spectrum(1e31, 4, kev);
  EXPECT_NEAR(power / radiated_power(1e31, 4), 1, 1e-4);
}

TEST(HotSpot, PartsOfTheAlphaParticlesStay) {
  EXPECT_EQ(alpha_deposition(0, 4), 0);
  EXPECT_NEAR(alpha_deposition(1e4, 4), 1, 1e-3);
  double before = 0;
  for (double column = 0.1; column < 100; column *= 1.3) {  // no step at tau = 1/2
    const double here = alpha_deposition(column, 4);
    EXPECT_GT(here, before);
    EXPECT_LT(here - before, 0.2);
    before = here;
  }
}

// 3
TEST(Integrator, FollowsACircleAndKeepsItsAccuracy) {
  double before = 1;
  for (const double relative : {1e-5, 1e-7, 1e-9}) {
    Accuracy accuracy;
    accuracy.relative = relative;
    accuracy.absolute = {relative, relative};
    accuracy.first_step = 1e-3;
    const Trajectory circle = integrate(
        [](double, std::span<const double> y, std::span<double> change) {
          change[0] = y[1];
          change[1] = -y[0];
        },
        {1, 0}, 20, accuracy, [](const Trajectory&) { return false; });
    const double error = std::abs(circle.at(20)[0] - std::cos(20.0));
    EXPECT_LT(error, 100 * relative);
    EXPECT_LT(error, before);
    before = error;
    EXPECT_NEAR(circle.at(7.3)[0], std::cos(7.3), 1e-3);
  }
}

// 4
TEST(Motion, AThinShellAroundAnAdiabaticGasHasAClosedForm) {
  Physics physics = kNothing;
  physics.layers = 1;
  const Motion motion({.p2 = 0, .p4 = 0}, physics, table());
  const Moment start = motion.at(0);
  const double radius = start.inner_radius[0];
  // r'' = b / r^3 with b = 4 pi p r^5 / m: r^2 is a parabola in time.
  const double b = 4 * std::numbers::pi * start.pressure * std::pow(radius, 5) / motion.shell_mass();
  double least = radius;
  for (int k = 0; k <= 100; ++k) {
    const double time = motion.end() * k / 100;
    const double free = radius - motion.start_speed() * time;
    const double expected = std::sqrt(free * free + b * time * time / (radius * radius));
    const Moment here = motion.at(time);
    for (const double found : here.inner_radius) EXPECT_NEAR(found / expected, 1, 1e-5) << time;
    EXPECT_NEAR(here.pressure * std::pow(expected / radius, 5) / start.pressure, 1, 1e-4) << time;
    least = std::min(least, expected);
  }
  EXPECT_LT(least, radius / 8);  // it was compressed, and it came back
  EXPECT_GT(motion.at(motion.end()).inner_radius[0], 1.9 * least);
}

// 5
TEST(Motion, EnergyIsConserved) {
  EXPECT_LT(largest_change_of_energy(Motion(kAsymmetric, kNothing, table())), 1e-6);
  Physics all;
  all.tolerance = 1e-9;
  EXPECT_LT(largest_change_of_energy(Motion(kAsymmetric, all, table())), 1e-6);
  EXPECT_LT(largest_change_of_energy(Motion(kAsymmetric, {}, table())), 1e-4);  // as the plugin computes it
}

// 6
TEST(Motion, TheUsualToleranceIsEnough) {
  Physics fine;
  fine.tolerance = 1e-10;
  const Motion usual(kAsymmetric, {}, table()), exact(kAsymmetric, fine, table());
  EXPECT_NEAR(usual.neutrons() / exact.neutrons(), 1, 1e-3);
  EXPECT_NEAR(usual.bang_time() / exact.bang_time(), 1, 1e-5);
  EXPECT_NEAR(usual.burn_kev() / exact.burn_kev(), 1, 1e-4);
}

// 7
TEST(Motion, FollowsTheDrive) {
  // Without asymmetry all cones are one.
  const Motion sphere({}, {}, table());
  const Moment bang = sphere.at(sphere.bang_time());
  for (int cone = 1; cone < kCones; ++cone) {
    EXPECT_EQ(bang.inner_radius[cone], bang.inner_radius[0]);
    EXPECT_EQ(bang.outer_radius[cone], bang.outer_radius[0]);
  }
  EXPECT_NEAR(legendre_coefficients(bang.inner_radius)[1], 0, 1e-12);
  // Small modes act in proportion, and each by itself.
  const auto modes = [](double p2, double p4) {
    const Motion motion({.p2 = p2, .p4 = p4}, {}, table());
    return legendre_coefficients(motion.at(motion.bang_time()).inner_radius);
  };
  const auto plus = modes(1e-3, 0), minus = modes(-1e-3, 0), fourth = modes(0, 1e-3);
  EXPECT_LT(plus[1], 0);  // more drive at the poles: they arrive first
  EXPECT_NEAR(plus[1] / minus[1], -1, 0.02);
  EXPECT_LT(std::abs(plus[2]), 0.02 * std::abs(plus[1]));
  EXPECT_LT(std::abs(fourth[1]), 0.02 * std::abs(fourth[2]));
  // Asymmetry and a high adiabat cost neutrons, a stronger drive gains them.
  const auto yield = [](const Capsule& capsule) { return Motion(capsule, {}, table()).neutrons(); };
  const double plain = yield({});
  EXPECT_LT(yield({.p2 = 0.03}), plain);
  EXPECT_LT(yield({.p4 = -0.03}), plain);
  EXPECT_LT(yield({.adiabat = 3.5}), plain);
  EXPECT_GT(yield({.laser_energy_mj = 2}), 1.2 * plain);
}

// 8
TEST(Images, OfAGaussianBallAreItsAbelTransform) {
  const double radius = 60e-6, width = 15e-6;
  const Emission gaussian([&](double x_squared) {
    Emission::Bands bands;
    bands.fill(std::exp(-x_squared * radius * radius / (width * width)));
    return bands;
  });
  std::vector<float> images(kImageValues);
  project(Outline(ball(radius, 0)), gaussian, images);
  for (int row = 0; row < kPixels; ++row) {
    for (int column = 0; column < kPixels; ++column) {
      const double y = (row - 31.5) * kPixelSize, x = (column - 31.5) * kPixelSize;
      const double expected =
          std::sqrt(std::numbers::pi) * width * std::exp(-(x * x + y * y) / (width * width));
      EXPECT_NEAR(images[static_cast<std::size_t>(row) * kPixels + column], expected, 1e-3 * width)
          << row << ' ' << column;
    }
  }
}

// 9
TEST(Images, TheShellAbsorbsByBandAndPath) {
  const double radius = 40e-6, density = 4e5;
  const Emission unit([](double) { return Emission::Bands{1, 1, 1, 1}; });
  std::vector<float> clear(kImageValues), dimmed(kImageValues);
  project(Outline(ball(radius, 0)), unit, clear);
  project(Outline(ball(radius, density)), unit, dimmed);
  const Emission::Bands depth = absorption(density);
  for (int band = 0; band < kBands; ++band) {
    const std::size_t centre = (static_cast<std::size_t>(band) * kPixels + 32) * kPixels + 32;
    EXPECT_NEAR(clear[centre] / (2 * radius), 1, 0.02);
    EXPECT_NEAR(std::log(clear[centre] / dimmed[centre]), 0.5 * radius * depth[band],
                0.02 * 0.5 * radius * depth[0]);
  }
  EXPECT_NEAR(depth[0] / depth[3], std::pow(20.0 / 8, 3), 1e-9);
}

// 10
TEST(Images, ShowTheModes) {
  const Measured sphere = measured({});
  for (int band = 0; band < kBands; ++band) {
    for (int row = 0; row < kPixels; ++row) {
      for (int column = 0; column < kPixels; ++column) {
        const float here = sphere.at(band, row, column);
        EXPECT_NEAR(here, sphere.at(band, column, row), 1e-5 * sphere.at(band, 32, 32));
        EXPECT_EQ(here, sphere.at(band, kPixels - 1 - row, column));
      }
    }
  }
  // Flat: dark above the pole, where a sphere still shines, and brighter at the equator.
  const Measured flat = measured({.p2 = 0.03});
  EXPECT_LT(flat.scalars[6], -0.1);
  EXPECT_LT(flat.at(0, 17, 32), 0.5 * sphere.at(0, 17, 32));
  EXPECT_GT(flat.at(0, 32, 14), 1.5 * sphere.at(0, 32, 14));
  EXPECT_LT(sphere.at(3, 32, 32), 0.5 * sphere.at(0, 32, 32));
}

// 11
TEST(Plugin, GivesTheSameBytesForTheSameCapsule) {
  const struct wflow_plugin* plugin = wflow_plugin();
  ASSERT_EQ(plugin->array_count, 2u);
  const char* names[] = {"p2", "p4", "adiabat", "thickness", "laser_energy"};
  const wflow_context context = {5, names, 0, 1};
  char error[200] = "";
  void* state = nullptr;
  ASSERT_EQ(plugin->begin(&context, &state, error, sizeof error), 0) << error;
  const double parameters[] = {0.03, -0.02, 2.5, 65, 1.9};
  Measured found;
  void* results[] = {found.scalars.data(), found.images.data()};
  ASSERT_EQ(plugin->run(state, 0, parameters, results, error, sizeof error), 0) << error;
  const Measured expected = measured(kAsymmetric);
  EXPECT_EQ(found.scalars, expected.scalars);
  EXPECT_EQ(found.images, expected.images);

  const double too_thin[] = {0, 0, 2.5, 2, 1.9};
  EXPECT_EQ(plugin->run(state, 1, too_thin, results, error, sizeof error), 1);
  EXPECT_NE(std::string(error).find("thickness must be from"), std::string::npos) << error;
  const double unstable[] = {0.2, 0.2, 1.5, 60, 1.4};
  EXPECT_EQ(plugin->run(state, 2, unstable, results, error, sizeof error), 1);
  EXPECT_NE(std::string(error).find("reaches the centre"), std::string::npos) << error;
  plugin->end(state);

  const wflow_context four = {4, names, 0, 1};
  EXPECT_EQ(plugin->begin(&four, &state, error, sizeof error), 1);
  EXPECT_NE(std::string(error).find("must be laser_energy, thickness"), std::string::npos) << error;
}

}  // namespace
}  // namespace implosion
