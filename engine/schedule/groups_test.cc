// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/graph.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace wflow::engine {
namespace {

specs::WorkerGroup group(const std::string& name, int slots, std::vector<std::string> steps,
                         std::vector<std::string> machines, bool pin = false) {
  specs::WorkerGroup group;
  group.name = name;
  group.slots = slots;
  group.steps = std::move(steps);
  group.machines = std::move(machines);
  group.pin = pin;
  return group;
}

specs::Study study_of(std::vector<specs::WorkerGroup> workers) {
  specs::Study study;
  for (const char* name : {"simulate", "collect", "learn"}) study.steps.emplace_back().name = name;
  study.workers = std::move(workers);
  return study;
}

bool serves(const Groups& groups, const std::string& group, std::size_t step) {
  return groups.find(group)->pools[groups.pool_of(step)];
}

TEST(Groups, WithoutAnyThereIsOne) {
  const Groups groups(study_of({}));
  ASSERT_EQ(groups.all().size(), 1U);
  for (const std::size_t step : {0, 1, 2}) EXPECT_TRUE(serves(groups, "default", step));
}

TEST(Groups, EachServesItsStepsAndTheRestGoesToTheDefault) {
  const Groups groups(
      study_of({group("many", 8, {"simulate"}, {}), group("few", 1, {"simulate", "collect"}, {})}));
  ASSERT_EQ(groups.all().size(), 3U);
  EXPECT_TRUE(serves(groups, "many", 0));
  EXPECT_FALSE(serves(groups, "many", 1));
  EXPECT_TRUE(serves(groups, "few", 0));
  EXPECT_TRUE(serves(groups, "few", 1));
  EXPECT_FALSE(serves(groups, "few", 2));
  EXPECT_FALSE(serves(groups, "default", 0));
  EXPECT_TRUE(serves(groups, "default", 2));
}

TEST(Groups, NoDefaultWhereEverythingIsServed) {
  const Groups groups(study_of({group("a", 0, {"all"}, {}), group("b", 0, {}, {})}));
  EXPECT_EQ(groups.find("default"), nullptr);
  EXPECT_EQ(groups.pool_of(0), groups.pool_of(2));
}

TEST(Groups, AGroupNamedDefaultTakesWhatNoneServes) {
  const Groups groups(study_of({group("default", 0, {"simulate"}, {})}));
  ASSERT_EQ(groups.all().size(), 1U);
  EXPECT_TRUE(serves(groups, "default", 2));
}

TEST(Groups, RefusesUnknownGroupsAlone) {
  const Groups groups(study_of({group("gpus", 0, {}, {"node1"})}));
  EXPECT_FALSE(groups.reason_to_refuse("gpus"))
      << "wherever the worker runs: who started it has decided that";
  EXPECT_EQ(groups.reason_to_refuse("gpu"),
            "the study has no worker group 'gpu'; its groups are: gpus (--group)");
}

TEST(Groups, OfAWorkerThatNamesNone) {
  EXPECT_EQ(Groups(study_of({})).of_worker_on("login").name, "default");
  EXPECT_EQ(Groups(study_of({group("only", 0, {}, {"node1"})})).of_worker_on("login").name, "only");
  const Groups two(study_of({group("a", 0, {}, {"node1"}), group("b", 0, {}, {"node2"})}));
  EXPECT_EQ(two.of_worker_on("node2.site").name, "b");
  EXPECT_THROW(two.of_worker_on("login"), Error);
}

TEST(Groups, ServingAStep) {
  const Groups groups(study_of({group("a", 0, {"simulate"}, {}), group("b", 0, {}, {})}));
  EXPECT_EQ(groups.serving(0).size(), 2U);
  ASSERT_EQ(groups.serving(2).size(), 1U);
  EXPECT_EQ(groups.serving(2).front()->name, "b");
}

TEST(Groups, SlotsOfThisMachine) {
  const Groups groups(study_of({group("a", 6, {}, {}), group("b", 2, {}, {}), group("c", 0, {}, {})}));
  EXPECT_EQ(local_slots(groups.all(), 4, 0), (std::vector<int>{6, 2, 4}))
      << "what the study says, else all cores";
  EXPECT_EQ(local_slots(groups.all(), 4, 16), (std::vector<int>{6, 2, 4}));
  EXPECT_EQ(local_slots(groups.all(), 4, 6), (std::vector<int>{3, 1, 2})) << "-j 6 is for all of them";
  EXPECT_EQ(local_slots(groups.all(), 4, 1), (std::vector<int>{1, 1, 1})) << "none can do without";
}

TEST(Groups, OnlyOneOfAMachinePins) {
  const Groups one(study_of({group("a", 4, {}, {}, true), group("b", 9, {}, {})}));
  EXPECT_NO_THROW(check_pins(one.all(), {4, 9}, 4));
  EXPECT_THROW(check_pins(one.all(), {5, 9}, 4), Error);
  const Groups two(study_of({group("a", 1, {}, {}, true), group("b", 1, {}, {}, true)}));
  EXPECT_THROW(check_pins(two.all(), {1, 1}, 4), Error);
}

}  // namespace
}  // namespace wflow::engine
