// SPDX-License-Identifier: Apache-2.0
#include "steps/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wflow::steps {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

TEST(Environment, OfAWorkerFindsWflowsProgramsFirst) {
  EXPECT_THAT(
      worker_environment({"HOME=/h", "PATH=/bin", "WFLOW_TASK=outer/1", "WFLOW_EVENTS=/x"}, "/wflow/bin"),
      ElementsAre("HOME=/h", "PATH=/wflow/bin:/bin"));
  EXPECT_THAT(worker_environment({}, "/w"), ElementsAre("PATH=/w:/usr/local/bin:/usr/bin:/bin"));
}

TEST(Environment, OfAnArrayHasItsThreadsAndVariables) {
  specs::TaskTemplate t;
  t.workspace = "/w";
  t.resources.cores = 4;
  t.environment = {{"HOME", "/other"}, {"NEW", "a=b"}};
  EXPECT_THAT(array_environment({"HOME=/h"}, t, 8),
              UnorderedElementsAre("HOME=/other", "NEW=a=b", "WFLOW_WORKSPACE=/w", "WFLOW_CORES=4",
                                   "OMP_NUM_THREADS=4"));
}

TEST(Environment, FindsTheCampaignsMerlinFirst) {
  specs::TaskTemplate t{};
  t.workspace = "/c/s";
  t.campaign = "/c";
  const auto worker = worker_environment({"PATH=/user/bin", "WFLOW_CAMPAIGN=/outer", "WFLOW_CORES=9"}, "/p");
  EXPECT_THAT(array_environment(worker, t, 8),
              UnorderedElementsAre("PATH=/c/.wflow/bin:/p:/user/bin", "WFLOW_CAMPAIGN=/c", "WFLOW_CORES=1",
                                   "WFLOW_WORKSPACE=/c/s", "OMP_NUM_THREADS=1"));
}

TEST(Environment, GivesNoMoreThreadsThanTheWorkerHasCores) {
  specs::TaskTemplate t;
  t.workspace = "/w";
  t.resources.cores = 64;
  EXPECT_THAT(array_environment({}, t, 8),
              UnorderedElementsAre("WFLOW_WORKSPACE=/w", "WFLOW_CORES=8", "OMP_NUM_THREADS=8"));
}

TEST(Environment, KeepsTheUsersThreads) {
  specs::TaskTemplate t;
  t.workspace = "/w";
  t.resources.cores = 4;
  EXPECT_THAT(array_environment({"OMP_NUM_THREADS=2"}, t, 8),
              UnorderedElementsAre("WFLOW_WORKSPACE=/w", "WFLOW_CORES=4", "OMP_NUM_THREADS=2"));
  t.environment = {{"OMP_NUM_THREADS", "3"}};
  EXPECT_THAT(array_environment({}, t, 8),
              UnorderedElementsAre("WFLOW_WORKSPACE=/w", "WFLOW_CORES=4", "OMP_NUM_THREADS=3"));
}

}  // namespace
}  // namespace wflow::steps
