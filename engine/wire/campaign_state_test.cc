// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/campaign_state.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace wflow::engine {
namespace {

TEST(CampaignState, NamesAreTheirs) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kCampaignStates; ++i) {
    const auto state = static_cast<CampaignState>(i);
    names.insert(name_of(state));
    EXPECT_EQ(name_of(followup_state(state)), name_of(state));
  }
  EXPECT_EQ(names.size(), kCampaignStates);
  EXPECT_EQ(name_of(CampaignState::finished_with_failures), "finished with failures");
}

TEST(CampaignState, FollowupNamesReadBack) {
  for (std::size_t i = 0; i < kFollowupStates; ++i) {
    const auto state = static_cast<FollowupState>(i);
    EXPECT_EQ(followup_state(name_of(state)), state);
  }
  EXPECT_FALSE(followup_state("lost"));
}

TEST(CampaignState, DrainsBeforeItStopsAndRunsAgainOnlyFromRest) {
  EXPECT_TRUE(may_follow(CampaignState::running, CampaignState::draining));
  EXPECT_TRUE(may_follow(CampaignState::draining, CampaignState::stopping));
  EXPECT_FALSE(may_follow(CampaignState::stopping, CampaignState::draining));
  EXPECT_FALSE(may_follow(CampaignState::draining, CampaignState::running));
  EXPECT_FALSE(may_follow(CampaignState::draining, CampaignState::paused));
  for (std::size_t i = 0; i < kCampaignStates; ++i) {
    const auto state = static_cast<CampaignState>(i);
    const bool rests = is_at_rest(state);
    EXPECT_EQ(may_follow(state, CampaignState::interrupted), !rests || state == CampaignState::interrupted)
        << name_of(state);
    EXPECT_TRUE(!rests || may_follow(state, CampaignState::running)) << name_of(state);
    EXPECT_FALSE(rests && may_follow(state, CampaignState::paused)) << name_of(state);
  }
}

TEST(CampaignState, WhatIsHandedOverComesBackAsPending) {
  EXPECT_TRUE(may_follow(FollowupState::pending, FollowupState::handed_over));
  EXPECT_TRUE(may_follow(FollowupState::handed_over, FollowupState::pending));
  EXPECT_FALSE(may_follow(FollowupState::handed_over, FollowupState::running));
  EXPECT_FALSE(may_follow(FollowupState::finished, FollowupState::handed_over));
  EXPECT_TRUE(may_follow(FollowupState::could_not_begin, FollowupState::pending));
}

}  // namespace
}  // namespace wflow::engine
