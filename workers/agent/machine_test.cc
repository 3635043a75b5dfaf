// SPDX-License-Identifier: Apache-2.0
// The agent without a socket or a clock: the line to the coordinator, the fence, results, the end.
#include "workers/agent/machine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "workers/agent/machine_bench.h"

namespace wflow::workers {
namespace {

namespace wire = engine::wire;

using Bench = MachineBench;

int code(ExitCode value) {
  return static_cast<int>(value);
}

// ---- the line to the coordinator

TEST(AgentMachine, LooksForItsCoordinatorUntilThereIsOne) {
  Bench bench;
  ASSERT_TRUE(bench.pass_until(1000));
  EXPECT_EQ(bench.all<action::LookUp>().size(), 1U);
  bench.give(event::EndpointRead{});
  ASSERT_TRUE(bench.pass_until(1003.5));
  EXPECT_EQ(bench.all<action::LookUp>().size(), 18U) << "five a second at first";
  bench.give(event::EndpointRead{CoordinatorAddress{"ipc://x", "", "h", 1, 1}});
  ASSERT_EQ(bench.all<action::Connect>().size(), 1U);
  bench.give(event::ConnectionLost{});
  ASSERT_TRUE(bench.pass_until(1004));
  EXPECT_EQ(bench.all<action::LookUp>().size(), 20U);
  bench.give(event::EndpointRead{CoordinatorAddress{"ipc://x", "", "h", 1, 1}});
  EXPECT_EQ(bench.all<action::Connect>().size(), 2U);
  bench.give(event::Connected{});
  EXPECT_EQ(bench.sent<wire::Hello>().size(), 1U);
}

TEST(AgentMachine, WaitsForASilentCoordinatorAndChangesToAnother) {
  Bench bench;
  bench.join();
  bench.actions.clear();
  ASSERT_TRUE(bench.pass_until(1002.9));
  EXPECT_TRUE(bench.all<action::LookUp>().empty());
  ASSERT_TRUE(bench.pass_until(1003));
  EXPECT_EQ(bench.all<action::LookUp>().size(), 1U);
  bench.give(event::EndpointRead{CoordinatorAddress{"ipc://x", "", "h", 1, 1}});
  EXPECT_TRUE(bench.all<action::Connect>().empty());
  ASSERT_TRUE(bench.pass_until(1004));
  EXPECT_EQ(bench.all<action::LookUp>().size(), 5U);
  bench.give(event::EndpointRead{CoordinatorAddress{"ipc://y", "", "h", 2, 2}});
  EXPECT_EQ(bench.all<action::Connect>().size(), 1U);
}

TEST(AgentMachine, SendsHeartbeatsByNumber) {
  Bench bench;
  bench.join();
  ASSERT_TRUE(bench.pass_until(1003));
  const auto beats = bench.sent<wire::Heartbeat>();
  ASSERT_EQ(beats.size(), 4U);
  for (std::size_t i = 0; i < beats.size(); ++i) EXPECT_EQ(beats[i].number, i + 1);
  bench.give(event::ConnectionLost{});
  bench.actions.clear();
  bench.join();
  EXPECT_EQ(bench.last<wire::Heartbeat>()->number, 1U);  // on every connection anew
}

TEST(AgentMachine, SaysHelloAgainWhenAskedWho) {
  Bench bench;
  bench.join();
  bench.run_tasks(10);
  bench.give(Bench::well(0, Bench::lease(7, 0, 1)));
  bench.turn();
  bench.actions.clear();
  bench.hear(wire::Identify{});
  ASSERT_EQ(bench.sent<wire::Hello>().size(), 1U);
  std::uint64_t held = 0;
  for (const auto& part : bench.last<wire::Hello>()->held) held += part.count;
  EXPECT_EQ(held, 9U);
  // Nothing but Hello until there is a Welcome; then all results, then a heartbeat.
  ASSERT_TRUE(bench.pass_until(1002));
  EXPECT_EQ(bench.all<action::Send>().size(), 1U);
  bench.hear(wire::Welcome{"/c", {}, 1, 60});
  bench.turn();
  const auto sends = bench.all<action::Send>();
  ASSERT_EQ(sends.size(), 3U);
  EXPECT_TRUE(std::holds_alternative<wire::Results>(sends[1].message));
  EXPECT_TRUE(std::holds_alternative<wire::Heartbeat>(sends[2].message));
}

// ---- the fence

TEST(AgentMachine, EndsWhatRunsAtItsFence) {
  Bench bench;
  bench.join();
  bench.run_tasks(10);
  bench.actions.clear();
  ASSERT_TRUE(bench.pass_until(1059.9));  // heartbeats go out, none is answered
  EXPECT_TRUE(bench.all<action::EndTask>().empty());
  ASSERT_TRUE(bench.pass_until(1060));
  const auto ends = bench.all<action::EndTask>();
  ASSERT_EQ(ends.size(), 2U);
  for (const auto& end : ends) {
    EXPECT_EQ(end.cause, EndCause::returned);
    EXPECT_TRUE(end.kill);
  }
  // The worker returns queued tasks at once, and running ones when they have ended.
  bench.turn();
  EXPECT_EQ(bench.returned(), 8U);
  bench.give(Bench::without_result(0));
  bench.give(Bench::without_result(1));
  bench.turn();
  EXPECT_EQ(bench.returned(), 10U);
  EXPECT_EQ(bench.machine.running(), 0U);
  // It takes nothing until the coordinator answers.
  bench.hear(wire::Leases{{Bench::lease(8, 0, 3)}});
  bench.turn();
  EXPECT_TRUE(bench.all<action::StartTask>().empty());
  EXPECT_EQ(bench.returned(), 13U);
  bench.answer();
  bench.run_tasks(1, 9);
  EXPECT_EQ(bench.machine.running(), 1U);
}

TEST(AgentMachine, CountsFromTheSendingOfAnAnsweredHeartbeat) {
  Bench bench;
  bench.join();
  bench.run_tasks(1);
  ASSERT_TRUE(bench.pass_until(1010));
  const std::uint64_t number = bench.last<wire::Heartbeat>()->number;
  ASSERT_TRUE(bench.pass_until(1030));
  bench.hear(wire::Pulse{number});
  EXPECT_DOUBLE_EQ(bench.all<action::SetFence>().back().steady_s, 1070);
  const auto fences = bench.all<action::SetFence>().size();
  bench.hear(wire::Pulse{number});      // again
  bench.hear(wire::Pulse{number - 1});  // older
  bench.hear(wire::Pulse{1'000'000});   // never sent
  EXPECT_EQ(bench.all<action::SetFence>().size(), fences);
  bench.actions.clear();
  ASSERT_TRUE(bench.pass_until(1069.9));
  EXPECT_TRUE(bench.all<action::EndTask>().empty());
  ASSERT_TRUE(bench.pass_until(1070));
  EXPECT_EQ(bench.all<action::EndTask>().size(), 1U);
}

TEST(AgentMachine, ANewCoordinatorMovesTheFenceOnlyByAnAnswer) {
  Bench bench;
  bench.join();
  bench.run_tasks(1);
  ASSERT_TRUE(bench.pass_until(1050));
  bench.give(event::ConnectionLost{});
  bench.give(event::EndpointRead{CoordinatorAddress{"ipc://y", "", "h", 2, 2}});
  bench.give(event::Connected{});
  bench.hear(wire::Welcome{"/c", {}, 1, 60});
  EXPECT_DOUBLE_EQ(bench.all<action::SetFence>().back().steady_s, 1060);
  bench.turn();
  bench.answer();
  EXPECT_DOUBLE_EQ(bench.all<action::SetFence>().back().steady_s, 1110);
}

TEST(AgentMachine, AWorkerThatHoldsNothingBeginsAnewWithItsHello) {
  Bench bench;
  bench.join();
  ASSERT_TRUE(bench.pass_until(1100));  // its fence has passed: nothing was to be ended
  EXPECT_TRUE(bench.all<action::EndTask>().empty());
  bench.give(event::ConnectionLost{});
  bench.join(60, 2);
  EXPECT_DOUBLE_EQ(bench.all<action::SetFence>().back().steady_s, 1160);
}

// After a pause it looks at its deadline before it reads what has come meanwhile.
TEST(AgentMachine, AFrozenAgentLooksAtItsDeadlineFirst) {
  Bench bench;
  bench.join();
  bench.run_tasks(3);
  ASSERT_TRUE(bench.pass_until(1001));
  const std::uint64_t number = bench.last<wire::Heartbeat>()->number;
  bench.actions.clear();
  bench.now_s = 1100;
  bench.hear(wire::Pulse{number});
  ASSERT_GE(bench.actions.size(), 3U);
  EXPECT_EQ(bench.all<action::EndTask>().size(), 2U);
  bench.hear(wire::Leases{{Bench::lease(8, 10, 1)}});
  bench.turn();
  EXPECT_TRUE(bench.all<action::StartTask>().empty());
}

TEST(AgentMachine, WhatHadEndedBeforeTheKillKeepsItsResult) {
  Bench bench;
  bench.join();
  bench.run_tasks(2);
  bench.now_s = 1100;
  bench.turn();
  bench.actions.clear();
  bench.give(Bench::well(0, Bench::lease(7, 0, 1)));
  bench.give(Bench::without_result(1));
  bench.turn();
  ASSERT_EQ(bench.sent<wire::Results>().size(), 1U);
  EXPECT_EQ(bench.last<wire::Results>()->done.size(), 1U);
  EXPECT_EQ(bench.returned(), 1U);
}

// ---- results

TEST(AgentMachine, JournalsResultsBeforeItSendsThem) {
  Bench bench;
  bench.join();
  bench.run_tasks(20);
  bench.actions.clear();
  bench.give(Bench::well(0, Bench::lease(7, 0, 1)));
  ASSERT_EQ(bench.actions.size(), 1U);
  ASSERT_EQ(bench.all<action::AppendJournal>().size(), 1U);
  EXPECT_EQ(bench.all<action::AppendJournal>()[0].record.sequence, 1U);
  EXPECT_EQ(bench.machine.open_sequence(), 1U);
  bench.turn();
  EXPECT_EQ(bench.sent<wire::Results>().size(), 1U);
  EXPECT_EQ(bench.machine.open_sequence(), 2U);
  // While there is more to run, those that follow soon are gathered for a moment.
  bench.give(Bench::well(1, Bench::lease(7, 1, 1)));
  bench.turn();
  EXPECT_EQ(bench.sent<wire::Results>().size(), 1U);
  ASSERT_TRUE(bench.pass_until(1000.02));
  EXPECT_EQ(bench.sent<wire::Results>().size(), 2U);
  bench.hear(wire::Acknowledge{2});
  EXPECT_EQ(bench.all<action::ClearJournal>().size(), 1U);
}

TEST(AgentMachine, ResendsWhatIsNotAcknowledgedBeforeTheFirstHeartbeat) {
  Bench bench;
  bench.join();
  bench.run_tasks(20);
  for (specs::Element element = 0; element < 3; ++element) {
    bench.give(Bench::well(0, Bench::lease(7, element, 1)));
    bench.now_s += 0.02;
    bench.turn();
    bench.start_all();
  }
  bench.hear(wire::Acknowledge{1});
  // One has ended and is not sent yet: it is neither held nor unknown at the hand-over.
  bench.give(event::ConnectionLost{});
  bench.give(Bench::well(1, Bench::lease(7, 1, 1)));
  bench.actions.clear();
  bench.join(60, 2);
  std::vector<std::uint64_t> sequences;
  bool heartbeat = false;
  for (const auto& send : bench.all<action::Send>()) {
    if (const auto* results = std::get_if<wire::Results>(&send.message)) {
      EXPECT_FALSE(heartbeat);
      sequences.push_back(results->sequence);
    }
    heartbeat = heartbeat || std::holds_alternative<wire::Heartbeat>(send.message);
  }
  EXPECT_EQ(sequences, (std::vector<std::uint64_t>{2, 3, 4}));
  EXPECT_TRUE(heartbeat);
}

TEST(AgentMachine, TakesNoFurtherEndsWhileTheJournalIsFull) {
  Bench bench;
  bench.join();
  bench.run_tasks(1);
  event::TaskReports reports{0, {}};
  reports.events.resize(400'000);
  bench.give(std::move(reports));
  EXPECT_TRUE(bench.machine.journal_full());
  bench.turn();
  bench.take<action::FollowEvents>();
  ASSERT_TRUE(bench.pass_until(1002));
  EXPECT_TRUE(bench.all<action::FollowEvents>().empty());
  bench.hear(wire::Acknowledge{bench.last<wire::Results>()->sequence});
  EXPECT_FALSE(bench.machine.journal_full());
}

TEST(AgentMachine, SaysOnceThatTheJournalCannotBeWritten) {
  Bench bench;
  bench.join();
  bench.run_tasks(2);
  bench.give(event::JournalFailed{"No space left", {}});
  bench.give(event::JournalFailed{"No space left", {}});
  EXPECT_EQ(bench.errors(),
            std::vector<std::string>{"No space left; no task starts before its results can be kept"});
}

TEST(AgentMachine, WhatTheJournalDidNotTakeIsWrittenAgainBeforeAnythingStarts) {
  Bench bench;
  bench.join();
  bench.run_tasks(1);
  bench.give(Bench::well(0, Bench::lease(7, 0, 1)));
  auto written = bench.take<action::AppendJournal>();
  ASSERT_EQ(written.size(), 1U);
  bench.give(event::JournalFailed{"Input/output error", written[0].record});
  bench.hear(wire::Leases{{Bench::lease(8, 1, 1)}});
  bench.turn();
  EXPECT_TRUE(bench.all<action::StartTask>().empty());
  ASSERT_TRUE(bench.pass_until(bench.now_s + 1.5));
  written = bench.take<action::AppendJournal>();
  ASSERT_EQ(written.size(), 1U) << "again";
  EXPECT_EQ(written[0].record.done.size(), 1U);
  ASSERT_TRUE(bench.pass_until(bench.now_s + 0.1));
  EXPECT_EQ(bench.all<action::StartTask>().size(), 1U) << "the journal has it now";
}

TEST(AgentMachine, WhatTheCoordinatorHasNeedsNoJournal) {
  Bench bench;
  bench.join();
  bench.run_tasks(1);
  bench.give(Bench::well(0, Bench::lease(7, 0, 1)));
  bench.give(event::JournalFailed{"Input/output error", bench.take<action::AppendJournal>().at(0).record});
  bench.hear(wire::Leases{{Bench::lease(8, 1, 1)}});
  bench.turn();
  const auto* results = bench.last<wire::Results>();
  ASSERT_NE(results, nullptr);
  bench.hear(wire::Acknowledge{results->sequence});
  bench.turn();
  EXPECT_EQ(bench.all<action::StartTask>().size(), 1U);
}

TEST(AgentMachine, CompletesLeasesAsItsProgramSays) {
  AgentOptions options = Bench::options();
  options.complete = [](const wire::Lease& lease, double unix_s) {
    wire::Results results;
    results.done.push_back({lease.id, lease.array, lease.first, lease.count, lease.attempt, 0, 0, unix_s});
    return results;
  };
  Bench bench(options);
  bench.join();
  bench.hear(wire::Leases{{Bench::lease(7, 0, 1000)}});
  bench.turn();
  EXPECT_TRUE(bench.all<action::StartTask>().empty());
  EXPECT_TRUE(bench.all<action::AppendJournal>().empty());
  ASSERT_NE(bench.last<wire::Results>(), nullptr);
  EXPECT_EQ(bench.last<wire::Results>()->done.at(0).count, 1000U);
}

// ---- ends

TEST(AgentMachine, EndsAfterSoLongWithoutWork) {
  AgentOptions options = Bench::options();
  options.idle_timeout_s = 10;
  Bench bench(options);
  bench.join();
  while (bench.now_s < 1009.9 && bench.all<action::Exit>().empty()) {
    ASSERT_TRUE(bench.pass_until(std::min(1009.9, bench.now_s + 1)));
    bench.answer();
  }
  EXPECT_TRUE(bench.all<action::Exit>().empty());
  ASSERT_TRUE(bench.pass_until(1010));
  ASSERT_EQ(bench.all<action::Exit>().size(), 1U);
  EXPECT_EQ(bench.all<action::Exit>()[0].code, 0);
}

TEST(AgentMachine, EndsAfterSoLongWithoutACoordinator) {
  AgentOptions options = Bench::options();
  options.linger_s = 100;
  Bench bench(options);
  bench.join(60);
  bench.run_tasks(5);
  bench.give(event::ConnectionLost{});
  ASSERT_TRUE(bench.pass_until(1061));  // at the fence the queue is given up
  bench.give(Bench::without_result(0));
  bench.give(Bench::without_result(1));
  ASSERT_TRUE(bench.pass_until(1099.9));
  EXPECT_TRUE(bench.all<action::Exit>().empty());
  ASSERT_TRUE(bench.pass_until(1100));
  ASSERT_EQ(bench.all<action::Exit>().size(), 1U);
  EXPECT_EQ(bench.all<action::Exit>()[0].code, code(ExitCode::system));
}

TEST(AgentMachine, EndsSoonWhereItsCoordinatorIsGoneBeforeItLetItIn) {
  AgentOptions options = Bench::options();
  options.linger_s = 300;
  options.started_by = 2;
  Bench orphan(options);
  const double start_s = orphan.now_s;
  orphan.give(event::EndpointRead{CoordinatorAddress{"ipc://x", "", "h", 1, 2}});
  orphan.give(event::ConnectionLost{});
  ASSERT_TRUE(orphan.pass_until(start_s + 14));
  EXPECT_TRUE(orphan.all<action::Exit>().empty());
  ASSERT_TRUE(orphan.pass_until(start_s + 16));
  EXPECT_EQ(orphan.all<action::Exit>().size(), 1U);

  Bench waiting(options);  // the coordinator is there, and silent: frozen, or busy
  waiting.give(event::EndpointRead{CoordinatorAddress{"ipc://x", "", "h", 1, 2}});
  waiting.give(event::Connected{});
  ASSERT_TRUE(waiting.pass_until(start_s + 290));
  EXPECT_TRUE(waiting.all<action::Exit>().empty());

  options.started_by = 0;  // by hand: for a coordinator that may come later
  Bench by_hand(options);
  ASSERT_TRUE(by_hand.pass_until(start_s + 290));
  EXPECT_TRUE(by_hand.all<action::Exit>().empty());
}

TEST(AgentMachine, ASignalEndsWhatRunsAndGivesItBack) {
  Bench bench;
  bench.join();
  bench.run_tasks(10);
  bench.give(event::Terminate{});
  bench.turn();
  EXPECT_EQ(bench.returned(), 8U);
  ASSERT_EQ(bench.all<action::EndTask>().size(), 2U);
  EXPECT_FALSE(bench.all<action::EndTask>()[0].kill);
  EXPECT_EQ(bench.all<action::EndTask>()[0].cause, EndCause::returned);
  // A task that is being ended still counts as held: it may still act.
  bench.hear(wire::Identify{});
  EXPECT_EQ(bench.last<wire::Hello>()->held.size(), 2U);
  bench.hear(wire::Welcome{"/c", {}, 1, 60});
  bench.give(Bench::without_result(0));
  ASSERT_TRUE(bench.pass_until(1005));
  EXPECT_EQ(bench.all<action::EndTask>().size(), 3U);  // after the grace
  bench.give(Bench::without_result(1));
  bench.turn();
  EXPECT_EQ(bench.returned(), 10U);
  ASSERT_EQ(bench.all<action::Exit>().size(), 1U);
  EXPECT_EQ(bench.all<action::Exit>()[0].code, 0);
}

// Samples that a bundle's process has reported before are done.
TEST(AgentMachine, WhatAnEndedTaskHasReportedIsKeptAndTheRestGivenBack) {
  Bench bench;
  bench.join();
  specs::TaskTemplate task;
  task.array = 1;
  task.bundle = 10;
  bench.hear(wire::Templates{{task}});
  bench.run_tasks(10);
  bench.give(event::Terminate{});
  event::TaskEnded ended = Bench::well(0, Bench::lease(7, 2, 3));
  ended.results.outcomes.push_back({7, 1, 6, 0, wire::EndReason::exited, 1, 0, 0, ""});
  bench.give(std::move(ended));
  bench.turn();
  EXPECT_EQ(bench.sent<wire::Results>().size(), 1U);
  std::vector<std::pair<wire::Element, std::uint64_t>> parts;
  for (const auto& returned : bench.sent<wire::Returned>()) {
    for (const wire::Lease& lease : returned.leases) parts.emplace_back(lease.first, lease.count);
  }
  EXPECT_EQ(parts, (std::vector<std::pair<wire::Element, std::uint64_t>>{{0, 2}, {5, 1}, {7, 3}}));
}

// A task that hangs in the kernel may go on: with a Goodbye its elements would be leased again at once.
TEST(AgentMachine, SaysNoGoodbyeWhileATaskDoesNotEnd) {
  Bench bench;
  bench.join();
  bench.run_tasks(2);
  bench.give(event::CampaignGone{});
  bench.give(Bench::without_result(0));
  ASSERT_TRUE(bench.pass_until(1010));
  EXPECT_EQ(bench.all<action::Exit>().size(), 1U);
  EXPECT_TRUE(bench.sent<wire::Goodbye>().empty());
}

// The coordinator of another host reads it as soon as it hears the Goodbye.
TEST(AgentMachine, SyncsTheJournalBeforeAGoodbyeWithoutAcknowledgement) {
  Bench bench;
  bench.join();
  bench.run_tasks(1);
  bench.hear(wire::Drain{});
  bench.give(Bench::well(0, Bench::lease(7, 0, 1)));
  ASSERT_TRUE(bench.pass_until(1003));
  std::vector<std::string> order;
  for (const AgentAction& action : bench.actions) {
    if (std::holds_alternative<action::SyncJournal>(action)) order.emplace_back("sync");
    const auto* send = std::get_if<action::Send>(&action);
    if (send != nullptr && std::holds_alternative<wire::Goodbye>(send->message))
      order.emplace_back("goodbye");
  }
  EXPECT_EQ(order, (std::vector<std::string>{"sync", "goodbye"}));
}

TEST(AgentMachine, WithoutItsGuardianItTakesWhatHasEndedAndEnds) {
  Bench bench;
  bench.join();
  bench.run_tasks(2);
  bench.give(event::GuardianGone{});
  ASSERT_EQ(bench.all<action::EndTask>().size(), 2U);
  EXPECT_TRUE(bench.all<action::EndTask>()[0].kill);
  EXPECT_TRUE(bench.all<action::Exit>().empty());
  bench.give(Bench::well(0, Bench::lease(7, 0, 1)));
  EXPECT_EQ(bench.all<action::AppendJournal>().size(), 1U);
  bench.give(Bench::without_result(1));
  ASSERT_TRUE(bench.pass_until(bench.now_s));
  ASSERT_EQ(bench.all<action::Exit>().size(), 1U);
  EXPECT_EQ(bench.all<action::Exit>()[0].code, code(ExitCode::internal));
  EXPECT_EQ(bench.sent<wire::Results>().size(), 1U);
}

TEST(AgentMachine, DoesNotWaitForEverForAProcessThatHangs) {
  Bench bench;
  bench.join();
  bench.run_tasks(2);
  bench.give(event::GuardianGone{});
  ASSERT_TRUE(bench.pass_until(1002.9));
  EXPECT_TRUE(bench.all<action::Exit>().empty());
  ASSERT_TRUE(bench.pass_until(1003));
  EXPECT_EQ(bench.all<action::Exit>().size(), 1U);
}

TEST(AgentMachine, EndsWithASentenceWhenRefusedOrWithoutItsCampaign) {
  Bench refused;
  refused.join();
  refused.hear(wire::Refuse{"of another version"});
  ASSERT_TRUE(refused.pass_until(1000));
  ASSERT_EQ(refused.all<action::Exit>().size(), 1U);
  EXPECT_EQ(refused.all<action::Exit>()[0].code, code(ExitCode::usage));
  ASSERT_EQ(refused.errors().size(), 1U);
  EXPECT_NE(refused.errors()[0].find("of another version"), std::string::npos);

  Bench gone;
  gone.join();
  gone.give(event::CampaignGone{});
  ASSERT_TRUE(gone.pass_until(1000));
  ASSERT_EQ(gone.all<action::Exit>().size(), 1U);
  EXPECT_EQ(gone.all<action::Exit>()[0].code, code(ExitCode::system));

  Bench no_samples;
  no_samples.join();
  no_samples.give(event::SamplesOpened{"no file x.csv"});
  ASSERT_TRUE(no_samples.pass_until(1000));
  ASSERT_EQ(no_samples.all<action::Exit>().size(), 1U);
  EXPECT_EQ(no_samples.all<action::Exit>()[0].code, code(ExitCode::data));
}

// Nonsense from a coordinator does no harm.
TEST(AgentMachine, TakesSensibleValuesForWhatIsNone) {
  Bench bench;
  bench.give(event::EndpointRead{CoordinatorAddress{"ipc://x", "", "h", 1, 1}});
  bench.give(event::Connected{});
  bench.hear(wire::Welcome{"/c", {}, std::nan(""), -1});
  EXPECT_DOUBLE_EQ(bench.all<action::SetFence>().back().steady_s, 1060);
  ASSERT_TRUE(bench.pass_until(1003));
  EXPECT_EQ(bench.sent<wire::Heartbeat>().size(), 4U);
}

// ---- what is logged at the level `trace`

TEST(AgentMachine, TracesEachEventAndEachAction) {
  AgentOptions options = Bench::options();
  options.trace = true;
  Bench bench(options);
  bench.join();
  bench.run_tasks(1);
  std::vector<std::string> traced;
  for (const auto& line : bench.all<action::Log>()) {
    if (line.level == LogLevel::trace) traced.push_back(line.text);
  }
  const auto place = [&](const std::string& text) {
    return std::find(traced.begin(), traced.end(), text) - traced.begin();
  };
  EXPECT_LT(place("event: connected"), place("event: Welcome: heartbeat every 1 s, fence after 60 s"));
  EXPECT_LT(place("event: Leases: lease 7: 0 of array 1 attempt 0"),
            place("action: slot 0: start lease 7: 0 of array 1 attempt 0"));
  EXPECT_LT(place("action: slot 0: start lease 7: 0 of array 1 attempt 0"), place("event: slot 0: started"));
  EXPECT_LT(place("event: slot 0: started"), std::ssize(traced));
}

TEST(AgentMachine, MakesNoTraceWhereNobodyReadsIt) {
  Bench bench;
  bench.join();
  for (const auto& line : bench.all<action::Log>()) EXPECT_NE(line.level, LogLevel::trace);
}

}  // namespace
}  // namespace wflow::workers
