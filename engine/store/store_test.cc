// SPDX-License-Identifier: Apache-2.0
#include "engine/store/store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "engine/store/commit_thread.h"
#include "specs/study/study.h"

namespace wflow::engine::store {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStudy = R"yaml(
description: {name: test, description: a test}
samples: {design: uniform, count: 100, seed: 1, parameters: {x: [0, 1]}}
study:
  - name: simulate
    description: one
    run: {cmd: "echo $(x)"}
  - name: collect
    description: all
    run: {cmd: "echo done", depends: [simulate]}
)yaml";

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    campaign_ =
        fs::path(::testing::TempDir()) / ("store_" + std::to_string(::getpid()) + "_" +
                                          ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(campaign_);
    fs::create_directories(campaign_);
    write_file_durably(campaign_ / "study.yaml", kStudy);
    specs::ReadOptions options;
    options.timestamp = "20260101-000000";
    plan_ =
        std::make_unique<specs::Plan>(specs::read_study(campaign_ / "study.yaml", options).study, campaign_);
    Store::create(campaign_, *plan_);
  }
  void TearDown() override { fs::remove_all(campaign_); }

  static Batch ends(std::vector<RecordEnd> list) {
    Batch batch;
    batch.ends = std::move(list);
    return batch;
  }
  static std::string text_of(const Restored& restored) {
    std::string text;
    for (const auto& end : restored.ends) {
      text += std::to_string(end.array) + ":" + std::to_string(end.range.first) + "-" +
              std::to_string(end.range.last) + std::string(name_of(end.state)) + " ";
    }
    return text;
  }

  fs::path campaign_;
  std::unique_ptr<specs::Plan> plan_;
};

constexpr auto kDone = ElementState::done;
constexpr auto kFailed = ElementState::failed;

TEST_F(StoreTest, NeighboursOfEqualStateAreOneRow) {
  Store store(campaign_);
  store.commit(ends({{0, {3, 5}, kDone}, {0, {0, 2}, kDone}}));
  store.commit(ends({{0, {7, 9}, kDone}}));
  store.commit(ends({{0, {6, 6}, kFailed}}));
  EXPECT_EQ(text_of(store.restore()), "0:0-5done 0:6-6failed 0:7-9done ");
  store.commit(ends({{0, {6, 6}, ElementState::blocked}}));
  store.commit(ends({{0, {6, 6}, kDone}}));
  EXPECT_EQ(text_of(store.restore()), "0:0-9done ");
}

TEST_F(StoreTest, OpeningAgainCutsARow) {
  Store store(campaign_);
  store.commit(ends({{0, {0, 99}, kFailed}}));
  store.commit(ends({{0, {10, 19}, ElementState::blocked}}));
  EXPECT_EQ(text_of(store.restore()), "0:0-9failed 0:20-99failed ");
}

TEST_F(StoreTest, AttemptsLiveUntilTheElementEnds) {
  Store store(campaign_);
  RecordFailure failure;
  failure.outcome.element = 7;
  failure.outcome.exit_code = 3;
  failure.outcome.detail = "no convergence";
  failure.next_attempt = 1;
  Batch batch;
  batch.failures.push_back(failure);
  store.commit(batch);
  ASSERT_EQ(store.restore().attempts.size(), 1u);
  EXPECT_EQ(store.restore().attempts[0].next_attempt, 1u);
  store.commit(ends({{0, {7, 7}, kDone}}));
  EXPECT_TRUE(store.restore().attempts.empty());
  ASSERT_EQ(store.failures_of(0, 7).size(), 1u);
  EXPECT_EQ(store.failures_of(0, 7)[0].reason, "exit code 3");
  EXPECT_EQ(store.failures_of(0, 7)[0].task, "simulate/7");
}

TEST_F(StoreTest, ExecutionsOfElementsAndASnapshotOfThem) {
  RecordFailure failure;
  failure.worker = "w1";
  failure.final = true;
  Batch batch;
  for (const Element element : {7U, 7U, 9U}) {
    failure.outcome.element = element;
    failure.outcome.exit_code += 1;
    batch.failures.push_back(failure);
  }
  batch.workers_joined.push_back({"w1", "host", "default", 12, 2, 0, 1.0});
  batch.ends = {{0, {7, 7}, kFailed}, {0, {9, 9}, kFailed}};
  {
    Store store(campaign_);
    store.commit(batch);
    const auto records = store.executions(0, {0, 99});
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records[0].element, 7u);
    EXPECT_EQ(records[0].executions, 2u);
    EXPECT_EQ(records[0].exit_code, 2);
    EXPECT_TRUE(store.executions(0, {8, 8}).empty());
    ASSERT_EQ(store.workers().size(), 1u);
    EXPECT_EQ(store.workers()[0].failures, 3u);
    EXPECT_FALSE(store.worker("w2"));
    store.commit(ends({{0, {9, 9}, ElementState::blocked}}));
    EXPECT_EQ(store.failures(10, true).size(), 2u) << "what runs again is no final failure";
    store.snapshot(campaign_ / "copy.db");
    EXPECT_THROW(store.snapshot(campaign_ / "copy.db"), Error);
  }
  fs::remove(database_path(campaign_));
  fs::rename(campaign_ / "copy.db", database_path(campaign_));
  EXPECT_EQ(Store(campaign_).executions(0, {0, 99}).size(), 2u);
}

TEST_F(StoreTest, EventsBecomeMetricsProgressAndArtifacts) {
  Store store(campaign_);
  Batch batch;
  const auto event = [&](const char* line) { batch.events.push_back({1, 0, 0, 1.0, line}); };
  event(R"({"type":"metric","name":"loss","epoch":1,"step":10,"value":0.5})");
  event(R"({"type":"metric","name":"loss","epoch":1,"step":10,"value":0.25})");
  event(R"({"type":"progress","done":3,"total":9,"unit":"epochs"})");
  event(R"({"type":"artifact","kind":"model","path":"/m.pt"})");
  event("not json");
  event(R"({"type":7,"done":"x"})");
  store.commit(batch);
  CampaignStatus status = store.status_at_rest();
  ASSERT_EQ(status.metrics.size(), 1u);
  EXPECT_EQ(status.metrics[0].value, 0.25);
  ASSERT_EQ(status.artifacts.size(), 1u);
  EXPECT_EQ(status.artifacts[0].path, "/m.pt");
  EXPECT_EQ(status.steps[1].progress_done, 3u);
  EXPECT_EQ(status_from_json(to_json(status)).steps[1].progress_total, 9u);
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

TEST_F(StoreTest, DamageAndAbsenceHaveTheirSentence) {
  write_file_durably(database_path(campaign_), std::string(8192, 'x'));
  try {
    const Store store(campaign_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
  }
  EXPECT_THROW(Store(campaign_ / "nowhere"), Error);
}

// What was committed is there after SIGKILL, whole; what was not committed is not.
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
    store.commit(ends({{0, {0, 99}, ElementState::blocked}}));
  }
}

TEST_F(StoreTest, FollowupsAreRecordedOnceAndKeepTheirOrder) {
  Batch batch;
  for (const char* source : {"0/0/0/a", "0/0/0/b", "0/0/0/a"}) {
    Followup followup;
    followup.kind = "submitted";
    followup.spec = "/study.yaml";
    followup.state = "pending";
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
  followups[1].state = "finished with failures";
  followups[1].exit_code = 1;
  followups[1].ended_s = 12;
  store.update_followup(followups[1]);
  followups = store.followups();
  EXPECT_EQ(followups[0].state, "pending");
  EXPECT_EQ(followups[1].directory, "/there");
  EXPECT_EQ(followups[1].exit_code, 1);
  EXPECT_EQ(followups[1].ended_s, 12);
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

}  // namespace
}  // namespace wflow::engine::store
