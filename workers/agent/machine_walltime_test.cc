// SPDX-License-Identifier: Apache-2.0
// The agent without processes: the end of its allocation.
#include <gtest/gtest.h>

#include "workers/agent/machine_bench.h"

namespace wflow::workers {
namespace {

namespace wire = engine::wire;

using Bench = MachineBench;

// Of the bench: 5 s between SIGTERM and SIGKILL, and 3 s to report.
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
  ASSERT_TRUE(bench.pass_until(1055));
  EXPECT_EQ(bench.returned(), 5U);
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

event::TaskEnded terminated(SlotId slot, const wire::Lease& lease) {
  event::TaskEnded ended{slot, {}, {}};
  ended.results.outcomes.push_back(
      {lease.id, lease.array, lease.first, lease.attempt, wire::EndReason::signalled, 15, 0, 1, ""});
  return ended;
}

TEST(AgentMachine, ATaskThatEndsWithItsAllocationIsGivenBack) {
  Bench bench(in_allocation());
  bench.join(1000);
  bench.run_tasks(1);
  bench.give(terminated(0, Bench::lease(7, 0, 1)));
  EXPECT_TRUE(bench.all<action::AppendJournal>().empty());
  bench.give(event::Terminate{});
  bench.turn();
  EXPECT_EQ(bench.returned(), 1U);
  EXPECT_TRUE(bench.all<action::AppendJournal>().empty());
}

// Both signals are there at once, and the agent looks at its own first.
TEST(AgentMachine, ATaskThatEndsWithItsAllocationIsGivenBackAlsoWhenThatIsSeenLater) {
  Bench bench(in_allocation());
  bench.join(1000);
  bench.run_tasks(1);
  bench.give(event::Terminate{});
  bench.give(terminated(0, Bench::lease(7, 0, 1)));
  bench.turn();
  EXPECT_EQ(bench.returned(), 1U);
  EXPECT_TRUE(bench.all<action::AppendJournal>().empty());
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
