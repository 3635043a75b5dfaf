// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/trainings.h"

#include <gtest/gtest.h>

#include "specs/study/blocks.h"
#include "specs/study/test_study.h"

namespace wflow::cli {
namespace {

// One of three trainings goes on, twice.
specs::Plan searching() {
  return specs::StudyText(R"yaml(
description: {name: n}
parameters: {LR: [1, 2, 3]}
samples: {design: uniform, count: 26, parameters: {a: [0, 1]}}
study:
  - {name: sim, run: {cmd: "sim $(a)"}}
  - {name: data, convert: {from: sim, file: u.h5}}
  - {name: fit, train: {data: data, optimizer: {learning_rate: $(LR)}, search: {rungs: [2, 6, 18]}}}
  - {name: alone, train: {data: data}}
)yaml")
      .plan();
}

class Searches : public testing::Test {
 protected:
  specs::ArrayId array(const std::string& name) const {
    for (specs::ArrayId id = 0; id < plan_.array_count(); ++id)
      if (plan_.array_name(id) == name) return id;
    ADD_FAILURE() << "there is no " << name;
    return 0;
  }
  void reports(const std::string& task, const std::string& metric, double value) {
    curves_.push_back({array(task), 0, task, metric, {{1, 1, value}}});
  }
  void ranks(const std::string& task, double place) { reports(task, specs::search_stopped_metric(), place); }
  // "task: how far"
  std::string shown() {
    std::string text;
    const auto searches = take_searches(plan_, curves_);
    for (const auto& [place, progress] : searches)
      text += plan_.array_name(place.first) + ": " + describe(progress) + "\n";
    return text;
  }

  specs::Plan plan_ = searching();
  std::vector<engine::wire::MetricCurve> curves_;
};

TEST_F(Searches, ATrainingIsShownOnce) {
  reports("alone", "loss", 1);
  reports("fit.rung_1/LR.1", "loss", 1);
  reports("fit.rung_1/LR.2", "loss", 1);
  ranks("fit.rung_2/LR.1", 3);
  ranks("fit.rung_2/LR.2", 0);
  reports("fit.rung_2/LR.2", "loss", 1);
  EXPECT_EQ(shown(),
            "fit.rung_1/LR.1: stopped at rung 1 of 3, place 3 of 3\n"
            "fit.rung_2/LR.2: rung 2 of 3\n");
  ASSERT_EQ(curves_.size(), 3U);
  EXPECT_EQ(curves_[0].task, "alone");
  EXPECT_EQ(curves_[1].task, "fit.rung_1/LR.1");
  EXPECT_EQ(curves_[2].task, "fit.rung_2/LR.2");
}

TEST_F(Searches, ANewRankingTakesTheOldOnesPlace) {
  for (const char* rung : {"fit.rung_1/LR.1", "fit.rung_2/LR.1", "fit/LR.1"}) reports(rung, "loss", 1);
  ranks("fit.rung_2/LR.1", 2);  // it came to the end before
  EXPECT_EQ(shown(), "fit.rung_1/LR.1: stopped at rung 1 of 3, place 2 of 3\n");
  EXPECT_EQ(curves_.size(), 1U);
}

TEST_F(Searches, WhoHasReportedNothingIsNotShown) {
  ranks("fit.rung_2/LR.1", 3);  // it failed in the first epoch
  EXPECT_EQ(shown(), "");
  EXPECT_TRUE(curves_.empty());
}

}  // namespace
}  // namespace wflow::cli
