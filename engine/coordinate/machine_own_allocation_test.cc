// SPDX-License-Identifier: Apache-2.0
// A coordinator that lives in the campaign's batch allocations and moves from one to the next.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/coordinate/test_machine.h"

namespace wflow::engine {
namespace {

const TestWorker kThere{"w-there", "there", 200};
const TestWorker kElsewhere{"w-elsewhere", "elsewhere", 300};

class Moving : public TestEdge {
 public:
  Moving() {
    batch::PoolSpec pool;
    pool.name = "default";
    pool.scheduler = "slurm";
    pool.slots = 1;
    pool.job.walltime_s = 600;
    options.pools = {pool};
    options.job_prefix = "wabcdef";
    options.own_allocation.moves = true;
  }

  // Makes it the coordinator in a running allocation, with that allocation's end.
  void live_in_one(double left_s = 600) {
    batch::Allocation own;
    own.token = options.own_allocation.token = "wabcdef000001";
    own.pool = "default";
    own.scheduler = "slurm";
    own.id = "77";
    own.walltime_s = 600;
    own.state = batch::AllocationState::running;
    own.started_s = now.unix_s - 600 + left_s;
    own.ends_s = now.unix_s + left_s;
    restored.allocations = {own};
  }
  void join_from(const TestWorker& worker, const std::string& token) {
    wire::Hello hello = TestEdge::hello(worker);
    hello.allocation = token;
    say(worker.id, std::move(hello));
    beat(worker.id);
  }
  void accept(std::size_t i = 0) {
    handle(event::JobSubmitted{submits.at(i).job.token,
                               {std::to_string(i + 1), batch::Submission::Refusal::none, {}}});
  }
  void leave(const TestWorker& worker) {
    say(worker.id, wire::Goodbye{"the walltime of its allocation ends"});
    handle(event::JournalRead{worker.id, {}, {}, 0});
  }
  bool was_drained(const TestWorker& worker) const { return !sent<wire::Drain>(worker.id).empty(); }
};

TEST(OwnAllocation, OnTheLoginNodeItSubmitsAndLeavesTheRestToTheAllocation) {
  Moving campaign;
  campaign.start();
  ASSERT_EQ(campaign.submits.size(), 1U);
  EXPECT_FALSE(campaign.machine().ended());
  campaign.accept();
  campaign.pass(1);
  EXPECT_TRUE(campaign.machine().ended());
  EXPECT_TRUE(campaign.machine().handed_over());
  EXPECT_FALSE(campaign.machine().asked_to_end());
  EXPECT_TRUE(campaign.cancels.empty());
  EXPECT_TRUE(campaign.has_history("hands over"));
  const auto& rows = campaign.batches.back().allocations;
  EXPECT_TRUE(rows.empty() || rows.back().state == batch::AllocationState::queued);
}

TEST(OwnAllocation, WhatAnEarlierCoordinatorRecordedIsNoSuccessorBeforeTheSchedulerNamesIt) {
  Moving campaign;
  campaign.live_in_one();
  campaign.options.own_allocation.token.clear();  // on the login node again: everything was killed
  campaign.start();
  campaign.pass(1);
  EXPECT_FALSE(campaign.machine().ended());
  EXPECT_TRUE(campaign.submits.empty());
  batch::JobStatus job;
  job.id = "77";
  job.token = "wabcdef000001";
  job.state = batch::JobState::done;
  campaign.handle(event::JobsListed{"slurm", {true, {}, {job}}});
  campaign.pass(1);
  ASSERT_EQ(campaign.submits.size(), 1U);
  campaign.accept();
  campaign.pass(0.1);
  EXPECT_TRUE(campaign.machine().handed_over());
}

TEST(OwnAllocation, AnAllocationThatTheSchedulerNamesIsASuccessor) {
  Moving campaign;
  campaign.live_in_one();
  campaign.options.own_allocation.token.clear();
  campaign.start();
  batch::JobStatus job;
  job.id = "77";
  job.token = "wabcdef000001";
  job.state = batch::JobState::running;
  campaign.handle(event::JobsListed{"slurm", {true, {}, {job}}});
  campaign.pass(0.1);
  EXPECT_TRUE(campaign.machine().handed_over());
  EXPECT_TRUE(campaign.submits.empty());
}

TEST(OwnAllocation, ARefusedSubmissionKeepsItOnTheLoginNode) {
  Moving campaign;
  campaign.start();
  campaign.handle(event::JobSubmitted{campaign.submits.at(0).job.token,
                                      {"", batch::Submission::Refusal::wait, "try again"}});
  campaign.pass(5);
  EXPECT_FALSE(campaign.machine().ended());
}

TEST(OwnAllocation, AtTheEndOfItsAllocationItHandsOverAndWorkersGoOn) {
  Moving campaign;
  campaign.options.pools[0].max = 2;
  campaign.live_in_one();
  campaign.start();
  campaign.join_from(kThere, "wabcdef000001");
  ASSERT_FALSE(campaign.leases(kThere.id).empty());
  // The script's signal: the workers of the allocation have left. One of another allocation works on.
  campaign.pass(10);
  ASSERT_FALSE(campaign.submits.empty()) << "a second one has work as well";
  campaign.accept();
  campaign.join_from(kElsewhere, campaign.submits[0].job.token);
  campaign.leave(kThere);
  campaign.handle(event::Signal{event::SignalKind::workers_left});
  campaign.pass(1);
  EXPECT_TRUE(campaign.machine().handed_over());
  EXPECT_FALSE(campaign.was_drained(kElsewhere));
  EXPECT_TRUE(campaign.sent<wire::Revoke>(kElsewhere.id).empty());
  EXPECT_TRUE(campaign.cancels.empty());
}

TEST(OwnAllocation, NoSuccessorIsThereYetSoOneIsSubmitted) {
  Moving campaign;
  campaign.options.pools[0].max = 1;
  campaign.live_in_one();
  campaign.start();
  campaign.join_from(kThere, "wabcdef000001");
  EXPECT_TRUE(campaign.submits.empty());
  campaign.handle(event::Signal{event::SignalKind::terminate});
  campaign.leave(kThere);
  ASSERT_EQ(campaign.submits.size(), 1U);
  EXPECT_FALSE(campaign.machine().ended());
  campaign.accept();
  campaign.pass(0.1);
  EXPECT_TRUE(campaign.machine().handed_over());
}

// The allocation before it has just been cancelled, which is not recorded yet.
TEST(OwnAllocation, ItsOwnAllocationRunsAlthoughTheRecordSaysThatItIsQueued) {
  Moving campaign;
  campaign.options.pools[0].max = 1;
  campaign.live_in_one();
  batch::Allocation& own = campaign.restored.allocations[0];
  batch::Allocation before = own;
  before.token = "wabcdef000000";
  before.id = "76";
  own.state = batch::AllocationState::queued;
  own.started_s = own.ends_s = 0;
  campaign.restored.allocations.insert(campaign.restored.allocations.begin(), before);
  campaign.start();
  campaign.join_from(kThere, "wabcdef000001");
  campaign.pass(5);
  EXPECT_FALSE(campaign.machine().ended());
  EXPECT_FALSE(campaign.was_drained(kThere));
  EXPECT_FALSE(campaign.leases(kThere.id).empty());
}

TEST(OwnAllocation, WithoutASuccessorItSaysHowToGoOn) {
  Moving campaign;
  campaign.options.pools[0].max = 1;
  campaign.live_in_one();
  campaign.start();
  campaign.handle(event::Signal{event::SignalKind::terminate});
  campaign.pass(campaign.options.timing.succeed_s + 1);  // the scheduler does not answer
  EXPECT_TRUE(campaign.machine().handed_over());
  EXPECT_TRUE(campaign.has_history("continue with: wflow resume"));
}

TEST(OwnAllocation, ItLeavesInTimeWithoutASignal) {
  Moving campaign;
  campaign.live_in_one(60);
  campaign.start();
  campaign.join_from(kThere, "wabcdef000001");
  campaign.pass(50);
  ASSERT_EQ(campaign.submits.size(), 1U) << "the successor is asked for before the walltime ends";
  campaign.accept();
  EXPECT_FALSE(campaign.machine().ended());
  campaign.pass(9.5);
  EXPECT_TRUE(campaign.machine().handed_over());
}

TEST(OwnAllocation, WhileItHandsOverNothingIsLeasedAndResultsAreTaken) {
  Moving campaign;
  campaign.live_in_one();
  campaign.start();
  campaign.join_from(kThere, "wabcdef000001");
  const auto leases = campaign.leases(kThere.id);
  ASSERT_FALSE(leases.empty());
  campaign.handle(event::Signal{event::SignalKind::terminate});
  campaign.say(kThere.id, TestEdge::success(leases[0]));
  EXPECT_EQ(campaign.leases(kThere.id).size(), leases.size());
  EXPECT_EQ(campaign.sent<wire::Acknowledge>(kThere.id).size(), 1U) << "what it has said is on disk";
}

// The end of the time for a successor was in the past from then on: the coordinator never slept.
TEST(OwnAllocation, ItSleepsWhereAHandOverBecomesADrain) {
  Moving campaign;
  campaign.live_in_one();
  campaign.start();
  campaign.join_from(kThere, "wabcdef000001");
  ASSERT_FALSE(campaign.leases(kThere.id).empty());
  campaign.handle(event::Signal{event::SignalKind::terminate});
  campaign.say("client", wire::Query{wire::DrainRequest{}});
  ASSERT_TRUE(campaign.was_drained(kThere));
  campaign.pass(campaign.options.timing.succeed_s + 0.1);
  EXPECT_FALSE(campaign.machine().ended());
  EXPECT_GT(campaign.machine().wake_at_s(), campaign.now.steady_s);
}

TEST(OwnAllocation, AtTheEndOfTheCampaignItsOwnAllocationIsNotCancelled) {
  Moving campaign;
  campaign.live_in_one();
  campaign.start();
  campaign.join_from(kThere, "wabcdef000001");
  for (std::size_t done = 0; done < 4; ++done) {
    const auto leases = campaign.leases(kThere.id);
    ASSERT_GT(leases.size(), done);
    campaign.say(kThere.id, TestEdge::success(leases[done], done + 1));
    campaign.pass(1);
  }
  EXPECT_TRUE(campaign.was_drained(kThere));
  campaign.leave(kThere);
  campaign.pass(2);
  EXPECT_TRUE(campaign.machine().ended());
  EXPECT_FALSE(campaign.machine().handed_over());
  EXPECT_TRUE(campaign.machine().campaign_over());
  for (const action::CancelJobs& cancel : campaign.cancels)
    EXPECT_TRUE(std::find(cancel.ids.begin(), cancel.ids.end(), "77") == cancel.ids.end());
  bool ended = false;
  for (const store::Batch& batch : campaign.batches) {
    for (const batch::Allocation& row : batch.allocations)
      ended = ended || (row.id == "77" && row.state == batch::AllocationState::ended);
  }
  EXPECT_TRUE(ended);
}

TEST(OwnAllocation, AskedToStopItEndsTheCampaign) {
  Moving campaign;
  campaign.live_in_one();
  campaign.start();
  campaign.join_from(kThere, "wabcdef000001");
  campaign.say("client", wire::Query{wire::StopRequest{}});
  campaign.handle(event::Signal{event::SignalKind::terminate});
  campaign.leave(kThere);
  campaign.pass(20);
  EXPECT_TRUE(campaign.machine().ended());
  EXPECT_FALSE(campaign.machine().handed_over());
}

TEST(OwnAllocation, ADrainGoesOnWhenTheWorkersOfItsAllocationHaveLeft) {
  Moving campaign;
  campaign.live_in_one();
  campaign.start();
  campaign.join_from(kThere, "wabcdef000001");
  campaign.join_from(kElsewhere, "");
  const auto leases = campaign.leases(kElsewhere.id);
  ASSERT_FALSE(leases.empty());
  campaign.say("client", wire::Query{wire::DrainRequest{}});
  campaign.say(kThere.id, wire::Returned{campaign.leases(kThere.id)});
  campaign.leave(kThere);
  campaign.handle(event::Signal{event::SignalKind::workers_left});
  for (int s = 0; s < 30; ++s) {
    campaign.beat(kElsewhere.id, {{leases[0].array, leases[0].first, 1}});
    campaign.pass(1);
  }
  EXPECT_EQ(campaign.machine().phase(), Phase::draining);
  EXPECT_TRUE(campaign.sent<wire::Revoke>(kElsewhere.id).empty()) << "what runs elsewhere may finish";
}

TEST(OwnAllocation, AnIdleAllocationStaysWhileItIsTheOnlyOneToLiveIn) {
  Moving campaign;
  campaign.live_in_one();
  campaign.start();
  campaign.join_from(kThere, "wabcdef000001");
  campaign.say("client", wire::Query{wire::PauseRequest{true}});
  campaign.say(kThere.id, TestEdge::success(campaign.leases(kThere.id).at(0)));
  for (int s = 0; s < 200; ++s) {
    campaign.beat(kThere.id);
    campaign.pass(1);
  }
  EXPECT_FALSE(campaign.was_drained(kThere));
  EXPECT_FALSE(campaign.machine().ended());
}

}  // namespace
}  // namespace wflow::engine
