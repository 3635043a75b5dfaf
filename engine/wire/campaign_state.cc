// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/campaign_state.h"

#include <array>
#include <cstddef>

namespace wflow::engine {

namespace {

constexpr std::array<std::string_view, kCampaignStates> kCampaignNames = {
    "running",   "paused",     "draining", "stopping", "finished", "finished with failures",
    "cancelled", "interrupted"};

constexpr std::array<std::string_view, kFollowupStates> kFollowupNames = {"pending",
                                                                          "running",
                                                                          "paused",
                                                                          "draining",
                                                                          "stopping",
                                                                          "finished",
                                                                          "finished with failures",
                                                                          "cancelled",
                                                                          "interrupted",
                                                                          "could not begin",
                                                                          "handed over"};

// A row a state: the states that may come next, as bits.
template <class State>
constexpr std::uint32_t any_of(std::initializer_list<State> states) {
  std::uint32_t bits = 0;
  for (const State state : states) bits |= 1U << static_cast<unsigned>(state);
  return bits;
}

using C = CampaignState;
constexpr std::uint32_t kAtRest =
    any_of({C::finished, C::finished_with_failures, C::cancelled, C::interrupted});
constexpr std::array<std::uint32_t, kCampaignStates> kCampaignMoves = {
    any_of({C::paused, C::draining, C::stopping}) | kAtRest,   // running
    any_of({C::running, C::draining, C::stopping}) | kAtRest,  // paused
    any_of({C::stopping}) | kAtRest,                           // draining
    kAtRest,                                                   // stopping
    any_of({C::running}),                                      // finished
    any_of({C::running}),                                      // finished with failures
    any_of({C::running}),                                      // cancelled
    any_of({C::running}),                                      // interrupted
};

using F = FollowupState;
constexpr std::uint32_t kEnded =
    any_of({F::finished, F::finished_with_failures, F::cancelled, F::interrupted, F::could_not_begin});
constexpr std::array<std::uint32_t, kFollowupStates> kFollowupMoves = {
    any_of({F::running, F::handed_over}) | kEnded,                           // pending
    any_of({F::paused, F::draining, F::stopping, F::handed_over}) | kEnded,  // running
    any_of({F::running, F::draining, F::stopping}) | kEnded,                 // paused
    any_of({F::stopping}) | kEnded,                                          // draining
    kEnded,                                                                  // stopping
    any_of({F::pending, F::running}) | kEnded,                               // finished
    any_of({F::pending, F::running}) | kEnded,                               // finished with failures
    any_of({F::pending, F::running}) | kEnded,                               // cancelled
    any_of({F::pending, F::running}) | kEnded,                               // interrupted
    any_of({F::pending, F::running}),                                        // could not begin
    any_of({F::pending}),                                                    // handed over
};

template <class State>
constexpr std::size_t at(State state) {
  return static_cast<std::size_t>(state);
}

}  // namespace

std::string_view name_of(CampaignState state) {
  return kCampaignNames[at(state)];
}

bool may_follow(CampaignState from, CampaignState to) {
  return from == to || (kCampaignMoves[at(from)] >> at(to) & 1U) != 0;
}

std::string_view name_of(FollowupState state) {
  return kFollowupNames[at(state)];
}

bool may_follow(FollowupState from, FollowupState to) {
  return from == to || (kFollowupMoves[at(from)] >> at(to) & 1U) != 0;
}

std::optional<FollowupState> followup_state(std::string_view name) {
  for (std::size_t i = 0; i < kFollowupStates; ++i) {
    if (name == kFollowupNames[i]) return static_cast<FollowupState>(i);
  }
  return std::nullopt;
}

FollowupState followup_state(CampaignState state) {
  return static_cast<FollowupState>(at(state) + at(FollowupState::running));
}

}  // namespace wflow::engine
