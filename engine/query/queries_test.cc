// SPDX-License-Identifier: Apache-2.0
#include "engine/query/queries.h"

#include <gtest/gtest.h>

#include <set>

#include "engine/query/test_campaign.h"
#include "engine/wire/messages.h"

namespace wflow::engine {
namespace {

constexpr std::uint32_t kEveryState = (1U << kElementStates) - 1;

class QueriesTest : public ::testing::Test {
 protected:
  // Asks for all tasks in these states, page by page, and looks at the bounds of each page.
  std::vector<wire::TasksAnswer> pages(Queries& queries, std::uint32_t states = kEveryState) {
    std::vector<wire::TasksAnswer> pages;
    for (std::optional<wire::TaskPlace> from = wire::TaskPlace{}; from && pages.size() < 1000;) {
      const auto answer = queries.answer(wire::TasksRequest{*from, 1, 0, kSamples - 1, states});
      EXPECT_LE(wire::encode(answer).size(), wire::kMaxAnswerBytes);
      const auto& page = pages.emplace_back(std::get<wire::TasksAnswer>(answer.body));
      for (const std::size_t size :
           {page.runs.size(), page.records.size(), page.leases.size(), page.running.size()})
        EXPECT_LE(size, kPageItems);
      from = page.next;
    }
    return pages;
  }

  // The runs of all pages cover every element once.
  static void expect_complete(const std::vector<wire::TasksAnswer>& pages) {
    IntervalSet seen;
    for (const auto& page : pages) {
      for (const auto& run : page.runs) {
        if (run.array != 0) continue;
        std::size_t before = 0;
        seen.for_each_in({run.first, run.last}, [&](Range) { ++before; });
        EXPECT_EQ(before, 0U) << run.first;
        seen.add({run.first, run.last});
      }
    }
    EXPECT_EQ(seen.size(), kSamples);
  }

  static CampaignStatus no_status() { return {}; }

  static constexpr std::uint64_t kSamples = 30'000;
  TestCampaign campaign_{kSamples};
  RunningElements running_;
};

// They are one run, but each has a record: pages are of records.
TEST_F(QueriesTest, NeighbouringFailuresComeInPagesOfRecords) {
  campaign_.create_record();
  store::Store store(campaign_.path());
  store.commit(TestCampaign::failures({0, kSamples - 1}));
  const auto scheduler = campaign_.scheduler(store);
  Queries queries(campaign_.plan(), *scheduler, store, running_, no_status);
  const auto all = pages(queries);
  EXPECT_GE(all.size(), kSamples / kPageItems);
  expect_complete(all);
  std::set<Element> recorded;
  for (const auto& page : all) {
    for (const auto& record : page.records) recorded.insert(record.element);
  }
  EXPECT_EQ(recorded.size(), kSamples);
}

TEST_F(QueriesTest, ManyShortRunsComeInPages) {
  campaign_.create_record();
  store::Store store(campaign_.path());
  store::Batch batch;
  for (Element element = 0; element < kSamples; element += 2)
    batch.ends.push_back({0, {element, element}, ElementState::done});
  store.commit(batch);
  const auto scheduler = campaign_.scheduler(store);
  Queries queries(campaign_.plan(), *scheduler, store, running_, no_status);
  const auto all = pages(queries);
  EXPECT_GE(all.size(), kSamples / kPageItems);
  expect_complete(all);
  std::uint64_t done = 0;
  for (const auto& page : pages(queries, 1U << static_cast<unsigned>(ElementState::done)))
    done += page.runs.size();
  EXPECT_EQ(done, kSamples / 2);
}

TEST_F(QueriesTest, LeasesAndRunningTasksComeInPages) {
  campaign_.create_record();
  store::Store store(campaign_.path());
  const auto scheduler = campaign_.scheduler(store);
  std::vector<wire::Lease> held;
  for (Element element = 0; element < 12'000; ++element) {
    held.push_back({element + 1, 0, element, 1, 0, false, 0});
    running_.push_back({"w", {0, 12'000 - element - 1, 100}});
  }
  scheduler->worker_joined("w", {12'000, 0, 0, {}}, held);
  ASSERT_EQ(scheduler->leased(), 12'000U);
  Queries queries(campaign_.plan(), *scheduler, store, running_, no_status);
  const auto all = pages(queries);
  EXPECT_GE(all.size(), 3U);
  expect_complete(all);
  IntervalSet leased, running;
  for (const auto& page : all) {
    for (const auto& lease : page.leases) leased.add({lease.first, lease.last});
    for (const auto& task : page.running) running.add({task.element, task.element});
  }
  EXPECT_EQ(leased.size(), 12'000U);
  EXPECT_EQ(running.size(), 12'000U);
}

TEST_F(QueriesTest, AWatchIsNoLongerThanAsked) {
  campaign_.create_record();
  store::Store store(campaign_.path());
  store::Batch batch;
  batch.events.push_back({1, 0, 0, 5.0, wire::Checkpoint{"/c/1", "00", 1, 10}});
  batch.events.push_back({1, 0, 0, 6.0, wire::Checkpoint{"/c/2", "00", 2, 20}});
  store.commit(batch);
  const auto scheduler = campaign_.scheduler(store);
  running_ = {{"w1", {0, 7, 300.0}}, {"w2", {0, 9, 100.0}}, {"w1", {1, 0, 200.0}}};
  Queries queries(campaign_.plan(), *scheduler, store, running_, [] {
    CampaignStatus status;
    status.workers.resize(10);
    status.workers_total = 10;
    status.artifacts.resize(5);
    for (const char* name : {"loss", "accuracy"}) {
      auto& curve = status.metrics.emplace_back();
      curve.name = name;
      for (std::uint64_t i = 0; i < 1000; ++i) curve.points.push_back({i, i, 1.0});
    }
    return status;
  });
  const auto all = std::get<wire::WatchAnswer>(queries.answer(wire::WatchRequest{40, 3, 2}).body);
  EXPECT_EQ(all.status.workers.size(), 3U);
  EXPECT_EQ(all.status.workers_total, 10U);
  EXPECT_TRUE(all.status.artifacts.empty());
  ASSERT_EQ(all.status.metrics.size(), 2U);
  EXPECT_EQ(all.status.metrics[0].points.size(), 20U);
  EXPECT_EQ(all.status.metrics[0].points.back().step, 999U);
  // Those that began first.
  EXPECT_EQ(all.running_total, 3U);
  ASSERT_EQ(all.running.size(), 2U);
  EXPECT_EQ(all.running[0].task, "simulate/9");
  EXPECT_EQ(all.running[0].worker, "w2");
  EXPECT_EQ(all.running[1].task, "collect");
  ASSERT_EQ(all.checkpoints.size(), 1U);
  EXPECT_EQ(all.checkpoints[0].path, "/c/2");
  EXPECT_EQ(all.checkpoints[0].epoch, 2U);
  EXPECT_EQ(all.checkpoints[0].time_s, 6.0);
  const auto light = std::get<wire::WatchAnswer>(queries.answer(wire::WatchRequest{}).body);
  EXPECT_TRUE(light.status.metrics.empty() && light.status.workers.empty() && light.running.empty());
  EXPECT_TRUE(light.checkpoints.empty());
  EXPECT_EQ(light.running_total, 3U);
}

TEST_F(QueriesTest, TheUsageSummaryHasDistributionsAndLosses) {
  campaign_.create_record();
  store::Store store(campaign_.path());
  store::Batch batch = TestCampaign::failures({3, 5});
  TaskUsage used;
  used.first = 1;
  used.duration_s = 2;
  used.peak_bytes = 1 << 20;
  batch.usage.push_back({"w1", {used}});
  store.commit(batch);
  const auto scheduler = campaign_.scheduler(store);
  Queries queries(campaign_.plan(), *scheduler, store, running_, [] { return CampaignStatus(); });
  const auto summary = std::get<wire::UsageSummary>(queries.answer(wire::UsageSummaryRequest{}).body);
  ASSERT_EQ(summary.steps.size(), 1U);
  EXPECT_EQ(summary.steps[0].step, "simulate");
  EXPECT_EQ(StepUsage::from_bytes(summary.steps[0].body).duration_s.sum(), 2);
  ASSERT_EQ(summary.lost.size(), 1U);
  EXPECT_EQ(summary.lost[0].executions, 3U);
  EXPECT_EQ(summary.lost[0].seconds, 3);
}

TEST_F(QueriesTest, WhatGoesWrongIsThatQuestionsRefusalAlone) {
  campaign_.create_record();
  store::Store store(campaign_.path());
  const auto scheduler = campaign_.scheduler(store);
  Queries queries(campaign_.plan(), *scheduler, store, running_, [] {
    CampaignStatus status;
    status.steps.resize(200'000);
    for (StepStatus& step : status.steps) step.name = "a_step_of_a_long_name";
    return status;
  });
  wire::Selection unknown;
  unknown.step = "simulat";
  const std::vector<std::pair<wire::Request, ExitCode>> requests = {
      {wire::SnapshotRequest{"/nonexistent/x"}, ExitCode::system},
      {wire::SnapshotRequest{(campaign_.path() / "study.yaml").string()}, ExitCode::usage},
      {wire::RetryableRequest{unknown}, ExitCode::usage},
      {wire::ExplainRequest{{7, 0}}, ExitCode::usage},
      {wire::ExplainRequest{{0, kSamples}}, ExitCode::usage},
      {wire::StatusRequest{}, ExitCode::usage},  // too large
      {wire::DrainRequest{}, ExitCode::usage}};
  for (const auto& [request, code] : requests) {
    const auto answer = queries.answer(request);
    const auto* refusal = std::get_if<wire::Refusal>(&answer.body);
    ASSERT_NE(refusal, nullptr) << request.index();
    EXPECT_EQ(refusal->code, code) << refusal->sentence;
    EXPECT_FALSE(refusal->sentence.empty());
  }
  EXPECT_TRUE(std::holds_alternative<wire::ExplainAnswer>(queries.answer(wire::ExplainRequest{{0, 0}}).body));
}

TEST_F(QueriesTest, RetriesAreFoundByExitCodePageByPage) {
  campaign_.create_record();
  store::Store store(campaign_.path());
  store.commit(TestCampaign::failures({0, kSamples - 1}));
  const auto scheduler = campaign_.scheduler(store);
  wire::Selection selection;
  EXPECT_EQ(parts_to_retry(campaign_.plan(), *scheduler, store, selection).size(), 1U);
  selection.by_exit_code = true;
  selection.exit_code = 2;
  const auto parts = parts_to_retry(campaign_.plan(), *scheduler, store, selection);
  ASSERT_EQ(parts.size(), kSamples / 3);
  for (const auto& [array, range] : parts) EXPECT_EQ(range.first % 3, 1U);
  Queries queries(campaign_.plan(), *scheduler, store, running_, no_status);
  const auto answer = queries.answer(wire::RetryableRequest{selection});
  EXPECT_EQ(std::get<wire::Done>(answer.body).count, kSamples / 3);
}

TEST_F(QueriesTest, WorkersComeInPages) {
  campaign_.create_record();
  store::Store store(campaign_.path());
  store::Batch batch;
  for (int i = 0; i < 2500; ++i) {
    store::WorkerRow row;
    row.id = "w" + std::to_string(i);
    row.group = "g";
    row.joined_s = i;
    batch.workers_joined.push_back(row);
  }
  store.commit(batch);
  const auto scheduler = campaign_.scheduler(store);
  scheduler->worker_joined("w7", {4, 0, 0, {}}, {});
  Queries queries(campaign_.plan(), *scheduler, store, running_, no_status);
  std::vector<std::string> ids;
  std::size_t working = 0;
  for (std::optional<std::uint64_t> from = 0; from && ids.size() < 5000;) {
    const auto page = std::get<wire::WorkersAnswer>(queries.answer(wire::WorkersRequest{*from}).body);
    for (const auto& worker : page.workers) {
      ids.push_back(worker.id);
      working += worker.state == wire::WorkerViewState::working ? 1 : 0;
    }
    from = page.next;
  }
  ASSERT_EQ(ids.size(), 2500U);
  EXPECT_EQ(ids[2499], "w2499");
  EXPECT_EQ(working, 1U);
}

TEST_F(QueriesTest, ExplainsWhatATaskWaitsForAndHowItFailed) {
  campaign_.create_record();
  store::Store store(campaign_.path());
  store.commit(TestCampaign::failures({5, 5}));
  const auto scheduler = campaign_.scheduler(store);
  Queries queries(campaign_.plan(), *scheduler, store, running_, no_status);
  const auto failed = std::get<wire::ExplainAnswer>(queries.answer(wire::ExplainRequest{{0, 5}}).body);
  EXPECT_EQ(failed.task, "simulate/5");
  EXPECT_EQ(failed.state, ElementState::failed);
  ASSERT_EQ(failed.executions.size(), 1U);
  EXPECT_EQ(failed.executions[0].reason, "exit code 3");
  EXPECT_TRUE(failed.executions[0].final);
  const auto waits = std::get<wire::ExplainAnswer>(queries.answer(wire::ExplainRequest{{1, 0}}).body);
  EXPECT_EQ(waits.state, ElementState::blocked);
  ASSERT_EQ(waits.parents.size(), 1U);
  EXPECT_EQ(waits.parents[0].needed, kSamples);
  EXPECT_EQ(waits.parents[0].open.size(), 5U);
  EXPECT_EQ(waits.parents[0].ended_badly, std::vector<std::string>{"simulate/5"});
}

}  // namespace
}  // namespace wflow::engine
