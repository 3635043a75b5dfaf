// SPDX-License-Identifier: Apache-2.0
#include "propose/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace wflow::propose {
namespace {

// By Simpson's rule over ten deviations.
double integrated_improvement(const Prediction& p, double best) {
  constexpr int kSteps = 20000;
  const double low = p.mean - 10 * p.deviation, step = 20 * p.deviation / kSteps;
  double sum = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const double value = low + i * step, z = (value - p.mean) / p.deviation;
    const double weight = i == 0 || i == kSteps ? 1 : (i % 2 == 1 ? 4 : 2);
    sum += weight * std::max(best - value, 0.0) * std::exp(-z * z / 2);
  }
  return sum * step / 3 / (p.deviation * std::sqrt(2 * std::numbers::pi));
}

TEST(Rules, ExpectedImprovementIsItsIntegral) {
  for (const double mean : {-1.0, 0.0, 0.4, 2.0}) {
    for (const double deviation : {0.1, 1.0, 3.0}) {
      const Prediction p{mean, deviation};
      EXPECT_NEAR(expected_improvement(p, 0.3), integrated_improvement(p, 0.3), 1e-6)
          << mean << " " << deviation;
    }
  }
  EXPECT_EQ(expected_improvement({1, 0}, 3), 2);
  EXPECT_EQ(expected_improvement({3, 0}, 1), 0);
}

TEST(Rules, MeritHasTheGradientOfItsDifferences) {
  const std::vector<Point> points = {{0.1, 0.2}, {0.8, 0.3}, {0.4, 0.9}, {0.6, 0.6}};
  const GaussianProcess model(points, {1, 0.2, 2, 0.5}, Kernel::matern, {0.4, 0.6});
  for (const Rule rule : {Rule::expected_improvement, Rule::upper_confidence_bound, Rule::variance}) {
    const Judge judge{rule, 0.2, 2};
    const auto merit = [&](const Point& x, std::span<double> gradient) {
      Gradients gradients;
      const Prediction prediction = model.at(x, &gradients);
      return judge.merit(prediction, gradients, gradient);
    };
    const Point x = {0.7, 0.15};
    std::vector<double> gradient(2), ignored(2);
    merit(x, gradient);
    constexpr double kStep = 1e-5;
    for (std::size_t k = 0; k < x.size(); ++k) {
      Point above = x, below = x;
      above[k] += kStep;
      below[k] -= kStep;
      EXPECT_NEAR(gradient[k], (merit(above, ignored) - merit(below, ignored)) / (2 * kStep), 1e-5)
          << name_of(rule);
    }
  }
}

TEST(Rules, BoundPromisesTheImprovementByKappaDeviations) {
  EXPECT_DOUBLE_EQ(bound_improvement({1, 0.5}, 2, 3), 2.5);
}

}  // namespace
}  // namespace wflow::propose
