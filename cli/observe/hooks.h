// SPDX-License-Identifier: Apache-2.0
// The hooks of a campaign (`on:`): which are due, what they get, and their processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/monitor/status.h"
#include "engine/store/batch.h"
#include "specs/study/study.h"

namespace wflow::cli {

struct DueHook {
  specs::Hook hook;
  std::string text;  // the reason, in a sentence
};

class HookWatch {
 public:
  explicit HookWatch(std::vector<specs::Hook> hooks) : hooks_(std::move(hooks)) {}

  bool any() const { return !hooks_.empty(); }
  // Call before the first look() if the campaign begins now: then everything is news. For a campaign that
  // goes on, the contents of the first status are not.
  void begins_anew() { anew_ = true; }
  // A status of the running campaign, in order of time, the last one included.
  std::vector<DueHook> look(const engine::CampaignStatus& status);
  // The campaign, and what followed on it, has ended.
  std::vector<DueHook> ended(const engine::CampaignStatus& status);

 private:
  void look_at_failures(const engine::CampaignStatus& status, std::vector<DueHook>& due) const;
  void look_for_a_stall(const engine::CampaignStatus& status, std::vector<DueHook>& due);
  void look_at_allocations(const engine::CampaignStatus& status, std::vector<DueHook>& due);
  void add(std::string_view event, std::string text, std::vector<DueHook>& due) const;

  std::vector<specs::Hook> hooks_;
  bool anew_ = false;
  bool began_ = false;
  std::uint64_t failed_ = 0, ended_ = 0;
  double progress_s_ = 0;      // Unix time of the last change in the number of ended tasks
  bool stalled_ = false;       // no progress since progress_s_, and it was reported
  std::uint64_t history_ = 0;  // number of the last history row that was read
};

// ---- the input of a hook (docs/hooks.md)

nlohmann::json hook_facts(const DueHook& due, const engine::CampaignStatus& status);

// "WFLOW_EVENT=finished", ..., of such facts.
std::vector<std::string> hook_variables(const nlohmann::json& facts);

class Hooks {
 public:
  Hooks(std::filesystem::path campaign, std::vector<specs::Hook> hooks);

  void begins_anew() { watch_.begins_anew(); }
  // look() and ended() take milliseconds if a hook is due, and never throw.
  void look(const engine::CampaignStatus& status);
  void ended(const engine::CampaignStatus& status);
  // Writes the started hooks into the campaign's history. No process may coordinate the campaign.
  void record();

 private:
  void start(const std::vector<DueHook>& due, const engine::CampaignStatus& status);
  void reap();

  std::filesystem::path campaign_;
  HookWatch watch_;
  std::vector<pid_t> children_;
  std::vector<engine::store::HistoryRow> rows_;  // not recorded yet
};

// The log with the output of hooks.
std::filesystem::path hook_log(const std::filesystem::path& campaign);

}  // namespace wflow::cli
