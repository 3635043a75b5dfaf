// SPDX-License-Identifier: Apache-2.0
// The agent without processes: what runs, what is revoked, the drain.
#include <gtest/gtest.h>

#include <algorithm>

#include "workers/agent/machine_bench.h"

namespace wflow::workers {
namespace {

namespace wire = engine::wire;

using Bench = MachineBench;

// ---- what runs

TEST(AgentMachine, EndsATaskAtItsTimeLimitAndKillsItAfterItsGrace) {
  Bench bench;
  bench.join(1000);
  specs::TaskTemplate task;
  task.array = 1;
  task.timeout_s = 20;
  bench.hear(wire::Templates{{task}});
  bench.run_tasks(1);
  ASSERT_TRUE(bench.pass_until(1019.9));
  EXPECT_TRUE(bench.all<action::EndTask>().empty());
  ASSERT_TRUE(bench.pass_until(1024.9));
  ASSERT_EQ(bench.all<action::EndTask>().size(), 1U);
  EXPECT_EQ(bench.all<action::EndTask>()[0].cause, EndCause::time_limit);
  EXPECT_FALSE(bench.all<action::EndTask>()[0].kill);
  ASSERT_TRUE(bench.pass_until(1060));
  ASSERT_EQ(bench.all<action::EndTask>().size(), 2U);
  EXPECT_EQ(bench.all<action::EndTask>()[1].cause, EndCause::time_limit);
  EXPECT_TRUE(bench.all<action::EndTask>()[1].kill);
}

TEST(AgentMachine, ATaskWhoseOutputsAreLookedAtHasNoLimitAnyMore) {
  Bench bench;
  bench.join(1000);
  specs::TaskTemplate task;
  task.array = 1;
  task.timeout_s = 20;
  bench.hear(wire::Templates{{task}});
  bench.run_tasks(1);
  bench.now_s = 1015;
  bench.give(event::TaskChecking{0});
  ASSERT_TRUE(bench.pass_until(1100));
  EXPECT_TRUE(bench.all<action::EndTask>().empty());
  EXPECT_EQ(bench.last<wire::Heartbeat>()->running.size(), 1U);
}

TEST(AgentMachine, HeartbeatsSayTheMemoryOfTasksWhileSomebodyLooks) {
  Bench bench;
  bench.join(1000);
  bench.run_tasks(1);
  const auto beat = [&] {
    bench.now_s += 1.01;
    bench.turn();
    return bench.last<wire::Heartbeat>()->running.at(0).memory_bytes;
  };
  bench.give(event::TaskMemory{{{0, 3000}}});
  EXPECT_EQ(beat(), 0U);
  bench.hear(wire::Pulse{1, 0, 0, true});
  bench.give(event::TaskMemory{{{0, 2000}}});
  EXPECT_EQ(beat(), 3000U) << "the most so far";
  bench.hear(wire::Pulse{2, 0, 0, false});
  EXPECT_EQ(beat(), 0U);
}

TEST(AgentMachine, EndsATaskThatDoesNothingForItsStallTimeout) {
  Bench bench;
  bench.join(1000);
  specs::TaskTemplate task;
  task.array = 1;
  task.stall_timeout_s = 20;
  bench.hear(wire::Templates{{task}});
  bench.run_tasks(1);
  bench.give(event::TaskSilent{0, 19.5});
  EXPECT_TRUE(bench.all<action::EndTask>().empty());
  bench.now_s += 600;  // it was frozen: that is no silence of its tasks
  bench.turn();
  EXPECT_TRUE(bench.all<action::EndTask>().empty());
  bench.give(event::TaskSilent{0, 20.5});
  ASSERT_EQ(bench.all<action::EndTask>().size(), 1U);
  EXPECT_EQ(bench.all<action::EndTask>()[0].cause, EndCause::stalled);
}

TEST(AgentMachine, AfterAFailureOfTheDiskNothingStartsForAWhile) {
  Bench bench;
  bench.join(1000);
  bench.run_tasks(1);
  event::TaskEnded ended{0, {}, {}};
  wire::Outcome outcome;
  outcome.lease = 7;
  outcome.array = 1;
  outcome.reason = wire::EndReason::disk;
  ended.results.outcomes.push_back(outcome);
  bench.give(ended);
  bench.hear(wire::Leases{{Bench::lease(8, 1, 1)}});
  bench.turn();
  EXPECT_TRUE(bench.all<action::StartTask>().empty());
  ASSERT_TRUE(bench.pass_until(bench.now_s + 1.5));
  EXPECT_EQ(bench.all<action::StartTask>().size(), 1U);
}

TEST(AgentMachine, LooksForEventsWhileSomethingRuns) {
  Bench bench;
  bench.join();
  ASSERT_TRUE(bench.pass_until(1002));
  EXPECT_TRUE(bench.all<action::FollowEvents>().empty());
  bench.run_tasks(1);
  ASSERT_TRUE(bench.pass_until(1003));
  EXPECT_EQ(bench.all<action::FollowEvents>().size(), 5U);
  bench.give(event::TaskReports{0, {{1, 0, 0, 0, {}}}});
  EXPECT_EQ(bench.all<action::AppendJournal>().size(), 1U);
}

TEST(AgentMachine, SendsResultsBeforeItStartsTasksAndBoundsStarts) {
  Bench bench{Bench::options(100)};
  bench.join();
  bench.run_tasks(200);
  EXPECT_EQ(bench.machine.running(), 32U);
  EXPECT_LE(bench.machine.wake_at_s(), bench.now_s);
  bench.give(Bench::well(0, Bench::lease(7, 0, 1)));
  bench.actions.clear();
  bench.now_s += 0.01;
  bench.turn();
  const auto first_start = std::find_if(bench.actions.begin(), bench.actions.end(), [](const auto& action) {
    return std::holds_alternative<action::StartTask>(action);
  });
  const auto results = std::find_if(bench.actions.begin(), bench.actions.end(), [](const auto& action) {
    const auto* send = std::get_if<action::Send>(&action);
    return send != nullptr && std::holds_alternative<wire::Results>(send->message);
  });
  ASSERT_NE(results, bench.actions.end());
  EXPECT_LT(results - bench.actions.begin(), first_start - bench.actions.begin());
}

// ---- tasks on several nodes

TEST(AgentMachine, TakesItsNodesPartOfATaskOnSeveral) {
  Bench bench{Bench::options(4)};
  bench.join();
  specs::TaskTemplate task;
  task.array = 2;
  task.resources.nodes = 2;
  task.resources.procs = 5;
  bench.hear(wire::Templates{{task}});
  bench.hear(wire::Leases{{{9, 2, 0, 1, 0, false, 0, 0, 0, 0, 0, {"n1", "n2"}}, {10, 1, 0, 4}}});
  bench.turn();
  const auto starts = bench.all<action::StartTask>();
  ASSERT_EQ(starts.size(), 2U) << "three cores, and one for another task";
  EXPECT_EQ(starts[0].share.cores, 3);
  EXPECT_EQ(starts[0].lease.nodes.size(), 2U);
}

TEST(AgentMachine, KillsWhatIsLeftOfATaskOnItsNode) {
  Bench bench;
  bench.join();
  bench.hear(wire::Revoke{{{77, 2, 0, 1, 0, false, 0, 0, 0, 0, 0, {"n2"}}}, false, true});
  const auto ends = bench.all<action::EndRanks>();
  ASSERT_EQ(ends.size(), 1U) << "it need not hold the lease";
  EXPECT_EQ(ends[0].lease, 77U);
  EXPECT_EQ(ends[0].campaign, "/c");
}

TEST(AgentMachine, StaysWhileOtherWorkersTasksRunOnItsNode) {
  AgentOptions options = Bench::options();
  options.idle_timeout_s = 10;
  Bench bench{options};
  bench.join(1000);
  bench.hear(wire::Pulse{1, 1});
  ASSERT_TRUE(bench.pass_until(1040));
  EXPECT_TRUE(bench.all<action::Exit>().empty());
  bench.hear(wire::Pulse{1, 0});
  ASSERT_TRUE(bench.pass_until(1060));
  EXPECT_EQ(bench.all<action::Exit>().size(), 1U);
}

TEST(AgentMachine, RefusesWhatItCannotStart) {
  Bench bench;
  bench.join();
  specs::TaskTemplate task;
  task.array = 2;
  task.resources.gpus = 1;
  bench.hear(wire::Templates{{task}});
  bench.hear(wire::Leases{{{1, 2, 0, 1}, {2, 99, 0, 1}, {3, 1, 0, 1}, {4, 1, ~0ULL, 2}}});
  bench.turn();
  ASSERT_EQ(bench.all<action::StartTask>().size(), 1U);
  bench.give(event::TaskNotStarted{bench.all<action::StartTask>()[0].slot, "no such program"});
  bench.turn();
  std::vector<std::string> why;
  for (const auto& results : bench.sent<wire::Results>()) {
    for (const auto& outcome : results.outcomes) {
      EXPECT_EQ(outcome.reason, wire::EndReason::not_started);
      why.push_back(outcome.detail);
    }
  }
  ASSERT_EQ(why.size(), 3U);
  EXPECT_NE(why[0].find("GPU"), std::string::npos);
  EXPECT_EQ(why[2], "no such program");
  EXPECT_EQ(bench.machine.running(), 0U);
}

// A full disk is no fault of the task: it waits, is charged no attempt, and starts when the disk has space.
TEST(AgentMachine, TasksWaitWhileTheDiskIsInTrouble) {
  Bench bench;
  bench.join();
  specs::TaskTemplate task;
  task.array = 1;
  bench.hear(wire::Templates{{task}});
  bench.hear(wire::Leases{{{1, 1, 0, 1}}});
  bench.turn();
  const auto starts = [&] { return bench.all<action::StartTask>().size(); };
  ASSERT_EQ(starts(), 1U);
  bench.give(event::TaskNotStarted{bench.all<action::StartTask>()[0].slot, "no space left", true});
  bench.turn();
  EXPECT_EQ(starts(), 1U);
  EXPECT_TRUE(bench.sent<wire::Results>().empty());
  bench.now_s += 1;
  bench.turn();
  ASSERT_EQ(starts(), 2U);
  EXPECT_EQ(bench.all<action::StartTask>()[1].lease.attempt, 0U);
}

// A process takes a bundle; what is to run again in smaller parts stays leased.
TEST(AgentMachine, RunsPartsOfABundleAgain) {
  Bench bench;
  bench.join();
  specs::TaskTemplate task;
  task.array = 1;
  task.bundle = 10;
  bench.hear(wire::Templates{{task}});
  bench.hear(wire::Leases{{Bench::lease(7, 4, 20)}});
  bench.turn();
  const auto starts = bench.all<action::StartTask>();
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[0].lease.count, 6U);
  EXPECT_EQ(starts[1].lease.count, 10U);
  bench.start_all();
  bench.give(event::TaskEnded{starts[0].slot, {}, {Bench::lease(7, 4, 3), Bench::lease(7, 7, 3)}});
  bench.turn();
  EXPECT_EQ(bench.machine.running(), 2U);  // the rest of the lease came first
  bench.hear(wire::Drain{});
  EXPECT_EQ(bench.returned(), 6U);
}

// ---- revoked, drained

TEST(AgentMachine, GivesBackThePartsThatAreRevoked) {
  Bench bench;
  bench.join();
  bench.run_tasks(10);
  bench.hear(wire::Revoke{{Bench::lease(7, 5, 2)}, false, false});
  ASSERT_EQ(bench.sent<wire::Returned>().size(), 1U);
  EXPECT_EQ(bench.returned(), 2U);
  EXPECT_TRUE(bench.all<action::EndTask>().empty());
  bench.hear(wire::Revoke{{Bench::lease(7, 1, 2)}, false, true});
  EXPECT_EQ(bench.returned(), 3U);
  ASSERT_EQ(bench.all<action::EndTask>().size(), 1U);
  EXPECT_EQ(bench.all<action::EndTask>()[0].cause, EndCause::cancelled);
  bench.hear(wire::Revoke{{}, true, true});
  EXPECT_EQ(bench.all<action::EndTask>().size(), 2U);
  EXPECT_EQ(bench.returned(), 8U);
}

// Its coordinator leases it at once again what it returns, until it has heard that this worker ends.
TEST(AgentMachine, RefusesLeasesOnceAHeartbeat) {
  Bench bench;
  bench.join();
  bench.run_tasks(2);
  bench.give(event::GuardianGone{});
  bench.turn();
  const std::uint64_t before = bench.returned();
  for (engine::wire::LeaseId id = 8; id < 100; ++id) {
    bench.hear(engine::wire::Leases{{Bench::lease(id, 50, 1)}});
    bench.turn();
  }
  EXPECT_EQ(bench.returned() - before, 1U);
  ASSERT_TRUE(bench.pass_until(bench.now_s + 1.5));
  EXPECT_EQ(bench.returned() - before, 92U);
}

// Otherwise the coordinator takes them for tasks that ran when this worker was lost.
TEST(AgentMachine, ReturnsRefusedLeasesBeforeItEnds) {
  Bench bench;
  bench.join();
  bench.hear(engine::wire::Leases{{Bench::lease(7, 0, 1)}});
  bench.turn();
  const auto starts = bench.take<action::StartTask>();
  ASSERT_EQ(starts.size(), 1U);
  bench.give(event::GuardianGone{});
  bench.turn();
  bench.hear(engine::wire::Leases{{Bench::lease(8, 50, 1)}});
  bench.hear(engine::wire::Leases{{Bench::lease(9, 60, 1)}});
  bench.turn();
  bench.give(event::TaskEnded{starts[0].slot, {}, {Bench::lease(7, 0, 1)}});
  bench.turn();
  EXPECT_EQ(bench.sent<engine::wire::Goodbye>().size(), 1U);
  EXPECT_EQ(bench.returned(), 3U);
}

TEST(AgentMachine, AStaleRevokeChangesNothing) {
  Bench bench;
  bench.join();
  bench.run_tasks(10);
  bench.hear(wire::Revoke{{Bench::lease(6, 0, 10), Bench::lease(7, 10, 5)}, false, true});
  EXPECT_TRUE(bench.all<action::EndTask>().empty());
  EXPECT_EQ(bench.returned(), 0U);
  EXPECT_EQ(bench.sent<wire::Returned>().size(), 1U);
}

TEST(AgentMachine, ATaskThatIsRevokedBeforeItHasBegunIsEndedThen) {
  Bench bench;
  bench.join();
  bench.hear(wire::Leases{{Bench::lease(7, 0, 1)}});
  bench.turn();
  const auto starts = bench.take<action::StartTask>();
  ASSERT_EQ(starts.size(), 1U);
  bench.hear(wire::Revoke{{}, true, true});
  EXPECT_TRUE(bench.all<action::EndTask>().empty());
  bench.give(event::TaskStarted{starts[0].slot});
  EXPECT_EQ(bench.all<action::EndTask>().size(), 1U);
}

TEST(AgentMachine, DrainsAndSaysGoodbyeWhenAllIsAcknowledged) {
  Bench bench;
  bench.join();
  specs::TaskTemplate training;
  training.array = 1;
  training.kind = specs::StepKind::train;
  bench.hear(wire::Templates{{training}});
  bench.run_tasks(10);
  bench.hear(wire::Drain{});
  EXPECT_EQ(bench.returned(), 8U);
  EXPECT_EQ(bench.all<action::InterruptTask>().size(), 2U);
  bench.hear(wire::Leases{{Bench::lease(8, 0, 3)}});  // was under way
  bench.turn();
  EXPECT_EQ(bench.returned(), 11U);
  bench.give(Bench::well(0, Bench::lease(7, 0, 1)));
  bench.give(Bench::well(1, Bench::lease(7, 1, 1)));
  bench.turn();
  EXPECT_TRUE(bench.all<action::Exit>().empty());
  bench.hear(wire::Acknowledge{bench.last<wire::Results>()->sequence});
  ASSERT_TRUE(bench.pass_until(bench.now_s));
  ASSERT_EQ(bench.all<action::Exit>().size(), 1U);
  EXPECT_EQ(bench.all<action::Exit>()[0].code, 0);
  EXPECT_EQ(bench.sent<wire::Goodbye>().size(), 1U);
}

TEST(AgentMachine, WaitsThreeSecondsForTheLastAcknowledgement) {
  Bench bench;
  bench.join();
  bench.run_tasks(1);
  bench.hear(wire::Drain{});
  bench.give(Bench::well(0, Bench::lease(7, 0, 1)));
  ASSERT_TRUE(bench.pass_until(1002.9));
  EXPECT_TRUE(bench.all<action::Exit>().empty());
  ASSERT_TRUE(bench.pass_until(1003));
  EXPECT_EQ(bench.all<action::Exit>().size(), 1U);
}

}  // namespace
}  // namespace wflow::workers
