// SPDX-License-Identifier: Apache-2.0
#include "cosmology.h"

#include <gtest/gtest.h>

#include <cmath>

namespace cola {
namespace {

// Validation 1.
TEST(LinearPower, IntegratesToSigma8) {
  for (const Cosmology& c :
       {Cosmology{}, Cosmology{0.1, 0.6, 0.96, 0.7, 0.045}, Cosmology{0.5, 1.0, 0.9, 0.8, 0.05}}) {
    EXPECT_NEAR(std::sqrt(top_hat_variance(LinearPower(c), 8)), c.sigma_8, 1e-4 * c.sigma_8);
  }
}

TEST(LinearPower, TransferIsOneOnLargeScales) {
  EXPECT_NEAR(transfer_eh98(Cosmology{}, 1e-6), 1, 1e-3);
  EXPECT_NEAR(transfer_eh98_no_wiggle(Cosmology{}, 1e-6), 1, 1e-3);
  EXPECT_EQ(LinearPower(Cosmology{})(0), 0);
}

TEST(LinearPower, WigglesStayAroundTheSmoothForm) {
  const Cosmology c;
  for (double k = 1e-3; k < 3; k *= 1.01) {
    const double ratio = std::pow(transfer_eh98(c, k) / transfer_eh98_no_wiggle(c, k), 2);
    EXPECT_GT(ratio, 0.94) << "k = " << k;
    EXPECT_LT(ratio, 1.07) << "k = " << k;
  }
}

// Validation 2.
TEST(Growth, OfAnEinsteinDeSitterUniverseIsKnown) {
  const Growth growth(1.0);
  for (double a = 0.002; a <= 1; a *= 1.1) {
    EXPECT_NEAR(growth.d1(a) / a, 1, 1e-6);
    EXPECT_NEAR(growth.d2(a) / (-3.0 / 7 * a * a), 1, 1e-6);
    EXPECT_NEAR(growth.t_d1(a) / growth.q(a), 1, 1e-6);
  }
}

double carroll_press_turner(double omega_m, double a) {
  const double e2 = omega_m / (a * a * a) + 1 - omega_m;
  const double om = omega_m / (a * a * a) / e2, ol = (1 - omega_m) / e2;
  return 2.5 * om / (std::pow(om, 4.0 / 7) - ol + (1 + om / 2) * (1 + ol / 70));
}

TEST(Growth, FollowsTheFitFormulae) {
  for (double omega_m : {0.1, 0.2, 0.3, 0.4, 0.5}) {
    const Growth growth(omega_m);
    for (double a : {0.1, 0.25, 0.5, 0.8}) {
      const double fit = a * carroll_press_turner(omega_m, a) / carroll_press_turner(omega_m, 1);
      EXPECT_NEAR(growth.d1(a) / fit, 1, omega_m >= 0.3 ? 0.002 : 0.021) << omega_m << " " << a;
      const double om_a = omega_m / (a * a * a) / std::pow(growth.hubble(a), 2);
      EXPECT_NEAR(growth.d2(a) / (growth.d1(a) * growth.d1(a)) / (-3.0 / 7 * std::pow(om_a, -1.0 / 143)), 1,
                  5e-4);
    }
  }
  // Independent integration (scipy.odeint).
  EXPECT_NEAR(Growth(0.3).d1(0.1), 0.12832, 1e-5);
  EXPECT_NEAR(Growth(0.3).d1(0.5), 0.61181, 1e-5);
}

TEST(Growth, TimeIntegralsMatchTheirClosedForm) {
  const Growth growth(1.0);  // Q = a^1.5
  EXPECT_NEAR(growth.integral_over_q(0.1, 0.2, 0), 2 * (std::pow(0.1, -0.5) - std::pow(0.2, -0.5)), 1e-6);
  EXPECT_NEAR(growth.integral_over_q(0.2, 0.1, 1), 2 * (std::sqrt(0.1) - std::sqrt(0.2)), 1e-6);
}

}  // namespace
}  // namespace cola
