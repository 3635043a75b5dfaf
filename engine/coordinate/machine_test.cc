// SPDX-License-Identifier: Apache-2.0
// The coordinator machine's time-outs, each by its name in timing.h, and how workers come and go.
#include "engine/coordinate/machine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/coordinate/test_machine.h"

namespace wflow::engine {
namespace {

constexpr int kKill = 9, kCont = 18;
const TestWorker kHere{"w-here", "here", 100};
const TestWorker kThere{"w-there", "there", 200};
const TestWorker kOther{"w-other", "other", 300};

// ---- time-outs

TEST(Timing, PulsesGoOutAndAnswerHeartbeatsAtOnce) {
  TestEdge edge;
  edge.start();
  edge.join(kThere);
  ASSERT_EQ(edge.sent<wire::Pulse>(kThere.id).size(), 1U);
  EXPECT_EQ(edge.sent<wire::Pulse>(kThere.id).back().heartbeat, 1U);
  edge.pass(3 * edge.options.timing.pulse_s);
  EXPECT_EQ(edge.sent<wire::Pulse>(kThere.id).size(), 4U);
  EXPECT_EQ(edge.sent<wire::Pulse>(kThere.id).back().heartbeat, 1U);
}

TEST(Timing, WelcomeSaysHeartbeatAndFence) {
  TestEdge edge;
  edge.options.timing.heartbeat_s = 2;
  edge.start();
  edge.join(kThere);
  edge.join(kHere);
  EXPECT_EQ(edge.sent<wire::Welcome>(kThere.id).at(0).heartbeat_s, 2);
  EXPECT_EQ(edge.sent<wire::Welcome>(kThere.id).at(0).lost_s, edge.options.timing.lost_s);
  EXPECT_EQ(edge.sent<wire::Welcome>(kHere.id).at(0).lost_s, edge.options.timing.lost_here_s);
  EXPECT_EQ(edge.batches.at(1).workers_joined.at(0).lost_s, edge.options.timing.lost_s);
}

TEST(Timing, ASilentWorkerElsewhereIsLostAfterFenceAndMargin) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kThere);
  ASSERT_EQ(edge.leases(kThere.id).size(), 1U);
  const Timing& timing = edge.options.timing;
  edge.pass(timing.lost_s + timing.margin_s - 1);
  EXPECT_TRUE(edge.reads.empty());
  edge.join(kOther);
  EXPECT_TRUE(edge.leases(kOther.id).empty());
  for (int i = 0; i < 4; ++i) {
    edge.pass(1);
    edge.beat(kOther.id);
  }
  ASSERT_EQ(edge.reads.size(), 1U);
  EXPECT_EQ(edge.reads[0].worker, kThere.id);
  EXPECT_FALSE(edge.reads[0].here);
  EXPECT_TRUE(edge.leases(kOther.id).empty()) << "its journal is not read yet";
  edge.handle(event::JournalRead{kThere.id, {}, {}});
  ASSERT_EQ(edge.leases(kOther.id).size(), 1U);
  EXPECT_TRUE(edge.removed.empty()) << "it may live, and write";
}

TEST(Timing, OwnPausesAreNoSilenceOfWorkers) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kThere);
  edge.now.steady_s += 1000;  // frozen, heartbeats wait unread
  edge.handle(event::Time{});
  edge.beat(kThere.id);
  edge.pass(5);
  EXPECT_TRUE(edge.reads.empty());
  EXPECT_FALSE(edge.has_history("lost"));
}

TEST(Timing, AWorkerHereIsJudgedByItsProcessesOnly) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kHere);
  EXPECT_EQ(edge.watched, (std::vector{kHere.guardian(), kHere.agent()}));
  edge.pass(2 * edge.options.timing.lost_here_s);
  EXPECT_TRUE(edge.reads.empty());
  EXPECT_TRUE(edge.kills.empty());
}

TEST(Timing, AWorkerThatDoesNotReturnIsEnded) {
  TestEdge edge("", 1);
  edge.known = {kHere.known()};
  edge.start();
  edge.join(kOther);
  const Timing& timing = edge.options.timing;
  edge.pass(timing.return_s - 1);
  EXPECT_TRUE(edge.kills.empty());
  edge.pass(2);
  EXPECT_TRUE(edge.killed(kHere.guardian(), kKill));
  EXPECT_FALSE(edge.killed(kHere.agent(), kKill));
  edge.end_process(kHere.guardian());
  EXPECT_TRUE(edge.killed(kHere.agent(), kCont)) << "it may be frozen";
  edge.pass(timing.end_agent_s - 1);
  EXPECT_FALSE(edge.killed(kHere.agent(), kKill));
  edge.pass(2);
  EXPECT_TRUE(edge.killed(kHere.agent(), kKill));
  EXPECT_TRUE(edge.reads.empty()) << "its agent still holds the journal";
  edge.end_process(kHere.agent());
  ASSERT_EQ(edge.reads.size(), 1U);
  EXPECT_TRUE(edge.leases(kOther.id).empty());
  edge.handle(event::JournalRead{kHere.id, {}, {}});
  EXPECT_EQ(edge.leases(kOther.id).size(), 1U);
  EXPECT_EQ(edge.removed, std::vector<std::string>{kHere.id});
}

TEST(Timing, AHandOverThatDoesNotEndIsEnded) {
  TestEdge edge("", 1);
  edge.known = {kHere.known()};
  edge.start();
  edge.say("p", edge.hello(kHere));
  edge.pass(edge.options.timing.hand_over_s - 1);
  EXPECT_TRUE(edge.kills.empty());
  EXPECT_TRUE(edge.leases("p").empty());
  edge.pass(2);
  EXPECT_TRUE(edge.killed(kHere.guardian(), kKill));
}

TEST(Timing, AStepWithoutAWorkerIsReported) {
  TestEdge edge;
  edge.start();
  edge.pass(edge.options.timing.unserved_s - 0.5);
  EXPECT_FALSE(edge.has_history("serves the step"));
  edge.pass(edge.options.timing.pulse_s + 1);
  EXPECT_TRUE(edge.has_history("no worker serves the step 'simulate'"));
}

TEST(Timing, WorkersThatDoNotEndAreKilledAtTheEnd) {
  TestEdge edge("", 1);
  edge.options.local_groups = {{"default", 1}};
  edge.start();
  edge.handle(event::WorkerStarted{"default", kHere.guardian()});
  edge.join(kHere);
  edge.say(kHere.id, TestEdge::success(edge.leases(kHere.id).at(0)));
  EXPECT_EQ(edge.machine().phase(), Phase::dismissing);
  EXPECT_EQ(edge.sent<wire::Drain>(kHere.id).size(), 1U);
  edge.pass(edge.options.timing.dismiss_s - 1);
  EXPECT_TRUE(edge.kills.empty());
  edge.pass(2);
  EXPECT_TRUE(edge.killed(kHere.guardian(), kKill));
  edge.end_worker(kHere);
  edge.handle(event::JournalRead{kHere.id, {}, {}});
  EXPECT_TRUE(edge.machine().ended());
  EXPECT_TRUE(edge.machine().campaign_over());
  EXPECT_EQ(edge.removed, std::vector<std::string>{kHere.id});
}

TEST(Timing, TheEndDoesNotWaitForProcessesThatNothingEnds) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kHere);
  edge.say(kHere.id, TestEdge::success(edge.leases(kHere.id).at(0)));
  const Timing& timing = edge.options.timing;
  edge.pass(timing.dismiss_s + 4 * timing.end_agent_s + 2);
  EXPECT_TRUE(edge.machine().ended());
}

TEST(Timing, TheTimeLimitDrains) {
  TestEdge edge;
  edge.options.time_limit_s = 100;
  edge.start();
  edge.join(kHere);
  edge.pass(99);
  EXPECT_EQ(edge.machine().phase(), Phase::running);
  edge.pass(2);
  EXPECT_EQ(edge.machine().phase(), Phase::draining);
  EXPECT_EQ(edge.sent<wire::Drain>(kHere.id).size(), 1U);
  EXPECT_TRUE(edge.machine().asked_to_end());
}

TEST(Timing, StoppingIsGivenUpWhenWorkersDoNotAnswer) {
  TestEdge edge;
  edge.start();
  edge.join(kThere);
  ASSERT_FALSE(edge.leases(kThere.id).empty());
  edge.handle(event::Signal{event::SignalKind::terminate});
  EXPECT_EQ(edge.machine().phase(), Phase::stopping);
  const auto revokes = edge.sent<wire::Revoke>(kThere.id);
  ASSERT_EQ(revokes.size(), 1U);
  EXPECT_TRUE(revokes[0].all && revokes[0].kill_running);
  edge.pass(edge.options.timing.dismiss_s + 1);
  EXPECT_TRUE(edge.machine().ended());
  EXPECT_FALSE(edge.machine().campaign_over());
  EXPECT_TRUE(edge.has_history("continue with: wflow resume"));
}

// ---- durability

TEST(Durability, AcknowledgesAfterTheCommit) {
  TestEdge edge("", 2);
  edge.start();
  edge.join(kThere);
  edge.hold_commits = true;
  edge.say(kThere.id, TestEdge::success(edge.leases(kThere.id).at(0), 7));
  ASSERT_TRUE(edge.committing);
  EXPECT_TRUE(edge.sent<wire::Acknowledge>(kThere.id).empty());
  // Told twice: nothing new to commit, and still not before the first is on disk.
  edge.say(kThere.id, TestEdge::success(edge.leases(kThere.id).at(0), 7));
  EXPECT_TRUE(edge.sent<wire::Acknowledge>(kThere.id).empty());
  edge.finish_commit();
  ASSERT_FALSE(edge.sent<wire::Acknowledge>(kThere.id).empty());
  EXPECT_EQ(edge.sent<wire::Acknowledge>(kThere.id).back().sequence, 7U);
}

TEST(Durability, NoLeaseBeforeTheWorkersRow) {
  TestEdge edge;
  edge.start();
  edge.hold_commits = true;
  edge.join(kThere);
  ASSERT_TRUE(edge.committing);
  EXPECT_EQ(edge.batches.back().workers_joined.at(0).id, kThere.id);
  edge.pass(2);
  EXPECT_TRUE(edge.leases(kThere.id).empty());
  edge.finish_commit();
  EXPECT_FALSE(edge.leases(kThere.id).empty());
}

// tests/simulation, seed 1694: it had given up its search for a coordinator.
TEST(Durability, AGoodbyeFreesLeasesWhenTheJournalIsRead) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kThere);
  const wire::Lease lease = edge.leases(kThere.id).at(0);
  edge.say(kThere.id, wire::Goodbye{"no coordinator for 300 s"});
  edge.join(kOther);
  ASSERT_EQ(edge.reads.size(), 1U);
  EXPECT_TRUE(edge.leases(kOther.id).empty()) << "its journal may have the result";
  edge.handle(event::JournalRead{kThere.id, {TestEdge::success(lease)}, {}});
  EXPECT_EQ(edge.count(ElementState::done), 1U);
  EXPECT_TRUE(edge.leases(kOther.id).empty());
}

// tests/simulation, seed 17: successes of elements whose input is not known yet are in memory alone.
TEST(Durability, NothingIsAcknowledgedOrRemovedDuringRecovery) {
  TestEdge edge;
  edge.known = {kThere.known(), {"dead", "", {}, {}, 0, true, false, false}};
  edge.start();
  const LeaseId earlier = (LeaseId{1} << 40) - 5;
  edge.handle(event::JournalRead{"dead", {TestEdge::success({earlier, 0, 0, 1})}, {}});
  edge.say(kThere.id, edge.hello(kThere));
  edge.say(kThere.id, TestEdge::success({earlier, 1, 0, 1}));
  EXPECT_EQ(edge.count(ElementState::done), 2U);
  EXPECT_TRUE(edge.sent<wire::Acknowledge>(kThere.id).empty());
  EXPECT_TRUE(edge.removed.empty());
  edge.beat(kThere.id);
  EXPECT_EQ(edge.sent<wire::Acknowledge>(kThere.id).size(), 1U);
  EXPECT_EQ(edge.removed, std::vector<std::string>{"dead"});
}

TEST(Durability, AWorkerThatComesBackAtOnceKeepsItsRow) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kThere);
  edge.hold_commits = true;
  edge.handle(event::Signal{event::SignalKind::hangup});  // any commit under way
  edge.say(kThere.id, wire::Goodbye{"restarted"});
  edge.handle(event::JournalRead{kThere.id, {}, {}});
  edge.say("again", edge.hello(kThere));
  edge.finish_commit();
  ASSERT_EQ(edge.batches.back().workers_joined.size(), 1U);
  EXPECT_TRUE(edge.batches.back().workers_ended.empty());
  edge.finish_commit();
  EXPECT_EQ(edge.leases("again").size(), 1U);
}

// ---- earlier coordinators

TEST(Recovery, AWorkerElsewhereIsAwaitedUntilItsFence) {
  TestEdge edge("", 1);
  edge.known = {kThere.known()};
  edge.start();
  edge.join(kHere);
  const double fence_s = edge.known[0].lost_s + edge.options.timing.margin_s;
  edge.pass(fence_s - 1);
  EXPECT_TRUE(edge.leases(kHere.id).empty());
  EXPECT_TRUE(edge.kills.empty()) << "its pid means another process here";
  edge.pass(2);
  ASSERT_EQ(edge.reads.size(), 1U);
  EXPECT_TRUE(edge.leases(kHere.id).empty());
  edge.handle(event::JournalRead{kThere.id, {TestEdge::success({1, 0, 0, 1, 0, false, 0})}, {}});
  EXPECT_EQ(edge.count(ElementState::done), 1U) << "it had finished the task";
  EXPECT_TRUE(edge.leases(kHere.id).empty());
  EXPECT_TRUE(edge.removed.empty());
}

TEST(Recovery, AWorkerElsewhereThatSaidItsEndIsNotAwaited) {
  const TestWorker before{"before", "elsewhere"};
  TestEdge edge;
  edge.known = {before.known()};
  edge.known[0].ended = true;
  edge.start();
  ASSERT_EQ(edge.reads.size(), 1U) << "at once, not after its fence";
  edge.handle(event::JournalRead{before.id, {}, {}});
  EXPECT_EQ(edge.removed, std::vector<std::string>{before.id});
  edge.join(kHere);
  EXPECT_FALSE(edge.leases(kHere.id).empty());
}

TEST(Recovery, BeforeAReboot) {
  TestEdge edge("", 1);
  TestWorker before = kHere;
  edge.known = {before.known()};
  edge.known[0].guardian.boot = edge.known[0].agent.boot = "an earlier boot";
  edge.start();
  ASSERT_EQ(edge.reads.size(), 1U);
  EXPECT_FALSE(edge.reads[0].here);
  EXPECT_TRUE(edge.watched.empty()) << "its pids mean other processes";
  edge.handle(event::JournalRead{before.id, {}, {}});
  edge.pass(40);
  EXPECT_TRUE(edge.kills.empty());
  EXPECT_EQ(edge.removed, std::vector<std::string>{before.id});
}

TEST(Recovery, JournalsWithoutARow) {
  TestEdge edge("", 2);
  KnownWorker lives{"lives", "", {}, {}, 0, true, true, false};
  KnownWorker empty{"empty", "", {}, {}, 0, true, false, false};
  KnownWorker full{"full", "", {}, {}, 0, true, false, false};
  edge.known = {lives, empty, full};
  edge.start();
  ASSERT_EQ(edge.reads.size(), 2U);
  edge.join(kHere);
  EXPECT_TRUE(edge.leases(kHere.id).empty());
  edge.handle(event::JournalRead{"empty", {}, {}});
  edge.handle(event::JournalRead{"full", {TestEdge::success({1, 0, 0, 1, 0, false, 0})}, "a record is cut"});
  EXPECT_EQ(edge.removed, std::vector<std::string>{"full"}) << "an empty one may be of a worker that starts";
  EXPECT_EQ(edge.count(ElementState::done), 1U);
  EXPECT_EQ(edge.leases(kHere.id).size(), 1U);
  EXPECT_TRUE(edge.has_history("worker full: a record is cut"));
}

TEST(Recovery, AReturningWorkerKeepsWhatItHolds) {
  TestEdge edge("", 2);
  edge.known = {kThere.known()};
  edge.start();
  const wire::Lease held{(1ULL << 39U), 0, 0, 1, 0, false, 0};
  edge.join(kHere);
  edge.say("p", edge.hello(kThere, {held}));
  EXPECT_TRUE(edge.has_history("came back from an earlier coordinator"));
  EXPECT_TRUE(edge.leases(kHere.id).empty()) << "what it has finished meanwhile comes before its heartbeat";
  edge.beat("p");
  ASSERT_EQ(edge.leases(kHere.id).size(), 1U);
  EXPECT_EQ(edge.leases(kHere.id)[0].array, 1U);
  EXPECT_TRUE(edge.sent<wire::Revoke>("p").empty());
}

TEST(Recovery, MessagesBetweenHelloAndRowKeepTheirOrder) {
  TestEdge edge("", 2);
  edge.known = {kThere.known()};
  edge.start();
  edge.hold_commits = true;
  const wire::Lease held{(1ULL << 39U), 0, 0, 1, 0, false, 0};
  edge.say("p", edge.hello(kThere, {held}));
  edge.say("p", TestEdge::success(held, 4));
  edge.beat("p");
  EXPECT_EQ(edge.sent<wire::Pulse>("p").size(), 1U) << "its fence must move all the same";
  EXPECT_EQ(edge.count(ElementState::done), 0U);
  edge.finish_commit();
  EXPECT_EQ(edge.count(ElementState::done), 1U);
  ASSERT_EQ(edge.leases("p").size(), 1U);
  EXPECT_EQ(edge.leases("p")[0].array, 1U);
}

// ---- local workers

TEST(LocalWorkers, TheJournalIsReadWhenBothProcessesHaveEnded) {
  TestEdge edge("", 1);
  edge.options.local_groups = {{"default", 1}};
  edge.start();
  ASSERT_EQ(edge.starts.size(), 1U);
  edge.handle(event::WorkerStarted{"default", kHere.guardian()});
  edge.join(kHere);
  const wire::Lease lease = edge.leases(kHere.id).at(0);
  edge.end_process(kHere.guardian());
  EXPECT_TRUE(edge.reads.empty());
  EXPECT_EQ(edge.starts.size(), 1U) << "its agent may still run tasks";
  edge.end_process(kHere.agent());
  ASSERT_EQ(edge.reads.size(), 1U);
  EXPECT_TRUE(edge.reads[0].here);
  edge.handle(event::JournalRead{kHere.id, {TestEdge::success(lease)}, {}});
  EXPECT_EQ(edge.count(ElementState::done), 1U);
  EXPECT_TRUE(edge.machine().ended());
}

TEST(LocalWorkers, AGuardianThatOutlivesItsAgentIsEnded) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kHere);
  edge.end_process(kHere.agent());
  EXPECT_TRUE(edge.killed(kHere.guardian(), kCont));
  EXPECT_TRUE(edge.reads.empty());
  edge.pass(edge.options.timing.dismiss_s + 1);
  EXPECT_TRUE(edge.killed(kHere.guardian(), kKill));
}

TEST(LocalWorkers, AreStartedOnlyOnceRecoveryIsOver) {
  TestEdge edge;
  edge.options.local_groups = {{"default", 1}};
  edge.known = {kHere.known()};
  edge.start();
  EXPECT_TRUE(edge.starts.empty());
  edge.join(kHere);
  EXPECT_TRUE(edge.starts.empty()) << "the group has its worker";
}

TEST(LocalWorkers, ThatEndAtOnceEndTheCampaign) {
  TestEdge edge;
  edge.options.local_groups = {{"default", 1}};
  edge.start();
  constexpr int kStarts = 5;
  for (int i = 0; i < kStarts; ++i) {
    ASSERT_TRUE(edge.fails.empty());
    const TestWorker worker{"w" + std::to_string(i), "here", 100 + 10 * i};
    edge.handle(event::WorkerStarted{"default", worker.guardian()});
    edge.end_process(worker.guardian());
  }
  ASSERT_EQ(edge.fails.size(), 1U);
  EXPECT_EQ(edge.fails[0].code, ExitCode::system);
  EXPECT_EQ(edge.starts.size(), std::size_t{kStarts});
}

TEST(LocalWorkers, OneOfADeadCoordinatorIsRefusedBesideItsReplacement) {
  TestEdge edge;
  edge.options.epoch = 2;
  edge.options.local_groups = {{"default", 1}};
  edge.start();
  TestWorker old = kHere;
  old.started_by = 1;
  edge.say("old", edge.hello(old));
  EXPECT_EQ(edge.sent<wire::Refuse>("old").size(), 1U) << "its replacement is being started";
  const wire::Lease held{(1ULL << 39U), 0, 0, 1, 0, false, 0};
  edge.say("holds", edge.hello(old, {held}));
  EXPECT_TRUE(edge.sent<wire::Refuse>("holds").empty());
  EXPECT_EQ(edge.sent<wire::Drain>("holds").size(), 1U);
  EXPECT_TRUE(edge.leases("holds").empty());
}

TEST(LocalWorkers, OneOfADeadCoordinatorTakesAnEmptyPlace) {
  TestEdge edge;
  edge.options.epoch = 2;
  edge.options.local_groups = {{"default", 1}};
  edge.known = {kHere.known()};
  edge.start();
  TestWorker old = kHere;
  old.started_by = 1;
  edge.join(old);
  EXPECT_TRUE(edge.sent<wire::Refuse>(old.id).empty());
  EXPECT_FALSE(edge.leases(old.id).empty());
  EXPECT_TRUE(edge.starts.empty());
}

// ---- the disk

TEST(Disk, WhileACommitWaitsNothingIsLeasedAndNothingAcknowledged) {
  TestEdge edge("", 100);
  edge.start();
  edge.join(kHere);
  ASSERT_FALSE(edge.leases(kHere.id).empty());
  edge.hold_commits = true;
  edge.say(kHere.id, TestEdge::success(edge.leases(kHere.id)[0]));
  ASSERT_TRUE(edge.committing);
  const std::size_t leased = edge.leases(kHere.id).size();
  edge.handle(event::CommitWaits{"cannot write campaign.db: the disk is full"});
  EXPECT_EQ(edge.machine().disk_trouble(), "cannot write campaign.db: the disk is full");
  const auto all = edge.leases(kHere.id);
  for (std::size_t i = 1; i < all.size(); ++i) edge.say(kHere.id, TestEdge::success(all[i], i + 1));
  edge.pass(100);
  EXPECT_EQ(edge.leases(kHere.id).size(), leased);
  EXPECT_TRUE(edge.sent<wire::Acknowledge>(kHere.id).empty());
  EXPECT_TRUE(edge.fails.empty());
  edge.say("client", wire::Query{wire::StatusRequest{}});
  EXPECT_EQ(edge.questions.size(), 1U) << "it is answered all the same";
  edge.hold_commits = false;
  edge.finish_commit();
  EXPECT_TRUE(edge.machine().disk_trouble().empty());
  EXPECT_GT(edge.leases(kHere.id).size(), leased);
  EXPECT_FALSE(edge.sent<wire::Acknowledge>(kHere.id).empty());
  EXPECT_TRUE(edge.has_history("the campaign paused for 100 s: cannot write campaign.db: the disk is full"));
}

void expect_refused_once(const TestEdge& edge, const std::string& peer) {
  const auto answers = edge.sent<wire::Answer>(peer);
  ASSERT_EQ(answers.size(), 1U) << peer;
  EXPECT_EQ(std::get<wire::Refusal>(answers[0].body).code, ExitCode::system);
}

// They came after the commit had begun and before the disk was known to be broken.
TEST(Disk, WhoAskedBeforeTheTroubleIsAnswered) {
  TestEdge edge("", 2);
  edge.start();
  edge.join(kHere);
  edge.hold_commits = true;
  edge.handle(event::Signal{event::SignalKind::hangup});
  edge.say("in this commit", wire::Query{wire::StatusRequest{}});
  edge.say(kHere.id, TestEdge::success(edge.leases(kHere.id).at(0)));
  edge.say("in the next", wire::Query{wire::StatusRequest{}});
  edge.say("of tasks", wire::Query{wire::TasksRequest{}});
  edge.say("of a retry", wire::Query{wire::RetryRequest{}});
  ASSERT_TRUE(edge.questions.empty());
  edge.handle(event::CommitWaits{"cannot write campaign.db: the disk is full"});
  EXPECT_EQ(edge.questions.size(), 2U);
  for (const char* peer : {"of tasks", "of a retry"}) expect_refused_once(edge, peer);
  edge.hold_commits = false;
  edge.finish_commit();
  EXPECT_EQ(edge.questions.size(), 2U) << "once each";
  EXPECT_TRUE(edge.retries.empty());
}

TEST(Disk, ARequestThatIsNotRecordedIsNotConfirmed) {
  TestEdge edge("", 2);
  edge.start();
  edge.hold_commits = true;
  wire::CancelRequest cancel;
  cancel.tasks.step = "simulate";
  edge.say("before", wire::Query{cancel});
  ASSERT_TRUE(edge.committing);
  EXPECT_EQ(edge.count(ElementState::cancelled), 2U);
  EXPECT_TRUE(edge.sent<wire::Answer>("before").empty());
  edge.handle(event::CommitWaits{"cannot write campaign.db: the disk is full"});
  edge.say("after", wire::Query{cancel});
  for (const char* peer : {"before", "after"}) expect_refused_once(edge, peer);
  edge.hold_commits = false;
  edge.finish_commit();
  EXPECT_EQ(edge.sent<wire::Answer>("before").size(), 1U);
}

TEST(Disk, WhoAsksForTheEndIsNotKeptWaiting) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kHere);
  edge.hold_commits = true;
  edge.say(kHere.id, TestEdge::success(edge.leases(kHere.id).at(0)));
  edge.handle(event::CommitWaits{"cannot write campaign.db: the disk is full"});
  edge.pass(60);
  EXPECT_TRUE(edge.fails.empty()) << "all is done, and can't be recorded yet";
  edge.handle(event::Signal{event::SignalKind::terminate});
  edge.end_worker(kHere);
  edge.handle(event::JournalRead{kHere.id, {}, {}});
  edge.pass(120);
  ASSERT_EQ(edge.fails.size(), 1U);
  EXPECT_EQ(edge.fails[0].code, ExitCode::system);
}

TEST(LocalWorkers, ALossChargesWhatRan) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kHere);
  const wire::Lease lease = edge.leases(kHere.id).at(0);
  edge.beat(kHere.id, {{lease.array, lease.first, 1}});
  edge.end_worker(kHere);
  edge.handle(event::JournalRead{kHere.id, {}, {}});
  ASSERT_EQ(edge.batches.back().failures.size(), 1U);
  EXPECT_EQ(edge.batches.back().failures[0].outcome.reason, wire::EndReason::worker_lost);
  EXPECT_FALSE(edge.batches.back().failures[0].final);
}

}  // namespace
}  // namespace wflow::engine
