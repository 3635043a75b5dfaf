// SPDX-License-Identifier: Apache-2.0
// Which hooks of a campaign are due. Pure: statuses in, events out.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "engine/monitor/status.h"
#include "specs/study/study.h"

namespace wflow::cli {

struct DueHook {
  specs::Hook hook;
  std::string text;  // why, in a sentence
};

class HookWatch {
 public:
  explicit HookWatch(std::vector<specs::Hook> hooks) : hooks_(std::move(hooks)) {}

  bool any() const { return !hooks_.empty(); }
  // Before the first look: the campaign begins now, so that all of it is news. Of one that goes on, what the
  // first status has already is none.
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
  double progress_s_ = 0;      // Unix time: the number of ended tasks has changed last
  bool stalled_ = false;       // since progress_s_, and it was told
  std::uint64_t history_ = 0;  // numbers of rows that were looked at
};

}  // namespace wflow::cli
