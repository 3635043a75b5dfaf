// SPDX-License-Identifier: Apache-2.0
// Starts the hooks of a campaign: each by a process of its own, which outlives this one, ends the command at
// its time limit and writes its output to the campaign's log.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <vector>

#include "cli/observe/hook_watch.h"
#include "engine/store/batch.h"

namespace wflow::cli {

class Hooks {
 public:
  Hooks(std::filesystem::path campaign, std::vector<specs::Hook> hooks);

  void begins_anew() { watch_.begins_anew(); }
  // Take milliseconds where a hook is due; never throw.
  void look(const engine::CampaignStatus& status);
  void ended(const engine::CampaignStatus& status);
  // Nobody coordinates the campaign: what was started goes into its history.
  void record();

 private:
  void start(const std::vector<DueHook>& due, const engine::CampaignStatus& status);
  void reap();

  std::filesystem::path campaign_;
  HookWatch watch_;
  std::vector<pid_t> children_;
  std::vector<engine::store::HistoryRow> rows_;  // not recorded yet
};

// Where the output of hooks is.
std::filesystem::path hook_log(const std::filesystem::path& campaign);

}  // namespace wflow::cli
