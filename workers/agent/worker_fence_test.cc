// SPDX-License-Identifier: Apache-2.0
// With real processes: what runs ends when the coordinator may lease it to others, whoever is frozen or
// killed; and troubles of the machine end a worker with a sentence.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "base/process.h"
#include "base/text.h"
#include "engine/wire/worker_journal.h"
#include "workers/agent/fake_coordinator.h"

namespace wflow::workers {
namespace {

namespace wire = engine::wire;

class WorkerFenceTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (campaign_.path() / name).string(); }

  void begin(const std::string& body, std::uint64_t count, double lost_s = 60) {
    coordinator_->lost_s = lost_s;
    worker_ = std::make_unique<WorkerProcess>(
        campaign_.path(), std::vector<std::string>{"slots=2", "linger=60", "started_by=7"});
    ASSERT_TRUE(coordinator_->welcome_worker());
    coordinator_->send(wire::Templates{{shell_task(campaign_.path(), body, count)}});
    coordinator_->send(wire::Leases{{{1, 1, 0, count}}});
  }
  bool running(std::size_t count) {
    return coordinator_->until(
        [&] { return coordinator_->heartbeat && coordinator_->heartbeat->running.size() == count; });
  }
  bool none_left() {
    return coordinator_->until([&] { return processes_with("WFLOW_WORKSPACE=" + path("step")).empty(); });
  }
  std::uint64_t returned() const {
    std::uint64_t count = 0;
    for (const auto& lease : coordinator_->returned) count += lease.count;
    return count;
  }

  wire::TemporaryCampaign campaign_;
  std::unique_ptr<FakeCoordinator> coordinator_ = std::make_unique<FakeCoordinator>(campaign_.path(), 1);
  std::unique_ptr<WorkerProcess> worker_;
};

TEST_F(WorkerFenceTest, WithoutAnAnswerWhatRunsIsEndedAndGivenBack) {
  begin("setsid sleep 1000 & sleep 1000", 10, 5);
  ASSERT_TRUE(running(2));
  coordinator_->answering = false;
  ASSERT_TRUE(none_left());
  EXPECT_TRUE(coordinator_->until([&] { return returned() == 10; }));
  EXPECT_TRUE(coordinator_->ends.empty());
  EXPECT_FALSE(coordinator_->goodbye.has_value());
  // Answered again, it takes leases.
  coordinator_->answering = true;
  const std::uint64_t number = coordinator_->heartbeat->number;
  ASSERT_TRUE(coordinator_->until([&] { return coordinator_->heartbeat->number > number + 1; }));
  auto quick = shell_task(campaign_.path(), "true", 1);
  quick.array = 2;
  coordinator_->send(wire::Templates{{quick}});
  coordinator_->send(wire::Leases{{{2, 2, 0, 1}}});
  EXPECT_TRUE(coordinator_->until([&] { return coordinator_->ends.size() == 1; }));
}

TEST_F(WorkerFenceTest, TheGuardianEndsAnAgentThatIsFrozenBeyondItsFence) {
  begin("sleep 1000", 10, 3);
  ASSERT_TRUE(running(2));
  ::kill(worker_->agent(), SIGSTOP);
  EXPECT_EQ(worker_->wait(), 70);
  EXPECT_TRUE(none_left());
}

// The agent takes what has ended before it kills the rest.
TEST_F(WorkerFenceTest, AKilledGuardianCostsNoResult) {
  std::ofstream(path("hold")) << "";
  begin("while [ -e " + path("hold") + " ]; do sleep 0.01; done", 10);
  ASSERT_TRUE(running(2));
  const pid_t agent = worker_->agent();
  ::kill(agent, SIGSTOP);
  std::filesystem::remove(path("hold"));
  ASSERT_TRUE(coordinator_->until([&] { return zombies_of(agent) == 2; }));
  coordinator_->acknowledging = false;
  ::kill(worker_->guardian(), SIGKILL);
  EXPECT_EQ(worker_->wait(), 128 + SIGKILL);
  ::kill(agent, SIGCONT);
  ASSERT_TRUE(coordinator_->until([&] { return ::kill(agent, 0) != 0; }));
  const auto left = wire::find_worker_journals(campaign_.path());
  ASSERT_EQ(left.size(), 1U);
  EXPECT_FALSE(left[0].alive);
  std::uint64_t done = 0;
  for (const auto& results : left[0].records.results) {
    for (const auto& run : results.done) done += run.count;
  }
  EXPECT_EQ(done, 2U);
}

TEST_F(WorkerFenceTest, TheJournalSaysWhoseItIs) {
  begin("sleep 1000", 1, 600);
  ASSERT_TRUE(running(1));
  const auto found = wire::find_worker_journals(campaign_.path());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].alive);
  ASSERT_TRUE(found[0].records.header.has_value());
  EXPECT_EQ(found[0].records.header->worker, coordinator_->hello->worker);
  EXPECT_EQ(found[0].records.header->group, "test");
  EXPECT_EQ(found[0].records.header->guardian, identify(worker_->guardian()));
  EXPECT_EQ(found[0].records.header->agent, identify(worker_->agent()));
  EXPECT_EQ(found[0].records.header->started_by, 7U);
  EXPECT_EQ(found[0].records.header->lost_s, 600);
}

TEST_F(WorkerFenceTest, WhatATaskPrintsBecomesText) {
  begin(
      R"(printf 'bad \377\376 byte' >&2; printf '{"type":"note","text":"\377"}\n' >> $WFLOW_EVENTS; exit 1)",
      1);
  ASSERT_TRUE(coordinator_->until([&] { return coordinator_->ends.size() == 1; }));
  ASSERT_EQ(coordinator_->outcomes.size(), 1U);
  EXPECT_TRUE(is_utf8(coordinator_->outcomes[0].detail));
  EXPECT_NE(coordinator_->outcomes[0].detail.find("bad "), std::string::npos);
  ASSERT_EQ(coordinator_->events.size(), 1U);
  EXPECT_TRUE(wire::is_wellformed(coordinator_->events[0]));
}

TEST_F(WorkerFenceTest, EndsWhenTheCampaignIsRemoved) {
  begin("sleep 1000", 10);
  ASSERT_TRUE(running(2));
  coordinator_.reset();
  std::filesystem::remove_all(campaign_.path());
  EXPECT_EQ(worker_->wait(), 5);
}

TEST_F(WorkerFenceTest, NamesTheLimitOnOpenFiles) {
  SpawnRequest request;
  request.argv = {"/bin/sh", "-c",
                  "ulimit -n 12; exec " + executable_directory() + "/wflow_test_worker " +
                      campaign_.path().string() + " slots=1"};
  const CommandResult result = run_command(request);
  EXPECT_EQ(result.status, 5) << result.err;
  EXPECT_NE(result.err.find("ulimit -n"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace wflow::workers
