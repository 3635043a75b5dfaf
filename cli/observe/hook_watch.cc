// SPDX-License-Identifier: Apache-2.0
#include "cli/observe/hook_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace wflow::cli {

void HookWatch::add(std::string_view event, std::string text, std::vector<DueHook>& due) const {
  for (const specs::Hook& hook : hooks_) {
    if (hook.event == event) due.push_back({hook, std::move(text)});
  }
}

std::vector<DueHook> HookWatch::look(const engine::CampaignStatus& status) {
  std::vector<DueHook> due;
  if (!any()) return due;
  if (began_ || anew_) {
    look_at_failures(status, due);
    look_at_allocations(status, due);
  }
  look_for_a_stall(status, due);
  began_ = true;
  failed_ = status.failed();
  for (const auto& row : status.history) history_ = std::max(history_, row.number);
  return due;
}

void HookWatch::look_at_failures(const engine::CampaignStatus& status, std::vector<DueHook>& due) const {
  if (failed_ > 0 || status.failed() == 0) return;
  std::string text = "a task has failed";
  for (const auto& failure : status.failures) {
    if (!failure.final) continue;
    text = fmt::format("{} has failed: {}", failure.task, failure.reason);
    break;
  }
  add("first_failure", std::move(text), due);
}

// A step that is held back, a campaign that waits for its disk, or no end of a task for a long time.
void HookWatch::look_for_a_stall(const engine::CampaignStatus& status, std::vector<DueHook>& due) {
  if (!began_ || status.ended() != ended_) {
    ended_ = status.ended();
    progress_s_ = status.time_s;
    stalled_ = false;
  }
  if (stalled_ || engine::is_at_rest(status.state) || status.ended() == status.elements()) return;
  std::string text;
  for (const auto& step : status.steps) {
    if (!step.held.empty()) text = fmt::format("nothing more of {} starts: {}", step.name, step.held);
  }
  for (const specs::Hook& hook : hooks_) {
    if (hook.event != "stalled" || !text.empty() || status.time_s - progress_s_ < hook.after_s) continue;
    text = fmt::format("no task has ended for {}", text::format_duration(status.time_s - progress_s_));
  }
  if (text.empty()) return;
  stalled_ = true;
  add("stalled", std::move(text), due);
}

// The coordinator notes those that nobody gave back (engine/batch/pools_answers.cc).
void HookWatch::look_at_allocations(const engine::CampaignStatus& status, std::vector<DueHook>& due) {
  for (const auto& row : status.history) {
    if (row.number <= history_ || !row.text.starts_with("allocation ")) continue;
    const std::size_t at = row.text.find(" has ended: ");
    if (at == std::string::npos || row.text.find("its walltime was over", at) != std::string::npos) continue;
    add("allocation_lost", row.text, due);
  }
}

std::vector<DueHook> HookWatch::ended(const engine::CampaignStatus& status) {
  std::vector<DueHook> due;
  if (status.ended() < status.elements()) return due;
  const std::string tasks = fmt::format(
      "{} of {} tasks done", text::format_count(status.ended() - status.failed() - status.cancelled()),
      text::format_count(status.elements()));
  const std::string failed =
      status.failed() == 0 ? "" : fmt::format(", {} failed", text::format_count(status.failed()));
  const std::string text = fmt::format("{} has ended: {}{}", status.name, tasks, failed);
  add("finished", text, due);
  if (status.failed() > 0) add("failed", text, due);
  return due;
}

}  // namespace wflow::cli
