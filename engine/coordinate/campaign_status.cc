// SPDX-License-Identifier: Apache-2.0
// The status of a campaign, live or at rest.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "engine/coordinate/coordinator.h"
#include "engine/store/store.h"
#include "engine/wire/transport.h"

namespace wflow::engine {

namespace {

// How long a question for the status waits for a coordinator that begins or ends.
constexpr double kPatience_s = 10;
constexpr std::chrono::milliseconds kAnswer{3000};

CampaignStatus own_status(const std::filesystem::path& campaign) {
  if (!std::filesystem::exists(store::database_path(campaign)))
    store::Store missing(campaign);  // throws its sentence
  // A coordinator that begins or ends holds the database without answering yet, or no longer.
  for (const double until_s = steady_now_s() + kPatience_s;;) {
    if (wire::read_endpoint(campaign)) {
      auto answer = wire::ask(campaign, {wire::StatusRequest{}}, kAnswer);
      if (auto* status = answer ? std::get_if<wire::StatusAnswer>(&answer->body) : nullptr)
        return std::move(*status);
    }
    try {
      return store::Store(campaign).status_at_rest();
    } catch (const Error& error) {
      if (error.code() != ExitCode::busy) throw;
      if (steady_now_s() > until_s) {
        throw Error(ExitCode::busy,
                    fmt::format("the coordinator of {} does not answer; try again", campaign.string()));
      }
    }
  }
}

// How far it is: it may be running, have been killed, or not be there yet.
void look_at(FollowupView& followup) {
  if (followup.state == FollowupState::pending ||
      !std::filesystem::exists(store::database_path(followup.directory)))
    return;
  try {
    const CampaignStatus status = own_status(followup.directory);
    followup.state = followup_state(status.state);
    followup.elements = status.elements();
    followup.ended = status.ended();
    followup.failed = status.failed();
  } catch (const Error&) {
    // What the record says of it has to do.
  }
}

}  // namespace

CampaignStatus campaign_status(const std::filesystem::path& campaign) {
  CampaignStatus status = own_status(campaign);
  for (FollowupView& followup : status.followups) look_at(followup);
  return status;
}

}  // namespace wflow::engine
