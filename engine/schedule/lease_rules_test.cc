// SPDX-License-Identifier: Apache-2.0
// Which results count, and what a worker keeps when it joins: one test a rule.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "engine/schedule/scheduler.h"

namespace wflow::engine {
namespace {

using specs::EdgeKind;

constexpr LeaseId kFirstLease = (LeaseId{1} << 40) + 1;  // epoch 1

ArraySpec array_of(std::uint64_t count, std::vector<specs::Edge> edges = {}) {
  ArraySpec spec;
  spec.count = count;
  spec.edges = std::move(edges);
  return spec;
}

DoneRun success(LeaseId lease, ArrayId array, Element first, std::uint64_t count = 1) {
  return {lease, array, first, count, 0, 0.1 * static_cast<double>(count), 0.01, 0};
}

Outcome failure(LeaseId lease, Element element, std::uint32_t attempt = 0,
                EndReason reason = EndReason::exited) {
  Outcome outcome;
  outcome.lease = lease;
  outcome.element = element;
  outcome.attempt = attempt;
  outcome.reason = reason;
  outcome.exit_code = 1;
  return outcome;
}

Lease part(LeaseId lease, Element first, std::uint64_t count, ArrayId array = 0) {
  return {lease, array, first, count, 0, false, 0};
}

// All that is ready goes to the worker in one lease.
Lease lease_all(Scheduler& scheduler, const WorkerId& worker, double now_s = 0) {
  scheduler.worker_joined(worker, {64}, {});
  scheduler.assign(now_s);
  const Actions actions = scheduler.take_actions();
  EXPECT_EQ(actions.grants.size(), 1U);
  return actions.grants.at(0).lease;
}

ElementState state(const Scheduler& scheduler, Element element, ArrayId array = 0) {
  return scheduler.states(array).at(element);
}

TEST(LeaseRules, AllPartsOfOneLeaseAreAdopted) {
  Scheduler scheduler({array_of(10)}, 2);
  scheduler.start();
  scheduler.worker_joined("a", {2},
                          {part(kFirstLease, 5, 5), part(kFirstLease, 1, 1), part(kFirstLease, 3, 1)});
  EXPECT_EQ(scheduler.leased(), 7U);
  EXPECT_TRUE(scheduler.take_actions().revokes.empty());
  scheduler.worker_joined("b", {64}, {});
  scheduler.assign(0);
  for (const GrantLease& grant : scheduler.take_actions().grants) {
    EXPECT_NE(grant.lease.first, 1U) << "it runs on the other worker";
    EXPECT_NE(grant.lease.first, 3U) << "it runs on the other worker";
  }
}

TEST(LeaseRules, APartThatCanNotBeKeptIsRevokedAlone) {
  Scheduler scheduler({array_of(10), array_of(10, {{0, EdgeKind::element, 0}})}, 2);
  scheduler.restore_end(0, {2, 3}, ElementState::done);
  scheduler.restore_floor(0, {8, 9}, kFirstLease + 1);
  scheduler.start();
  scheduler.worker_joined("a", {2}, {part(kFirstLease, 0, 10), part(kFirstLease + 1, 0, 1, 1)});
  EXPECT_EQ(scheduler.leased(), 9U) << "2 and 3 have ended";
  std::vector<std::pair<ArrayId, Range>> revoked;
  for (const RevokeLease& revoke : scheduler.take_actions().revokes) {
    EXPECT_TRUE(revoke.kill_running);
    EXPECT_EQ(revoke.worker, "a");
    revoked.emplace_back(revoke.part.array,
                         Range{revoke.part.first, revoke.part.first + revoke.part.count - 1});
  }
  EXPECT_EQ(revoked, (std::vector<std::pair<ArrayId, Range>>{{0, {2, 3}}, {0, {8, 9}}}));
  // 8 and 9 were opened again later: no worker gets them before this one has ended them.
  scheduler.worker_joined("b", {64}, {});
  scheduler.assign(0);
  for (const GrantLease& grant : scheduler.take_actions().grants) EXPECT_EQ(grant.lease.array, 1U);
  scheduler.returned({part(kFirstLease, 8, 2)});
  scheduler.assign(0);
  std::uint64_t granted = 0;
  for (const GrantLease& grant : scheduler.take_actions().grants) granted += grant.lease.count;
  EXPECT_EQ(granted, 2U);
}

// tests/simulation, seed 106: the end of its input was never committed, and comes again.
TEST(LeaseRules, WhatRunsAheadOfItsInputIsKept) {
  Scheduler scheduler({array_of(1), array_of(1, {{0, EdgeKind::element, 0}})}, 2);
  scheduler.start();
  scheduler.worker_joined("a", {1}, {part(kFirstLease + 1, 0, 1, 1)});
  scheduler.worker_joined("b", {64}, {});
  EXPECT_TRUE(scheduler.take_actions().revokes.empty());
  scheduler.done(success(kFirstLease, 0, 0));
  scheduler.drop_early_results();
  scheduler.assign(0);
  const Actions actions = scheduler.take_actions();
  EXPECT_TRUE(actions.grants.empty()) << "it runs on the other worker";
  EXPECT_TRUE(actions.revokes.empty());
  scheduler.done(success(kFirstLease + 1, 1, 0));
  EXPECT_TRUE(scheduler.ended());
}

TEST(LeaseRules, WhatEndsAheadOfItsInputWaitsForIt) {
  Scheduler scheduler({array_of(1), array_of(1, {{0, EdgeKind::element, 0}})}, 2);
  scheduler.start();
  scheduler.worker_joined("a", {1}, {part(kFirstLease + 1, 0, 1, 1)});
  scheduler.done(success(kFirstLease + 1, 1, 0));
  EXPECT_EQ(state(scheduler, 0, 1), ElementState::blocked);
  scheduler.done(success(kFirstLease, 0, 0));
  EXPECT_TRUE(scheduler.ended());
}

TEST(LeaseRules, WhatRunsOnInputThatIsLostRunsAgainAfterIt) {
  Scheduler scheduler({array_of(1), array_of(1, {{0, EdgeKind::element, 0}})}, 2);
  scheduler.start();
  scheduler.worker_joined("a", {1}, {part(kFirstLease + 1, 0, 1, 1)});
  scheduler.drop_early_results();
  const Actions actions = scheduler.take_actions();
  ASSERT_EQ(actions.revokes.size(), 1U);
  EXPECT_TRUE(actions.revokes[0].kill_running);
  Outcome ended = failure(kFirstLease + 1, 0, 0, EndReason::cancelled);
  ended.array = 1;
  scheduler.ended_badly(ended, "a", 0);
  EXPECT_EQ(state(scheduler, 0, 1), ElementState::blocked);
  const Lease first = lease_all(scheduler, "b");
  scheduler.done(success(first.id, 0, 0));
  EXPECT_EQ(lease_all(scheduler, "b").array, 1U);
}

// tests/simulation, seed 16523: a worker that is awaited has run both, and says so later.
TEST(LeaseRules, ARetryVoidsWhatNobodyHasHeardOf) {
  Scheduler scheduler(
      {array_of(1), array_of(1, {{0, EdgeKind::element, 0}}), array_of(1, {{1, EdgeKind::element, 0}})}, 2);
  scheduler.restore_end(0, {0, 0}, ElementState::failed);
  scheduler.start();
  EXPECT_EQ(scheduler.retry_failed({{0, {0, 0}}}), 1U);
  scheduler.done(success(kFirstLease + 1, 1, 0));
  scheduler.done(success(kFirstLease + 2, 2, 0));
  scheduler.done(success(lease_all(scheduler, "a").id, 0, 0));
  EXPECT_EQ(state(scheduler, 0, 1), ElementState::ready);
  scheduler.done(success(lease_all(scheduler, "a").id, 1, 0));
  EXPECT_EQ(state(scheduler, 0, 2), ElementState::ready);
}

// tests/simulation, seed 9079: a later attempt of it was heard of before the earlier one.
TEST(LeaseRules, ASuccessOfAnotherExitCodeIsNeverStale) {
  Scheduler scheduler({array_of(1)}, 2);
  scheduler.start();
  Outcome stop = failure(kFirstLease, 0, 1);
  stop.exit_code = kStopWorkers;
  scheduler.ended_badly(stop, "a", 0);
  EXPECT_EQ(state(scheduler, 0), ElementState::done);
}

TEST(LeaseRules, WhatAnotherWorkerHoldsIsNotAdopted) {
  Scheduler scheduler({array_of(4)}, 2);
  scheduler.start();
  scheduler.worker_joined("a", {2}, {part(kFirstLease, 0, 2)});
  scheduler.worker_joined("b", {2}, {part(kFirstLease + 1, 1, 2), part(kFirstLease, 3, 1)});
  const Actions actions = scheduler.take_actions();
  ASSERT_EQ(actions.revokes.size(), 2U);
  EXPECT_EQ(actions.revokes[0].part.first, 1U);
  EXPECT_EQ(actions.revokes[0].part.count, 1U);
  EXPECT_EQ(actions.revokes[1].part.first, 3U) << "a lease has one worker";
  EXPECT_EQ(scheduler.worker_of(0, 1), "a");
  EXPECT_EQ(scheduler.worker_of(0, 2), "b");
}

TEST(LeaseRules, ALeaseThatWasNeverGrantedIsNotAdopted) {
  Scheduler scheduler({array_of(4)}, 1);
  scheduler.start();
  scheduler.worker_joined("a", {2}, {part(kFirstLease + 5, 0, 1), part(0, 1, 1), part(3, 2, ~0ULL)});
  EXPECT_EQ(scheduler.leased(), 0U);
  EXPECT_EQ(scheduler.take_actions().revokes.size(), 3U);
}

TEST(LeaseRules, ASuccessOfALostWorkerCountsAndRevokesThatPart) {
  Scheduler scheduler({array_of(4)}, 1);
  scheduler.start();
  const Lease old = lease_all(scheduler, "a");
  scheduler.worker_lost("a", {});
  const Lease now = lease_all(scheduler, "b");
  scheduler.done(success(old.id, 0, 1, 2));
  EXPECT_EQ(state(scheduler, 1), ElementState::done);
  const Actions actions = scheduler.take_actions();
  ASSERT_EQ(actions.revokes.size(), 1U);
  EXPECT_EQ(actions.revokes[0].worker, "b");
  EXPECT_TRUE(actions.revokes[0].kill_running);
  EXPECT_EQ(actions.revokes[0].part.id, now.id);
  EXPECT_EQ(actions.revokes[0].part.first, 1U);
  EXPECT_EQ(actions.revokes[0].part.count, 2U);
  EXPECT_EQ(scheduler.leased(), 2U);
  EXPECT_EQ(scheduler.workers().at("b").elements, 2U);
  scheduler.returned({part(now.id, 1, 2)});
  EXPECT_EQ(state(scheduler, 1), ElementState::done);
  EXPECT_EQ(scheduler.progress(0).timed, 2U);
}

TEST(LeaseRules, StaleMessagesChangeNothing) {
  for (const EndReason reason : {EndReason::cancelled, EndReason::exited}) {
    Scheduler scheduler({array_of(2)}, 1);
    scheduler.start();
    const Lease old = lease_all(scheduler, "a");
    scheduler.worker_lost("a", {});
    lease_all(scheduler, "b");
    scheduler.ended_badly(failure(old.id, 0, 0, reason), "a", 0);
    scheduler.returned({old});
    EXPECT_EQ(scheduler.leased(), 2U);
    EXPECT_EQ(scheduler.worker_of(0, 0), "b");
    const Actions actions = scheduler.take_actions();
    EXPECT_TRUE(actions.failures.empty());
    EXPECT_TRUE(actions.revokes.empty());
    scheduler.assign(1);
    EXPECT_TRUE(scheduler.take_actions().grants.empty()) << "no second copy";
  }
}

TEST(LeaseRules, AFailureReadLateCountsIfItIsOfTheNextExecution) {
  ArraySpec spec = array_of(3);
  spec.failure_retries = 1;
  Scheduler scheduler({spec}, 2);
  scheduler.restore_attempt(0, 1, {1, 1, 0, false});
  scheduler.restore_floor(0, {2, 2}, kFirstLease + 1);
  scheduler.start();
  scheduler.ended_badly(failure(kFirstLease, 0), "a", 0);
  scheduler.ended_badly(failure(kFirstLease, 1), "a", 0);                           // recorded already
  scheduler.ended_badly(failure(kFirstLease, 2), "a", 0);                           // opened again since
  scheduler.ended_badly(failure(kFirstLease, 0, 1, EndReason::cancelled), "a", 0);  // no worker holds it
  Actions actions = scheduler.take_actions();
  ASSERT_EQ(actions.failures.size(), 1U);
  EXPECT_EQ(actions.failures[0].counts.number, 1U);
  scheduler.ended_badly(failure(kFirstLease, 1, 1), "a", 0);
  EXPECT_EQ(state(scheduler, 1), ElementState::failed);
}

TEST(LeaseRules, AnAdoptedLeaseKeepsItsAttempt) {
  ArraySpec spec = array_of(1);
  spec.failure_retries = 2;
  Scheduler scheduler({spec}, 2);
  scheduler.start();
  Lease held = part(kFirstLease, 0, 1);
  held.attempt = held.failures = 2;  // not recorded before the coordinator died
  scheduler.worker_joined("a", {1}, {held});
  scheduler.ended_badly(failure(kFirstLease, 0, 2), "a", 0);
  EXPECT_EQ(state(scheduler, 0), ElementState::failed) << "three executions";
}

// One element, in a scheduler that begins with the counts of an earlier one.
class Restarted {
 public:
  Restarted(int max_retries, int failure_retries) : spec_(array_of(1)) {
    spec_.max_retries = max_retries;
    spec_.failure_retries = failure_retries;
  }
  // A coordinator that knows the counts leases the element, and its execution ends so. Whether it runs again.
  bool ends_with(int exit_code) {
    return runs_again([&](Scheduler& scheduler, const Lease& lease) {
      Outcome outcome = failure(lease.id, 0, lease.attempt);
      outcome.exit_code = exit_code;
      scheduler.ended_badly(outcome, "a", 0);
    });
  }
  bool loses_its_worker() {
    return runs_again([&](Scheduler& scheduler, const Lease&) { scheduler.worker_lost("a", {{0, 0, 0}}); });
  }
  AttemptCounts counts;

 private:
  template <typename End>
  bool runs_again(End end) {
    Scheduler scheduler({spec_}, ++epoch_);
    if (counts.number > 0) scheduler.restore_attempt(0, 0, counts);
    scheduler.start();
    const Lease lease = lease_all(scheduler, "a");
    EXPECT_EQ(lease.attempt, counts.number);
    end(scheduler, lease);
    const Actions actions = scheduler.take_actions();
    counts = actions.failures.at(0).counts;
    return !actions.failures.at(0).final;
  }

  ArraySpec spec_;
  std::uint64_t epoch_ = 0;
};

TEST(LeaseRules, ARestartGrantsNoFurtherExecutionsThatWereAskedFor) {
  Restarted task(2, 0);
  EXPECT_TRUE(task.ends_with(104));
  EXPECT_TRUE(task.ends_with(100));
  EXPECT_EQ(task.counts, (AttemptCounts{2, 0, 0, true}));
  EXPECT_FALSE(task.ends_with(104));
}

TEST(LeaseRules, ARestartTellsFailuresFromExecutionsThatWereAskedFor) {
  Restarted task(3, 1);
  EXPECT_TRUE(task.ends_with(104));
  EXPECT_TRUE(task.ends_with(104));
  EXPECT_TRUE(task.ends_with(1)) << "its first ordinary failure";
  EXPECT_EQ(task.counts, (AttemptCounts{3, 1, 0, false}));
  EXPECT_FALSE(task.ends_with(1));
}

TEST(LeaseRules, ARestartForgetsNoCrash) {
  Restarted task(1, 1);
  for (std::uint32_t crash = 1; crash < kCrashLimit; ++crash) EXPECT_TRUE(task.loses_its_worker());
  EXPECT_TRUE(task.ends_with(104)) << "lost workers are no executions that were asked for";
  EXPECT_TRUE(task.ends_with(1)) << "nor failures";
  EXPECT_EQ(task.counts, (AttemptCounts{kCrashLimit + 1, 1, kCrashLimit - 1, false}));
  EXPECT_FALSE(task.loses_its_worker());
}

TEST(LeaseRules, AnAdoptedLeasesExecutionsAreChargedToBothBudgets) {
  ArraySpec spec = array_of(1);
  spec.max_retries = 2;
  spec.failure_retries = 1;
  Scheduler scheduler({spec}, 2);
  scheduler.start();
  Lease held = part(kFirstLease, 0, 1);
  held.attempt = 3;  // none of which was recorded
  held.failures = 1;
  scheduler.worker_joined("a", {1}, {held});
  Outcome asks = failure(kFirstLease, 0, 3);
  asks.exit_code = 104;
  scheduler.ended_badly(asks, "a", 0);
  const Actions actions = scheduler.take_actions();
  EXPECT_EQ(actions.failures.at(0).counts, (AttemptCounts{4, 1, 0, false}));
  EXPECT_TRUE(actions.failures.at(0).final);
}

TEST(LeaseRules, AnAdoptedLeaseTellsWhatAskedForAnotherExecution) {
  ArraySpec spec = array_of(1);
  spec.max_retries = 2;
  spec.failure_retries = 1;
  Scheduler first({spec}, 1);
  first.start();
  Outcome asks = failure(lease_all(first, "a").id, 0, 0);
  asks.exit_code = kRetry;
  first.ended_badly(asks, "a", 0);
  first.take_actions();
  const Lease held = lease_all(first, "a");
  Scheduler second({spec}, 2);  // no record tells it of the first execution
  second.start();
  second.worker_joined("a", {1}, {held});
  second.ended_badly(failure(held.id, 0, 1), "a", 0);
  const RecordFailure recorded = second.take_actions().failures.at(0);
  EXPECT_EQ(recorded.counts, (AttemptCounts{2, 1, 0, false}));
  EXPECT_FALSE(recorded.final) << "its first ordinary failure";
}

// ---- neutral causes, and memory

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(LeaseRules, TheEndOfAnAllocationIsRecordedAndChargesNothing) {
  Scheduler scheduler({array_of(1)}, 1);
  scheduler.start();
  for (std::uint32_t end = 0; end < 20; ++end) {
    const Lease lease = lease_all(scheduler, "a");
    EXPECT_EQ(lease.attempt, end) << "each execution has its number";
    scheduler.ended_badly(failure(lease.id, 0, lease.attempt, EndReason::walltime), "a", 0);
    const Actions actions = scheduler.take_actions();
    ASSERT_EQ(actions.failures.size(), 1U);
    EXPECT_FALSE(actions.failures[0].final);
    EXPECT_EQ(actions.failures[0].counts, (AttemptCounts{end + 1, 0, 0, false, end + 1}));
  }
  const Lease lease = lease_all(scheduler, "a");
  scheduler.ended_badly(failure(lease.id, 0, lease.attempt), "a", 0);
  EXPECT_EQ(state(scheduler, 0), ElementState::failed) << "without retries the first failure is the last";
}

TEST(LeaseRules, AnAdoptedLeaseTellsWhatNoBudgetCounts) {
  ArraySpec spec = array_of(1);
  spec.failure_retries = 1;
  Scheduler scheduler({spec}, 2);
  scheduler.start();
  Lease held = part(kFirstLease, 0, 1);
  held.attempt = 3;  // none of which was recorded
  held.uncharged = 2;
  held.failures = 1;
  scheduler.worker_joined("a", {1}, {held});
  scheduler.ended_badly(failure(kFirstLease, 0, 3, EndReason::walltime), "a", 0);
  EXPECT_EQ(scheduler.take_actions().failures.at(0).counts, (AttemptCounts{4, 1, 0, false, 3}));
}

TEST(LeaseRules, TheEndOfAnAllocationDoesNotUndoACancellation) {
  Scheduler scheduler({array_of(1)}, 1);
  scheduler.start();
  const Lease lease = lease_all(scheduler, "a");
  scheduler.cancel(0, {0, 0}, true);
  scheduler.ended_badly(failure(lease.id, 0, 0, EndReason::preempted), "a", 0);
  EXPECT_EQ(state(scheduler, 0), ElementState::cancelled);
}

TEST(LeaseRules, WorkersLostWithTheirAllocationsAreNoCrashes) {
  Scheduler scheduler({array_of(1)}, 1);
  scheduler.start();
  for (std::uint32_t loss = 0; loss < 20; ++loss) {
    lease_all(scheduler, "a");
    EXPECT_TRUE(
        scheduler.worker_lost("a", {{0, 0, 1}}, {EndReason::node, "its node failed", true, true}).empty());
    const Actions actions = scheduler.take_actions();
    ASSERT_EQ(actions.failures.size(), 1U);
    EXPECT_EQ(actions.failures[0].outcome.reason, EndReason::node);
    EXPECT_EQ(actions.failures[0].outcome.detail, "its node failed");
    EXPECT_EQ(actions.failures[0].counts, (AttemptCounts{loss + 1, 0, 0, false, loss + 1}));
  }
  EXPECT_EQ(state(scheduler, 0), ElementState::delayed) << "ready to run again";
}

TEST(LeaseRules, ALossThatMayYetBeExplainedIsNotTheLastOne) {
  constexpr std::uint32_t kLimit = kCrashLimit;
  double now_s = 0;  // each loss is followed by a delay
  Scheduler scheduler({array_of(1)}, 1);
  scheduler.start();
  std::vector<Outcome> charged;
  for (std::uint32_t loss = 0; loss < kLimit; ++loss) {
    lease_all(scheduler, "a", now_s += 100);
    const auto lost = scheduler.worker_lost("a", {{0, 0, 1}}, {EndReason::worker_lost, "", true, false});
    ASSERT_EQ(lost.size(), 1U);
    charged.push_back(lost[0]);
    EXPECT_FALSE(scheduler.take_actions().failures.at(0).final);
  }
  // The scheduler says of two of them that nodes had failed.
  for (std::size_t i = 0; i < 2; ++i)
    scheduler.loss_explained(charged[i], "a", {EndReason::node, "a node failed"});
  Actions actions = scheduler.take_actions();
  ASSERT_EQ(actions.causes.size(), 2U);
  EXPECT_EQ(actions.causes[1].attempt, 1U);
  ASSERT_TRUE(actions.causes[1].counts);
  EXPECT_EQ(*actions.causes[1].counts, (AttemptCounts{kLimit, 0, kLimit - 2, false, 2}));
  for (std::uint32_t loss = 0; loss < 2; ++loss) {
    EXPECT_FALSE(has_ended(state(scheduler, 0)));
    lease_all(scheduler, "a", now_s += 100);
    scheduler.worker_lost("a", {{0, 0, 1}});
  }
  EXPECT_EQ(state(scheduler, 0), ElementState::failed);
}

TEST(LeaseRules, ALossIsFollowedByADelay) {
  Scheduler scheduler({array_of(1)}, 1);
  scheduler.start();
  lease_all(scheduler, "a", 10);
  scheduler.worker_lost("a", {{0, 0, 1}});
  scheduler.take_actions();
  scheduler.worker_joined("b", {64}, {});
  scheduler.assign(10.5);
  EXPECT_TRUE(scheduler.take_actions().grants.empty());
  ASSERT_TRUE(scheduler.next_due_s());
  EXPECT_DOUBLE_EQ(*scheduler.next_due_s(), 11);
  scheduler.assign(11);
  EXPECT_EQ(scheduler.take_actions().grants.size(), 1U);
}

TEST(LeaseRules, OfThoseThatTheNextLossEndsAWorkerGetsOneAtATime) {
  Scheduler scheduler({array_of(3)}, 1);
  for (Element element = 0; element < 3; ++element)
    scheduler.restore_attempt(0, element, {kCrashLimit - 1, 0, kCrashLimit - 1});
  scheduler.start();
  scheduler.worker_joined("a", {64}, {});
  scheduler.assign(0);
  Actions actions = scheduler.take_actions();
  ASSERT_EQ(actions.grants.size(), 1U);
  scheduler.worker_joined("b", {64}, {});
  scheduler.assign(1);
  const Actions more = scheduler.take_actions();
  ASSERT_EQ(more.grants.size(), 1U);
  EXPECT_EQ(more.grants[0].worker, "b");
  const Lease first = actions.grants[0].lease;
  scheduler.done({first.id, 0, first.first, 1, first.attempt, 1, 1, 0});
  scheduler.assign(2);
  EXPECT_EQ(scheduler.take_actions().grants.size(), 1U) << "the third, once the first is done";
}

TEST(LeaseRules, OrdinaryFailuresAreTriedAgainEachTimeLater) {
  ArraySpec spec = array_of(1);
  spec.failure_retries = 10;
  spec.retry_delay_s = 1;
  Scheduler scheduler({spec}, 1);
  scheduler.start();
  double now_s = 0;
  for (const double delay_s : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0}) {
    const Lease lease = lease_all(scheduler, "a", now_s);
    scheduler.ended_badly(failure(lease.id, 0, lease.attempt), "a", now_s);
    scheduler.take_actions();
    scheduler.assign(now_s + delay_s - 0.01);
    EXPECT_TRUE(scheduler.take_actions().grants.empty()) << delay_s;
    now_s += delay_s;
  }
}

TEST(LeaseRules, AnExplanationChangesNoCountsOfAfterARetry) {
  Scheduler scheduler({array_of(1)}, 1);
  scheduler.start();
  lease_all(scheduler, "a");
  const auto lost = scheduler.worker_lost("a", {{0, 0, 1}}, {EndReason::worker_lost, "", true, false});
  const Lease lease = lease_all(scheduler, "a", 100);
  scheduler.ended_badly(failure(lease.id, 0, lease.attempt), "a", 100);
  EXPECT_EQ(scheduler.retry_failed(0, {0, 0}), 1U);
  lease_all(scheduler, "a", 200);
  scheduler.worker_lost("a", {{0, 0, 1}});
  scheduler.take_actions();
  scheduler.loss_explained(lost.at(0), "a", {EndReason::node, "a node failed"});
  const Actions actions = scheduler.take_actions();
  ASSERT_EQ(actions.causes.size(), 1U);
  EXPECT_FALSE(actions.causes[0].counts);
}

TEST(LeaseRules, LaunchersThatFailUseNoRetryAndComeToAnEnd) {
  constexpr int kTries = 5;
  Scheduler scheduler({array_of(1)}, 1);
  scheduler.start();
  double now_s = 0;
  for (int failed = 0; failed < kTries; ++failed) {
    scheduler.worker_joined("a", {64}, {});
    scheduler.assign(now_s);
    const Actions granted = scheduler.take_actions();
    ASSERT_EQ(granted.grants.size(), 1U);
    const Lease& lease = granted.grants[0].lease;
    scheduler.ended_badly(failure(lease.id, 0, lease.attempt, EndReason::launcher), "a", now_s);
    ASSERT_FALSE(has_ended(state(scheduler, 0)));
    scheduler.assign(now_s + 4);
    EXPECT_TRUE(scheduler.take_actions().grants.empty()) << "not at once";
    now_s += 100;
  }
  scheduler.assign(now_s);
  const Lease lease = scheduler.take_actions().grants.at(0).lease;
  scheduler.ended_badly(failure(lease.id, 0, lease.attempt, EndReason::launcher), "a", now_s);
  EXPECT_EQ(state(scheduler, 0), ElementState::failed);
}

ArraySpec array_with_memory(std::uint64_t count) {
  ArraySpec spec = array_of(count);
  spec.resources.memory_bytes = 2 * kGiB;
  spec.memory_factor = 2;
  return spec;
}

Outcome out_of_memory(const Lease& lease) {
  return failure(lease.id, lease.first, lease.attempt, EndReason::out_of_memory);
}

TEST(LeaseRules, WhatIsKilledForMemoryIsTriedAgainWithMoreUpToTheLargestWorkers) {
  Scheduler scheduler({array_with_memory(1)}, 1);
  scheduler.start();
  scheduler.worker_joined("small", {1, 0, 3 * kGiB}, {});
  scheduler.worker_joined("large", {1, 0, 7 * kGiB}, {});
  std::vector<std::int64_t> had;
  std::vector<WorkerId> where;
  while (!has_ended(state(scheduler, 0))) {
    scheduler.assign(static_cast<double>(10 * had.size()));
    const Actions actions = scheduler.take_actions();
    ASSERT_EQ(actions.grants.size(), 1U);
    had.push_back(actions.grants[0].lease.memory_bytes);
    where.push_back(actions.grants[0].worker);
    scheduler.ended_badly(out_of_memory(actions.grants[0].lease), actions.grants[0].worker, 0);
  }
  EXPECT_EQ(had, (std::vector<std::int64_t>{0, 4 * kGiB, 7 * kGiB}));
  EXPECT_EQ(where, (std::vector<WorkerId>{"small", "large", "large"}));
  const Actions actions = scheduler.take_actions();
  EXPECT_EQ(actions.failures.at(0).counts, (AttemptCounts{3, 1, 0, false, 0, 0, 2, 7 * kGiB}));
}

TEST(LeaseRules, MemoryRetriesUseNoOtherBudgetAndEndAfterEight) {
  ArraySpec spec = array_with_memory(1);
  spec.failure_retries = 1;
  Scheduler scheduler({spec}, 1);
  scheduler.start();
  scheduler.worker_joined("a", {1}, {});  // its memory is not known
  int executions = 0;
  while (!has_ended(state(scheduler, 0))) {
    scheduler.assign(10.0 * executions);
    const Actions actions = scheduler.take_actions();
    ASSERT_EQ(actions.grants.size(), 1U);
    scheduler.ended_badly(out_of_memory(actions.grants[0].lease), "a", 0);
    ++executions;
  }
  EXPECT_EQ(executions, 1 + 8 + 1) << "then it is an ordinary failure, and has one retry";
}

TEST(LeaseRules, TheMemoryThatATaskGotIsLoadedAndSurvivesARestart) {
  Scheduler scheduler({array_with_memory(3)}, 2);
  scheduler.restore_attempt(0, 0, {1, 0, 0, false, 0, 0, 1, 4 * kGiB});
  scheduler.start();
  scheduler.worker_joined("a", {3, 0, 6 * kGiB}, {});
  scheduler.assign(0);
  Actions actions = scheduler.take_actions();
  ASSERT_GE(actions.grants.size(), 2U);
  EXPECT_EQ(actions.grants[0].lease.first, 0U);
  EXPECT_EQ(actions.grants[0].lease.attempt, 1U);
  EXPECT_EQ(actions.grants[0].lease.memory_bytes, 4 * kGiB);
  EXPECT_EQ(actions.grants[1].lease.memory_bytes, 0);
  // Another coordinator takes it over with the lease.
  Lease held = actions.grants[0].lease;
  Scheduler next({array_with_memory(3)}, 3);
  next.restore_attempt(0, 0, {1, 0, 0, false, 0, 0, 1, 4 * kGiB});
  next.start();
  next.worker_joined("a", {3, 0, 6 * kGiB}, {held});
  next.ended_badly(out_of_memory(held), "a", 0);
  EXPECT_EQ(next.take_actions().failures.at(0).counts, (AttemptCounts{2, 0, 0, false, 0, 0, 2, 6 * kGiB}));
}

TEST(LeaseRules, ASmallWorkerGoesOnWithWhatItCanRun) {
  Scheduler scheduler({array_with_memory(2), array_with_memory(2)}, 2);
  scheduler.restore_attempt(0, 0, {1, 0, 0, false, 0, 0, 1, 8 * kGiB});
  scheduler.restore_attempt(0, 1, {1, 0, 0, false, 0, 0, 1, 8 * kGiB});
  scheduler.start();
  scheduler.worker_joined("large", {1, 0, 8 * kGiB}, {});
  scheduler.worker_draining("large");
  scheduler.worker_joined("huge", {1, 0, 16 * kGiB}, {});
  scheduler.worker_joined("small", {2, 0, 4 * kGiB}, {});
  scheduler.assign(0);
  const Actions actions = scheduler.take_actions();
  std::uint64_t small = 0;
  for (const GrantLease& grant : actions.grants) {
    EXPECT_NE(grant.worker, "large");
    if (grant.lease.array == 0) {
      EXPECT_EQ(grant.worker, "huge");
    }
    if (grant.worker == "small") small += grant.lease.count;
  }
  EXPECT_GE(small, 1U);
}

TEST(LeaseRules, AnEarlySuccessWaitsForItsParent) {
  Scheduler scheduler(
      {array_of(4), array_of(4, {{0, EdgeKind::element, 0}}), array_of(1, {{1, EdgeKind::all, 0}})}, 2);
  scheduler.start();
  scheduler.done(success(kFirstLease + 1, 1, 0, 3));
  EXPECT_EQ(state(scheduler, 0, 1), ElementState::blocked);
  EXPECT_TRUE(scheduler.take_actions().ends.empty());
  scheduler.done(success(kFirstLease, 0, 0, 4));
  EXPECT_EQ(state(scheduler, 2, 1), ElementState::done);
  EXPECT_EQ(state(scheduler, 3, 1), ElementState::ready);
  EXPECT_EQ(scheduler.progress(1).timed, 3U);
  scheduler.done(success(kFirstLease + 2, 1, 3));
  EXPECT_EQ(state(scheduler, 0, 2), ElementState::ready);
}

TEST(LeaseRules, EarlySuccessesAreDroppedWhenNobodyIsAwaited) {
  Scheduler scheduler({array_of(2), array_of(2, {{0, EdgeKind::element, 0}})}, 2);
  scheduler.start();
  scheduler.done(success(kFirstLease + 1, 1, 0));
  scheduler.drop_early_results();
  scheduler.done(success(kFirstLease + 1, 1, 1));
  scheduler.done(success(kFirstLease, 0, 0, 2));
  EXPECT_EQ(scheduler.states(1).total(ElementState::ready), 2U);
}

// Seed 84205: the journals of two workers are heard in the wrong order, and a success stands on the last
// failure.
TEST(LeaseRules, AFailureWaitsForThoseBeforeIt) {
  ArraySpec simulate = array_of(1);
  simulate.failure_retries = 1;
  Scheduler scheduler({simulate, array_of(1, {{0, EdgeKind::element, 0}})}, 2);
  scheduler.start();
  scheduler.done(success(kFirstLease + 2, 1, 0));
  scheduler.ended_badly(failure(kFirstLease + 1, 0, 1), "a", 0);
  EXPECT_EQ(state(scheduler, 0), ElementState::ready);
  EXPECT_TRUE(scheduler.take_actions().failures.empty());
  scheduler.ended_badly(failure(kFirstLease, 0, 0), "b", 0);
  EXPECT_EQ(state(scheduler, 0), ElementState::failed);
  EXPECT_EQ(state(scheduler, 0, 1), ElementState::done);
  const Actions actions = scheduler.take_actions();
  ASSERT_EQ(actions.failures.size(), 2U);
  EXPECT_EQ(actions.failures[0].worker, "b");
  EXPECT_EQ(actions.failures[1].worker, "a");
  EXPECT_TRUE(actions.failures[1].final);
  EXPECT_TRUE(scheduler.ended());
}

TEST(LeaseRules, EarlyFailuresAreDroppedWhenNobodyIsAwaited) {
  ArraySpec simulate = array_of(1);
  simulate.failure_retries = 1;
  Scheduler scheduler({simulate}, 2);
  scheduler.start();
  scheduler.ended_badly(failure(kFirstLease + 1, 0, 1), "a", 0);
  scheduler.drop_early_results();
  scheduler.ended_badly(failure(kFirstLease, 0, 0), "b", 0);
  EXPECT_EQ(state(scheduler, 0), ElementState::delayed);
  EXPECT_EQ(scheduler.take_actions().failures.size(), 1U);
}

TEST(LeaseRules, AFailureOfABlockedElementCountsAndItWaits) {
  ArraySpec child = array_of(1, {{0, EdgeKind::element, 0}});
  child.failure_retries = 1;
  Scheduler scheduler({array_of(1), child}, 2);
  scheduler.start();
  Outcome early = failure(kFirstLease, 0);
  early.array = 1;
  scheduler.ended_badly(early, "a", 0);
  EXPECT_EQ(scheduler.take_actions().failures.size(), 1U);
  EXPECT_EQ(state(scheduler, 0, 1), ElementState::blocked);
  scheduler.done(success(kFirstLease, 0, 0));
  scheduler.worker_joined("b", {1}, {});
  scheduler.assign(0);
  EXPECT_EQ(scheduler.take_actions().grants.at(0).lease.attempt, 1U);
}

// Seed 105811: a task counted as failed although what it waits for had to run again, and was cancelled.
TEST(LeaseRules, AFailureEndsABlockedElementOnlyAfterItsParent) {
  Outcome early = failure(kFirstLease, 0);
  early.array = 1;
  for (const bool parent_is_heard_of : {true, false}) {
    Scheduler scheduler({array_of(1), array_of(1, {{0, EdgeKind::element, 0}})}, 2);
    scheduler.start();
    scheduler.ended_badly(early, "a", 0);
    EXPECT_EQ(state(scheduler, 0, 1), ElementState::blocked);
    EXPECT_TRUE(scheduler.take_actions().failures.empty());
    if (parent_is_heard_of) scheduler.done(success(kFirstLease, 0, 0));
    scheduler.drop_early_results();
    EXPECT_EQ(state(scheduler, 0, 1), parent_is_heard_of ? ElementState::failed : ElementState::blocked);
    EXPECT_EQ(scheduler.take_actions().failures.size(), parent_is_heard_of ? 1U : 0U);
    scheduler.done(success(kFirstLease, 0, 0));
    EXPECT_EQ(state(scheduler, 0, 1), parent_is_heard_of ? ElementState::failed : ElementState::ready);
  }
}

TEST(LeaseRules, WhatRanBeforeARetryDoesNotCount) {
  Scheduler scheduler({array_of(3), array_of(3, {{0, EdgeKind::element, 0}})}, 1);
  scheduler.start();
  const Lease parents = lease_all(scheduler, "a");
  scheduler.ended_badly(failure(parents.id, 0), "a", 0);
  scheduler.done(success(parents.id, 0, 1, 2));
  const Lease children = lease_all(scheduler, "a");
  scheduler.take_actions();
  EXPECT_EQ(scheduler.retry_failed(0, {0, 2}), 1U);
  const Actions actions = scheduler.take_actions();
  ASSERT_EQ(actions.floors.size(), 2U) << "the failure, and what runs below it";
  EXPECT_EQ(actions.floors[0].lease, children.id + 1);
  EXPECT_EQ(actions.floors[1].array, 1U);
  EXPECT_EQ(actions.floors[1].range, (Range{0, 0}));

  scheduler.done(success(parents.id, 0, 0));
  EXPECT_EQ(state(scheduler, 0), ElementState::ready) << "an older lease";
  scheduler.done(success(children.id, 1, 0, 3));
  EXPECT_EQ(state(scheduler, 0, 1), ElementState::blocked) << "it ran on the old input";
  EXPECT_EQ(state(scheduler, 2, 1), ElementState::done);
  EXPECT_EQ(scheduler.leased(), 0U);

  // A later coordinator knows the floors from the database.
  Scheduler next({array_of(3), array_of(3, {{0, EdgeKind::element, 0}})}, 2);
  for (const RecordFloor& floor : actions.floors) next.restore_floor(floor.array, floor.range, floor.lease);
  next.restore_floor(0, {0, 2}, 1);  // an older record takes nothing back
  next.start();
  next.done(success(parents.id, 0, 0, 2));
  EXPECT_EQ(state(next, 0), ElementState::ready);
  EXPECT_EQ(state(next, 1), ElementState::done);
}

TEST(LeaseRules, CancellingRevokesThatPartOnly) {
  Scheduler scheduler({array_of(64)}, 1);
  scheduler.start();
  const Lease lease = lease_all(scheduler, "a");
  const Scheduler::Cancelled cancelled = scheduler.cancel(0, {10, 12}, true);
  EXPECT_EQ(cancelled.running, 3U);
  EXPECT_EQ(cancelled.waiting, 0U);
  const Actions actions = scheduler.take_actions();
  ASSERT_EQ(actions.revokes.size(), 1U);
  EXPECT_EQ(actions.revokes[0].part.id, lease.id);
  EXPECT_EQ(actions.revokes[0].part.first, 10U);
  EXPECT_EQ(actions.revokes[0].part.count, 3U);
  scheduler.ended_badly(failure(lease.id, 10, 0, EndReason::cancelled), "a", 0);
  scheduler.returned({part(lease.id, 11, 3)});
  EXPECT_EQ(scheduler.states(0).total(ElementState::cancelled), 3U);
  EXPECT_EQ(state(scheduler, 13), ElementState::ready) << "given back for another reason";
}

TEST(LeaseRules, AnotherWorkersCrashChargesNothing) {
  Scheduler scheduler({array_of(2)}, 1);
  scheduler.start();
  lease_all(scheduler, "a");
  scheduler.worker_joined("b", {1}, {});
  scheduler.worker_lost("b", {{0, 0, 1.0}});
  EXPECT_TRUE(scheduler.take_actions().failures.empty());
  scheduler.worker_lost("a", {{0, 0, 1.0}});
  EXPECT_EQ(scheduler.take_actions().failures.size(), 1U);
}

TEST(LeaseRules, ARetryWaitsItsDelayAnew) {
  ArraySpec spec = array_of(1);
  spec.failure_retries = 5;
  spec.retry_delay_s = 10;
  Scheduler scheduler({spec}, 2);
  scheduler.start();
  scheduler.ended_badly(failure(kFirstLease, 0), "a", 0);  // due at 10
  Lease held = part(kFirstLease + 1, 0, 1);
  held.attempt = 1;
  scheduler.worker_joined("a", {1}, {held});
  scheduler.ended_badly(failure(held.id, 0, 1), "a", 8);  // due at 28: twice as long
  scheduler.assign(11);
  EXPECT_TRUE(scheduler.take_actions().grants.empty());
  scheduler.assign(27.9);
  EXPECT_TRUE(scheduler.take_actions().grants.empty());
  scheduler.assign(28);
  EXPECT_EQ(scheduler.take_actions().grants.size(), 1U);
}

TEST(LeaseRules, LeasesArePaged) {
  Scheduler scheduler({array_of(10), array_of(4)}, 2);
  scheduler.start();
  scheduler.worker_joined("a", {2},
                          {part(kFirstLease, 0, 2), part(kFirstLease, 5, 1), part(kFirstLease + 2, 0, 4, 1)});
  scheduler.worker_joined("b", {2}, {part(kFirstLease + 1, 2, 2)});
  std::vector<std::pair<ArrayId, Range>> seen;
  std::vector<WorkerId> workers;
  std::optional<Scheduler::LeaseCursor> cursor = Scheduler::LeaseCursor{};
  for (int page = 0; cursor && page < 10; ++page) {
    const Scheduler::LeasePage leases = scheduler.leases(*cursor, 1);
    ASSERT_EQ(leases.parts.size(), 1U);
    seen.emplace_back(leases.parts[0].array, leases.parts[0].range);
    workers.push_back(leases.parts[0].worker);
    cursor = leases.next;
  }
  EXPECT_EQ(seen,
            (std::vector<std::pair<ArrayId, Range>>{{0, {0, 1}}, {0, {2, 3}}, {0, {5, 5}}, {1, {0, 3}}}));
  EXPECT_EQ(workers, (std::vector<WorkerId>{"a", "b", "a", "a"}));
}

// Work is counted in runs of elements looked at, not in time: it grows with the failures, not with their
// square.
TEST(LeaseRules, ARetryOfScatteredFailuresIsLinear) {
  const auto work_of = [](std::uint64_t count) {
    Scheduler scheduler({array_of(count), array_of(count, {{0, EdgeKind::element, 0}}),
                         array_of(count / 2, {{0, EdgeKind::all, 0}})},
                        2);
    for (Element at = 0; at < count; ++at) {
      scheduler.restore_end(0, {at, at}, at % 2 == 0 ? ElementState::failed : ElementState::done);
      scheduler.restore_end(1, {at, at}, at % 2 == 0 ? ElementState::skipped : ElementState::done);
      if (at < count / 2)
        scheduler.restore_end(2, {at, at}, at % 2 == 0 ? ElementState::skipped : ElementState::done);
    }
    scheduler.start();
    const std::uint64_t before = scheduler.work();
    std::vector<std::pair<ArrayId, Range>> parts;
    for (Element at = 0; at < count; at += 2) parts.push_back({0, {at, at}});
    EXPECT_EQ(scheduler.retry_failed(parts), count / 2);
    EXPECT_EQ(scheduler.take_actions().floors.size(), 3U) << "one record an array";
    scheduler.cancel(0, {0, count - 1});
    EXPECT_EQ(scheduler.states(0).total(ElementState::cancelled), count / 2);
    return scheduler.work() - before;
  };
  EXPECT_LT(static_cast<double>(work_of(40'000)), 4.4 * static_cast<double>(work_of(10'000)));
}

// `kill -9 $PPID`: its allocation has ended, and that explains nothing.
TEST(LeaseRules, ALossThatTheSchedulerCanNotExplainMayBeTheLastOne) {
  double now_s = 0;
  Scheduler scheduler({array_of(1)}, 1);
  scheduler.start();
  for (std::uint32_t loss = 1; loss <= kCrashLimit; ++loss) {
    lease_all(scheduler, "a", now_s += 100);
    const auto lost = scheduler.worker_lost("a", {{0, 0, 1}}, {EndReason::worker_lost, "", true, false});
    ASSERT_EQ(lost.size(), 1U);
    scheduler.take_actions();
    scheduler.worker_joined("b", {64}, {});
    scheduler.assign(now_s += 5);
    EXPECT_EQ(scheduler.take_actions().grants.size(), loss < kCrashLimit ? 1U : 0U)
        << "it waits for the cause";
    scheduler.worker_lost("b", {});
    scheduler.take_actions();
    scheduler.loss_explained(lost[0], "a", {EndReason::worker_lost, "allocation 7 ended: exit code 6"});
    const Actions actions = scheduler.take_actions();
    ASSERT_EQ(actions.causes.size(), 1U);
    EXPECT_EQ(actions.causes[0].final, loss == kCrashLimit);
    EXPECT_EQ(state(scheduler, 0) == ElementState::failed, loss == kCrashLimit);
    if (loss < kCrashLimit) continue;
    EXPECT_NE(actions.causes[0].detail.find("in quarantine: 3 workers were lost"), std::string::npos);
    EXPECT_NE(actions.causes[0].detail.find("exit code 6"), std::string::npos);
  }
}

TEST(LeaseRules, ATaskThatWaitsForTheCauseOfItsLossRunsAgainAtOnceWhereItIsInnocent) {
  double now_s = 0;
  Scheduler scheduler({array_of(1)}, 1);
  scheduler.restore_attempt(0, 0, {kCrashLimit - 1, 0, kCrashLimit - 1});
  scheduler.start();
  lease_all(scheduler, "a", now_s += 100);
  const auto lost = scheduler.worker_lost("a", {{0, 0, 1}}, {EndReason::worker_lost, "", true, false});
  scheduler.loss_explained(lost.at(0), "a", {EndReason::node, "a node failed"});
  EXPECT_EQ(lease_all(scheduler, "b", now_s += 1).attempt, kCrashLimit);
}

Outcome cut(const Lease& lease, double duration_s) {
  Outcome outcome = failure(lease.id, lease.first, lease.attempt, EndReason::walltime);
  outcome.duration_s = duration_s;
  return outcome;
}

// A task of 50 s fits into the 52 s of an allocation, and was always started with 39 s left.
TEST(LeaseRules, ATaskThatWasCutStartsWhereItMayEnd) {
  ArraySpec spec = array_of(1);
  spec.longest_allocation_s = 60;
  Scheduler scheduler({spec}, 1);
  scheduler.start();
  scheduler.worker_joined("a", {1}, {});
  scheduler.worker_ends("a", 52);
  scheduler.assign(13);
  const Lease first = scheduler.take_actions().grants.at(0).lease;
  scheduler.ended_badly(cut(first, 39), "a", 52);
  EXPECT_EQ(state(scheduler, 0), ElementState::delayed);
  scheduler.take_actions();
  scheduler.worker_lost("a", {});
  scheduler.assign(52);
  scheduler.worker_joined("b", {1}, {});
  scheduler.worker_ends("b", 104);
  scheduler.assign(65);
  EXPECT_TRUE(scheduler.take_actions().grants.empty()) << "39 s are left";
  scheduler.worker_joined("c", {1}, {});
  scheduler.worker_ends("c", 65 + 52);
  scheduler.assign(66);
  const Actions actions = scheduler.take_actions();
  ASSERT_EQ(actions.grants.size(), 1U);
  EXPECT_EQ(actions.grants[0].worker, "c");
}

// The next coordinator forgot it, and cut the task once more.
TEST(LeaseRules, WhatATaskLastsAtLeastIsRestored) {
  ArraySpec spec = array_of(1);
  spec.longest_allocation_s = 60;
  Scheduler scheduler({spec}, 2);
  scheduler.restore_attempt(0, 0, {1, 0, 0, false, 1});
  scheduler.restore_cut(0, 0, 39);
  scheduler.start();
  scheduler.assign(52);
  scheduler.worker_joined("b", {1}, {});
  scheduler.worker_ends("b", 104);
  scheduler.assign(65);
  EXPECT_TRUE(scheduler.take_actions().grants.empty()) << "39 s are left";
  scheduler.worker_joined("c", {1}, {});
  scheduler.worker_ends("c", 65 + 52);
  scheduler.assign(66);
  ASSERT_EQ(scheduler.take_actions().grants.size(), 1U);
}

TEST(LeaseRules, ATaskThatAWholeAllocationCutsFails) {
  ArraySpec spec = array_of(2);
  spec.longest_allocation_s = 60;
  Scheduler scheduler({spec}, 1);
  scheduler.start();
  scheduler.assign(0);
  scheduler.worker_joined("a", {1}, {});
  scheduler.worker_ends("a", 52);
  scheduler.assign(0.5);
  const Lease lease = scheduler.take_actions().grants.at(0).lease;
  scheduler.ended_badly(cut(lease, 51.5), "a", 52);
  EXPECT_EQ(state(scheduler, lease.first), ElementState::failed);
  const Actions actions = scheduler.take_actions();
  ASSERT_EQ(actions.failures.size(), 1U);
  EXPECT_TRUE(actions.failures[0].final);
  EXPECT_NE(actions.failures[0].outcome.detail.find("raise 'walltime' of batch: or of its pool above 60 s"),
            std::string::npos)
      << actions.failures[0].outcome.detail;
}

TEST(LeaseRules, ATrainingGoesOnInTheNextAllocation) {
  ArraySpec spec = array_of(1);
  spec.longest_allocation_s = 60;
  spec.goes_on = true;
  Scheduler scheduler({spec}, 1);
  scheduler.start();
  scheduler.assign(0);
  scheduler.worker_joined("a", {1}, {});
  scheduler.worker_ends("a", 52);
  scheduler.assign(0.5);
  const Lease lease = scheduler.take_actions().grants.at(0).lease;
  scheduler.ended_badly(cut(lease, 51.5), "a", 52);
  EXPECT_FALSE(has_ended(state(scheduler, 0)));
}

}  // namespace
}  // namespace wflow::engine
