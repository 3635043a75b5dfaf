// SPDX-License-Identifier: Apache-2.0
// max_failures: when a step is paused, what still runs, and what lets it go.
#include <gtest/gtest.h>

#include "engine/coordinate/test_machine.h"

namespace wflow::engine {
namespace {

const TestWorker kWorker{"w-here", "here", 100};

// Ends what the worker has, one after the other, until it gets nothing more: element i as fails(i) says.
template <class Fails>
std::size_t work(TestEdge& edge, Fails fails) {
  std::size_t ended = 0;
  for (; ended < edge.leases(kWorker.id).size(); ++ended) {
    const wire::Lease lease = edge.leases(kWorker.id)[ended];
    edge.say(kWorker.id, fails(lease.array) ? TestEdge::failure(lease, 7, ended + 1)
                                            : TestEdge::success(lease, ended + 1));
  }
  return ended;
}

void start(TestEdge& edge) {
  edge.start();
  edge.join(kWorker);
}

TEST(FailureLimits, TheFirstTwentyFailuresPauseTheStep) {
  TestEdge edge(", max_retries: 0", 100);
  start(edge);
  work(edge, [](auto) { return true; });
  EXPECT_GE(edge.count(ElementState::failed), 20U);
  EXPECT_LT(edge.count(ElementState::failed), 30U) << "those that were leased already";
  EXPECT_EQ(edge.machine().held().size(), 1U);
  EXPECT_TRUE(edge.has_history(
      "the step 'simulate' is paused: its first 20 tasks all failed (the last: exit code 7)"));
  // Nothing else is left: the campaign ends by itself.
  EXPECT_TRUE(edge.has_history("nothing is left but paused steps ('simulate')"));
  EXPECT_NE(edge.machine().phase(), Phase::running);
}

TEST(FailureLimits, ASuccessBeforeThatLetsItGoOn) {
  TestEdge edge(", max_retries: 0", 100);
  start(edge);
  work(edge, [](ArrayId array) { return array != 3; });
  EXPECT_EQ(edge.count(ElementState::failed), 99U);
  EXPECT_TRUE(edge.machine().held().empty());
}

TEST(FailureLimits, AsManyAsTheStepSays) {
  TestEdge edge(", max_retries: 0, max_failures: 5", 100);
  start(edge);
  work(edge, [](ArrayId array) { return array % 2 == 0; });
  EXPECT_GE(edge.count(ElementState::failed), 5U);
  EXPECT_LT(edge.count(ElementState::failed), 10U);
  EXPECT_TRUE(edge.has_history("5 of its tasks failed"));
}

TEST(FailureLimits, APartOfItsTasks) {
  TestEdge edge(", max_retries: 0, max_failures: 10 %", 100);
  start(edge);
  work(edge, [](ArrayId array) { return array % 2 == 0; });
  EXPECT_GE(edge.count(ElementState::failed), 10U);
  EXPECT_LT(edge.count(ElementState::failed), 16U);
}

TEST(FailureLimits, None) {
  TestEdge edge(", max_retries: 0, max_failures: none", 50);
  start(edge);
  work(edge, [](auto) { return true; });
  EXPECT_EQ(edge.count(ElementState::failed), 50U);
}

TEST(FailureLimits, WhatIsTriedAgainDoesNotCount) {
  TestEdge edge(", max_retries: 3, retry_delay: 0, max_failures: 1", 40);
  start(edge);
  std::map<std::pair<ArrayId, Element>, int> executions;
  std::size_t ended = 0;
  for (; ended < edge.leases(kWorker.id).size() || edge.count(ElementState::delayed) > 0; ++ended) {
    if (ended == edge.leases(kWorker.id).size()) edge.pass(1);
    ASSERT_LT(ended, edge.leases(kWorker.id).size());
    const wire::Lease lease = edge.leases(kWorker.id)[ended];
    const bool first = ++executions[{lease.array, lease.first}] == 1;
    edge.say(kWorker.id,
             first ? TestEdge::failure(lease, 7, ended + 1) : TestEdge::success(lease, ended + 1));
  }
  EXPECT_EQ(edge.count(ElementState::done), 40U);
  EXPECT_TRUE(edge.machine().held().empty());
}

TEST(FailureLimits, UnpauseLetsGo) {
  TestEdge edge(", max_retries: 0, max_failures: 5", 100);
  edge.start();
  edge.join({kWorker.id, kWorker.host, kWorker.number, 2});
  // One task goes on running, so that the campaign does not end.
  const wire::Lease running = edge.leases(kWorker.id).at(0);
  std::size_t ended = 1;
  for (; ended < edge.leases(kWorker.id).size(); ++ended)
    edge.say(kWorker.id, TestEdge::failure(edge.leases(kWorker.id)[ended], 7, ended));
  ASSERT_EQ(edge.machine().held().size(), 1U);
  ASSERT_EQ(edge.machine().phase(), Phase::running);
  edge.say("client", wire::Query{wire::PauseRequest{false}});
  EXPECT_TRUE(edge.machine().held().empty());
  EXPECT_GT(edge.leases(kWorker.id).size(), ended) << "more is leased";
  edge.say(kWorker.id, TestEdge::success(running, ended));
}

}  // namespace
}  // namespace wflow::engine
