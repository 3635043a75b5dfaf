// SPDX-License-Identifier: Apache-2.0
#include "propose/gaussian_process.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "propose/dense.h"

namespace wflow::propose {
namespace {

// Random points of the unit cube, and a smooth function of them.
std::vector<Point> random_points(std::size_t count, std::size_t dimensions) {
  std::vector<Point> points(count, Point(dimensions));
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < dimensions; ++k) points[i][k] = unit_real(hash64(i, k));
  }
  return points;
}

std::vector<double> values_at(const std::vector<Point>& points) {
  std::vector<double> values;
  for (const Point& point : points)
    values.push_back(std::sin(5 * point[0]) + (point.size() > 1 ? point[1] : 0));
  return values;
}

// Two points at the distance d with the correlation c: mean, variance and predictions in closed form.
TEST(GaussianProcess, IsExactForTwoPoints) {
  const double d = 0.5, c = std::exp(-d * d / 2);
  const GaussianProcess model({{0.0}, {d}}, {1, 3}, Kernel::squared_exponential, std::vector{1.0}, 0.0);
  const double variance = 1 / (1 - c);  // (1, -1) R^-1 (1, -1)^T / 2 with values -1 and 1 about the mean 2
  EXPECT_NEAR(model.deviation(), std::sqrt(variance), 1e-12);
  const double x = 0.2;
  const double r0 = std::exp(-x * x / 2), r1 = std::exp(-(d - x) * (d - x) / 2);
  const double mean = 2 + (r1 - r0) / (1 - c);
  const double fit = (r0 * r0 + r1 * r1 - 2 * c * r0 * r1) / (1 - c * c);
  const double unknown = 1 - (r0 + r1) / (1 + c);
  const double share = 1 - fit + unknown * unknown * (1 + c) / 2;
  const Prediction prediction = model.at(Point{x});
  EXPECT_NEAR(prediction.mean, mean, 1e-12);
  EXPECT_NEAR(prediction.deviation, std::sqrt(variance * share), 1e-12);
  EXPECT_NEAR(model.at(Point{d}).mean, 3, 1e-12);
  EXPECT_NEAR(model.at(Point{d}).deviation, 0, 1e-6);
}

class Kernels : public testing::TestWithParam<Kernel> {};

TEST_P(Kernels, LikelihoodHasTheGradientOfItsDifferences) {
  const auto points = random_points(12, 3);
  const auto values = values_at(points);
  std::vector<double> parameters = {-1, -0.3, 0.4, -3};  // three lengths and a noise
  std::vector<double> gradient(parameters.size());
  ASSERT_TRUE(log_likelihood(points, values, GetParam(), parameters, gradient));
  constexpr double kStep = 1e-5;
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    std::vector<double> above = parameters, below = parameters;
    above[k] += kStep;
    below[k] -= kStep;
    const double difference = *log_likelihood(points, values, GetParam(), above, {}) -
                              *log_likelihood(points, values, GetParam(), below, {});
    EXPECT_NEAR(gradient[k], difference / (2 * kStep), 1e-6 * (1 + std::abs(gradient[k]))) << k;
  }
}

TEST_P(Kernels, PredictionHasTheGradientOfItsDifferences) {
  const auto points = random_points(15, 2);
  const GaussianProcess model(points, values_at(points), GetParam(), {0.4, 0.9});
  const Point x = {0.31, 0.62};
  Gradients gradients;
  model.at(x, &gradients);
  constexpr double kStep = 1e-5;
  for (std::size_t k = 0; k < x.size(); ++k) {
    Point above = x, below = x;
    above[k] += kStep;
    below[k] -= kStep;
    EXPECT_NEAR(gradients.mean[k], (model.at(above).mean - model.at(below).mean) / (2 * kStep), 1e-6);
    EXPECT_NEAR(gradients.deviation[k], (model.at(above).deviation - model.at(below).deviation) / (2 * kStep),
                1e-5);
  }
}

TEST_P(Kernels, FitPredictsBetweenThePoints) {
  const auto points = random_points(40, 2);
  const GaussianProcess model(points, values_at(points), GetParam(), false, 1);
  for (const Point& x : {Point{0.3, 0.4}, Point{0.7, 0.6}, Point{0.5, 0.5}})
    EXPECT_NEAR(model.at(x).mean, std::sin(5 * x[0]) + x[1], 0.02);
  EXPECT_GT(model.lengths()[1], model.lengths()[0]);  // a linear function varies more slowly than a sine
}

TEST_P(Kernels, NoiseIsFound) {
  auto points = random_points(120, 1);
  auto values = values_at(points);
  constexpr double kNoise = 0.1;
  for (std::size_t i = 0; i < values.size(); ++i)  // uniform, of this deviation
    values[i] += kNoise * std::sqrt(12) * (unit_real(hash64(99, i)) - 0.5);
  const GaussianProcess model(points, values, GetParam(), true, 1);
  EXPECT_NEAR(model.deviation() * std::sqrt(model.noise()), kNoise, 0.03);
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, testing::Values(Kernel::matern, Kernel::squared_exponential));

TEST(GaussianProcess, BelievedValueKeepsTheMeanAndLowersTheDeviation) {
  const auto points = random_points(10, 2);
  GaussianProcess model(points, values_at(points), Kernel::matern, {0.5, 0.5});
  const Point believed = {0.9, 0.1}, other = {0.6, 0.7};
  const Prediction before = model.at(believed), there = model.at(other);
  ASSERT_TRUE(model.believe(believed));
  EXPECT_NEAR(model.at(believed).mean, before.mean, 1e-9);
  EXPECT_NEAR(model.at(other).mean, there.mean, 1e-9);
  EXPECT_LT(model.at(believed).deviation, 0.01 * before.deviation);
  EXPECT_LE(model.at(other).deviation, there.deviation + 1e-12);
}

TEST(GaussianProcess, EqualPointsAreRefusedOrTakeTheNugget) {
  const std::vector<Point> points = {{0.5}, {0.5}, {0.1}};
  const GaussianProcess model(points, {1, 1, 2}, Kernel::matern, {0.3});
  EXPECT_NEAR(model.at(Point{0.5}).mean, 1, 1e-3);
}

TEST(Minimize, FindsRosenbrocksValleyAndStopsAtTheBounds) {
  const Function rosenbrock = [](std::span<const double> x, std::span<double> gradient) {
    const double a = 1 - x[0], b = x[1] - x[0] * x[0];
    gradient[0] = -2 * a - 400 * x[0] * b;
    gradient[1] = 200 * b;
    return a * a + 100 * b * b;
  };
  const Minimum free = minimize(rosenbrock, {-1.2, 1}, {{-5, -5}, {5, 5}}, 500);
  EXPECT_NEAR(free.point[0], 1, 1e-3);
  EXPECT_NEAR(free.point[1], 1, 2e-3);
  const Minimum held = minimize(rosenbrock, {-1.2, 1}, {{-5, -5}, {0.5, 5}}, 500);
  EXPECT_NEAR(held.point[0], 0.5, 1e-6);
  EXPECT_NEAR(held.point[1], 0.25, 1e-4);
}

}  // namespace
}  // namespace wflow::propose
