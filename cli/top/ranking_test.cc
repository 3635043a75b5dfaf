// SPDX-License-Identifier: Apache-2.0
#include "cli/top/data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace wflow::cli::top {

namespace {

using engine::wire::MetricCurve;

MetricCurve curve_of(specs::Element element, const std::string& name, std::vector<double> values) {
  MetricCurve curve;
  curve.array = 3;
  curve.element = element;
  curve.task = "train/" + std::to_string(element);
  curve.name = name;
  for (std::size_t i = 0; i < values.size(); ++i) curve.points.push_back({i + 1, 10 * (i + 1), values[i]});
  return curve;
}

std::vector<std::string> tasks_of(const Ranking& ranking) {
  std::vector<std::string> names;
  for (const RankedTraining& training : ranking.trainings) names.push_back(training.task);
  return names;
}

TEST(Ranking, TheLeastValidationLossIsFirst) {
  const Ranking ranking =
      ranking_of({curve_of(0, "train_loss", {9, 1}), curve_of(0, "validation_loss", {3, 2, 2.5}),
                  curve_of(1, "train_loss", {9, 8}), curve_of(1, "validation_loss", {4, 1}),
                  curve_of(2, "train_loss", {0.1})});
  EXPECT_EQ(ranking.metric, "validation_loss");
  // The training that has not reported the metric is last, however small its other loss is.
  EXPECT_EQ(tasks_of(ranking), (std::vector<std::string>{"train/1", "train/0", "train/2"}));
  EXPECT_EQ(ranking.trainings[1].last, 2.5);
  EXPECT_EQ(ranking.trainings[1].best, 2);
  EXPECT_EQ(ranking.trainings[1].best_epoch, 2U);
  EXPECT_EQ(ranking.trainings[1].epoch, 3U);
  EXPECT_TRUE(std::isnan(ranking.trainings[2].last));
}

TEST(Ranking, OfAnAccuracyMoreIsBetterAndNoNumberIsWorst) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Ranking ranking = ranking_of(
      {curve_of(0, "accuracy", {0.5}), curve_of(1, "accuracy", {0.9, nan}), curve_of(2, "accuracy", {0.7})},
      "accuracy");
  EXPECT_TRUE(ranking.higher_is_better);
  EXPECT_EQ(tasks_of(ranking), (std::vector<std::string>{"train/2", "train/0", "train/1"}));
  EXPECT_EQ(ranking.trainings[2].best, 0.9);
}

TEST(Ranking, ALossIsNoScoreWhateverItsName) {
  EXPECT_TRUE(higher_is_better("test_R2"));
  EXPECT_TRUE(higher_is_better("validation_mean_iou/events"));
  EXPECT_TRUE(higher_is_better("validation_recall_1"));
  EXPECT_TRUE(higher_is_better("r2/omega"));
  EXPECT_TRUE(higher_is_better("top5_accuracy"));
  EXPECT_TRUE(higher_is_better("validation_map/event"));
  EXPECT_TRUE(higher_is_better("test_ap_1/event"));
  EXPECT_FALSE(higher_is_better("gap"));
  EXPECT_FALSE(higher_is_better("layer2"));
  EXPECT_FALSE(higher_is_better("half_precision_loss"));
  EXPECT_FALSE(higher_is_better("error2"));
}

TEST(Ranking, ErrorsOfSeveralTargetsAreOneQuality) {
  const std::vector<MetricCurve> curves = {curve_of(0, "validation_loss", {3, 2}),
                                           curve_of(0, "learning_rate", {1, 1}),
                                           curve_of(0, "validation_mae_ratio/b", {0.6, 0.2}),
                                           curve_of(0, "validation_mae_ratio/a", {0.4, 0.1}),
                                           curve_of(0, "test_r2", {0.9}),
                                           curve_of(1, "validation_mae_ratio/a", {0.5})};
  std::vector<const MetricCurve*> of_first;
  for (std::size_t i = 0; i < 5; ++i) of_first.push_back(&curves[i]);
  const auto qualities = qualities_of(of_first);
  ASSERT_EQ(qualities.size(), 2U);
  EXPECT_EQ(text_of(qualities[0]), "test_r2 0.9");
  EXPECT_EQ(text_of(qualities[1]), "validation_mae_ratio 0.15 (b 0.2, a 0.1)");
  ASSERT_EQ(qualities[1].mean.size(), 2U);
  EXPECT_DOUBLE_EQ(qualities[1].mean[0].value, 0.5);
  EXPECT_EQ(qualities[1].mean[1].epoch, 2U);
  // The trainings are compared by one of them.
  const Ranking ranking = ranking_of(curves);
  EXPECT_EQ(ranking.quality, "test_r2");
  EXPECT_EQ(ranking.trainings[0].quality, 0.9);
  EXPECT_TRUE(std::isnan(ranking.trainings[1].quality));
}

TEST(Ranking, WithoutMetricsThereIsNone) {
  EXPECT_TRUE(ranking_of({}).metric.empty());
  EXPECT_TRUE(ranking_of({}).trainings.empty());
}

}  // namespace

}  // namespace wflow::cli::top
