// SPDX-License-Identifier: Apache-2.0
// The record follows another plan, or parts of the same one are open again.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include "engine/query/test_campaign.h"
#include "specs/study/reading.h"

namespace wflow::engine::store {
namespace {

constexpr ElementState kDone = ElementState::done;

class TakeTest : public ::testing::Test {
 protected:
  TakeTest() {
    campaign_.create_record();
    store_ = std::make_unique<Store>(campaign_.path());
    epoch_ = store_->next_epoch();
    Batch batch = TestCampaign::failures({40, 41});
    for (const Range& range : {Range{0, 39}, Range{42, 99}}) batch.ends.push_back({0, range, kDone});
    batch.ends.push_back({1, {0, 0}, kDone});
    store_->commit(batch);
  }

  std::uint64_t count(const std::string& step, ElementState state) {
    for (const StepStatus& status : store_->status_at_rest().steps) {
      if (status.name == step) return status.count(state);
    }
    return 12345;
  }
  // True if a result of an earlier coordinator's lease would count.
  bool takes_old_results(ArrayId array, Element element) {
    for (const auto& floor : store_->restore().floors) {
      if (floor.array == array && floor.range.first <= element && element <= floor.range.last)
        return floor.lease <= epoch_ << 40;
    }
    return true;
  }

  TestCampaign campaign_{100};
  std::unique_ptr<Store> store_;
  std::uint64_t epoch_ = 0;
};

TEST_F(TakeTest, PartsAreOpenAgainAndTheRestStays) {
  Takeover takeover;
  takeover.arrays = {{0, {{10, 19}}, false}, {1, {{0, 0}}, false}};
  takeover.study = 1;
  takeover.aside = "4";
  takeover.history = {{100, "redo", "redo: simulate: 10 of 100"}};
  store_->take(campaign_.plan(), takeover);
  EXPECT_EQ(count("simulate", kDone), 88U);
  EXPECT_EQ(count("simulate", ElementState::failed), 2U);
  EXPECT_EQ(count("collect", kDone), 0U);
  EXPECT_EQ(store_->aside(), "4");
  EXPECT_EQ(store_->study(), 1U);
  EXPECT_FALSE(takes_old_results(0, 15));
  EXPECT_FALSE(takes_old_results(1, 0));
  EXPECT_EQ(store_->failures(10, true).size(), 2U);
  // At the start of a coordinator: open elements are ready, their children wait.
  const auto scheduler = campaign_.scheduler(*store_);
  EXPECT_EQ(scheduler->states(0).at(15), ElementState::ready);
  EXPECT_EQ(scheduler->states(0).at(20), kDone);
}

TEST_F(TakeTest, AnotherPlanHasOtherNumbers) {
  // `simulate` is gone, `collect` is the first array and has a new one behind it.
  const std::string text =
      "description: {name: test, description: a test}\nstudy:\n"
      "  - {name: collect, description: all, run: {cmd: 'echo done'}}\n"
      "  - {name: report, description: new, run: {cmd: 'echo report', depends: [collect]}}\n";
  const specs::Plan plan(
      specs::read_study_text(text, campaign_.path() / "study.yaml", "study.yaml", {}).study,
      campaign_.path());
  Takeover takeover;
  takeover.arrays = {{1, {}, false}, {std::nullopt, {}, false}};
  takeover.study = 2;
  store_->take(plan, takeover);
  EXPECT_EQ(store_->study(), 2U);
  EXPECT_EQ(count("collect", kDone), 1U);
  EXPECT_EQ(count("report", kDone), 0U);
  EXPECT_EQ(count("simulate", kDone), 12345U);
  EXPECT_FALSE(takes_old_results(1, 0)) << "an old lease of the array that had this number";
  EXPECT_TRUE(store_->restore().ends.size() == 1U);
}

// Reports of a removed step belong to the version of the study that had it: nothing that follows the study as
// it is now may meet them under a number that no array has.
TEST_F(TakeTest, ReportsOfARemovedStepStayWithItsVersion) {
  Batch batch;
  batch.events = {{0, 7, 0, 1.0, wire::Metric{"loss", 0, 1, 0.5}},
                  {1, 0, 0, 1.0, wire::Metric{"error", 0, 1, 0.25}},
                  {0, 7, 0, 1.0, wire::Checkpoint{"a.wfck", "", 1, 1}},
                  {0, 7, 0, 1.0, wire::Note{"refined"}}};
  store_->commit(batch);
  ASSERT_EQ(store_->status_at_rest().metrics.size(), 2U);
  ASSERT_TRUE(store_->has_event("note"));
  const std::string text =
      "description: {name: test, description: a test}\nstudy:\n"
      "  - {name: collect, description: all, run: {cmd: 'echo done'}}\n";
  const specs::Plan plan(
      specs::read_study_text(text, campaign_.path() / "study.yaml", "study.yaml", {}).study,
      campaign_.path());
  Takeover takeover;
  takeover.arrays = {{1, {}, false}};
  takeover.study = 2;
  store_->take(plan, takeover);
  const CampaignStatus status = store_->status_at_rest();
  ASSERT_EQ(status.metrics.size(), 1U);
  EXPECT_EQ(status.metrics[0].task, "collect");
  EXPECT_TRUE(store_->checkpoints().empty());
  const Timeline timeline = store_->timeline(10);
  EXPECT_EQ(timeline.reports.size(), 1U);
  EXPECT_TRUE(timeline.reports.contains({0, 0}));
  EXPECT_FALSE(store_->has_event("note"));
  EXPECT_TRUE(store_->failures(10, false).empty());
  // They are asked for by version.
  store_->snapshot(campaign_.path() / "copy.db");
  SQLite::Database copy(campaign_.path() / "copy.db");
  const auto first = [&](const char* query) { return copy.execAndGet(query).getString(); };
  EXPECT_EQ(first("SELECT study || step || sample || name || value FROM v_removed_metrics"),
            "2simulate7loss0.5");
  EXPECT_EQ(first("SELECT group_concat(study || step || sample) FROM v_removed_failures"),
            "2simulate40,2simulate41");
  EXPECT_EQ(first("SELECT group_concat(step || type) FROM v_removed_events"),
            "simulatecheckpoint,simulatenote");
}

TEST_F(TakeTest, FewerElements) {
  TestCampaign smaller(60);
  Takeover takeover;
  takeover.arrays = {{0, {}, false}, {1, {{0, 0}}, false}};
  takeover.study = 2;
  store_->take(smaller.plan(), takeover);
  EXPECT_EQ(count("simulate", kDone), 58U);
  EXPECT_EQ(count("simulate", ElementState::failed), 2U);
}

}  // namespace
}  // namespace wflow::engine::store
