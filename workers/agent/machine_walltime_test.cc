// SPDX-License-Identifier: Apache-2.0
// The agent without processes: the end of its allocation.
#include <gtest/gtest.h>

#include "workers/agent/machine_bench.h"

namespace wflow::workers {
namespace {

namespace wire = engine::wire;

using Bench = MachineBench;

// The bench has 5 s between SIGTERM and SIGKILL; 3 s are left to report.
constexpr double kLead_s = 8;

AgentOptions in_allocation() {
  AgentOptions options = Bench::options(2);
  options.allocation = "wabcdef001001";
  options.incarnation = 1;
  return options;
}

TEST(AgentMachine, TellsHowLongItsTasksCanRun) {
  Bench bench(in_allocation());
  bench.give(event::EndKnown{1060});
  bench.join(1000);
  const auto hellos = bench.sent<wire::Hello>();
  ASSERT_EQ(hellos.size(), 1U);
  EXPECT_EQ(hellos[0].allocation, "wabcdef001001");
  EXPECT_EQ(hellos[0].incarnation, 1);
  EXPECT_EQ(hellos[0].left_s, 60 - kLead_s);
  bench.give(event::EndKnown{1100});  // it was made longer
  ASSERT_TRUE(bench.pass_until(1010));
  EXPECT_EQ(bench.last<wire::Heartbeat>()->left_s, 100 - 10 - kLead_s);
}

TEST(AgentMachine, WithoutAnEndItTellsNone) {
  Bench bench;
  bench.join(1000);
  EXPECT_EQ(bench.sent<wire::Hello>().at(0).left_s, std::nullopt);
  bench.run_tasks(1);
  ASSERT_TRUE(bench.pass_until(1500));
  EXPECT_TRUE(bench.all<action::EndTask>().empty());
}

TEST(AgentMachine, GivesBackWhatRunsBeforeItsAllocationEnds) {
  Bench bench(in_allocation());
  bench.give(event::EndKnown{1060});
  bench.join(1000);
  bench.run_tasks(5);  // two run, three are queued
  ASSERT_TRUE(bench.pass_until(1060 - kLead_s - 0.1));
  EXPECT_TRUE(bench.all<action::EndTask>().empty());
  ASSERT_TRUE(bench.pass_until(1060 - kLead_s + 0.1));
  const auto ends = bench.take<action::EndTask>();
  ASSERT_EQ(ends.size(), 2U);
  for (const auto& end : ends) {
    EXPECT_EQ(end.cause, EndCause::returned);
    EXPECT_FALSE(end.kill);
    bench.give(Bench::without_result(end.slot));
  }
  ASSERT_TRUE(bench.pass_until(1053));
  EXPECT_TRUE(bench.sent<wire::Goodbye>().empty()) << "not before the record is committed";
  ASSERT_NE(bench.last<wire::Results>(), nullptr);
  bench.hear(wire::Acknowledge{bench.last<wire::Results>()->sequence});
  ASSERT_TRUE(bench.pass_until(1055));
  EXPECT_EQ(bench.returned(), 3U) << "what has not started";
  std::uint64_t recorded = 0;
  for (const auto& append : bench.all<action::AppendJournal>()) {
    for (const wire::Outcome& outcome : append.record.outcomes) {
      EXPECT_EQ(outcome.reason, wire::EndReason::walltime);
      EXPECT_EQ(outcome.detail, "the walltime of its allocation ends");
      ++recorded;
    }
  }
  EXPECT_EQ(recorded, 2U);
  const auto goodbyes = bench.sent<wire::Goodbye>();
  ASSERT_EQ(goodbyes.size(), 1U);
  EXPECT_EQ(goodbyes[0].reason, "the walltime of its allocation ends");
  ASSERT_EQ(bench.all<action::Exit>().size(), 1U);
  EXPECT_EQ(bench.all<action::Exit>()[0].code, 0);
}

TEST(AgentMachine, TrainingsHaveTimeForACheckpoint) {
  Bench bench(in_allocation());
  bench.give(event::EndKnown{1000 + 7200});
  bench.join(100'000);
  specs::TaskTemplate training;
  training.array = 1;
  training.kind = specs::StepKind::train;
  bench.hear(wire::Templates{{training}});
  bench.run_tasks(1);
  ASSERT_TRUE(bench.pass_until(8200 - kLead_s - 60 - 1));
  EXPECT_TRUE(bench.all<action::EndTask>().empty());
  ASSERT_TRUE(bench.pass_until(8200 - kLead_s - 60 + 1));
  ASSERT_EQ(bench.all<action::EndTask>().size(), 1U);
  ASSERT_TRUE(bench.pass_until(8200 - 4));
  EXPECT_EQ(bench.all<action::EndTask>().size(), 1U) << "it is killed only when there is no time left";
  ASSERT_TRUE(bench.pass_until(8200 - 2));
  EXPECT_TRUE(bench.all<action::EndTask>().back().kill);
}

TEST(AgentMachine, TakesNoLeaseOnceItsAllocationEnds) {
  Bench bench(in_allocation());
  bench.give(event::EndKnown{1060});
  bench.join(1000);
  bench.run_tasks(1);
  ASSERT_TRUE(bench.pass_until(1060 - kLead_s + 0.1));
  bench.hear(wire::Leases{{Bench::lease(9, 10, 4)}});
  bench.turn();
  EXPECT_GE(bench.returned(), 4U);
}

event::TaskEnded ended_badly(SlotId slot, const wire::Lease& lease, wire::EndReason reason, int code) {
  event::TaskEnded ended{slot, {}, {}};
  ended.results.outcomes.push_back(
      {lease.id, lease.array, lease.first, lease.attempt, reason, code, 0, 1, ""});
  return ended;
}
event::TaskEnded terminated(SlotId slot, const wire::Lease& lease) {
  return ended_badly(slot, lease, wire::EndReason::signalled, 15);
}

TEST(AgentMachine, ATaskThatEndsWithItsAllocationIsGivenBack) {
  Bench bench(in_allocation());
  bench.join(1000);
  bench.run_tasks(1);
  bench.give(terminated(0, Bench::lease(7, 0, 1)));
  EXPECT_TRUE(bench.all<action::AppendJournal>().empty());
  bench.give(event::Terminate{});
  bench.turn();
  EXPECT_EQ(bench.returned(), 0U);
  ASSERT_EQ(bench.all<action::AppendJournal>().size(), 1U);
  const auto outcomes = bench.all<action::AppendJournal>()[0].record.outcomes;
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].reason, wire::EndReason::preempted);
  EXPECT_EQ(outcomes[0].exit_code, 0);
}

TEST(AgentMachine, OutsideAnAllocationASignalGivesBackWithoutARecord) {
  Bench bench(Bench::options(2));
  bench.join(1000);
  bench.run_tasks(1);
  bench.give(event::Terminate{});
  for (const auto& end : bench.take<action::EndTask>()) bench.give(Bench::without_result(end.slot));
  bench.turn();
  EXPECT_EQ(bench.returned(), 1U);
  EXPECT_TRUE(bench.all<action::AppendJournal>().empty());
}

TEST(AgentMachine, ATaskThatNeedsMoreMemoryThanItsStepAsksForGetsIt) {
  AgentOptions options = Bench::options(2);
  options.capacity.memory_bytes = 8 << 20;
  Bench bench(std::move(options));
  bench.join(1000);
  specs::TaskTemplate task;
  task.array = 1;
  task.resources.memory_bytes = 2 << 20;
  bench.hear(wire::Templates{{task}});
  wire::Lease small = Bench::lease(7, 0, 1), large = Bench::lease(8, 1, 1);
  small.array = large.array = 1;
  large.memory_bytes = 7 << 20;
  bench.hear(wire::Leases{{small, large}});
  bench.turn();
  auto starts = bench.all<action::StartTask>();
  ASSERT_EQ(starts.size(), 1U) << "both together need more than there is";
  EXPECT_EQ(starts[0].share.memory_bytes, 2 << 20);
  bench.give(event::TaskStarted{starts[0].slot});
  bench.give(Bench::without_result(starts[0].slot));
  bench.turn();
  starts = bench.all<action::StartTask>();
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_EQ(starts[1].share.memory_bytes, 7 << 20);
}

void expect_preempted(const Bench& bench) {
  EXPECT_EQ(bench.returned(), 0U);
  ASSERT_EQ(bench.all<action::AppendJournal>().size(), 1U);
  const auto outcomes = bench.all<action::AppendJournal>()[0].record.outcomes;
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].reason, wire::EndReason::preempted);
}

TEST(AgentMachine, AScriptThatMakesACodeOfTheSignalHasNotFailed) {
  Bench bench(in_allocation());
  bench.join(1000);
  bench.run_tasks(1);
  bench.give(ended_badly(0, Bench::lease(7, 0, 1), wire::EndReason::exited, 1));  // program || exit 1
  EXPECT_TRUE(bench.all<action::AppendJournal>().empty());
  bench.give(event::Terminate{});
  bench.turn();
  expect_preempted(bench);
}

TEST(AgentMachine, ATaskWhoseEndIsSeenAfterTheWorkersSignalHasNotFailed) {
  Bench bench(in_allocation());
  bench.join(1000);
  bench.run_tasks(1);
  bench.give(event::Terminate{});
  bench.give(terminated(0, Bench::lease(7, 0, 1)));
  bench.turn();
  expect_preempted(bench);
}

TEST(AgentMachine, WhatATaskAsksForIsNotHeldBack) {
  Bench bench(in_allocation());
  bench.join(1000);
  bench.run_tasks(1);
  bench.give(ended_badly(0, Bench::lease(7, 0, 1), wire::EndReason::exited, 104));  // MERLIN_RETRY
  EXPECT_EQ(bench.all<action::AppendJournal>().size(), 1U);
}

TEST(AgentMachine, ATaskThatEndsByItselfBySuchASignalHasFailed) {
  Bench bench(in_allocation());
  bench.join(1000);
  bench.run_tasks(1);
  bench.give(terminated(0, Bench::lease(7, 0, 1)));
  ASSERT_TRUE(bench.pass_until(1003));
  ASSERT_EQ(bench.all<action::AppendJournal>().size(), 1U);
  EXPECT_EQ(bench.all<action::AppendJournal>()[0].record.outcomes.size(), 1U);
}

}  // namespace
}  // namespace wflow::workers
