// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/orphans.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/program_file.h"
#include "base/text.h"

namespace wflow::engine::batch {

namespace {

constexpr double kPatience_s = 10;

// The text of a file in /proc; empty if it belongs to another user, or its process has ended, also meanwhile.
std::string read_proc(pid_t pid, const char* file) {
  try {
    return read_file("/proc/" + std::to_string(pid) + "/" + file);
  } catch (const Error&) {
    return {};
  }
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

// Uses a process descriptor and checks again: another process may have got the number since.
FileDescriptor kill_orphan(pid_t pid, const std::string& worker) {
  FileDescriptor descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!descriptor || !belongs_to(pid, worker)) return {};
  ::syscall(SYS_pidfd_send_signal, descriptor.get(), SIGKILL, nullptr, 0);
  return descriptor;
}

struct Child {
  pid_t pid = 0, session = 0;
};

std::vector<Child> own_children() {
  std::vector<Child> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const auto pid = text::to_integer(entry.path().filename().string());
    if (!pid) continue;
    const std::string stat = read_proc(static_cast<pid_t>(*pid), "stat");
    std::istringstream words(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
    char state = 0;
    pid_t parent = 0, group = 0, session = 0;
    words >> state >> parent >> group >> session;
    if (parent == ::getpid()) found.push_back({static_cast<pid_t>(*pid), session});
  }
  return found;
}

// A worker's own processes end by themselves, when they have written what they know.
bool is_of_this_program(pid_t pid) {
  const std::filesystem::path program = program_of(std::to_string(pid));
  return !program.empty() && program == program_of("self");
}

}  // namespace

AdoptedProcesses::AdoptedProcesses() {
  for (const Child& child : own_children()) before_.insert(child.pid);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

// Processes that this process starts itself stay in its session; a worker's processes never belong to it.
std::size_t AdoptedProcesses::end_all() const {
  std::size_t count = 0;
  for (const Child& child : own_children()) {
    if (child.session == ::getsid(0) || before_.contains(child.pid) || is_of_this_program(child.pid))
      continue;
    // A child's number is its own until it is reaped here.
    if (::kill(child.pid, SIGKILL) == 0 && ::waitpid(child.pid, nullptr, WNOHANG) == 0) ++count;
  }
  return count;
}

// Looks until none is found: one may have forked while the list was made. A zombie has no environment.
bool OrphanEnd::step(double now_s) {
  if (give_up_s_ == 0) give_up_s_ = now_s + kPatience_s;
  if (!some_have_ended() && now_s < next_look_s_) return false;
  next_look_s_ = now_s + kAgain_s;
  const std::set<pid_t> left = find_orphans(worker_);
  for (const pid_t pid : left) {
    if (FileDescriptor killed = kill_orphan(pid, worker_)) killed_[pid] = std::move(killed);
  }
  found_.insert(left.begin(), left.end());
  const std::vector<pid_t> in_groups = groups_.end_abandoned();
  found_.insert(in_groups.begin(), in_groups.end());
  return (left.empty() && in_groups.empty()) || now_s >= give_up_s_;
}

bool OrphanEnd::some_have_ended() {
  return std::erase_if(killed_, [](const auto& process) {
           pollfd end{process.second.get(), POLLIN, 0};
           return ::poll(&end, 1, 0) > 0;
         }) > 0;
}

std::vector<int> OrphanEnd::descriptors() const {
  std::vector<int> all;
  for (const auto& [pid, descriptor] : killed_) all.push_back(descriptor.get());
  return all;
}

}  // namespace wflow::engine::batch
