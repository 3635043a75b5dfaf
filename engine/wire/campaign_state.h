// SPDX-License-Identifier: Apache-2.0
// The states of a campaign and of one that comes after it, their names, and the moves between them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace wflow::engine {

//   running ◀──▶ paused         a coordinator works on it
//      │           │
//      ├───────────┴──▶ draining ──▶ stopping
//      ▼                   ▼            ▼
//   finished, finished_with_failures, cancelled, interrupted     no coordinator does
// From each of the last row it is running again (wflow resume, wflow retry).
enum class CampaignState : std::uint8_t {
  running,
  paused,    // no task starts until a request to continue
  draining,  // no task starts, running tasks may finish
  stopping,  // running tasks are killed
  finished,
  finished_with_failures,
  cancelled,
  interrupted,
};
inline constexpr std::size_t kCampaignStates = 8;

std::string_view name_of(CampaignState state);
bool may_follow(CampaignState from, CampaignState to);
constexpr bool is_at_rest(CampaignState state) {
  return state >= CampaignState::finished;
}

//   pending ──▶ running ──▶ paused, draining, ... interrupted, as CampaignState
//      │           └──────▶ could_not_begin ──▶ pending
//      └──▶ handed_over (another campaign's list has it now) ──▶ pending
enum class FollowupState : std::uint8_t {
  pending,
  running,
  paused,
  draining,
  stopping,
  finished,
  finished_with_failures,
  cancelled,
  interrupted,
  could_not_begin,  // its study does not read, or its directory can't be made
  handed_over,
};
inline constexpr std::size_t kFollowupStates = 11;

std::string_view name_of(FollowupState state);
bool may_follow(FollowupState from, FollowupState to);
std::optional<FollowupState> followup_state(std::string_view name);
FollowupState followup_state(CampaignState state);
// True if it still has to run.
constexpr bool is_open(FollowupState state) {
  return state == FollowupState::pending || state == FollowupState::running;
}

}  // namespace wflow::engine
