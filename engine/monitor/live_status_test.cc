// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/live_status.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/query/test_campaign.h"
#include "engine/wire/messages.h"

namespace wflow::engine {
namespace {

class LiveStatusTest : public ::testing::Test {
 protected:
  LiveStatusTest() {
    campaign_.create_record();
    store_ = std::make_unique<store::Store>(campaign_.path());
  }

  // Commits like a coordinator: to the record, then to the status.
  void commit(LiveStatus& status, const store::Batch& batch) {
    store_->commit(batch);
    status.apply(batch);
  }
  const CampaignStatus& update(LiveStatus& status) {
    scheduler_ = campaign_.scheduler(*store_);
    return status.update(*scheduler_, 0, 0);
  }
  LiveStatus begin() {
    CampaignStatus recorded;
    store_->add_records(recorded);
    return {campaign_.plan(), recorded};
  }
  static wire::TaskEvent event(Element element, wire::EventBody body) {
    return {0, element, 0, 1, std::move(body)};
  }

  TestCampaign campaign_{100};
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(LiveStatusTest, FailuresHaveTheNumbersOfTheRecord) {
  LiveStatus first = begin();
  store::Batch batch = TestCampaign::failures({0, 1});
  batch.failures[0].final = false;  // it runs again, and fails for good
  batch.failures.push_back(TestCampaign::failure(0, 9));
  commit(first, batch);
  const CampaignStatus& live = update(first);
  ASSERT_EQ(live.failures.size(), 2U);
  EXPECT_EQ(live.failures[0].number, 2U);
  EXPECT_EQ(live.failures[1].number, 3U);
  EXPECT_EQ(live.failures[1].task, "simulate/0");
  EXPECT_EQ(live.last_failure, 3U);

  LiveStatus second = begin();
  commit(second, TestCampaign::failures({5, 5}));
  const CampaignStatus& later = update(second);
  ASSERT_EQ(later.failures.size(), 3U);
  EXPECT_EQ(later.failures[2].number, 4U);
  const CampaignStatus at_rest = store_->status_at_rest();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(at_rest.failures.at(i).number, later.failures[i].number);
}

TEST_F(LiveStatusTest, WhatRunsAgainIsNoFailure) {
  LiveStatus status = begin();
  commit(status, TestCampaign::failures({0, 4}));
  EXPECT_EQ(update(status).failures.size(), 5U);
  store::Batch retried;
  retried.ends = {{0, {1, 3}, ElementState::blocked}};
  commit(status, retried);
  const CampaignStatus& after = update(status);
  ASSERT_EQ(after.failures.size(), 2U);
  EXPECT_EQ(after.failures[0].task, "simulate/0");
  EXPECT_EQ(after.failures[1].task, "simulate/4");
}

TEST_F(LiveStatusTest, ListsAreBounded) {
  LiveStatus status = begin();
  store::Batch batch = TestCampaign::failures({0, 99});
  for (RecordFailure& failure : batch.failures) failure.outcome.detail = std::string(1 << 16, '\xff');
  for (int i = 0; i < 3000; ++i) {
    batch.history.push_back({double(i), "note", std::string(1 << 16, 'x')});
    batch.events.push_back(event(0, wire::Artifact{"model", "/m" + std::to_string(i)}));
    batch.events.push_back(event(0, wire::Artifact{"shard", "/s" + std::to_string(i)}));
  }
  status.apply(batch);
  status.set_workers(std::vector<WorkerStatus>(20'000), 20'000);
  store_->commit(TestCampaign::failures({0, 99}));
  const CampaignStatus& now = update(status);
  EXPECT_EQ(now.failures.size(), kListedFailures);
  EXPECT_EQ(now.failures.back().number, 100U);
  EXPECT_EQ(now.history.size(), kListedHistory);
  EXPECT_EQ(now.history.back().number, 3000U);
  EXPECT_EQ(now.artifacts.size(), kListedArtifacts);
  EXPECT_EQ(now.artifacts_total, 3000U);
  EXPECT_EQ(now.workers.size(), kListedWorkers);
  EXPECT_EQ(now.workers_total, 20'000U);
  EXPECT_LE(wire::encode(wire::Answer{now}).size(), wire::kMaxAnswerBytes);
  EXPECT_NO_THROW(to_json(now).dump());
}

TEST_F(LiveStatusTest, ParallelTrainingsKeepTheirMetrics) {
  LiveStatus status = begin();
  store::Batch batch;
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (const Element element : {3U, 9U})
      batch.events.push_back(event(element, wire::Metric{"loss", 1, step, double(element)}));
  }
  batch.events.push_back(event(3, wire::Metric{"loss", 1, 3, std::nan("")}));
  commit(status, batch);
  const CampaignStatus now = update(status);
  ASSERT_EQ(now.metrics.size(), 2U);
  EXPECT_EQ(now.metrics[0].task, "simulate/3");
  EXPECT_EQ(now.metrics[0].points.size(), 4U);
  EXPECT_EQ(now.metrics[0].points[1].value, 3);
  EXPECT_TRUE(std::isnan(now.metrics[0].points[3].value));
  EXPECT_EQ(now.metrics[1].points[1].value, 9);
  EXPECT_TRUE(to_json(now)["metrics"][3]["value"].is_null());
  // The next coordinator goes on from there.
  LiveStatus later = begin();
  EXPECT_EQ(update(later).metrics.size(), 2U);
  EXPECT_EQ(update(later).metrics[1].points.size(), 3U);
}

// Quadratic before: this would take hours.
TEST_F(LiveStatusTest, AMillionMetricLinesAreLinear) {
  LiveStatus status = begin();
  constexpr std::uint64_t kLines = 1'000'000;
  for (std::uint64_t line = 0; line < kLines;) {
    store::Batch batch;
    for (int i = 0; i < 10'000; ++i, ++line)
      batch.events.push_back(event(line % 4, wire::Metric{"loss", 0, line / 4, double(line)}));
    status.apply(batch);
  }
  const CampaignStatus& now = update(status);
  ASSERT_EQ(now.metrics.size(), 4U);
  EXPECT_EQ(now.metrics[3].points.back().value, kLines - 1);
}

TEST_F(LiveStatusTest, ShowsTheProgressOfASingleTask) {
  LiveStatus status = begin();
  store::Batch batch;
  batch.events = {{1, 0, 0, 1, wire::Progress{3, 9, "epochs"}}, event(0, wire::Progress{1, 2, "steps"})};
  status.apply(batch);
  const CampaignStatus& now = update(status);
  EXPECT_EQ(now.steps[1].progress_total, 9U);
  EXPECT_EQ(now.steps[0].progress_total, 0U);
}

// A block's last report counts, and none once it is converted again.
TEST_F(LiveStatusTest, MissingSamplesAreCountedOnceABlock) {
  LiveStatus status = begin();
  const auto say = [&](Element block, std::vector<wire::MissingReason> reasons) {
    store::Batch batch;
    batch.events = {event(block, wire::Converted{10, std::move(reasons)})};
    commit(status, batch);
    return update(status).steps.at(0).missing;
  };
  say(0, {{"u.h5 is not there", 2, 7}, {"u.h5 holds NaN", 1, 3}});
  say(1, {{"u.h5 holds NaN", 4, 11}});
  const auto twice = say(1, {{"u.h5 holds NaN", 4, 11}});
  ASSERT_EQ(twice.size(), 2U);
  EXPECT_EQ(twice[0].reason, "u.h5 holds NaN") << "the most frequent first";
  EXPECT_EQ(twice[0].samples, 5U);
  EXPECT_EQ(twice[0].first, 3U);
  EXPECT_EQ(update(status).steps.at(0).missing_samples(), 7U);
  store::Batch reopened;
  reopened.ends = {{0, {1, 1}, ElementState::blocked}};
  commit(status, reopened);
  EXPECT_EQ(update(status).steps.at(0).missing_samples(), 3U);
  EXPECT_TRUE(say(0, {}).empty());
}

TEST_F(LiveStatusTest, ReasonsHaveABound) {
  std::vector<wire::MissingReason> reasons;
  for (std::uint64_t i = 0; i < 100; ++i) add_reason(reasons, {"reason " + std::to_string(i), 1, i});
  ASSERT_EQ(reasons.size(), wire::kMaxReasons);
  std::uint64_t samples = 0;
  for (const auto& reason : reasons) samples += reason.samples;
  EXPECT_EQ(samples, 100U);
  EXPECT_EQ(reasons.back().reason, "other reasons");
}

TEST_F(LiveStatusTest, TasksFarBeyondTheUsualArePointedOut) {
  LiveStatus status = begin();
  const auto running = [&](double seconds) {
    const std::array<RunningElement, 2> elements = {{{0, 7, 1e9}, {0, 8, 1e9 + seconds - 1}}};
    const LiveStatus::RunningOn worker{"w", elements};
    status.set_running({&worker, 1}, 1e9 + seconds);
    return update(status).slow;
  };
  EXPECT_TRUE(running(1e6).empty()) << "nobody knows what is usual";
  store::Batch batch;
  batch.usage = {{"w", {}}};
  for (Element element = 0; element < 20; ++element) {
    TaskUsage usage;
    usage.first = element;
    usage.duration_s = 10;
    batch.usage[0].executions.push_back(usage);
  }
  commit(status, batch);
  EXPECT_TRUE(running(40).empty());
  const auto slow = running(60);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].task, "simulate/7");
  EXPECT_EQ(slow[0].worker, "w");
  EXPECT_EQ(slow[0].running_s, 60);
  EXPECT_NEAR(slow[0].usual_s, 10, 0.2);
}

// A training of 80 epochs: 16 s of steps, then 8 s of validation.
TEST(StepPace, TheTimeLeftDoesNotFollowEveryPause) {
  constexpr double kSteps = 448;
  constexpr double kEpoch_s = 24;
  constexpr std::uint64_t kTotal = 80 * 448;
  StepPace pace;
  double slowest = kSteps;
  double fastest = 0;
  for (double time_s = 0; time_s < 79 * kEpoch_s; time_s += 0.25) {
    const double epoch = std::floor(time_s / kEpoch_s);
    const double share = std::min(1.0, (time_s - epoch * kEpoch_s) / 16);
    pace.add(100 + time_s, static_cast<std::uint64_t>(kSteps * (epoch + share)));
    if (time_s < 480) continue;
    slowest = std::min(slowest, pace.rate_per_s());
    fastest = std::max(fastest, pace.rate_per_s());
    const double left_s = 80 * kEpoch_s - time_s;
    EXPECT_NEAR(pace.left_s(kTotal).value(), left_s, 0.15 * left_s + kEpoch_s) << time_s;
  }
  EXPECT_LT(slowest, 8);
  EXPECT_GT(fastest, 27);
}

TEST(StepPace, TheRateIsThatOfTheLastSeconds) {
  StepPace pace;
  EXPECT_EQ(pace.rate_per_s(), 0);
  EXPECT_FALSE(pace.left_s(10));
  std::uint64_t done = 0;
  for (int second = 0; second < 600; ++second) pace.add(second, done += 100);
  EXPECT_NEAR(pace.left_s(done + 1000).value(), 10, 0.1);
  for (int second = 600; second < 620; ++second) pace.add(second, done += 10);
  EXPECT_NEAR(pace.rate_per_s(), 10, 0.1);
  EXPECT_LT(pace.left_s(done + 1000).value(), 20);
  // Elements that run again are open again.
  pace.add(620, 5);
  EXPECT_EQ(pace.rate_per_s(), 0);
  EXPECT_FALSE(pace.left_s(10));
}

}  // namespace
}  // namespace wflow::engine
