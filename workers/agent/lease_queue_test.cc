// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/lease_queue.h"

#include <gtest/gtest.h>

namespace wflow::workers {
namespace {

using engine::wire::Lease;
using engine::wire::LeaseId;

Lease lease(LeaseId id, std::uint64_t first, std::uint64_t count, std::int32_t priority = 0) {
  return {id, 1, first, count, 0, false, priority};
}

std::vector<std::uint64_t> drain(LeaseQueue& queue) {
  std::vector<std::uint64_t> elements;
  while (!queue.empty()) {
    elements.push_back(queue.front().first);
    queue.pop();
  }
  return elements;
}

TEST(LeaseQueue, GivesHigherPrioritiesFirstThenInOrder) {
  LeaseQueue queue;
  queue.add(lease(1, 0, 2));
  queue.add(lease(2, 10, 2, 1));
  queue.add(lease(3, 20, 1, -1));
  queue.add(lease(4, 30, 2));
  queue.add(lease(5, 40, 0));
  EXPECT_EQ(queue.elements(), 7U);
  EXPECT_EQ(drain(queue), (std::vector<std::uint64_t>{10, 11, 0, 1, 30, 31, 20}));
  EXPECT_EQ(queue.elements(), 0U);
}

TEST(LeaseQueue, TakesWhatIsLeftOfLeases) {
  LeaseQueue queue;
  queue.add(lease(1, 0, 5));
  queue.add(lease(2, 10, 5));
  queue.pop();
  const std::vector<Lease> one = {lease(1, 0, 5)};
  const auto taken = queue.take(one);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].first, 1U);
  EXPECT_EQ(taken[0].count, 4U);
  EXPECT_EQ(queue.list().size(), 1U);
  EXPECT_EQ(queue.take_all().size(), 1U);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.elements(), 0U);
}

// A part of a lease may be revoked: what is on both sides of it stays, in its place.
TEST(LeaseQueue, TakesAPartOutOfALease) {
  LeaseQueue queue;
  queue.add(lease(1, 0, 10));
  queue.add(lease(2, 20, 1));
  const std::vector<Lease> parts = {lease(1, 3, 2), lease(1, 8, 100), lease(2, 0, 20), lease(3, 0, 100)};
  const auto taken = queue.take(parts);
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].first, 3U);
  EXPECT_EQ(taken[0].count, 2U);
  EXPECT_EQ(taken[1].first, 8U);
  EXPECT_EQ(taken[1].count, 2U);
  EXPECT_EQ(queue.elements(), 7U);
  EXPECT_EQ(drain(queue), (std::vector<std::uint64_t>{0, 1, 2, 5, 6, 7, 20}));
}

}  // namespace
}  // namespace wflow::workers
