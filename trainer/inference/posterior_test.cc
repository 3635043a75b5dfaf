// SPDX-License-Identifier: Apache-2.0
#include "trainer/inference/posterior.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace wflow::trainer {
namespace {

// N(mean, deviation^2) of one parameter.
MixtureDensity normal_density(double mean, double deviation) {
  return {std::vector<double>{mean, 0, 0, -std::log(deviation)}, 1, 1};
}

TEST(Posterior, DrawsAreAFunctionOfTheKey) {
  const MixtureDensity density = normal_density(3, 2);
  const PosteriorDraws draws = draw_posterior(density, {}, 20000, 7);
  EXPECT_EQ(draws.values, draw_posterior(density, {}, 20000, 7).values);
  EXPECT_NE(draws.values, draw_posterior(density, {}, 20000, 8).values);
  EXPECT_EQ(draws.outside, 0);
  const ParameterSummary summary = summaries(draws, 1).front();
  EXPECT_NEAR(summary.mean, 3, 0.06);
  EXPECT_NEAR(summary.deviation, 2, 0.04);
  const std::vector<double> expected = {3 - 1.96 * 2, 3 - 0.994 * 2, 3, 3 + 0.994 * 2, 3 + 1.96 * 2};
  EXPECT_THAT(summary.quantiles, testing::Pointwise(testing::DoubleNear(0.12), expected));
}

TEST(Posterior, DrawsStayInTheBoxAndTheDensityIsThatInIt) {
  const PosteriorDraws draws = draw_posterior(normal_density(0, 1), {{0, 1}}, 5000, 1);
  for (const double y : draws.values) EXPECT_TRUE(y >= 0 && y <= 1);
  EXPECT_NEAR(draws.outside, 1 - 0.3413, 0.01);
  const double at_first = -0.5 * draws.values[0] * draws.values[0] - 0.5 * std::log(2 * M_PI);
  EXPECT_NEAR(draws.log_density[0], at_first - std::log(0.3413), 0.03);
  EXPECT_THROW(draw_posterior(normal_density(0, 1), {{9, 10}}, 100, 1), Error);
}

TEST(Posterior, CorrelationsAreThoseOfTheDensity) {
  // L = [[2, 0], [1, 0.5]]: covariance [[1.25, -2], [-2, 4]].
  const MixtureDensity density({std::vector<double>{1, -2, 0, 0, 0, std::log(2.0), std::log(0.5), 1}}, 1, 2);
  const PosteriorDraws draws = draw_posterior(density, {}, 20000, 3);
  const std::vector<double> matrix = correlations(draws, summaries(draws, 2));
  EXPECT_NEAR(matrix[1], -2 / std::sqrt(1.25 * 4), 0.01);
  EXPECT_NEAR(matrix[0], 1, 1e-12);
}

TEST(Posterior, ProposalsAreUniformWhereTheDensityIs) {
  const MixtureDensity density = normal_density(2, 0.5);
  const PriorBox box = {{0, 100}};
  const PosteriorDraws draws = draw_posterior(density, box, 20000, 5);
  const Proposals proposals = propose(density, draws, box, 4000, 9);
  EXPECT_EQ(proposals.values, propose(density, draws, box, 4000, 9).values);
  // A thousandth of a normal distribution lies beyond 3.29 deviations.
  const auto [low, high] = std::ranges::minmax(proposals.values);
  EXPECT_NEAR(low, 2 - 3.29 * 0.5, 0.15);
  EXPECT_NEAR(high, 2 + 3.29 * 0.5, 0.15);
  double mean = 0;
  double square = 0;
  for (const double y : proposals.values) {
    mean += y / 4000;
    square += (y - 2) * (y - 2) / 4000;
  }
  EXPECT_NEAR(mean, 2, 0.05);
  EXPECT_NEAR(std::sqrt(square), (high - low) / std::sqrt(12.0), 0.03);
  EXPECT_NEAR(proposals.share, (high - low) / 100, 0.002);
  EXPECT_THROW(propose(density, draws, {}, 10, 1), Error);
}

// Truths are drawn from N(0, 1), and observed with noise of deviation 1: the posterior is N(y / 2, 1/2).
Calibration calibration_with(double deviation, std::size_t samples) {
  Calibration calibration(1);
  for (std::size_t n = 0; n < samples; ++n) {
    const std::vector<double> truth = {normal_real(11, n)};
    const double observed = truth[0] + normal_real(12, n);
    const MixtureDensity density = normal_density(observed / 2, deviation);
    calibration.add(draw_posterior(density, {}, 500, hash64(13, n)), truth, density.log_density(truth));
  }
  return calibration;
}

TEST(Calibration, FindsTheRightPosteriorUniform) {
  const Calibration calibration = calibration_with(std::sqrt(0.5), 2000);
  for (const Calibration::Row& row : {calibration.parameter(0), calibration.joint()}) {
    EXPECT_GT(row.p_value, 0.01);
    EXPECT_NEAR(row.within_68, 0.68, 0.03);
    EXPECT_NEAR(row.within_95, 0.95, 0.015);
  }
  EXPECT_NEAR(calibration.mean_deviation(0), std::sqrt(0.5), 0.01);
}

TEST(Calibration, FindsAPosteriorThatIsTooNarrowOrTooWide) {
  EXPECT_LT(calibration_with(0.5, 1000).parameter(0).p_value, 1e-4);
  EXPECT_LT(calibration_with(0.5, 1000).joint().within_68, 0.6);
  EXPECT_LT(calibration_with(1.0, 1000).parameter(0).p_value, 1e-4);
  EXPECT_GT(calibration_with(1.0, 1000).joint().within_68, 0.75);
}

TEST(Calibration, FewSamplesHaveFewBins) {
  const Calibration calibration = calibration_with(std::sqrt(0.5), 12);
  EXPECT_EQ(calibration.samples(), 12U);
  EXPECT_GE(calibration.parameter(0).p_value, 0);
}

TEST(ChiSquare, TailsAreThoseOfTables) {
  EXPECT_NEAR(chi_square_tail(3.841, 1), 0.05, 1e-4);
  EXPECT_NEAR(chi_square_tail(30.144, 19), 0.05, 1e-4);
  EXPECT_NEAR(chi_square_tail(36.191, 19), 0.01, 1e-4);
  EXPECT_NEAR(chi_square_tail(10.117, 19), 0.95, 1e-4);
  EXPECT_EQ(chi_square_tail(0, 5), 1);
}

}  // namespace
}  // namespace wflow::trainer
