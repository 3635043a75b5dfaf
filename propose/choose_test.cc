// SPDX-License-Identifier: Apache-2.0
#include "propose/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace wflow::propose {
namespace {

double branin(double x, double y) {
  const double pi = std::acos(-1);
  const double a = y - 5.1 / (4 * pi * pi) * x * x + 5 / pi * x - 6;
  return a * a + 10 * (1 - 1 / (8 * pi)) * std::cos(x) + 10;
}

const std::vector<Bound> kBranin = {{"x", -5, 10}, {"y", 0, 15}};

TEST(Choose, ExpectedImprovementFindsBraninsMinimum) {
  const Space space(kBranin);
  std::vector<Point> points = candidates(space, 10, 3);
  std::vector<double> values;
  const auto evaluate = [&](const Point& point) {
    const auto at = space.from_unit(point);
    return branin(at[0], at[1]);
  };
  for (const Point& point : points) values.push_back(evaluate(point));
  for (int i = 0; i < 10; ++i) {
    GaussianProcess model(points, values, Kernel::matern, false, 1);
    const Judge judge{Rule::expected_improvement, *std::ranges::min_element(values)};
    const Chosen chosen = choose(model, judge, space, points, {4, 500, 1});
    ASSERT_EQ(chosen.points.size(), 4);
    for (const Point& point : chosen.points) {
      points.push_back(point);
      values.push_back(evaluate(point));
    }
  }
  EXPECT_LT(*std::ranges::min_element(values), 0.397887 + 0.001);
}

TEST(Choose, BatchHasDifferentPoints) {
  const Space space({{"x", 0, 1}});
  const std::vector<Point> points = {{0.1}, {0.5}, {0.9}};
  for (const Rule rule : {Rule::expected_improvement, Rule::upper_confidence_bound, Rule::variance}) {
    GaussianProcess model(points, {1, 0, 1}, Kernel::matern, {0.3});
    const Chosen chosen = choose(model, {rule, 0}, space, points, {5, 200, 1});
    std::set<double> distinct;
    for (const Point& point : chosen.points) distinct.insert(std::round(point[0] * 1e4));
    EXPECT_EQ(distinct.size(), 5) << name_of(rule);
  }
}

TEST(Choose, WholeNumbersAreChosenOnceEach) {
  const Space space({{"n", 1, 6, false, true}});
  std::vector<Point> taken = {space.to_unit(std::vector<double>{2}), space.to_unit(std::vector<double>{5})};
  GaussianProcess model(taken, {1, 3}, Kernel::matern, {0.5});
  const Chosen chosen = choose(model, {Rule::expected_improvement, 1}, space, taken, {10, 100, 1});
  std::set<double> numbers;
  for (const Point& point : chosen.points) numbers.insert(space.from_unit(point)[0]);
  EXPECT_EQ(numbers, (std::set<double>{1, 3, 4, 6}));
  EXPECT_EQ(chosen.points.size(), 4);
}

TEST(Choose, MaximinGoesToTheCornersOfASquare) {
  const Space space({{"x", 0, 1}, {"y", 0, 1}});
  const Chosen chosen = choose_far(space, {{0.5, 0.5}}, {4, 1000, 1});
  for (const Point& point : chosen.points) {
    for (const double x : point) EXPECT_LT(std::min(x, 1 - x), 0.03);
  }
  EXPECT_GT(chosen.worth[3], 0.65);
}

TEST(Choose, ListedPointsAreSpread) {
  const Space space({{"x", 0, 1}});
  const std::vector<Point> points = candidates(space, 256, 1);
  std::vector<Prediction> predictions;
  for (const Point& point : points) predictions.push_back({0, 1 - std::abs(point[0] - 0.5)});
  const std::vector<Point> taken = {{0.0}, {0.2}, {0.8}, {1.0}};
  const Chosen chosen = choose_listed(points, predictions, {Rule::variance}, taken, {3, 256, 1});
  EXPECT_NEAR(chosen.points[0][0], 0.5, 0.01);
  for (std::size_t i = 1; i < 3; ++i) EXPECT_GT(std::abs(chosen.points[i][0] - 0.5), 0.1);
}

TEST(Space, LogarithmsAndWholeNumbersComeBack) {
  const Space space({{"k", 1, 100, true}, {"n", 0, 10, false, true}});
  const Point point = space.to_unit(std::vector<double>{10, 4});
  EXPECT_NEAR(point[0], 0.5, 1e-12);
  EXPECT_NEAR(space.from_unit(point)[0], 10, 1e-12);
  EXPECT_EQ(space.from_unit(Point{0.5, 0.44})[1], 4);
  EXPECT_EQ(space.snapped(Point{1.5, -0.2}), (Point{1, 0}));
}

TEST(Candidates, DependOnTheSeedAlone) {
  const Space space(kBranin);
  EXPECT_EQ(candidates(space, 20, 5), candidates(space, 20, 5));
  EXPECT_NE(candidates(space, 20, 5), candidates(space, 20, 6));
}

}  // namespace
}  // namespace wflow::propose
