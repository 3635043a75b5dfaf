// SPDX-License-Identifier: Apache-2.0
#include "engine/store/store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "engine/monitor/status.h"
#include "engine/store/commit_thread.h"
#include "engine/store/store_fixture.h"

namespace wflow::engine::store {
namespace {

namespace fs = std::filesystem;

using StoreTest = StoreFixture;

TEST_F(StoreTest, NeighboursOfEqualStateAreOneRow) {
  Store store(campaign_);
  store.commit(ends({{0, {3, 5}, kDone}, {0, {0, 2}, kDone}}));
  store.commit(ends({{0, {7, 9}, kDone}}));
  store.commit(ends({{0, {6, 6}, kFailed}}));
  EXPECT_EQ(text_of(store.restore()), "0:0-5done 0:6-6failed 0:7-9done ");
  store.commit(ends({{0, {6, 6}, kOpen}}));
  store.commit(ends({{0, {6, 6}, kDone}}));
  EXPECT_EQ(text_of(store.restore()), "0:0-9done ");
}

TEST_F(StoreTest, KeepsAllocations) {
  batch::Allocation row;
  row.token = "wabcdef001001";
  row.pool = "all";
  row.scheduler = "slurm";
  row.nodes = 4;
  row.walltime_s = 3600;
  row.created_s = 1.7e9;
  Store store(campaign_);
  Batch intended;
  intended.allocations = {row};
  store.commit(intended);
  row.id = "1234";
  row.state = batch::AllocationState::ended;
  row.end = batch::JobEnd::preempted;
  row.by_hand = true;
  row.restarts = 2;
  row.started_s = 1.7e9 + 60;
  row.ends_s = 1.7e9 + 3660;
  row.ended_s = 1.7e9 + 1860;
  row.reason = "it was preempted";
  row.never_clears = "never";
  row.node_names = {"n1", "n2"};
  Batch ended;
  ended.allocations = {row};
  store.commit(ended);
  const auto rows = store.restore().allocations;
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].id, "1234");
  EXPECT_EQ(rows[0].state, batch::AllocationState::ended);
  EXPECT_EQ(rows[0].end, batch::JobEnd::preempted);
  EXPECT_TRUE(rows[0].by_hand);
  EXPECT_EQ(rows[0].restarts, 2);
  EXPECT_EQ(rows[0].ended_s, 1.7e9 + 1860);
  EXPECT_EQ(rows[0].never_clears, "never");
  EXPECT_EQ(rows[0].node_names, (std::vector<std::string>{"n1", "n2"}));
}

TEST_F(StoreTest, OpeningAgainCutsARow) {
  Store store(campaign_);
  store.commit(ends({{0, {0, 99}, kFailed}}));
  store.commit(ends({{0, {10, 19}, kOpen}}));
  EXPECT_EQ(text_of(store.restore()), "0:0-9failed 0:20-99failed ");
  EXPECT_EQ(store.status_at_rest().steps[0].count(kFailed), 90u);
  store.commit(ends({{0, {5, 24}, kDone}}));
  EXPECT_EQ(text_of(store.restore()), "0:0-4failed 0:5-24done 0:25-99failed ") << "the last word counts";
}

TEST_F(StoreTest, AttemptsLiveUntilTheElementEnds) {
  Store store(campaign_);
  RecordFailure failure;
  failure.outcome.element = 7;
  failure.outcome.exit_code = 3;
  failure.outcome.detail = "no convergence";
  failure.counts = {9, 2, 1, true, 3, 1, 1, std::int64_t{3} << 30};
  Batch batch;
  batch.failures.push_back(failure);
  store.commit(batch);
  ASSERT_EQ(store.restore().attempts.size(), 1u);
  EXPECT_EQ(store.restore().attempts[0].counts, failure.counts);
  store.commit(ends({{0, {7, 7}, kDone}}));
  EXPECT_TRUE(store.restore().attempts.empty());
  ASSERT_EQ(store.failures_of(0, 7).size(), 1u);
  EXPECT_EQ(store.failures_of(0, 7)[0].reason, "exit code 3");
  EXPECT_EQ(store.failures_of(0, 7)[0].task, "simulate/7");
}

TEST_F(StoreTest, TheCauseOfALossComesLater) {
  Store store(campaign_);
  RecordFailure lost;
  lost.outcome.element = 7;
  lost.outcome.attempt = 2;
  lost.outcome.reason = EndReason::worker_lost;
  lost.worker = "n1-5";
  lost.counts = {3, 0, 3};
  Batch batch;
  batch.failures.push_back(lost);
  lost.worker = "n2-5";  // another worker's, without an explained cause
  lost.outcome.attempt = 1;
  batch.failures.push_back(lost);
  store.commit(batch);
  Batch explained;
  explained.causes.push_back(
      {0, 7, 2, "n1-5", EndReason::node, "a node of allocation 12 failed", AttemptCounts{3, 0, 2, false, 1}});
  store.commit(explained);
  ASSERT_EQ(store.restore().attempts.size(), 1U);
  EXPECT_EQ(store.restore().attempts[0].counts, (AttemptCounts{3, 0, 2, false, 1}));
  const auto views = store.failures_of(0, 7);
  ASSERT_EQ(views.size(), 2U);
  EXPECT_EQ(views[0].reason, "its node failed");
  EXPECT_EQ(views[0].detail, "a node of allocation 12 failed");
  EXPECT_EQ(views[1].reason, "its worker was lost");
  // It has ended since: the row alone changes.
  store.commit(ends({{0, {7, 7}, kDone}}));
  store.commit(explained);
  EXPECT_TRUE(store.restore().attempts.empty());
}

TEST_F(StoreTest, TheLongestExecutionThatAWalltimeCutIsRestored) {
  Store store(campaign_);
  RecordFailure failure;
  failure.outcome.element = 7;
  failure.outcome.reason = EndReason::walltime;
  failure.counts = {1, 0, 0, false, 1};
  Batch batch;
  for (const double duration_s : {39.0, 12.0}) {
    failure.outcome.duration_s = duration_s;
    batch.failures.push_back(failure);
  }
  failure.outcome.element = 8;
  failure.outcome.reason = EndReason::exited;
  failure.outcome.duration_s = 100;
  failure.counts = {1, 1};
  batch.failures.push_back(failure);
  store.commit(batch);
  const Restored restored = store.restore();
  ASSERT_EQ(restored.attempts.size(), 2U);
  EXPECT_EQ(restored.attempts[0].cut_s, 39);
  EXPECT_EQ(restored.attempts[1].cut_s, 0);
}

TEST_F(StoreTest, AnElementThatEndedOrWasOpenedAgainInItsBatchHasNoCounts) {
  Store store(campaign_);
  const auto failed = [](Element element, LeaseId lease) {
    RecordFailure failure;
    failure.outcome.element = element;
    failure.outcome.lease = lease;
    failure.counts = {1, 1, 0, false};
    return failure;
  };
  Batch batch = ends({{0, {1, 1}, kDone}});
  batch.failures = {failed(1, 10), failed(2, 10), failed(3, 10), failed(4, 10)};
  store.commit(batch);
  Batch opened;  // 2 has run and failed since
  opened.floors = {{0, {2, 3}, 11}};
  opened.failures = {failed(3, 10), failed(2, 11)};
  store.commit(opened);
  const Restored restored = store.restore();
  ASSERT_EQ(restored.attempts.size(), 2U);
  EXPECT_EQ(restored.attempts[0].element, 2U);
  EXPECT_EQ(restored.attempts[1].element, 4U);
}

TEST_F(StoreTest, ScatteredElementsAreOpenedAgainAtOnce) {
  Store store(campaign_);
  store.commit(
      ends({{0, {0, 9}, kDone}, {0, {10, 29}, kFailed}, {0, {30, 30}, kDone}, {0, {31, 40}, kFailed}}));
  store.commit(ends({{0, {8, 11}, kOpen},
                     {0, {15, 15}, kOpen},
                     {0, {17, 31}, kOpen},
                     {0, {40, 50}, kOpen},
                     {0, {0, 0}, kOpen}}));
  EXPECT_EQ(text_of(store.restore()), "0:1-7done 0:12-14failed 0:16-16failed 0:32-39failed ");
}

TEST_F(StoreTest, ExecutionsOfElementsAndASnapshotOfThem) {
  RecordFailure failure;
  failure.worker = "w1";
  failure.final = true;
  Batch batch;
  for (const auto& [element, code] : {std::pair(7U, kRetry), {7U, kHardFail}, {9U, kHardFail}}) {
    failure.outcome.element = element;
    failure.outcome.exit_code = code;
    batch.failures.push_back(failure);
  }
  WorkerRow worker;
  worker.id = "w1";
  batch.workers_joined.push_back(worker);
  batch.ends = {{0, {7, 7}, kFailed}, {0, {9, 9}, kFailed}};
  {
    Store store(campaign_);
    store.commit(batch);
    const auto records = store.executions(0, {0, 99});
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records[0].element, 7u);
    EXPECT_EQ(records[0].executions, 2u);
    EXPECT_EQ(records[0].asked, 1u);
    EXPECT_EQ(records[0].exit_code, kHardFail);
    EXPECT_TRUE(store.executions(0, {8, 8}).empty());
    ASSERT_EQ(store.workers().size(), 1u);
    EXPECT_EQ(store.workers()[0].failures, 3u);
    EXPECT_FALSE(store.worker("w2"));
    store.commit(ends({{0, {9, 9}, kOpen}}));
    EXPECT_EQ(store.failures(10, true).size(), 1u) << "what runs again is no final failure";
    store.snapshot(campaign_ / "copy.db");
    EXPECT_THROW(store.snapshot(campaign_ / "copy.db"), Error);
  }
  fs::rename(campaign_ / "copy.db", database_path(campaign_));
  EXPECT_EQ(Store(campaign_).executions(0, {0, 99}).size(), 2u);
}

TEST_F(StoreTest, PagesOfExecutions) {
  Batch batch;
  for (Element element = 0; element < 10; ++element) {
    RecordFailure failure;
    failure.outcome.element = element;
    batch.failures = {failure, failure};
    Store(campaign_).commit(batch);
  }
  Store store(campaign_);
  std::vector<Element> seen;
  for (Element next = 0;;) {
    const auto page = store.executions(0, {next, 99}, 4);
    EXPECT_LE(page.size(), 4u);
    if (page.empty()) break;
    for (const auto& record : page) seen.push_back(record.element);
    EXPECT_EQ(page.back().executions, 2u);
    next = page.back().element + 1;
  }
  EXPECT_EQ(seen, (std::vector<Element>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

// Its own final failure, not that of a neighbour or of an execution before.
TEST_F(StoreTest, AFailureIsFinalWhileItsTaskHasEndedByIt) {
  Store store(campaign_);
  const auto fail = [](Element element, int exit_code, bool final) {
    RecordFailure failure;
    failure.outcome.element = element;
    failure.outcome.exit_code = exit_code;
    failure.final = final;
    return failure;
  };
  const auto final_codes = [&] {
    std::string codes;
    for (const auto& view : store.failures(10, true)) codes += view.reason.substr(10) + " ";
    return codes;
  };
  Batch batch = ends({{0, {3, 4}, kFailed}});
  batch.failures = {fail(3, 1, false), fail(3, 2, true), fail(4, 3, true), fail(5, 4, false)};
  store.commit(batch);
  EXPECT_EQ(final_codes(), "2 3 ");
  EXPECT_EQ(store.failures(10, false).size(), 4u);
  store.commit(ends({{0, {3, 3}, kOpen}}));
  EXPECT_EQ(final_codes(), "3 ");
  batch = ends({{0, {3, 3}, kFailed}});
  batch.failures = {fail(3, 5, true)};
  store.commit(batch);
  EXPECT_EQ(final_codes(), "3 5 ");
  store.commit(ends({{0, {3, 3}, kOpen}, {0, {3, 3}, kDone}}));
  EXPECT_EQ(final_codes(), "3 ");
  store.commit(ends({{0, {5, 5}, ElementState::cancelled}}));
  EXPECT_EQ(final_codes(), "3 ");
}

TEST_F(StoreTest, WorkersThatHaveNotEndedAreRestoredWhole) {
  WorkerRow first;
  first.id = "w1";
  first.group = "default";
  first.guardian = {"host", "boot", "pid:[1]", 12, 3456};
  first.agent = {"host", "boot", "pid:[1]", 13, 3457};
  first.lost_s = 60;
  first.cores = 2;
  first.joined_s = 1;
  WorkerRow second = first;
  second.id = "w2";
  Batch batch;
  batch.workers_joined = {first, second};
  batch.workers_ended = {{"w2", 5, "drained"}};
  Store store(campaign_);
  store.commit(batch);
  auto workers = store.restore().workers;
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_EQ(workers[0].id, "w1");
  EXPECT_EQ(workers[0].guardian, first.guardian);
  EXPECT_EQ(workers[0].agent, first.agent);
  EXPECT_EQ(workers[0].lost_s, 60);
  // One that was given up, and joins anew in the batch in which its end is recorded.
  second.joined_s = 7;
  batch.workers_joined = {second};
  batch.workers_ended = {{"w2", 6, "silent"}};
  store.commit(batch);
  EXPECT_EQ(store.restore().workers.size(), 2u);
}

TEST_F(StoreTest, FloorsOfLaterLeasesReplaceEarlierOnes) {
  Store store(campaign_);
  Batch batch;
  batch.floors = {{0, {0, 49}, 7}, {0, {50, 59}, 7}, {1, {0, 0}, 8}};
  EXPECT_FALSE(batch.empty());
  store.commit(batch);
  batch.floors = {{0, {40, 44}, LeaseId{3} << 40}};
  store.commit(batch);
  const auto floors = store.restore().floors;
  ASSERT_EQ(floors.size(), 4u);
  EXPECT_EQ(floors[0].range, (Range{0, 39}));
  EXPECT_EQ(floors[1].range, (Range{40, 44}));
  EXPECT_EQ(floors[1].lease, LeaseId{3} << 40);
  EXPECT_EQ(floors[2].range, (Range{45, 59}));
  EXPECT_EQ(floors[3].lease, 8u);
}

// Time between two coordinators is no time of the campaign.
TEST_F(StoreTest, TheTimeOfACampaignIsThatOfItsCoordinators) {
  Store store(campaign_);
  const auto at = [&](double time_s) {
    Batch batch;
    batch.time_s = time_s;
    batch.history = {{time_s, "note", "something"}};
    store.commit(batch);
    return store.status_at_rest().elapsed_s;
  };
  store.next_epoch();
  EXPECT_EQ(at(100), 0);
  EXPECT_EQ(at(130), 30);
  EXPECT_EQ(at(120), 30) << "the clock was set back";
  store.next_epoch();
  EXPECT_EQ(at(1000), 30);
  EXPECT_EQ(at(1005), 35);
}

// A coordinator that finds nothing to do does not move the end of the campaign.
TEST_F(StoreTest, ACampaignEndsWithItsWork) {
  Store store(campaign_);
  Batch batch = ends({{0, {0, 99}, kDone}, {1, {0, 0}, kDone}});
  ArrayProgress all, one;
  all.counts[static_cast<std::size_t>(kDone)] = 100;
  one.counts[static_cast<std::size_t>(kDone)] = 1;
  batch.totals = {{0, all}, {1, one}};
  batch.history = {{100, "started", "coordinator 1"}, {101, "worker", "worker w joined with 2 cores"}};
  store.commit(batch);
  EXPECT_EQ(store.status_at_rest().time_s, 101);
  const auto add = [&](double time_s, const char* kind, const char* text) {
    Batch more;
    more.history = {{time_s, kind, text}};
    store.commit(more);
    return store.status_at_rest().time_s - 100;
  };
  EXPECT_EQ(add(110, "end", "101 of 101 tasks done"), 10);
  EXPECT_EQ(add(200, "resumed", "coordinator 2"), 10);
  EXPECT_EQ(add(201, "worker", "worker w came back from an earlier coordinator"), 10);
  EXPECT_EQ(add(215, "end", "101 of 101 tasks done"), 10);
  EXPECT_EQ(add(300, "resumed", "coordinator 3"), 10);
  EXPECT_EQ(add(300, "retry", "1 task that failed will run again"), 200);
  EXPECT_EQ(add(301, "worker", "worker v joined with 2 cores"), 201);
  EXPECT_EQ(add(310, "end", "101 of 101 tasks done"), 210);
}

// Times and durations are what peers say. None of them makes a commit fail.
TEST_F(StoreTest, NumbersThatAreNoneAreStoredAsZero) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  Batch batch = ends({{0, {0, 0}, kDone}});
  RecordFailure failure;
  failure.outcome.started_s = kNaN;
  failure.outcome.duration_s = -HUGE_VAL;
  batch.failures = {failure};
  WorkerRow worker;
  worker.id = "w";
  worker.joined_s = worker.lost_s = kNaN;
  batch.workers_joined = {worker};
  batch.history = {{kNaN, "note", "at no time"}};
  batch.events = {{1, 0, 0, kNaN, wire::Metric{"loss", 0, 0, 1}}};
  ArrayProgress progress;
  progress.timed = 1;
  progress.duration_sum_s = progress.duration_square_sum = kNaN;
  batch.totals = {{0, progress}};
  Followup followup;
  followup.source = "s";
  followup.created_s = kNaN;
  batch.followups = {followup};
  Store store(campaign_);
  store.commit(batch);
  EXPECT_EQ(store.failures_of(0, 0).at(0).duration_s, 0);
  EXPECT_EQ(store.status_at_rest().steps[0].mean_s, 0);
  ASSERT_EQ(store.restore().totals.size(), 1u);
  EXPECT_EQ(store.restore().totals[0].progress.duration_sum_s, 0);
}

TEST_F(StoreTest, MetricsKeepWhatIsNoNumber) {
  Store store(campaign_);
  Batch batch;
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  batch.events = {{1, 0, 0, 1.0, wire::Metric{"a", 0, 1, kNaN}},
                  {1, 0, 0, 1.0, wire::Metric{"a", 0, 2, -HUGE_VAL}},
                  {1, 0, 0, 1.0, wire::Metric{"a", 0, 3, 1e300}}};
  store.commit(batch);
  const auto metrics = store.status_at_rest().metrics;
  ASSERT_EQ(metrics.size(), 1u);
  ASSERT_EQ(metrics[0].points.size(), 3u);
  EXPECT_TRUE(std::isnan(metrics[0].points[0].value));
  EXPECT_EQ(metrics[0].points[1].value, -HUGE_VAL);
  EXPECT_EQ(metrics[0].points[2].value, 1e300);
}

TEST_F(StoreTest, ParallelTrainingsHaveCurvesOfTheirOwn) {
  Store store(campaign_);
  Batch batch;
  for (const Element element : {0u, 7u}) {
    for (std::uint64_t step = 0; step < 10'000; ++step)
      batch.events.push_back({0, element, 0, 1.0, wire::Metric{"loss", 0, step, double(element)}});
  }
  store.commit(batch);
  const auto metrics = store.status_at_rest().metrics;
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0].task, plan_->array_name(0) + "/0");
  EXPECT_EQ(metrics[1].task, plan_->array_name(0) + "/7");
  for (const auto& curve : metrics) {
    EXPECT_LE(curve.points.size(), 2048u);
    EXPECT_EQ(curve.points.back().step, 9999u);
    for (const auto& point : curve.points) EXPECT_EQ(point.value, double(curve.element));
  }
}

// One transaction over all of it (VACUUM INTO) stopped the coordinator as long as it took.
TEST_F(StoreTest, CommitsGoOnBesideASnapshotAndAreInIt) {
  constexpr int kCommits = 20;
  int commits = 0;
  {
    Store store(campaign_);
    Batch large;  // more than one slice
    for (int i = 0; i < 40; ++i) large.history.push_back({1.0, "note", std::string(100'000, 'x')});
    store.commit(large);
    store.snapshot(campaign_ / "copy.db", [&] {
      if (commits >= kCommits) return;
      std::thread([&] {
        store.commit(
            ends({{0, {static_cast<std::uint64_t>(commits), static_cast<std::uint64_t>(commits)}, kDone}}));
      }).join();
      ++commits;
    });
    EXPECT_GE(commits, 3);
    store.commit(ends({{0, {99, 99}, kDone}}));
  }
  fs::rename(campaign_ / "copy.db", database_path(campaign_));
  Store copy(campaign_, {.vfs = {}, .accept_loss = true, .lock = nullptr});
  EXPECT_EQ(text_of(copy.restore()), "0:0-" + std::to_string(commits - 1) + "done ");
}

TEST_F(StoreTest, ASnapshotThatCannotBeWrittenHarmsNothing) {
  Store store(campaign_);
  write_file_durably(campaign_ / "file", "x");
  for (const char* path : {"nowhere/copy.db", "file/copy.db", "file"}) {
    EXPECT_THROW(store.snapshot(campaign_ / path), Error) << path;
    store.commit(ends({{0, {0, 9}, kDone}}));
  }
  EXPECT_EQ(text_of(store.restore()), "0:0-9done ");
  store.snapshot(campaign_ / "copy.db");
  EXPECT_THROW(Store(campaign_ / "copy.db"), Error);
}

TEST_F(StoreTest, ArtifactsAreWhereTheCampaignIsNow) {
  {
    Store store(campaign_);
    store.next_epoch();
    Batch batch;
    batch.events.push_back({1, 0, 0, 1.0, wire::Artifact{"model", (campaign_ / "train/m.pt").string()}});
    batch.events.push_back({1, 0, 0, 1.0, wire::Artifact{"model", campaign_.string() + "2/m.pt"}});
    store.commit(batch);
  }
  const std::filesystem::path moved = campaign_.string() + "-moved";
  std::filesystem::rename(campaign_, moved);
  {
    Store store(moved);
    const CampaignStatus status = store.status_at_rest();
    ASSERT_EQ(status.artifacts.size(), 2u);
    EXPECT_EQ(status.artifacts[0].path, (moved / "train/m.pt").string());
    EXPECT_EQ(status.artifacts[1].path, campaign_.string() + "2/m.pt");
  }
  std::filesystem::rename(moved, campaign_);
}

TEST_F(StoreTest, EventsBecomeMetricsProgressAndArtifacts) {
  Store store(campaign_);
  Batch batch;
  const auto event = [&](wire::EventBody body) { batch.events.push_back({1, 0, 0, 1.0, std::move(body)}); };
  event(wire::Metric{"loss", 1, 10, 0.5});
  event(wire::Metric{"loss", 1, 10, 0.25});
  event(wire::Progress{3, 9, "epochs"});
  event(wire::Artifact{"model", "/m.pt"});
  event(wire::OtherEvent{"", R"({"type":7,"done":"x"})"});
  store.commit(batch);
  CampaignStatus status = store.status_at_rest();
  ASSERT_EQ(status.metrics.size(), 1u);
  ASSERT_EQ(status.metrics[0].points.size(), 1u);
  EXPECT_EQ(status.metrics[0].points[0].value, 0.25);
  ASSERT_EQ(status.artifacts.size(), 1u);
  EXPECT_EQ(status.artifacts[0].path, "/m.pt");
  EXPECT_EQ(status.steps[1].progress_done, 3u);
  EXPECT_EQ(status.steps[1].progress_total, 9u);
}

TEST_F(StoreTest, TheStatusAtRestIsWhatTheRunsAddUpTo) {
  Store store(campaign_);
  Batch batch = ends({{0, {0, 89}, kDone}, {0, {90, 94}, kFailed}});
  ArrayProgress progress;
  progress.counts[static_cast<std::size_t>(kDone)] = 90;
  progress.counts[static_cast<std::size_t>(kFailed)] = 5;
  progress.timed = 90;
  progress.duration_sum_s = 180;
  batch.totals.push_back({0, progress});
  store.commit(batch);
  const StepStatus step = store.status_at_rest().steps[0];
  EXPECT_EQ(step.count(kDone), 90U);
  EXPECT_EQ(step.failed(), 5U);
  EXPECT_EQ(step.count(ElementState::blocked), step.elements - 95);
  EXPECT_EQ(step.mean_s, 2);
}

TEST_F(StoreTest, ASecondCoordinatorIsRefused) {
  const Store first(campaign_);
  try {
    const Store second(campaign_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::busy);
  }
}

TEST_F(StoreTest, EpochsGrow) {
  EXPECT_EQ(Store(campaign_).next_epoch(), 1u);
  EXPECT_EQ(Store(campaign_).next_epoch(), 2u);
}

// After SIGKILL all committed rows exist, and no uncommitted ones.
TEST_F(StoreTest, CommittedWorkSurvivesSigkill) {
  for (int round = 0; round < 5; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(::pipe(pipe_fds), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Store store(campaign_);
      for (Element i = 0;; ++i) {
        store.commit(ends({{0, {i % 100, i % 100}, i < 100 ? kDone : kFailed}}));
        const char acknowledged = 'a';
        if (::write(pipe_fds[1], &acknowledged, 1) != 1) ::_exit(1);
      }
    }
    ::close(pipe_fds[1]);
    char byte = 0;
    for (int i = 0; i < 20 + round; ++i) ASSERT_EQ(::read(pipe_fds[0], &byte, 1), 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(pipe_fds[0]);
    Store store(campaign_);
    const Restored restored = store.restore();
    ASSERT_FALSE(restored.ends.empty());
    EXPECT_EQ(restored.ends[0].range.first, 0u);
    EXPECT_GE(restored.ends[0].range.last, 19u + static_cast<unsigned>(round));
    store.commit(ends({{0, {0, 99}, kOpen}}));
  }
}

TEST_F(StoreTest, FollowupsAreRecordedOnceAndKeepTheirOrder) {
  Batch batch;
  for (const char* source : {"0/0/0/a", "0/0/0/b", "0/0/0/a"}) {
    Followup followup;
    followup.kind = "submitted";
    followup.spec = "/study.yaml";
    followup.source = source;
    batch.followups.push_back(followup);
  }
  EXPECT_FALSE(batch.empty());
  Store(campaign_).commit(batch);
  Store(campaign_).commit(batch);
  Store store(campaign_);
  auto followups = store.followups();
  ASSERT_EQ(followups.size(), 2u);
  EXPECT_EQ(followups[0].source, "0/0/0/a");
  followups[1].directory = "/there";
  followups[1].state = FollowupState::finished_with_failures;
  followups[1].exit_code = 1;
  followups[1].ended_s = 12;
  store.update_followup(followups[1]);
  followups = store.followups();
  EXPECT_EQ(followups[0].state, FollowupState::pending);
  EXPECT_EQ(followups[1].state, FollowupState::finished_with_failures);
  EXPECT_EQ(followups[1].directory, "/there");
  EXPECT_EQ(followups[1].exit_code, 1);
  EXPECT_EQ(followups[1].ended_s, 12);
  followups[0].state = FollowupState::handed_over;
  followups[0].handed_to = "/top";
  store.update_followup(followups[0]);
  EXPECT_EQ(store.followups()[0].state, FollowupState::handed_over);
  EXPECT_EQ(store.followups()[0].handed_to, "/top");
}

TEST_F(StoreTest, OneOfAnotherFormatIsRefused) {
  for (const auto& [version, word] : {std::pair(1, "an older wflow"), std::pair(1000, "a newer wflow")}) {
    SQLite::Database(database_path(campaign_).string(), SQLite::OPEN_READWRITE)
        .exec("PRAGMA user_version=" + std::to_string(version));
    try {
      const Store store(campaign_);
      ADD_FAILURE() << version;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::version);
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
}

TEST_F(StoreTest, CommitThreadReportsEachCommit) {
  Store store(campaign_);
  CommitThread commits(store);
  for (Element i = 0; i < 50; ++i) {
    ASSERT_FALSE(commits.busy());
    commits.submit(ends({{0, {i, i}, kDone}}));
    commits.wait();
    EXPECT_TRUE(commits.committed());
  }
  EXPECT_FALSE(commits.committed());
}

// A campaign whose array 0 simulates 20 samples, which two elements of array 1 convert.
fs::path converting_campaign(const fs::path& parent) {
  const fs::path folder = parent / "converting";
  fs::create_directories(folder);
  write_file_durably(
      folder / "study.yaml",
      "description: {name: missing, description: a test}\n"
      "samples: {design: uniform, count: 20, seed: 1, parameters: {x: [0, 1]}}\n"
      "study:\n  - {name: simulate, description: one, run: {cmd: 'echo $(x)'}}\n"
      "  - {name: data, description: all, convert: {from: simulate, file: u.npy, shard_samples: 10}}\n");
  specs::ReadOptions options;
  options.timestamp = "20260101-000000";
  const specs::Plan plan(specs::read_study(folder / "study.yaml", options).study, folder);
  EXPECT_EQ(converted_array(plan, 0), std::nullopt);
  EXPECT_EQ(converted_array(plan, 1), 0U);
  EXPECT_EQ(converted_array(plan, 2), 0U) << "by its blocks";
  Store::create(folder, plan);
  return folder;
}

// A row each, as long as the block that told of them stands.
TEST_F(StoreTest, MissingSamplesStandAsLongAsTheirBlock) {
  const fs::path folder = converting_campaign(campaign_);
  Store store(folder);
  const auto told = [&](std::uint32_t attempt, std::vector<std::uint64_t> samples, Element block) {
    Batch batch;
    for (const std::uint64_t sample : samples)
      batch.events.push_back({1, block, attempt, 100, wire::MissingSample{sample, "u.npy is not there"}});
    batch.events.push_back({1, block, attempt, 100, wire::Converted{10 - samples.size(), {}}});
    store.commit(batch);
  };
  const auto missing = [&] {
    std::vector<Element> found;
    for (const MissingRecord& record : store.missing(1, {0, 19})) found.push_back(record.sample);
    return found;
  };
  store.commit(ends({{0, {0, 19}, kDone}, {1, {0, 1}, kDone}}));
  told(0, {3, 7}, 0);
  told(0, {12}, 1);
  told(0, {12}, 1);  // at least once
  EXPECT_EQ(missing(), (std::vector<Element>{3, 7, 12}));
  EXPECT_EQ(store.missing(1, {4, 19}, 1).at(0).sample, 7U);
  const auto reasons = store.status_at_rest().steps.at(1).missing;
  ASSERT_EQ(reasons.size(), 1U);
  EXPECT_EQ(reasons[0].samples, 3U);
  EXPECT_EQ(reasons[0].first, 3U);
  // Another execution of the same block says less: an earlier one's word does not stand.
  told(1, {7}, 0);
  EXPECT_EQ(missing(), (std::vector<Element>{7, 12}));
  store.snapshot(folder / "copy.db");
  SQLite::Database copy((folder / "copy.db").string());
  EXPECT_EQ(copy.execAndGet("SELECT group_concat(step || sample || state) FROM v_tasks").getString(),
            "simulate7missing,simulate12missing");
  store.commit(ends({{1, {1, 1}, kOpen}}));
  EXPECT_EQ(missing(), (std::vector<Element>{7}));
}

// Millions of samples are skipped where a training has reached its goal: one record a block.
TEST_F(StoreTest, SkippedSamplesAreCountedByBlock) {
  const fs::path folder = converting_campaign(campaign_);
  Store store(folder);
  const auto told = [&](Element block, std::vector<MissingReason> reasons) {
    Batch batch;
    batch.events.push_back({1, block, 0, 100, wire::Converted{0, std::move(reasons)}});
    store.commit(batch);
  };
  const auto missing = [&] { return store.status_at_rest().steps.at(1).missing; };
  const std::string reason = reason_left_out("simulate", ElementState::skipped);
  store.commit(ends({{0, {0, 3}, kDone}, {0, {4, 19}, ElementState::skipped}, {1, {0, 1}, kDone}}));
  told(0, {{reason, 6, 4}});
  told(1, {{reason, 10, 10}});
  told(1, {{reason, 10, 10}});  // at least once
  ASSERT_EQ(missing().size(), 1U);
  EXPECT_EQ(missing()[0].samples, 16U);
  EXPECT_EQ(missing()[0].first, 4U);
  EXPECT_TRUE(store.missing(1, {0, 19}).empty()) << "no row a sample";
  // They run after all, and the block is converted again.
  store.commit(ends({{0, {10, 19}, kOpen}, {1, {1, 1}, kOpen}}));
  EXPECT_EQ(missing()[0].samples, 6U);
  store.commit(ends({{0, {10, 19}, kDone}, {1, {1, 1}, kDone}}));
  told(1, {});
  EXPECT_EQ(missing()[0].samples, 6U);
}

}  // namespace
}  // namespace wflow::engine::store
