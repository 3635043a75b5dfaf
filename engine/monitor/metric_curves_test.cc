// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/metric_curves.h"

#include <gtest/gtest.h>

#include <cmath>

namespace wflow::engine {
namespace {

constexpr std::size_t kAll = 1 << 20;

std::string name(specs::ArrayId array, specs::Element element) {
  return std::to_string(array) + "/" + std::to_string(element);
}

TEST(MetricCurves, EachTaskHasItsOwn) {
  MetricCurves metrics;
  for (std::uint64_t step = 0; step < 10; ++step) {
    metrics.add(1, 0, {"loss", 0, step, 1.0});
    metrics.add(1, 1, {"loss", 0, step, 2.0});
    metrics.add(1, 1, {"accuracy", 0, step, 3.0});
  }
  const auto curves = metrics.curves(name, kAll);
  ASSERT_EQ(curves.size(), 3U);
  EXPECT_EQ(curves[0].task + curves[0].name, "1/0loss");
  EXPECT_EQ(curves[1].task + curves[1].name, "1/1accuracy");
  EXPECT_EQ(curves[2].task + curves[2].name, "1/1loss");
  for (const auto& curve : curves) ASSERT_EQ(curve.points.size(), 10U);
  EXPECT_EQ(curves[0].points[7].value, 1.0);
  EXPECT_EQ(curves[2].points[7].value, 2.0);
}

TEST(MetricCurves, TheLastReportOfAStepCounts) {
  MetricCurves metrics;
  double report = 0;
  for (const std::uint64_t step : {10U, 20U, 30U, 20U, 30U, 25U})
    metrics.add(0, 0, {"loss", 1, step, ++report});
  const auto points = metrics.curves(name, kAll)[0].points;
  ASSERT_EQ(points.size(), 4U);
  EXPECT_EQ(points[0].value, 1);
  EXPECT_EQ(points[1].value, 4);
  EXPECT_EQ(points[2].value, 6);
  EXPECT_EQ(points[3].value, 5);
}

TEST(MetricCurves, LongCurvesAreThinnedEvenlyAndEndExactly) {
  MetricCurves metrics;
  constexpr std::uint64_t kSteps = 1'000'000;
  for (std::uint64_t step = 0; step < kSteps; ++step)
    metrics.add(0, 0, {"loss", 0, step, static_cast<double>(step)});
  const auto points = metrics.curves(name, kAll)[0].points;
  EXPECT_LE(points.size(), MetricCurves::kPoints);
  EXPECT_GE(points.size(), MetricCurves::kPoints / 4);
  EXPECT_EQ(points.front().step, 0U);
  EXPECT_EQ(points.back().step, kSteps - 1);
  EXPECT_EQ(points.back().value, kSteps - 1);
  for (std::size_t i = 1; i < points.size(); ++i) {
    EXPECT_GT(points[i].step, points[i - 1].step);
    EXPECT_LE(points[i].step - points[i - 1].step, 8 * kSteps / MetricCurves::kPoints);
  }
}

TEST(MetricCurves, ATrainingThatBeginsAgainStaysWithinTheBound) {
  MetricCurves metrics;
  for (int round = 0; round < 5; ++round) {
    for (std::uint64_t step = 0; step < 20'000; ++step)
      metrics.add(0, 0, {"loss", 0, step * 7 + static_cast<std::uint64_t>(round), 1});
  }
  EXPECT_LE(metrics.curves(name, kAll)[0].points.size(), MetricCurves::kPoints);
}

TEST(MetricCurves, VeryManyCurvesLeaveTheNewest) {
  MetricCurves metrics;
  metrics.add(0, 0, {"kept", 0, 1, 1});
  for (specs::Element element = 0; element < 100'000; ++element) {
    metrics.add(1, element, {"loss", 0, 1, 1});
    metrics.add(0, 0, {"kept", 0, 1, static_cast<double>(element)});
  }
  const auto curves = metrics.curves(name, kAll);
  ASSERT_EQ(curves.size(), MetricCurves::kCurves);
  EXPECT_EQ(curves.front().name, "kept");
  EXPECT_EQ(curves.back().task, "1/99999");
}

TEST(MetricCurves, AnAnswerHasSoManyPointsInAll) {
  MetricCurves metrics;
  for (specs::Element element = 0; element < 200; ++element) {
    for (std::uint64_t step = 0; step < 2000; ++step)
      metrics.add(0, element, {"loss", 0, step, std::nan("")});
  }
  std::size_t points = 0;
  for (const auto& curve : metrics.curves(name, 10'000)) {
    points += curve.points.size();
    EXPECT_EQ(curve.points.front().step, 0U);
    EXPECT_EQ(curve.points.back().step, 1999U);
    EXPECT_TRUE(std::isnan(curve.points.back().value));
  }
  EXPECT_LE(points, 10'000U);
}

TEST(MetricCurves, GrowFromWhatIsRecorded) {
  MetricCurves before;
  for (std::uint64_t step = 0; step < 5; ++step) before.add(3, 4, {"loss", 0, step, 1});
  MetricCurves after;
  after.add(before.curves(name, kAll));
  after.add(3, 4, {"loss", 0, 5, 2});
  const auto curves = after.curves(name, kAll);
  ASSERT_EQ(curves.size(), 1U);
  EXPECT_EQ(curves[0].points.size(), 6U);
}

}  // namespace
}  // namespace wflow::engine
