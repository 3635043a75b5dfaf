// SPDX-License-Identifier: Apache-2.0
#include "engine/coordinate/node_health.h"

#include <gtest/gtest.h>

namespace wflow::engine {
namespace {

constexpr std::size_t kStep = 0;

// `count` failures of different tasks, from `first` on.
void fail(NodeHealth& health, const std::string& host, Element first, Element count) {
  for (Element element = first; element < first + count; ++element) health.failed(host, kStep, {0, element});
}

TEST(NodeHealth, ANodeThatFailsEverythingIsSuspected) {
  NodeHealth health;
  health.succeeded("n1", kStep, 0, {0, 39});
  fail(health, "n2", 100, 10);
  const auto isolations = health.take_isolations();
  ASSERT_EQ(isolations.size(), 1U);
  EXPECT_EQ(isolations[0].host, "n2");
  EXPECT_EQ(isolations[0].failed.size(), 10U) << "all that came at once";
  EXPECT_EQ(isolations[0].ended_elsewhere, 40U);
  EXPECT_EQ(isolations[0].failed_elsewhere, 0U);
  EXPECT_FALSE(isolations[0].again);
  fail(health, "n2", 200, 1);  // it still ran
  const auto more = health.take_isolations();
  ASSERT_EQ(more.size(), 1U);
  EXPECT_TRUE(more[0].again);
  EXPECT_EQ(more[0].failed.size(), 1U);
}

TEST(NodeHealth, FiveInARowAreTooFewBesideFewOthers) {
  NodeHealth health;
  health.succeeded("n1", kStep, 0, {0, 4});
  fail(health, "n2", 100, 7);
  EXPECT_TRUE(health.take_isolations().empty());
  fail(health, "n2", 107, 1);
  EXPECT_EQ(health.take_isolations().size(), 1U);
}

TEST(NodeHealth, WithoutOtherNodesNobodyKnows) {
  NodeHealth health;
  health.succeeded("n1", kStep, 0, {0, 99});
  fail(health, "n1", 100, 1000);
  EXPECT_TRUE(health.take_isolations().empty());
}

TEST(NodeHealth, AStepThatFailsEverywhereBlamesNoNode) {
  NodeHealth health;
  for (Element i = 0; i < 1000; ++i) {
    const std::string host = i % 2 == 0 ? "n1" : "n2";
    i % 20 == 0 || i % 20 == 11 ? health.succeeded(host, kStep, 0, {i, i})
                                : health.failed(host, kStep, {0, i});
  }
  EXPECT_TRUE(health.take_isolations().empty());
}

TEST(NodeHealth, ASuccessEndsTheRow) {
  NodeHealth health;
  health.succeeded("n1", kStep, 0, {0, 99});
  for (Element i = 0; i < 50; ++i) {
    fail(health, "n2", 100 + 4 * i, 3);
    health.succeeded("n2", kStep, 0, {103 + 4 * i, 103 + 4 * i});
  }
  EXPECT_TRUE(health.take_isolations().empty());
}

TEST(NodeHealth, OneTaskThatAlwaysFailsIsNoNodesFault) {
  NodeHealth health;
  health.succeeded("n1", kStep, 0, {0, 99});
  for (int i = 0; i < 50; ++i) health.failed("n2", kStep, {0, 100});
  EXPECT_TRUE(health.take_isolations().empty());
}

TEST(NodeHealth, TasksThatFailElsewhereTooAcquitTheNodeAndAreTheirOwnFault) {
  NodeHealth health;
  health.succeeded("n1", kStep, 0, {0, 99});
  fail(health, "n2", 100, 8);
  ASSERT_EQ(health.take_isolations().size(), 1U);
  EXPECT_TRUE(health.take_cleared().empty());
  fail(health, "n1", 100, 3);
  const auto cleared = health.take_cleared();
  ASSERT_EQ(cleared.size(), 1U);
  EXPECT_EQ(cleared[0].host, "n2");
  fail(health, "n3", 200, 50);
  EXPECT_TRUE(health.take_isolations().empty()) << "the step's failures are its own";
}

TEST(NodeHealth, TasksThatEndWellElsewhereProveIt) {
  NodeHealth health;
  health.succeeded("n1", kStep, 0, {0, 99});
  fail(health, "n2", 100, 5);
  ASSERT_EQ(health.take_isolations().size(), 1U);
  health.succeeded("n1", kStep, 0, {100, 104});
  fail(health, "n1", 100, 5);
  EXPECT_TRUE(health.take_cleared().empty());
}

}  // namespace
}  // namespace wflow::engine
