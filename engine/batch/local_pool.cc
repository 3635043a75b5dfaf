// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/local_pool.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "base/error.h"
#include "base/process.h"

namespace wflow::engine::batch {

namespace {

FileDescriptor open_process(pid_t pid) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool is_readable(int fd) {
  pollfd poll{fd, POLLIN, 0};
  return ::poll(&poll, 1, 0) > 0;
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

FileLimit::FileLimit() {
  ::getrlimit(RLIMIT_NOFILE, &before_);
  raise();
}

void FileLimit::lower() const {
  ::setrlimit(RLIMIT_NOFILE, &before_);
}

void FileLimit::raise() const {
  const rlimit most{before_.rlim_max, before_.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &most);
}

void LocalPool::start(const LocalWorkerOptions& options) {
  const std::filesystem::path log_file = log_of(options.group);
  make_directories(log_file.parent_path());
  const FileDescriptor log = open_file(log_file, O_WRONLY | O_CREAT | O_APPEND);
  SpawnRequest request;
  request.argv = {sibling_program("wflow"),
                  "worker",
                  "--campaign",
                  campaign_.string(),
                  "--group=" + options.group,
                  "--slots",
                  std::to_string(options.slots)};
  if (options.pin) request.argv.push_back("--pin");
  if (options.zero) request.argv.push_back("--zero");
  if (options.zero_failures > 0) {
    request.argv.insert(request.argv.end(), {"--zero-failures", std::to_string(options.zero_failures)});
  }
  request.stdout_fd = log.get();
  request.stderr_fd = log.get();
  files_.lower();
  const pid_t pid = spawn(request);
  files_.raise();
  processes_[pid] = {open_process(pid), true, options.group};
}

bool LocalPool::adopt(pid_t pid, const std::string& group) {
  if (watches(pid)) return true;
  FileDescriptor descriptor = open_process(pid);
  if (!descriptor) return false;
  processes_[pid] = {std::move(descriptor), false, group};
  return true;
}

bool LocalPool::has(const std::string& group) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [&](const auto& entry) { return entry.second.group == group; });
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
  for (const auto& [pid, process] : processes_) list.push_back(process.descriptor.get());
  return list;
}

std::vector<pid_t> LocalPool::take_ended() {
  std::vector<pid_t> ended;
  for (auto at = processes_.begin(); at != processes_.end();) {
    if (!is_readable(at->second.descriptor.get())) {
      ++at;
      continue;
    }
    if (at->second.child) ::waitpid(at->first, nullptr, 0);
    ended.push_back(at->first);
    at = processes_.erase(at);
  }
  return ended;
}

void LocalPool::kill_all(int signal) const {
  for (const auto& [pid, process] : processes_)
    ::syscall(SYS_pidfd_send_signal, process.descriptor.get(), signal, nullptr, 0);
}

}  // namespace wflow::engine::batch
