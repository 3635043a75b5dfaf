// SPDX-License-Identifier: Apache-2.0
#include <SQLiteCpp/SQLiteCpp.h>

#include "engine/store/store_fixture.h"

namespace wflow::engine::store {
namespace {

using UsageTest = StoreFixture;

UsageRow row(Element element, double started_s, const WorkerId& worker = "n1-7") {
  TaskUsage usage;
  usage.first = element;
  usage.started_s = started_s;
  usage.duration_s = 0.5;
  usage.cpu_s = 0.25;
  usage.peak_bytes = 64 << 20;
  return {usage, worker};
}

Batch batch_of(std::vector<UsageRow> rows) {
  Batch batch;
  for (UsageRow& row : rows) batch.usage.push_back({row.worker, {std::move(row.usage)}});
  return batch;
}

TEST_F(UsageTest, OutlivesTheCoordinator) {
  {
    Store store(campaign_);
    store.commit(batch_of({row(5, 100), row(3, 101, "n2-1")}));
    store.commit(batch_of({row(5, 200)}));
    EXPECT_EQ(store.usage().at("simulate").executions(), 3U);
  }
  Store store(campaign_);
  store.commit(batch_of({row(6, 300)}));
  const StepUsage used = store.usage().at("simulate");
  EXPECT_EQ(used.executions(), 4U);
  EXPECT_NEAR(used.cpu_s.sum(), 1.0, 1e-9);
  const auto rows = store.usage_of(0, {5, 6});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_NEAR(rows[0].usage.started_s, 100, 1e-3);
  EXPECT_NEAR(rows[1].usage.started_s, 200, 1e-3);
  EXPECT_EQ(rows[2].usage.first, 6U);
  EXPECT_EQ(store.usage_of(0, {3, 3}).at(0).worker, "n2-1");
  EXPECT_TRUE(store.usage_of(1, {0, 0}).empty());
}

TEST_F(UsageTest, LostTimesAreSumsByStepAndReason) {
  Store store(campaign_);
  EXPECT_TRUE(store.lost_times().empty());
  Batch batch;
  const auto fail = [&](ArrayId array, EndReason reason, double seconds) {
    RecordFailure& failure = batch.failures.emplace_back();
    failure.outcome.array = array;
    failure.outcome.reason = reason;
    failure.outcome.duration_s = seconds;
  };
  fail(0, EndReason::exited, 2);
  fail(0, EndReason::exited, 3.5);
  fail(0, EndReason::timed_out, 60);
  fail(1, EndReason::exited, 1);
  store.commit(batch);
  const auto lost = store.lost_times();
  ASSERT_EQ(lost.size(), 3U);
  const auto find = [&](const std::string& step, const std::string& reason) {
    for (const wire::LostTime& time : lost) {
      if (time.step == step && time.reason == reason) return std::pair(time.executions, time.seconds);
    }
    return std::pair<std::uint64_t, double>(0, 0);
  };
  EXPECT_EQ(find("simulate", "exited"), (std::pair<std::uint64_t, double>(2, 5.5)));
  EXPECT_EQ(find("simulate", "timed_out"), (std::pair<std::uint64_t, double>(1, 60)));
}

TEST_F(UsageTest, ATimelineSaysWhenTasksEnded) {
  Store store(campaign_);
  Batch batch = batch_of({row(1, 999.5), row(2, 1049.5), row(3, 1099.4), row(4, 1099.5)});
  batch.history = {{1000, "started", "began"}, {1100, "end", "ended"}};
  batch.events.push_back({1, 0, 0, 1010, wire::Metric{"loss", 1, 10, 0.5}});
  batch.events.push_back({1, 0, 0, 1020, wire::Metric{"loss", 2, 20, 0.5}});
  store.commit(batch);
  const Timeline timeline = store.timeline(10);
  EXPECT_EQ(timeline.begin_s, 1000);
  EXPECT_EQ(timeline.end_s, 1100);
  EXPECT_EQ(timeline.ended.at("simulate"), (std::vector<double>{1, 0, 0, 0, 0, 1, 0, 0, 0, 2}));
  const auto& reports = timeline.reports.at({1, 0});
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[1].step, 20U);
  EXPECT_EQ(reports[1].time_s, 1020);
}

// Blocks hold 128 records: some are full, and the last one grows.
TEST_F(UsageTest, ManyExecutionsTakeFewBytes) {
  Store store(campaign_);
  for (int commit = 0; commit < 100; ++commit) {
    std::vector<UsageRow> rows;
    for (int i = 0; i < 7; ++i) rows.push_back(row(static_cast<Element>(i * 14), 1.76e9 + commit));
    store.commit(batch_of(std::move(rows)));
  }
  EXPECT_EQ(store.usage_of(0, {0, 99}).size(), 700U);
  EXPECT_EQ(store.usage_of(0, {14, 14}).size(), 100U);
  EXPECT_EQ(store.usage_of(0, {14, 14}, 10).size(), 10U);
  store.snapshot(campaign_ / "copy.db");
  SQLite::Database copy((campaign_ / "copy.db").string());
  EXPECT_EQ(copy.execAndGet("SELECT count(*) FROM task_usage").getInt(), 6);
  EXPECT_LE(copy.execAndGet("SELECT sum(length(body)) FROM task_usage").getInt(), 24 * 700);
}

// More arrays in one commit than blocks stay open.
TEST_F(UsageTest, ManyArraysLoseNoRecord) {
  constexpr ArrayId kArrays = 1100;
  std::string values;
  for (ArrayId i = 0; i < kArrays; ++i) values += std::to_string(i) + ", ";
  const auto many = campaign_ / "many";
  std::filesystem::create_directories(many);
  write_file_durably(
      many / "study.yaml",
      "description: {name: many, description: a test}\nglobal.parameters:\n  P: {values: [" + values +
          "], label: P.%%}\nstudy:\n  - name: say\n    description: one\n    run: {cmd: echo $(P)}\n");
  specs::ReadOptions options;
  options.timestamp = "20260101-000000";
  const specs::Plan plan(specs::read_study(many / "study.yaml", options).study, many);
  ASSERT_EQ(plan.array_count(), kArrays);
  Store::create(many, plan);
  Store store(many);
  std::vector<UsageRow> rows;
  for (ArrayId array = 0; array < kArrays; ++array) {
    rows.push_back(row(0, 100));
    rows.back().usage.array = array;
  }
  store.commit(batch_of(std::move(rows)));
  for (ArrayId array = 0; array < kArrays; ++array)
    EXPECT_EQ(store.usage_of(array, {0, 0}).size(), 1U) << array;
}

}  // namespace
}  // namespace wflow::engine::store
