// SPDX-License-Identifier: Apache-2.0
// The coordinator machine with batch allocations: what is durable before what is submitted, and how it all
// ends.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/coordinate/test_machine.h"

namespace wflow::engine {
namespace {

class Campaign : public TestEdge {
 public:
  explicit Campaign(int combinations = 4, const std::string& step = "") : TestEdge(step, combinations) {
    batch::PoolSpec pool;
    pool.name = "default";
    pool.scheduler = "slurm";
    pool.slots = 1;
    pool.job.walltime_s = 600;
    options.pools = {pool};
    options.job_prefix = "wabcdef";
  }

  // The first submission gets the id 1, the next one 2, ...
  void accept(std::size_t i = 0) {
    handle(event::JobSubmitted{submits.at(i).job.token,
                               {std::to_string(i + 1), batch::Submission::Refusal::none, {}}});
  }
  wire::Hello hello_from(const TestWorker& worker, std::size_t allocation = 0) const {
    wire::Hello hello = TestEdge::hello(worker);
    hello.allocation = submits.at(allocation).job.token;
    return hello;
  }
  void join_from(const TestWorker& worker, std::optional<double> left_s = std::nullopt,
                 std::size_t allocation = 0) {
    wire::Hello hello = hello_from(worker, allocation);
    hello.left_s = left_s;
    say(worker.id, std::move(hello));
    beat(worker.id);
  }
  // The worker runs in this start of the first job.
  void join_in(const TestWorker& worker, int incarnation) {
    wire::Hello hello = hello_from(worker);
    hello.incarnation = incarnation;
    say(worker.id, std::move(hello));
    beat(worker.id);
  }
  // The worker says that it runs the task of the only lease that it has.
  void run_only_lease(const TestWorker& worker) {
    const auto held = leases(worker.id);
    ASSERT_EQ(held.size(), 1U);
    beat(worker.id, {{held[0].array, held[0].first, 1}});
  }
  // The first job runs.
  void start_job() {
    start();
    accept();
    list({job(batch::JobState::running)});
  }
  void list(std::vector<batch::JobStatus> jobs) {
    handle(event::JobsListed{"slurm", {true, {}, std::move(jobs)}});
    handle(event::Time{});
  }
  batch::JobStatus job(batch::JobState state, batch::JobEnd end = batch::JobEnd::none,
                       std::size_t i = 0) const {
    batch::JobStatus status;
    status.id = std::to_string(i + 1);
    status.token = submits.at(i).job.token;
    status.state = state;
    status.end = end;
    status.nodes = {"there"};
    return status;
  }
  std::vector<RecordFailure> failure_rows() const {
    std::vector<RecordFailure> rows;
    for (const store::Batch& batch : batches)
      rows.insert(rows.end(), batch.failures.begin(), batch.failures.end());
    return rows;
  }
  std::vector<RecordCause> causes() const {
    std::vector<RecordCause> rows;
    for (const store::Batch& batch : batches)
      rows.insert(rows.end(), batch.causes.begin(), batch.causes.end());
    return rows;
  }
  std::uint64_t failures() const {
    std::uint64_t count = 0;
    for (const store::Batch& batch : batches) count += batch.failures.size();
    return count;
  }
};

const TestWorker kThere{"w-there", "there", 200};

TEST(Allocations, NothingStartsHereAndAJobIsSubmittedOnceItsRowIsOnDisk) {
  Campaign campaign;
  campaign.hold_commits = true;
  campaign.start();
  EXPECT_TRUE(campaign.starts.empty());
  EXPECT_TRUE(campaign.submits.empty());
  campaign.finish_commit();
  ASSERT_FALSE(campaign.batches.empty());
  const auto& rows = campaign.batches.back().allocations;
  if (campaign.committing) campaign.finish_commit();
  ASSERT_EQ(campaign.submits.size(), 1U);
  EXPECT_TRUE(std::any_of(campaign.batches.begin(), campaign.batches.end(), [&](const store::Batch& batch) {
    return std::any_of(batch.allocations.begin(), batch.allocations.end(), [&](const batch::Allocation& row) {
      return row.token == campaign.submits[0].job.token && row.state == batch::AllocationState::intended;
    });
  })) << rows.size();
}

TEST(Allocations, TasksThatCanNotEndBeforeTheAllocationAreNotLeased) {
  Campaign campaign(4);
  campaign.restored.totals.push_back({0, {}});
  campaign.restored.totals[0].progress.timed = 10;
  campaign.restored.totals[0].progress.duration_sum_s = 1000;  // 100 s each
  campaign.restored.totals[0].progress.duration_square_sum = 1e5;
  campaign.start();
  campaign.accept();
  campaign.join_from(kThere, 300);
  ASSERT_EQ(campaign.leases(kThere.id).size(), 1U);
  campaign.say(kThere.id, wire::Heartbeat{100, 0, {}, 40.0});
  campaign.say(kThere.id, TestEdge::success(campaign.leases(kThere.id)[0]));
  campaign.pass(3);
  EXPECT_EQ(campaign.leases(kThere.id).size(), 1U) << "40 s are left for tasks of about 100 s";
}

TEST(Allocations, ALossWithTheAllocationChargesNoAttempt) {
  Campaign campaign(1);
  campaign.start();
  campaign.accept();
  campaign.join_from(kThere);
  campaign.run_only_lease(kThere);
  campaign.list({campaign.job(batch::JobState::running)});
  campaign.list({campaign.job(batch::JobState::failed, batch::JobEnd::node)});
  campaign.pass(campaign.options.timing.lost_s + campaign.options.timing.margin_s + 2);
  ASSERT_EQ(campaign.reads.size(), 1U);
  campaign.handle(event::JournalRead{kThere.id, {}, {}, 0});
  ASSERT_EQ(campaign.failures(), 1U);
  const RecordFailure row = campaign.failure_rows().at(0);
  EXPECT_EQ(row.outcome.reason, EndReason::node);
  EXPECT_EQ(row.outcome.detail, "a node of allocation 1 failed");
  EXPECT_FALSE(row.final);
  EXPECT_EQ(row.counts, (AttemptCounts{1, 0, 0, false, 1}));
  EXPECT_TRUE(campaign.has_history("no attempt is charged"));
}

TEST(Allocations, WhatTheSchedulerSaysAfterTheLossTakesTheChargeBack) {
  Campaign campaign(1);
  campaign.start();
  campaign.accept();
  campaign.join_from(kThere);
  campaign.run_only_lease(kThere);
  campaign.list({campaign.job(batch::JobState::running)});
  campaign.pass(campaign.options.timing.lost_s + campaign.options.timing.margin_s + 2);
  campaign.handle(event::JournalRead{kThere.id, {}, {}, 0});
  ASSERT_EQ(campaign.failures(), 1U);
  EXPECT_EQ(campaign.failure_rows().at(0).outcome.reason, EndReason::worker_lost);
  EXPECT_EQ(campaign.failure_rows().at(0).counts, (AttemptCounts{1, 0, 1}));
  EXPECT_TRUE(campaign.causes().empty());
  campaign.list({campaign.job(batch::JobState::failed, batch::JobEnd::node)});
  campaign.pass(2);
  ASSERT_EQ(campaign.causes().size(), 1U);
  const RecordCause cause = campaign.causes()[0];
  EXPECT_EQ(cause.reason, EndReason::node);
  EXPECT_EQ(cause.worker, kThere.id);
  ASSERT_TRUE(cause.counts);
  EXPECT_EQ(*cause.counts, (AttemptCounts{1, 0, 0, false, 1}));
  campaign.pass(3);
  EXPECT_EQ(campaign.causes().size(), 1U) << "once";
}

TEST(Allocations, WhatTheSchedulerSaysMuchLaterExplainsNothing) {
  Campaign campaign(1);
  campaign.start();
  campaign.accept();
  campaign.join_from(kThere);
  const auto leases = campaign.leases(kThere.id);
  campaign.beat(kThere.id, {{leases[0].array, leases[0].first, 1}});
  campaign.list({campaign.job(batch::JobState::running)});
  campaign.pass(campaign.options.timing.lost_s + campaign.options.timing.margin_s + 2);
  campaign.handle(event::JournalRead{kThere.id, {}, {}, 0});
  ASSERT_EQ(campaign.failures(), 1U);
  campaign.pass(601);
  campaign.list({campaign.job(batch::JobState::failed, batch::JobEnd::walltime)});
  campaign.pass(2);
  EXPECT_TRUE(campaign.causes().empty());
}

TEST(Allocations, ARequeuedAllocationIsANewIncarnation) {
  Campaign campaign(1);
  campaign.start();
  campaign.accept();
  campaign.join_from(kThere);
  const auto leases = campaign.leases(kThere.id);
  campaign.beat(kThere.id, {{leases[0].array, leases[0].first, 1}});
  batch::JobStatus again = campaign.job(batch::JobState::queued);
  again.restarts = 1;
  campaign.list({again});
  campaign.pass(campaign.options.timing.lost_s + campaign.options.timing.margin_s + 2);
  campaign.handle(event::JournalRead{kThere.id, {}, {}, 0});
  ASSERT_EQ(campaign.failures(), 1U);
  EXPECT_EQ(campaign.failure_rows().at(0).outcome.reason, EndReason::preempted);
  EXPECT_EQ(campaign.failure_rows().at(0).counts, (AttemptCounts{1, 0, 0, false, 1}));
  const TestWorker next{"w-next", "there", 400};
  campaign.join_in(next, 1);
  ASSERT_EQ(campaign.leases(next.id).size(), 1U);
  EXPECT_EQ(campaign.leases(next.id)[0].attempt, 1U);
}

// Workers of the first start may run on for a while, and those of the next one may have joined before the
// list that reports the requeue.
TEST(Allocations, WorkersOfARequeuedAllocationHaveUntilTheirFence) {
  for (const int incarnation : {0, 1}) {
    Campaign campaign(1);
    campaign.start();
    campaign.accept();
    campaign.join_in(kThere, incarnation);
    ASSERT_EQ(campaign.leases(kThere.id).size(), 1U);
    batch::JobStatus again = campaign.job(batch::JobState::running);
    again.restarts = 1;
    campaign.list({again});
    campaign.pass(campaign.options.timing.lost_s);
    EXPECT_TRUE(campaign.reads.empty()) << "it is silent, and its fence has not passed";
  }
}

TEST(Allocations, AnEarlierIncarnationGetsNothingFromTheNextCoordinator) {
  Campaign campaign(1);
  batch::Allocation running;
  running.token = "wabcdef000001";
  running.pool = "default";
  running.scheduler = "slurm";
  running.id = "1";
  running.state = batch::AllocationState::running;
  running.restarts = 1;
  campaign.restored.allocations.push_back(running);
  campaign.known.push_back(kThere.known());
  campaign.start();
  wire::Hello hello = campaign.TestEdge::hello(kThere);
  hello.allocation = running.token;
  campaign.say(kThere.id, std::move(hello));
  campaign.beat(kThere.id);
  EXPECT_TRUE(campaign.leases(kThere.id).empty());
  EXPECT_EQ(campaign.sent<wire::Drain>(kThere.id).size(), 1U);
}

TEST(Allocations, ATaskThatEndsItsAllocationByItsMemoryIsCharged) {
  Campaign campaign(1);
  campaign.start();
  campaign.accept();
  campaign.join_from(kThere);
  const auto leases = campaign.leases(kThere.id);
  campaign.beat(kThere.id, {{leases[0].array, leases[0].first, 1}});
  campaign.list({campaign.job(batch::JobState::running)});
  campaign.list({campaign.job(batch::JobState::failed, batch::JobEnd::memory)});
  campaign.pass(campaign.options.timing.lost_s + campaign.options.timing.margin_s + 2);
  campaign.handle(event::JournalRead{kThere.id, {}, {}, 0});
  ASSERT_EQ(campaign.failures(), 1U);
  EXPECT_EQ(campaign.failure_rows().at(0).outcome.reason, EndReason::out_of_memory);
  EXPECT_EQ(campaign.failure_rows().at(0).counts, (AttemptCounts{1, 0, 1}));
}

TEST(Allocations, ALossInAnAllocationThatRunsCountsAsACrash) {
  Campaign campaign(1);
  campaign.start();
  campaign.accept();
  campaign.join_from(kThere);
  campaign.run_only_lease(kThere);
  campaign.list({campaign.job(batch::JobState::running)});
  campaign.pass(campaign.options.timing.lost_s + campaign.options.timing.margin_s + 2);
  ASSERT_EQ(campaign.reads.size(), 1U);
  campaign.handle(event::JournalRead{kThere.id, {}, {}, 0});
  EXPECT_EQ(campaign.failures(), 1U);
}

TEST(Allocations, WorkersOfAnAllocationThatIsGivenUpAreRefused) {
  Campaign campaign(1);
  campaign.start();
  campaign.accept();
  campaign.list({campaign.job(batch::JobState::failed, batch::JobEnd::cancelled)});
  campaign.say(kThere.id, campaign.hello_from(kThere));
  ASSERT_EQ(campaign.sent<wire::Refuse>(kThere.id).size(), 1U);
}

TEST(Allocations, AnOlderIncarnationIsRefusedAndDrained) {
  Campaign campaign(2);
  campaign.start();
  campaign.accept();
  campaign.join_from(kThere);
  batch::JobStatus again = campaign.job(batch::JobState::queued);
  again.restarts = 1;
  campaign.list({again});
  EXPECT_EQ(campaign.sent<wire::Drain>(kThere.id).size(), 1U);
  const TestWorker late{"w-late", "there", 300};
  campaign.say(late.id, campaign.hello_from(late));
  EXPECT_EQ(campaign.sent<wire::Refuse>(late.id).size(), 1U);
}

TEST(Allocations, TheEndWaitsForTheCancel) {
  Campaign campaign(1);
  campaign.start();
  campaign.accept();
  campaign.join_from(kThere);
  campaign.say(kThere.id, TestEdge::success(campaign.leases(kThere.id).at(0)));
  campaign.say(kThere.id, wire::Goodbye{"drained"});
  campaign.handle(event::JournalRead{kThere.id, {}, {}, 0});
  campaign.pass(2);
  ASSERT_EQ(campaign.cancels.size(), 1U);
  EXPECT_EQ(campaign.cancels[0].ids, std::vector<std::string>{"1"});
  EXPECT_FALSE(campaign.machine().ended());
  campaign.handle(event::JobsCancelled{"slurm", {"1"}, std::nullopt});
  campaign.handle(event::Time{});
  EXPECT_TRUE(campaign.machine().ended());
  std::vector<std::string> reasons;
  for (const store::Batch& batch : campaign.batches) {
    for (const batch::Allocation& row : batch.allocations) {
      if (row.state == batch::AllocationState::ended) reasons.push_back(row.reason);
    }
  }
  EXPECT_EQ(reasons, std::vector<std::string>{"given back"});
}

TEST(Allocations, ACancelThatIsNeverAnsweredDoesNotHoldTheEndUpForEver) {
  Campaign campaign(1);
  campaign.start();
  campaign.accept();
  campaign.join_from(kThere);
  campaign.say(kThere.id, TestEdge::success(campaign.leases(kThere.id).at(0)));
  campaign.say(kThere.id, wire::Goodbye{"drained"});
  campaign.handle(event::JournalRead{kThere.id, {}, {}, 0});
  campaign.pass(campaign.options.timing.cancel_s + 5);
  EXPECT_TRUE(campaign.machine().ended());
  EXPECT_TRUE(campaign.has_history("did not cancel"));
}

TEST(Allocations, ANodeOnWhichEveryTaskFailsGetsNoMoreAndItsTasksRunElsewhere) {
  Campaign campaign(60);
  campaign.start();
  campaign.accept();
  const TestWorker bad{"w-bad", "bad", 300};
  campaign.join_from(kThere);
  batch::JobStatus runs = campaign.job(batch::JobState::running);
  runs.nodes = {"there", "bad"};
  campaign.list({runs});
  std::size_t well = 0;
  std::uint64_t sequence = 0;
  for (; well < 20; ++well)
    campaign.say(kThere.id, TestEdge::success(campaign.leases(kThere.id).at(well), ++sequence));
  campaign.join_from(bad);
  std::size_t failed = 0;
  sequence = 0;
  while (campaign.sent<wire::Drain>(bad.id).empty() && failed < campaign.leases(bad.id).size()) {
    const wire::Lease lease = campaign.leases(bad.id).at(failed++);
    campaign.say(bad.id, TestEdge::failure(lease, 127, ++sequence));
  }
  EXPECT_EQ(failed, 5U) << "on the other node 0 of 20 failed";
  EXPECT_EQ(campaign.sent<wire::Drain>(bad.id).size(), 1U);
  EXPECT_TRUE(
      campaign.has_history("node bad: the last 5 tasks there failed, and on other nodes 0 of 20 did"));
  EXPECT_EQ(campaign.count(ElementState::failed), 0U) << "they run again";
  campaign.say("client", wire::Query{wire::AllocationsCommand{wire::AllocationsVerb::add, "default", 1}});
  campaign.handle(event::Time{});
  EXPECT_EQ(campaign.submits.back().job.exclude, std::vector<std::string>{"bad"});
}

TEST(Allocations, ARefusalThatAUserMustMendFailsWithTheSchedulersWords) {
  Campaign campaign;
  campaign.start();
  campaign.handle(
      event::JobSubmitted{campaign.submits.at(0).job.token,
                          {{}, batch::Submission::Refusal::fix, "invalid partition specified: nosuch"}});
  campaign.pass(2);
  ASSERT_EQ(campaign.fails.size(), 1U);
  EXPECT_EQ(campaign.fails[0].code, ExitCode::system);
  EXPECT_NE(campaign.fails[0].text.find("invalid partition specified: nosuch"), std::string::npos);
  EXPECT_NE(campaign.fails[0].text.find("--local"), std::string::npos);
  EXPECT_TRUE(campaign.has_history("nosuch")) << "it is recorded before";
}

TEST(Allocations, ExplainNamesTheAllocationThatIsWaitedFor) {
  Campaign campaign(1);
  campaign.start();
  campaign.accept();
  batch::JobStatus pending = campaign.job(batch::JobState::queued);
  pending.reason = "Priority";
  campaign.list({pending});
  campaign.pass(720);
  EXPECT_EQ(campaign.machine().waits_for(0, campaign.now.unix_s),
            "allocation 1, pending for 12 min: Priority");
  EXPECT_FALSE(campaign.has_history("no worker serves"));
}

TEST(Allocations, PeopleAddCancelAndDrain) {
  Campaign campaign(1);
  campaign.start();
  campaign.accept();
  campaign.say("client", wire::Query{wire::AllocationsCommand{wire::AllocationsVerb::add, "default", 2}});
  campaign.handle(event::Time{});
  EXPECT_EQ(campaign.submits.size(), 3U);
  campaign.say("client", wire::Query{wire::AllocationsCommand{wire::AllocationsVerb::cancel, "1", 1}});
  campaign.pass(2);
  ASSERT_EQ(campaign.cancels.size(), 1U);
  campaign.say("client", wire::Query{wire::AllocationsCommand{wire::AllocationsVerb::drain, "nosuch", 1}});
  const auto answers = campaign.sent<wire::Answer>("client");
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_TRUE(std::holds_alternative<wire::Done>(answers[0].body));
  EXPECT_TRUE(std::holds_alternative<wire::Refusal>(answers[2].body));
  campaign.say("client", wire::Query{wire::AllocationsRequest{}});
  const auto listed = campaign.sent<wire::Answer>("client").back();
  ASSERT_TRUE(std::holds_alternative<wire::AllocationsAnswer>(listed.body));
  EXPECT_EQ(std::get<wire::AllocationsAnswer>(listed.body).allocations.size(), 3U);
  EXPECT_EQ(std::get<wire::AllocationsAnswer>(listed.body).pools.at(0).name, "default");
}

// Its tasks may end before its worker does, and the worker's journal is read when all is over.
TEST(Allocations, WhatFailedInOneThatWasPreemptedIsPreempted) {
  Campaign campaign(1);
  campaign.start_job();
  campaign.join_from(kThere);
  const auto leases = campaign.leases(kThere.id);
  ASSERT_EQ(leases.size(), 1U);
  campaign.list({campaign.job(batch::JobState::failed, batch::JobEnd::preempted)});
  campaign.say(kThere.id, TestEdge::failure(leases[0], 143));
  campaign.pass(1);
  const auto rows = campaign.failure_rows();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].outcome.reason, EndReason::preempted);
  EXPECT_EQ(rows[0].counts.neutral, 1U);
  EXPECT_FALSE(rows[0].final);
}

TEST(Allocations, WhatFailsInAnAllocationThatWasCancelledIsPreempted) {
  Campaign campaign(1);
  campaign.start_job();
  campaign.join_from(kThere);
  const auto leases = campaign.leases(kThere.id);
  ASSERT_EQ(leases.size(), 1U);
  campaign.say("client", wire::Query{wire::AllocationsCommand{wire::AllocationsVerb::cancel, "1", 1}});
  for (int i = 0; i < 70 && campaign.cancels.empty(); ++i) {
    campaign.beat(kThere.id, {{leases[0].array, leases[0].first, 1}});
    campaign.pass(1);
  }
  ASSERT_EQ(campaign.cancels.size(), 1U);
  campaign.say(kThere.id, TestEdge::failure(leases[0], 143));
  campaign.pass(1);
  const auto rows = campaign.failure_rows();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].outcome.reason, EndReason::preempted);
  EXPECT_EQ(rows[0].counts.neutral, 1U);
  EXPECT_FALSE(rows[0].final);
}

// Its guardian has written that the agent was killed: 75 s of waiting would be for nothing.
TEST(Allocations, AKilledAgentIsKnownByItsJournal) {
  Campaign campaign(1);
  campaign.start_job();
  campaign.join_from(kThere);
  const auto leases = campaign.leases(kThere.id);
  campaign.beat(kThere.id, {{leases[0].array, leases[0].first, 1}});
  campaign.pass(7);
  ASSERT_EQ(campaign.looks, std::vector<std::string>{kThere.id});
  EXPECT_TRUE(campaign.reads.empty());
  campaign.handle(event::JournalEnded{kThere.id});
  campaign.pass(2);
  ASSERT_EQ(campaign.reads.size(), 1U);
  campaign.handle(event::JournalRead{kThere.id, {}, {}, 0});
  ASSERT_EQ(campaign.failures(), 1U);
  EXPECT_TRUE(campaign.has_history("its agent was killed"));
}

// tests/cluster: `kill -9 $PPID` in a task's first milliseconds ended five allocations for which nothing was
// charged.
TEST(Allocations, ATaskThatEndsItsWorkerBeforeAnyHeartbeatIsCharged) {
  Campaign campaign(1);
  campaign.start_job();
  campaign.join_from(kThere);
  const auto leases = campaign.leases(kThere.id);
  campaign.pass(1);
  campaign.handle(event::JournalEnded{kThere.id});
  campaign.pass(5);
  ASSERT_EQ(campaign.reads.size(), 1U);
  campaign.handle(event::JournalRead{kThere.id, {}, {}, 0, {{leases[0].array, leases[0].first, 1}}});
  ASSERT_EQ(campaign.failures(), 1U);
  EXPECT_EQ(campaign.failure_rows().at(0).outcome.reason, EndReason::worker_lost);
  EXPECT_EQ(campaign.failure_rows().at(0).counts.crashes, 1U);
}

TEST(Allocations, TasksOfAJobThatTheSchedulerSaysIsGoneRunAgainAtOnce) {
  Campaign campaign(1);
  campaign.start_job();
  campaign.join_from(kThere);
  const auto leases = campaign.leases(kThere.id);
  campaign.beat(kThere.id, {{leases[0].array, leases[0].first, 1}});
  campaign.pass(10);
  EXPECT_TRUE(campaign.reads.empty());
  campaign.list({campaign.job(batch::JobState::failed, batch::JobEnd::node)});
  campaign.pass(2);
  ASSERT_EQ(campaign.reads.size(), 1U);
  campaign.handle(event::JournalRead{kThere.id, {}, {}, 0});
  const TestWorker next{"w-next", "there", 400};
  campaign.pass(2);
  ASSERT_EQ(campaign.submits.size(), 2U);
  campaign.accept(1);
  campaign.join_from(next, std::nullopt, 1);
  ASSERT_EQ(campaign.leases(next.id).size(), 1U);
  EXPECT_EQ(campaign.failure_rows().at(0).counts, (AttemptCounts{1, 0, 0, false, 1}));
}

// tests/simulation, seed 5030236: the first list with the job's new start comes once a worker of it has
// joined, and its node was lost.
TEST(Allocations, ANodeThatIsLostBeforeTheListOfTheRequeueIsKnown) {
  Campaign campaign(1);
  campaign.options.pools[0].job.nodes = 2;
  campaign.start_job();
  campaign.join_in(kThere, 1);
  campaign.run_only_lease(kThere);
  campaign.pass(10);
  EXPECT_TRUE(campaign.reads.empty());
  batch::JobStatus again = campaign.job(batch::JobState::running);
  again.restarts = 1;
  again.nodes = {"other"};
  campaign.list({again});
  campaign.pass(2);
  EXPECT_EQ(campaign.reads.size(), 1U);
}

// A list of an earlier start names other nodes than those of the workers of the present one.
TEST(Allocations, AListOfAnEarlierStartTakesNoNodeOfAWorkerOut) {
  Campaign campaign(1);
  campaign.options.pools[0].job.nodes = 2;
  campaign.start_job();
  campaign.join_in(kThere, 2);
  ASSERT_EQ(campaign.leases(kThere.id).size(), 1U);
  batch::JobStatus second = campaign.job(batch::JobState::running);
  second.restarts = 1;
  second.nodes = {"other"};
  campaign.list({second});
  EXPECT_FALSE(campaign.has_history("has taken there out"));
}

TEST(Allocations, AWorkerThatStillTalksIsNotLostByTheSchedulersWord) {
  Campaign campaign(1);
  campaign.start_job();
  campaign.join_from(kThere);
  campaign.list({campaign.job(batch::JobState::failed, batch::JobEnd::node)});
  for (int i = 0; i < 10; ++i) {
    campaign.beat(kThere.id);
    campaign.pass(1);
  }
  EXPECT_TRUE(campaign.reads.empty());
}

// tests/simulation, seed 5034295: a task ended its workers, and so their allocations, each time while the
// campaign waited for its workers to leave. The allocations counted as given back, and nothing was charged.
TEST(Allocations, ATaskThatEndsAnAllocationThatDrainsIsCharged) {
  Campaign campaign(1);
  campaign.start_job();
  campaign.join_from(kThere);
  campaign.run_only_lease(kThere);
  campaign.say("client", wire::Query{wire::AllocationsCommand{wire::AllocationsVerb::drain, "1", 1}});
  campaign.pass(10);
  campaign.list({campaign.job(batch::JobState::failed, batch::JobEnd::exit)});
  campaign.pass(2);
  EXPECT_TRUE(campaign.cancels.empty());
  ASSERT_EQ(campaign.reads.size(), 1U);
  campaign.handle(event::JournalRead{kThere.id, {}, {}, 0});
  ASSERT_EQ(campaign.failures(), 1U);
  EXPECT_EQ(campaign.failure_rows().at(0).outcome.reason, EndReason::worker_lost);
  EXPECT_EQ(campaign.failure_rows().at(0).counts.crashes, 1U);
}

TEST(Allocations, ALossOnceTheAllocationIsCancelledIsNotCharged) {
  Campaign campaign(1);
  campaign.start_job();
  campaign.join_from(kThere);
  campaign.run_only_lease(kThere);
  campaign.say("client", wire::Query{wire::AllocationsCommand{wire::AllocationsVerb::cancel, "1", 1}});
  campaign.pass(10);
  ASSERT_EQ(campaign.cancels.size(), 1U);
  campaign.list({campaign.job(batch::JobState::failed, batch::JobEnd::exit)});
  campaign.pass(2);
  ASSERT_EQ(campaign.reads.size(), 1U);
  campaign.handle(event::JournalRead{kThere.id, {}, {}, 0});
  ASSERT_EQ(campaign.failures(), 1U);
  EXPECT_EQ(campaign.failure_rows().at(0).counts.crashes, 0U);
}

// It ends the worker, and with it its allocation of one node.
TEST(Allocations, ATaskThatEndsItsAllocationThreeTimesIsInQuarantine) {
  Campaign campaign(1);
  campaign.start();
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(campaign.submits.size(), i + 1);
    campaign.accept(i);
    const TestWorker worker{"w" + std::to_string(i), "there", 200 + 10 * static_cast<int>(i)};
    campaign.list({campaign.job(batch::JobState::running, batch::JobEnd::none, i)});
    campaign.join_from(worker, std::nullopt, i);
    campaign.pass(3);
    campaign.beat(worker.id);
    const auto leases = campaign.leases(worker.id);
    ASSERT_EQ(leases.size(), 1U) << i;
    campaign.beat(worker.id, {{leases[0].array, leases[0].first, 1}});
    campaign.pass(7);
    campaign.handle(event::JournalEnded{worker.id});
    campaign.pass(3);
    campaign.handle(event::JournalRead{worker.id, {}, {}, 0});
    batch::JobStatus ended = campaign.job(batch::JobState::failed, batch::JobEnd::exit, i);
    ended.reason = "NonZeroExitCode";
    campaign.list({ended});
    campaign.pass(12);
  }
  EXPECT_EQ(campaign.count(ElementState::failed), 1U);
  ASSERT_FALSE(campaign.causes().empty());
  EXPECT_TRUE(campaign.causes().back().final);
  EXPECT_NE(campaign.causes().back().detail.find("in quarantine: 3 workers were lost"), std::string::npos);
  EXPECT_NE(campaign.causes().back().detail.find("NonZeroExitCode"), std::string::npos);
}

}  // namespace
}  // namespace wflow::engine
