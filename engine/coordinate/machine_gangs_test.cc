// SPDX-License-Identifier: Apache-2.0
// The coordinator machine with tasks on several nodes: what a lost, silent or leaving node means for them.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/coordinate/test_machine.h"

namespace wflow::engine {
namespace {

// One task on two nodes of an allocation with three workers.
class GangEdge : public TestEdge {
 public:
  GangEdge() : TestEdge(", nodes: 2}\nbatch: {type: slurm", 1) {
    start();
    for (int i = 0; i < 3; ++i) join_node(i);
    lead_ = leases("w0").empty() ? (leases("w1").empty() ? "w2" : "w1") : "w0";
    lease = leases(lead_).at(0);
    const std::vector<WorkerId> workers = machine().scheduler().gang_of(lease.id);
    other_ = workers.at(1);
    for (int i = 0; i < 3; ++i) {
      const std::string id = "w" + std::to_string(i);
      if (id != lead_ && id != other_) idle_ = id;
    }
  }

  void join_node(int i) {
    const TestWorker worker{"w" + std::to_string(i), "node" + std::to_string(i), 100 + 10 * i};
    wire::Hello said = hello(worker);
    said.allocation = "a1";
    said.node = "n" + std::to_string(i);
    say(worker.id, std::move(said));
    beat(worker.id);
  }
  // All but these beat for so long.
  void live(double seconds, const std::vector<std::string>& silent = {}) {
    for (int i = 0; i < static_cast<int>(seconds); ++i) {
      pass(1);
      for (const std::string& id : {lead_, other_, idle_}) {
        if (std::find(silent.begin(), silent.end(), id) == silent.end()) beat(id);
      }
    }
  }
  std::vector<wire::Lease> revoked(const std::string& peer) const {
    std::vector<wire::Lease> parts;
    for (const wire::Revoke& revoke : sent<wire::Revoke>(peer)) {
      EXPECT_TRUE(revoke.kill_running);
      parts.insert(parts.end(), revoke.leases.begin(), revoke.leases.end());
    }
    return parts;
  }
  static bool ends_ranks(const std::vector<wire::Lease>& parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [](const wire::Lease& part) { return !part.nodes.empty(); });
  }
  std::vector<RecordFailure> failures() const {
    std::vector<RecordFailure> all;
    for (const store::Batch& batch : batches)
      all.insert(all.end(), batch.failures.begin(), batch.failures.end());
    return all;
  }
  // The lead's word that it has ended the task.
  void ended(wire::EndReason reason, int code) {
    wire::Results results = failure(lease, code, ++sequence_);
    results.outcomes[0].reason = reason;
    say(lead_, std::move(results));
  }

  wire::Lease lease;
  std::string lead_, other_, idle_;

 private:
  std::uint64_t sequence_ = 0;
};

TEST(CoordinatorGangs, LeaseNamesTheNodes) {
  GangEdge edge;
  ASSERT_EQ(edge.lease.nodes.size(), 2U);
  EXPECT_EQ(edge.lease.nodes[0], "n" + edge.lead_.substr(1));
  EXPECT_EQ(edge.lease.nodes[1], "n" + edge.other_.substr(1));
  edge.live(2);
  EXPECT_EQ(edge.sent<wire::Pulse>(edge.other_).back().gangs, 1U);
  EXPECT_EQ(edge.sent<wire::Pulse>(edge.idle_).back().gangs, 0U);
}

TEST(CoordinatorGangs, ASilentNodeEndsTheTaskEverywhereAndItRunsAgain) {
  GangEdge edge;
  edge.live(9, {edge.other_});
  EXPECT_TRUE(edge.revoked(edge.lead_).empty());
  edge.live(4, {edge.other_});
  EXPECT_TRUE(GangEdge::ends_ranks(edge.revoked(edge.lead_)));
  ASSERT_EQ(edge.failures().size(), 1U);
  EXPECT_EQ(edge.failures()[0].outcome.reason, EndReason::worker_lost);
  EXPECT_FALSE(edge.failures()[0].final);
  EXPECT_EQ(edge.failures()[0].counts.failures, 0U) << "no attempt is charged";
  EXPECT_TRUE(edge.leases(edge.idle_).empty()) << "the lead has not ended it yet";
  edge.ended(wire::EndReason::cancelled, 0);
  edge.live(80, {edge.other_});
  const auto again = edge.machine().scheduler().leased();
  EXPECT_EQ(again, 1U);
  EXPECT_EQ(edge.leases(edge.lead_).size() + edge.leases(edge.idle_).size(), 2U)
      << "once more, on the other two";
  EXPECT_EQ(edge.failures().size(), 1U);
}

TEST(CoordinatorGangs, ATaskLeavesOutTheNodeThatSlowsItDown) {
  GangEdge edge;
  const std::string slow = "n" + edge.other_.substr(1);
  wire::TaskEvent asked;
  asked.array = edge.lease.array;
  asked.element = edge.lease.first;
  asked.body = wire::OtherEvent{
      "exclude_node", R"({"type":"exclude_node","node":")" + slow + R"(.site.org","reason":"node is slow"})"};
  wire::Results results;
  results.sequence = 7;
  results.events = {asked, asked};
  edge.say(edge.lead_, std::move(results));
  EXPECT_TRUE(GangEdge::ends_ranks(edge.revoked(edge.lead_)));
  ASSERT_EQ(edge.failures().size(), 1U);
  EXPECT_EQ(edge.failures()[0].outcome.detail, "without the node " + slow + ": node is slow");
  EXPECT_EQ(edge.failures()[0].counts.failures, 0U) << "no attempt is charged";
  edge.ended(wire::EndReason::cancelled, 0);
  edge.live(5);
  EXPECT_EQ(edge.leases(edge.lead_).size() + edge.leases(edge.idle_).size(), 2U)
      << "once more, on the other two";
}

TEST(CoordinatorGangs, ANodeThatComesBackEndsWhatIsLeftThere) {
  GangEdge edge;
  edge.live(12, {edge.other_});
  EXPECT_TRUE(edge.revoked(edge.other_).empty());
  edge.live(5, {edge.other_});
  EXPECT_EQ(edge.sent<wire::Identify>(edge.other_).size(), 1U)
      << "with two answers under way, a lease looks lost";
  edge.join_node(std::stoi(edge.other_.substr(1)));
  EXPECT_TRUE(GangEdge::ends_ranks(edge.revoked(edge.other_)));
}

TEST(CoordinatorGangs, AFailureIsJudgedWhenAllNodesHaveAnswered) {
  GangEdge edge;
  edge.ended(wire::EndReason::exited, 1);
  edge.live(1);
  EXPECT_TRUE(edge.failures().empty());
  edge.live(3);
  ASSERT_EQ(edge.failures().size(), 1U);
  EXPECT_EQ(edge.failures()[0].outcome.reason, EndReason::exited);
  EXPECT_TRUE(edge.failures()[0].final);
}

TEST(CoordinatorGangs, AFailureThatALostNodeHasMadeIsNone) {
  GangEdge edge;
  edge.ended(wire::EndReason::exited, 143);
  edge.live(14, {edge.other_});
  ASSERT_EQ(edge.failures().size(), 1U);
  EXPECT_EQ(edge.failures()[0].outcome.reason, EndReason::worker_lost);
  EXPECT_FALSE(edge.failures()[0].final);
  EXPECT_EQ(edge.count(ElementState::failed), 0U);
}

TEST(CoordinatorGangs, AWorkerThatHelpsStaysUntilTheTaskHasEnded) {
  GangEdge edge;
  edge.handle(event::Signal{event::SignalKind::interrupt});
  edge.live(2);
  EXPECT_EQ(edge.sent<wire::Drain>(edge.lead_).size(), 1U);
  EXPECT_EQ(edge.sent<wire::Drain>(edge.idle_).size(), 1U);
  EXPECT_TRUE(edge.sent<wire::Drain>(edge.other_).empty());
  edge.say(edge.lead_, TestEdge::success(edge.lease));
  edge.live(2);
  EXPECT_EQ(edge.sent<wire::Drain>(edge.other_).size(), 1U);
}

}  // namespace
}  // namespace wflow::engine
