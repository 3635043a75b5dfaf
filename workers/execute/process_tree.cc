// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/file.h"

namespace wflow::workers {

namespace {

// Fields of /proc/PID/stat (proc(5)): 4 the parent, 24 the resident pages. The second, the name in brackets, may
// hold anything.
Process read_process(int proc, const char* name, pid_t pid) {
  constexpr int kParent = 4;
  constexpr int kResident = 24;
  Process process{pid, 0, 0};
  const FileDescriptor fd(::openat(proc, (std::string(name) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> buffer{};
  const ssize_t got = fd ? ::read(fd.get(), buffer.data(), buffer.size()) : -1;
  if (got <= 0) return process;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(got));
  std::size_t at = text.rfind(')');
  for (int field = 3; at != std::string_view::npos && field <= kResident; ++field) {
    at = text.find(' ', at);
    if (at == std::string_view::npos) break;
    const char* begin = text.data() + ++at;
    const char* end = text.data() + text.size();
    if (field == kParent) std::from_chars(begin, end, process.parent);
    if (field == kResident) std::from_chars(begin, end, process.resident_pages);
  }
  return process;
}

}  // namespace

std::vector<Process> all_processes() {
  std::vector<Process> processes;
  const auto close = [](DIR* directory) { ::closedir(directory); };
  const std::unique_ptr<DIR, decltype(close)> proc(::opendir("/proc"), close);
  if (!proc) return processes;
  while (const dirent* entry = ::readdir(proc.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) continue;
    processes.push_back(read_process(::dirfd(proc.get()), entry->d_name, pid));
  }
  return processes;
}

std::vector<pid_t> descendants(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  for (const Process& process : all_processes()) children.emplace(process.parent, process.pid);
  std::vector<pid_t> found;
  std::vector<pid_t> open = {root};
  while (!open.empty()) {
    const auto [begin, end] = children.equal_range(open.back());
    open.pop_back();
    for (auto child = begin; child != end; ++child) {
      found.push_back(child->second);
      open.push_back(child->second);
    }
  }
  return found;
}

std::vector<pid_t> started_with(std::span<const pid_t> pids, std::span<const std::string> variables) {
  std::vector<pid_t> found;
  for (const pid_t pid : pids) {
    std::string environment;
    try {
      environment = '\0' + read_file("/proc/" + std::to_string(pid) + "/environ") + '\0';
    } catch (const Error&) {
      continue;  // it has ended, or is somebody else's
    }
    const bool all = std::all_of(variables.begin(), variables.end(), [&](const std::string& variable) {
      return environment.find('\0' + variable + '\0') != std::string::npos;
    });
    if (all) found.push_back(pid);
  }
  return found;
}

bool kill_all_children(std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kPause{2};
  const auto end = std::chrono::steady_clock::now() + limit;
  while (true) {
    pid_t reaped = 0;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0 || (reaped < 0 && errno == EINTR)) {
    }
    if (reaped < 0) return true;  // ECHILD
    for (const pid_t pid : descendants(::getpid())) ::kill(pid, SIGKILL);
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace wflow::workers
