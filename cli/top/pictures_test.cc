// SPDX-License-Identifier: Apache-2.0
#include "cli/top/feed.h"

#include <gtest/gtest.h>

#include "cli/top/test_data.h"

namespace wflow::cli::top {

namespace {

// A campaign of 100 s: simulate ends 1,000 tasks in the second half, 10 of them badly; train reports 40
// epochs.
engine::RecordedCampaign recorded() {
  engine::RecordedCampaign record;
  auto& status = record.watch.status;
  status.state = engine::CampaignState::finished_with_failures;
  status.steps = {test_step("simulate", 990, 0, 10, 0, 0), test_step("quick", 100, 0, 0, 0, 0)};
  status.failures = {test_failure(1, "simulate/1", "exit code 3")};
  status.failures[0].time_s = 1060;
  status.failures[0].duration_s = 1;
  status.history = {{1, 1000, "started", "began"}, {2, 1100, "end", "ended"}};
  status.metrics = {test_curve("train", 0, "train_loss", 2)};
  record.timeline.begin_s = 1000;
  record.timeline.end_s = 1100;
  auto& ended = record.timeline.ended["simulate"];
  ended.resize(kSlices);
  for (std::size_t i = kSlices / 2; i < kSlices; ++i) ended[i] = 1;  // a sample of them
  for (std::uint64_t epoch = 1; epoch <= 40; ++epoch)
    record.timeline.reports[{2, 0}].push_back({1000 + 2.5 * static_cast<double>(epoch), epoch * 10});
  wire::WorkerView& worker = record.workers.emplace_back();
  worker.id = "node1-77-abc";
  worker.host = "node1";
  worker.cores = 4;
  worker.joined_s = 1001;
  worker.ended_s = 1099;
  return record;
}

std::uint64_t done_of(const TopData& data, std::size_t step) {
  return data.status.steps[step].count(engine::ElementState::done);
}

TEST(Pictures, AReplayHasWhatHadHappenedByThen) {
  const auto record = recorded();
  const TopData begin = picture_at(record, 1000);
  EXPECT_EQ(begin.link, Link::replay);
  EXPECT_EQ(begin.status.state, engine::CampaignState::running);
  EXPECT_EQ(done_of(begin, 0), 0U);
  EXPECT_EQ(begin.status.steps[0].count(engine::ElementState::blocked), 1000U);
  EXPECT_TRUE(begin.status.failures.empty());
  EXPECT_TRUE(begin.status.metrics.empty());
  EXPECT_TRUE(begin.status.workers.empty());

  const TopData middle = picture_at(record, 1075);
  EXPECT_EQ(done_of(middle, 0), 495U);
  EXPECT_EQ(middle.status.steps[0].failed(), 5U);
  EXPECT_EQ(done_of(middle, 1), 75U);  // no records: evenly
  EXPECT_NEAR(middle.status.steps[0].rate_per_s, 20, 0.5);
  EXPECT_EQ(middle.status.failures.size(), 1U);
  EXPECT_EQ(middle.status.history.size(), 1U);
  ASSERT_EQ(middle.status.metrics.size(), 1U);
  EXPECT_EQ(middle.status.metrics[0].points.back().epoch, 30U);
  EXPECT_EQ(middle.status.workers.size(), 1U);
  EXPECT_EQ(middle.status.elapsed_s, 75);
  for (const auto& step : middle.status.steps) {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : step.counts) sum += count;
    EXPECT_EQ(sum, step.elements);
  }

  const TopData end = picture_at(record, 1100);
  EXPECT_EQ(end.status.state, engine::CampaignState::finished_with_failures);
  EXPECT_EQ(done_of(end, 0), 990U);
  EXPECT_EQ(end.status.metrics[0].points.size(), 40U);
}

TEST(Pictures, TimeNeverTakesAnythingBack) {
  const auto record = recorded();
  std::uint64_t before = 0;
  for (double at = 990; at <= 1110; at += 0.25) {
    const std::uint64_t now = picture_at(record, at).status.ended();
    EXPECT_GE(now, before) << at;
    before = now;
  }
  EXPECT_EQ(before, 1100U);
}

TEST(Pictures, AReplayHasTheTasksThatHadEndedByThen) {
  StepTasks tasks;
  tasks.failed = {test_failure(1, "simulate/1", "exit code 3")};
  tasks.slowest = {{TaskRow::Kind::ended, {0, 5}, "simulate/5", "n1-1-f", kNow_s - 50, 10, ""}};
  EXPECT_TRUE(tasks_at(tasks, kNow_s - 97).failed.empty());
  EXPECT_EQ(tasks_at(tasks, kNow_s - 95).failed.size(), 1U);
  EXPECT_TRUE(tasks_at(tasks, kNow_s - 41).slowest.empty());
  EXPECT_EQ(tasks_at(tasks, kNow_s - 40).slowest.size(), 1U);
}

TEST(Pictures, AtRestRatesAreOfTheWholeCampaign) {
  const TopData data = picture_of(recorded());
  EXPECT_EQ(data.link, Link::at_rest);
  const auto& rates = data.rates.at("simulate");
  ASSERT_EQ(rates.size(), kSlices);
  double sum = 0;
  for (const double rate : rates) sum += rate * data.rate_span_s;
  EXPECT_NEAR(sum, 1000, 1e-6);
}

}  // namespace

}  // namespace wflow::cli::top
