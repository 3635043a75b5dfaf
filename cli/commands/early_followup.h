// SPDX-License-Identifier: Apache-2.0
// Starts a study that a task submitted while its campaign still runs, if the campaign waits for it: otherwise
// a task that waits for its submitted study would wait for ever.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "engine/followups/followups.h"
#include "engine/monitor/status.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

// Runs one submitted study at a time, in a process of its own (`wflow submitted`) that ends with this one, on
// the cores that the campaign's tasks leave idle. Drains it when the campaign has tasks to start again, and
// continues it later. The FollowupQueue runs the rest after the end of the campaign.
class EarlyFollowup {
 public:
  // `slots`: slots of the campaign's pool on this machine; 0: all cores.
  EarlyFollowup(const specs::Plan& plan, int slots);
  EarlyFollowup(const EarlyFollowup&) = delete;
  EarlyFollowup& operator=(const EarlyFollowup&) = delete;
  // Ends the running study; it can go on later.
  ~EarlyFollowup();

  // Call this every few hundred milliseconds with the campaign's status.
  void look(const engine::CampaignStatus& status);
  // Lets the running study finish its tasks and waits for the end of its process. `urgent()`: end them now.
  template <class Urgent>
  void drain(Urgent urgent) {
    ask(Ask::drain);
    while (!ended()) {
      if (urgent()) ask(Ask::stop);
      pause();
    }
  }

 private:
  enum class Ask { nothing, drain, stop };
  using Clock = std::chrono::steady_clock;

  bool waits(const engine::CampaignStatus& status, const std::vector<engine::Submitted>& left) const;
  std::vector<engine::Submitted> left();
  std::uint64_t busy_cores(const engine::CampaignStatus& status) const;
  void start(const engine::Submitted& submitted, const engine::CampaignStatus& status);
  void ask(Ask what);
  bool ended();
  static void pause();

  const specs::Plan& plan_;
  int slots_;
  std::set<std::string> settled_;  // ids of studies that have ended or could not begin: never start them here
  std::string running_;            // id of the running study
  pid_t child_ = 0;
  Ask asked_ = Ask::nothing;
  std::optional<Clock::time_point> since_;  // time since which the reason to start or drain holds
};

}  // namespace wflow::cli
