// SPDX-License-Identifier: Apache-2.0
#include "cli/observe/hooks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "cli/observe/hook_facts.h"
#include "engine/store/store.h"

namespace wflow::cli {

namespace {

// A file in memory: whoever reads it needs no writer that waits.
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
