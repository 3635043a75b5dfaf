// SPDX-License-Identifier: Apache-2.0
// What the process that coordinates a campaign tells others of it: hooks and metrics of its study.
#pragma once

#include <optional>

#include "cli/observe/hooks.h"
#include "engine/monitor/status.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

class Observer {
 public:
  explicit Observer(const specs::Plan& plan);

  // Before all else, of a campaign that is not resumed.
  void begins_anew() { hooks_.begins_anew(); }
  // Every status of the running campaign, from the coordinator's thread. Never throws.
  void look(const engine::CampaignStatus& status);
  // It has ended for now: nobody coordinates it. The hooks that were started are recorded.
  void rest(const engine::CampaignStatus& status);
  // It has ended for good, with what followed on it.
  void ended(const engine::CampaignStatus& status);

 private:
  void write_file(const engine::CampaignStatus& status);

  Hooks hooks_;
  std::optional<specs::MetricsFile> metrics_;
  double next_s_ = 0;
  bool trouble_ = false;  // with the file, and it was told
};

}  // namespace wflow::cli
