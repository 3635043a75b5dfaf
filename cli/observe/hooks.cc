// SPDX-License-Identifier: Apache-2.0
#include "cli/observe/hooks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/store/store.h"

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

// Detects a step that is held back, a campaign that waits for its disk, or a long time without progress.
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

// Finds notes of the coordinator about allocations that ended unexpectedly (engine/batch/pools_answers.cc).
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

nlohmann::json hook_facts(const DueHook& due, const engine::CampaignStatus& status) {
  constexpr std::size_t kFailures = 5;
  nlohmann::json failures = nlohmann::json::array();
  for (const auto& failure : status.failures) {
    if (!failure.final || failures.size() == kFailures) continue;
    failures.push_back({{"task", failure.task}, {"reason", failure.reason}, {"detail", failure.detail}});
  }
  return {{"version", 1},
          {"event", due.hook.event},
          {"text", due.text},
          {"name", status.name},
          {"campaign", status.directory},
          {"state", engine::name_of(status.state)},
          {"time_s", status.time_s},
          {"elapsed_s", status.elapsed_s},
          {"tasks", status.elements()},
          {"done", status.ended() - status.failed() - status.cancelled()},
          {"failed", status.failed()},
          {"cancelled", status.cancelled()},
          {"coordinator", status.coordinator},
          {"failures", std::move(failures)}};
}

std::vector<std::string> hook_variables(const nlohmann::json& facts) {
  constexpr std::array<std::pair<const char*, const char*>, 10> kVariables = {
      {{"WFLOW_EVENT", "event"},
       {"WFLOW_TEXT", "text"},
       {"WFLOW_NAME", "name"},
       {"WFLOW_CAMPAIGN", "campaign"},
       {"WFLOW_STATE", "state"},
       {"WFLOW_TASKS", "tasks"},
       {"WFLOW_DONE", "done"},
       {"WFLOW_FAILED", "failed"},
       {"WFLOW_CANCELLED", "cancelled"},
       {"WFLOW_ELAPSED_S", "elapsed_s"}}};
  std::vector<std::string> variables;
  for (const auto& [name, key] : kVariables) {
    const nlohmann::json& value = facts.at(key);
    variables.push_back(std::string(name) + "=" +
                        (value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return variables;
}

namespace {

// A file in memory: unlike a pipe, it needs no writer that waits for the reader.
FileDescriptor memory_file(const std::string& text) {
  FileDescriptor file(::memfd_create("wflow-hook", MFD_CLOEXEC));
  if (!file) throw system_error(errno, "cannot hand over what a hook is given");
  write_all(file.get(), text, "a hook's input");
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

}  // namespace

std::filesystem::path hook_log(const std::filesystem::path& campaign) {
  return campaign / ".wflow" / "logs" / "hooks.log";
}

Hooks::Hooks(std::filesystem::path campaign, std::vector<specs::Hook> hooks)
    : campaign_(std::move(campaign)), watch_(std::move(hooks)) {}

void Hooks::look(const engine::CampaignStatus& status) {
  reap();
  if (watch_.any()) start(watch_.look(status), status);
}

void Hooks::ended(const engine::CampaignStatus& status) {
  if (watch_.any()) start(watch_.ended(status), status);
}

void Hooks::start(const std::vector<DueHook>& due, const engine::CampaignStatus& status) {
  for (const DueHook& hook : due) {
    std::string text = fmt::format("on {}: started {}", hook.hook.event, hook.hook.command);
    try {
      const nlohmann::json request = {{"command", hook.hook.command},
                                      {"timeout_s", hook.hook.timeout_s},
                                      {"campaign", campaign_.string()},
                                      {"facts", hook_facts(hook, status)}};
      const FileDescriptor input =
          memory_file(request.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      SpawnRequest spawn_request;
      spawn_request.argv = {sibling_program("wflow"), "hook"};
      spawn_request.directory = campaign_.string();
      spawn_request.stdin_fd = input.get();
      const FileDescriptor nowhere = open_file("/dev/null", O_WRONLY | O_CLOEXEC);
      spawn_request.stdout_fd = spawn_request.stderr_fd = nowhere.get();
      children_.push_back(spawn(spawn_request));
    } catch (const std::exception& error) {
      text = fmt::format("on {}: cannot start {}: {}", hook.hook.event, hook.hook.command, error.what());
      log::write(LogLevel::warning, text);
    }
    rows_.push_back({unix_now_s(), "hook", std::move(text)});
  }
}

void Hooks::reap() {
  std::erase_if(children_, [](pid_t child) { return ::waitpid(child, nullptr, WNOHANG) != 0; });
}

void Hooks::record() {
  if (rows_.empty()) return;
  try {
    engine::store::Store store(campaign_);
    engine::store::Batch batch;
    batch.history = rows_;
    store.commit(batch);
    rows_.clear();
  } catch (const Error& error) {
    log::write(LogLevel::warning, fmt::format("hooks are not in the history: {}", error.what()));
  }
}

}  // namespace wflow::cli
