// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/local_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "base/error.h"
#include "base/process.h"
#include "engine/batch/allocation.h"

namespace wflow::engine::batch {

namespace {

// A process that may not be signalled belongs to another user: the number has been reused.
void signal_process(const ProcessHandle& handle, int signal) {
  try {
    handle.send_signal(signal);
  } catch (const Error&) {
  }
}

// About twice what it has open with one worker; each further worker is a file more.
constexpr rlim_t kOpenFiles = 64;

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

FileLimit::FileLimit() {
  ::getrlimit(RLIMIT_NOFILE, &before_);
  if (before_.rlim_max < kOpenFiles) {
    throw Error(
        ExitCode::system,
        fmt::format("a coordinator needs to open {} files and the limit is {}; raise it (ulimit -n {})",
                    kOpenFiles, before_.rlim_max, 4 * kOpenFiles));
  }
  raise();
}

void FileLimit::lower() const {
  ::setrlimit(RLIMIT_NOFILE, &before_);
}

void FileLimit::raise() const {
  const rlimit most{before_.rlim_max, before_.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &most);
}

ProcessIdentity LocalPool::start(const LocalWorkerOptions& options) {
  const std::filesystem::path log_file = log_of(options.group);
  make_directories(log_file.parent_path());
  const FileDescriptor log = open_file(log_file, O_WRONLY | O_CREAT | O_APPEND);
  SpawnRequest request;
  request.argv = options.launcher;
  request.argv.insert(request.argv.end(), {sibling_program("wflow"), "worker", "--campaign",
                                           campaign_.string(), "--group=" + options.group});
  if (options.slots > 0) request.argv.insert(request.argv.end(), {"--slots", std::to_string(options.slots)});
  if (options.launcher.empty()) {
    request.argv.insert(request.argv.end(), {"--started-by", std::to_string(options.started_by)});
  } else {
    request.environment = environment_for_launcher(current_environment());
    request.own_group = true;  // Ctrl-C is the coordinator's
  }
  if (options.pin) request.argv.push_back("--pin");
  request.stdout_fd = log.get();
  request.stderr_fd = log.get();
  files_.lower();
  const pid_t pid = spawn(request);
  files_.raise();
  const ProcessIdentity process = identify(pid);  // our child: there, if only as a zombie
  processes_[process] = {ProcessHandle(process), true};
  return process;
}

void LocalPool::watch(const ProcessIdentity& process) {
  if (processes_.contains(process)) return;
  ProcessHandle handle(process);
  handle.open() ? void(processes_.emplace(process, Process{std::move(handle), false}))
                : ended_.push_back(process);
}

std::filesystem::path LocalPool::log_of(const std::string& group) const {
  std::string name = group;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.') c = '_';
  }
  return campaign_ / ".wflow" / "workers" / ("local-" + name + ".log");
}

std::vector<int> LocalPool::descriptors() const {
  std::vector<int> list;
  for (const auto& [identity, process] : processes_) list.push_back(process.handle.descriptor());
  return list;
}

std::vector<ProcessIdentity> LocalPool::take_ended() {
  for (auto at = processes_.begin(); at != processes_.end();) {
    if (!at->second.handle.ended()) {
      ++at;
      continue;
    }
    if (at->second.child) ::waitpid(static_cast<pid_t>(at->first.pid), nullptr, 0);
    ended_.push_back(at->first);
    at = processes_.erase(at);
  }
  return std::exchange(ended_, {});
}

void LocalPool::kill(const ProcessIdentity& process, int signal) const {
  const auto at = processes_.find(process);
  if (at != processes_.end()) return signal_process(at->second.handle, signal);
  signal_process(ProcessHandle(process), signal);
}

void LocalPool::kill_all(int signal) const {
  for (const auto& [identity, process] : processes_) signal_process(process.handle, signal);
}

}  // namespace wflow::engine::batch
