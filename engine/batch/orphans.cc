// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/orphans.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "base/file.h"
#include "base/text.h"

namespace wflow::engine::batch {

namespace {

constexpr std::chrono::seconds kPatience{10};

// The text of a file in /proc; empty where it is another user's, or its process has ended.
std::string read_proc(pid_t pid, const char* file) {
  std::ifstream stream("/proc/" + std::to_string(pid) + "/" + file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

bool belongs_to(pid_t pid, const std::string& worker) {
  const std::string environment = read_proc(pid, "environ");
  constexpr std::string_view kVariable = "WFLOW_EVENTS=";
  for (std::size_t at = 0; at < environment.size();) {
    const std::string_view entry(environment.c_str() + at);
    if (entry.starts_with(kVariable) && entry.find("/" + worker + "/") != std::string_view::npos) return true;
    at += entry.size() + 1;
  }
  return false;
}

std::set<pid_t> find_orphans(const std::string& worker) {
  std::set<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const auto pid = text::to_integer(entry.path().filename().string());
    if (pid && *pid != ::getpid() && belongs_to(static_cast<pid_t>(*pid), worker))
      found.insert(static_cast<pid_t>(*pid));
  }
  return found;
}

// Through a process descriptor, looked at once more: the number may have gone to another process since.
void kill_orphan(pid_t pid, const std::string& worker) {
  const FileDescriptor descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (descriptor && belongs_to(pid, worker))
    ::syscall(SYS_pidfd_send_signal, descriptor.get(), SIGKILL, nullptr, 0);
}

}  // namespace

std::size_t end_orphans(const std::string& worker) {
  std::set<pid_t> all;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  // Again until none is found: one may have forked while the list was made. A zombie has no environment.
  for (auto found = find_orphans(worker); !found.empty(); found = find_orphans(worker)) {
    for (const pid_t pid : found) kill_orphan(pid, worker);
    all.insert(found.begin(), found.end());
    if (std::chrono::steady_clock::now() > until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return all.size();
}

}  // namespace wflow::engine::batch
