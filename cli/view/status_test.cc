// SPDX-License-Identifier: Apache-2.0
#include "cli/view/status.h"

#include <gmock/gmock.h>

namespace wflow::cli {
namespace {

using testing::Contains;
using testing::StartsWith;

// The named command works in every working directory.
TEST(Report, TasksFarBeyondTheUsualAreNamedWithTheWayToEndThem) {
  engine::CampaignStatus status;
  status.name = "study";
  status.directory = "/data/study_1";
  status.slow = {{"simulate/P.2/17", "w", 700, 20}, {"measure/3", "w", 90, 1}};
  status.slow_total = 5;
  const std::vector<std::string> lines = overview(status, {});
  EXPECT_THAT(
      lines,
      Contains(
          "  simulate/P.2/17 has run for 11 min 40 s, and 95 % of its step take at most 20.0 s: wflow cancel "
          "/data/study_1 simulate/P.2/17 --kill"));
  EXPECT_THAT(lines, Contains(StartsWith("  measure/3 has run for")));
  EXPECT_THAT(lines, Contains("  and 2 other tasks run for far longer than is usual"));
}

TEST(Report, MissingSamplesAreNamedWithTheirReasonAndTheWayBack) {
  engine::CampaignStatus status;
  status.directory = "/data/study_1";
  engine::StepStatus& data = status.steps.emplace_back();
  data.name = "data";
  data.kind = "convert";
  data.elements = 3;
  data.missing = {{"u.npy holds NaN or infinite values", 2, 17}};
  const std::vector<std::string> lines = details(status, {}, false);
  EXPECT_THAT(lines, Contains("2 samples are missing from the data set of data:"));
  EXPECT_THAT(lines, Contains("  run their simulations again: wflow redo /data/study_1 --missing"));
  EXPECT_THAT(lines, Contains(StartsWith("  to let such simulations fail as they end: outputs:")));
  status.steps.back().samples = 40;
  status.steps.back().missing.push_back({"its task of simulate failed", 4, 3});
  EXPECT_THAT(
      details(status, {}, false),
      Contains(
          "34 of 40 samples are usable in the data set of data: 4 failed, of 2 the output is not usable"));
}

// The names were once cut off: "train validati", "pytorch validati".
TEST(Report, CurvesOfSeveralTrainingsHaveTheirWholeNames) {
  engine::CampaignStatus status;
  for (const std::string task : {"train", "pytorch"}) {
    for (const std::string name : {"train_loss", "validation_loss"}) {
      engine::MetricCurve& curve = status.metrics.emplace_back();
      curve.task = task;
      curve.name = name;
      curve.points.resize(2);
    }
  }
  const std::vector<std::string> lines = overview(status, {});
  EXPECT_THAT(lines, Contains(StartsWith("  train train_loss        ")));
  EXPECT_THAT(lines, Contains(StartsWith("  pytorch validation_loss ")));
}

}  // namespace
}  // namespace wflow::cli
