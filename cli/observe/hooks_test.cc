// SPDX-License-Identifier: Apache-2.0
#include "cli/observe/hooks.h"

#include <gtest/gtest.h>

#include "engine/schedule/states.h"

namespace wflow::cli {
namespace {

using engine::ElementState;

engine::CampaignStatus status_with(std::uint64_t done, std::uint64_t failed) {
  engine::CampaignStatus status;
  auto& step = status.steps.emplace_back();
  step.name = "work";
  step.elements = 10;
  step.counts[static_cast<std::size_t>(ElementState::done)] = done;
  step.counts[static_cast<std::size_t>(ElementState::failed)] = failed;
  return status;
}

HookWatch watch_of(const char* event) {
  specs::Hook hook;
  hook.event = event;
  return HookWatch({hook});
}

// All tasks of a campaign may have ended before it is looked at for the first time.
TEST(HookWatch, AFailureBeforeTheFirstLookIsNewsOfANewCampaign) {
  HookWatch watch = watch_of("first_failure");
  watch.begins_anew();
  EXPECT_EQ(watch.look(status_with(2, 1)).size(), 1U);
  EXPECT_TRUE(watch.look(status_with(3, 2)).empty());  // the first failure only
}

TEST(HookWatch, AFailureOfAnEarlierSessionIsNoNews) {
  HookWatch watch = watch_of("first_failure");
  EXPECT_TRUE(watch.look(status_with(2, 1)).empty());
  EXPECT_TRUE(watch.look(status_with(3, 2)).empty());
}

// The texts are those that engine/batch/pools_answers.cc writes into the history.
TEST(HookWatch, AnAllocationThatNobodyGaveBackIsLost) {
  HookWatch watch = watch_of("allocation_lost");
  engine::CampaignStatus status = status_with(1, 0);
  EXPECT_TRUE(watch.look(status).empty());
  const auto add = [&](const char* kind, const char* text) {
    auto& row = status.history.emplace_back();
    row.number = status.history.size();
    row.kind = kind;
    row.text = text;
  };
  add("batch", "allocation 1 submitted to slurm: 2 nodes for the pool 'all'");
  add("batch", "allocation 1 has ended: its walltime was over");
  EXPECT_TRUE(watch.look(status).empty());
  add("batch", "allocation 2 has ended: it was cancelled");
  ASSERT_EQ(watch.look(status).size(), 1U);
  EXPECT_TRUE(watch.look(status).empty());
}

TEST(HookWatch, AFailureIsNewsOfASessionThatBeganWithoutOne) {
  HookWatch watch = watch_of("first_failure");
  EXPECT_TRUE(watch.look(status_with(2, 0)).empty());
  EXPECT_EQ(watch.look(status_with(2, 1)).size(), 1U);
}

}  // namespace
}  // namespace wflow::cli
