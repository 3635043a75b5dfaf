// SPDX-License-Identifier: Apache-2.0
#include "cli/view/status.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "base/text.h"
#include "engine/monitor/status.h"

namespace wflow::cli {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
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
  const std::vector<std::string> lines = details(status, {}, false, {});
  EXPECT_THAT(lines, Contains("2 samples are missing from the data set of data:"));
  EXPECT_THAT(lines, Contains("  run their simulations again: wflow redo /data/study_1 --missing"));
  EXPECT_THAT(lines, Contains(StartsWith("  to let such simulations fail as they end: outputs:")));
  status.steps.back().samples = 40;
  status.steps.back().missing.push_back({"its task of simulate failed", 4, 3});
  EXPECT_THAT(
      details(status, {}, false, {}),
      Contains(
          "34 of 40 samples are usable in the data set of data: 4 failed, of 2 the output is not usable"));
  // A training that has reached its goal has them skipped: nothing is to be mended.
  status.steps.back().missing = {
      {engine::reason_left_out("simulate", engine::ElementState::skipped), 12, 28}};
  const std::vector<std::string> skipped = details(status, {}, false, {});
  EXPECT_THAT(skipped, Contains("28 of 40 samples are usable in the data set of data: 12 were skipped"));
  EXPECT_THAT(skipped, Each(Not(HasSubstr("redo"))));
}

TEST(Report, TheLastEventsComeWithTheNumberOfTheOthers) {
  engine::CampaignStatus status;
  for (std::uint64_t number = 1; number <= 57; ++number)
    status.history.push_back({number, 1e9, "note", "event " + std::to_string(number)});
  top::WorkerNames names;
  names.add("n3-77-abc");
  status.history.back().text = "worker n3-77-abc joined";
  const std::vector<std::string> lines = details(status, {}, true, names);
  EXPECT_THAT(lines, Contains("  52 events before these: wflow status --json has the last 50"));
  EXPECT_THAT(lines.back(), testing::EndsWith("worker n3#1 joined"));
  EXPECT_EQ(lines.size(), 8U);
}

// 109 of 5,000 failed, and the picture once had 5,000/5,000.
TEST(Report, FailedTasksAreNotDone) {
  engine::CampaignStatus status;
  engine::StepStatus& step = status.steps.emplace_back();
  step.name = "simulate";
  step.elements = 5000;
  step.counts[static_cast<std::size_t>(engine::ElementState::done)] = 4891;
  step.counts[static_cast<std::size_t>(engine::ElementState::failed)] = 109;
  status.state = engine::CampaignState::finished_with_failures;
  const std::vector<std::string> lines = overview(status, {});
  EXPECT_THAT(lines[0], HasSubstr("finished with failures  97 % done"));
  EXPECT_THAT(lines[1], HasSubstr("x 4,891/5,000  109 failed"));
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
  EXPECT_THAT(
      text::join(lines, "\n"),
      HasSubstr("\n  train_loss\n    train          __  0\n    pytorch        __  0\n  validation_loss\n"));
}

namespace fs = std::filesystem;

class Results : public testing::Test {
 protected:
  Results() : folder_(fs::path(testing::TempDir()) / fmt::format("wflow-results-{}", ::getpid())) {}
  ~Results() override { fs::remove_all(folder_); }

  // The lines for the training of one campaign with this ratio of its errors.
  void train(const std::string& campaign, double ratio, const std::string& more = "") {
    make_directories(folder_ / campaign / ".wflow");
    make_directories(folder_ / campaign / "train");
    write_file_durably(folder_ / campaign / "train" / "result.json", fmt::format(R"({{{1}
      "epochs": 40, "selected_epoch": 36, "model": {{"name": "cosmoflow", "parameters": 1234}},
      "test": {{"mean_mae_ratio": {0}, "targets": {{"omega_m": {{"mae": 0.0123, "mae_ratio": {0}, "r2": 0.99}},
                                                  "class": {{"mae": 0.5, "mae_ratio": null, "accuracy": 0.5,
                                                    "mean_iou": 0.25, "classes": [{{"iou": 0.25}}, {{"iou": null}}],
                                                    "metrics": {{"map": 0.75, "ap_1": null}}}}}}}}}})",
                                                                                 ratio, more));
  }
  std::vector<std::string> lines_of(const std::string& campaign) const {
    engine::CampaignStatus status;
    status.directory = (folder_ / campaign).string();
    status.artifacts = {{"train", "model", (folder_ / campaign / "train" / "model.pt").string()},
                        {"train", "model", (folder_ / campaign / "gone" / "model.pt").string()}};
    return training_results(status, {});
  }
  const fs::path folder_;
};

TEST_F(Results, HaveTheNetworkAndItsTestErrors) {
  train("study_20261121-160001", 0.085);
  EXPECT_THAT(
      lines_of("study_20261121-160001"),
      testing::ElementsAre("", "train: cosmoflow with 1,234 parameters, the weights of epoch 36 of 40",
                           "  test error of  mean abs  of the mean guess  R2",
                           "  class          0.5       -                  -",
                           "  omega_m        0.0123    0.085              0.99",
                           "  class: accuracy 0.5, mean IoU 0.25 (0 0.250)", "  class: ap_1 -, map 0.75"));
}

TEST_F(Results, NameASlowNode) {
  train("study_20261121-160001", 0.085,
        R"("ranks_this_segment": {"ranks": 4, "slow": "node n3 takes 1.4 times as long as the others"},)");
  EXPECT_EQ(lines_of("study_20261121-160001").back(), "  node n3 takes 1.4 times as long as the others");
}

TEST_F(Results, OfAPlannedTrainingHavePredictionAndMeasurement) {
  const std::string prediction =
      R"("prediction": {"memory_bytes": {"predicted": 104857600, "measured": 94371840, "error_percent": 11.1},
                        "step_seconds": {"predicted": 0.5, "measured": 0.8, "error_percent": -37.5}},)";
  train("study_20261121-160001", 0.085, prediction + R"("plan": {},)");
  EXPECT_EQ(lines_of("study_20261121-160001").back(),
            "  plan: 100.0 MiB a rank predicted, 90.0 MiB measured (+11 %); 0.5 s a step predicted, 0.8 s "
            "measured (-38 %)");
  train("study_20261121-160001", 0.085, prediction);
  EXPECT_THAT(lines_of("study_20261121-160001").back(), testing::Not(HasSubstr("plan:")))
      << "this training has no plan";
  train("study_20261121-160001", 0.085,
        R"("plan": {}, "prediction": {"memory_bytes": {"predicted": null}},)");
  EXPECT_THAT(lines_of("study_20261121-160001").back(), testing::Not(HasSubstr("plan:")));
}

TEST_F(Results, OfATournamentHaveItsRanking) {
  train("study_20261121-160001", 0.085);
  const fs::path file = folder_ / "study_20261121-160001" / "train" / "result.json";
  nlohmann::json result = nlohmann::json::parse(read_file(file));
  result["tournament"] =
      nlohmann::json::parse(R"({"trainers": 2, "rounds": 3, "best": 2, "metrics": ["loss", "r2"],
    "ranking": [{"trainer": 2, "validation": {"loss": 0.01234, "r2": 1}}, {"trainer": 1, "validation": {"loss": null}}],
    "bouts": [{"took": true}, {"took": false}, {"took": true}]})");
  write_file_durably(file, result.dump());
  EXPECT_EQ(
      lines_of("study_20261121-160001").back(),
      "  tournament: the best of 2 models is that of trainer 2 (validation loss 0.01234, -); 3 rounds, 2 "
      "models replaced");
}

TEST_F(Results, AreComparedWithTheCampaignAndTheIterationBefore) {
  train("study_20261120-090000", 0.2);
  train("study_20261121-160001", 0.1);
  train("study_20261122-160001", 0.3);
  train("study_20261121-160001/iterations/002", 0.1);
  train("study_20261121-160001/iterations/003", 0.11);
  const auto before = [&](const std::string& campaign) { return (folder_ / campaign / "train").string(); };
  EXPECT_THAT(
      lines_of("study_20261121-160001").back(),
      "  ratio of mean errors: 0.1, before 0.2: 50 % better (" + before("study_20261120-090000") + ")");
  EXPECT_THAT(lines_of("study_20261121-160001/iterations/002").back(),
              "  ratio of mean errors: 0.1, before 0.1: no change (" + before("study_20261121-160001") + ")");
  EXPECT_THAT(lines_of("study_20261121-160001/iterations/003").back(),
              "  ratio of mean errors: 0.11, before 0.1: 10 % worse (" +
                  before("study_20261121-160001/iterations/002") + ")");
}

}  // namespace
}  // namespace wflow::cli
