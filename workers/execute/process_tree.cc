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

// The fourth field of /proc/PID/stat; the second, the name in brackets, may hold anything.
pid_t parent_of(const char* pid) {
  const FileDescriptor fd(::open((std::string("/proc/") + pid + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 512> buffer{};
  const ssize_t got = fd ? ::read(fd.get(), buffer.data(), buffer.size()) : -1;
  if (got <= 0) return 0;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(got));
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos || name_end + 4 >= text.size()) return 0;
  pid_t parent = 0;
  std::from_chars(text.data() + name_end + 4, text.data() + text.size(), parent);
  return parent;
}

std::multimap<pid_t, pid_t> children_by_parent() {
  std::multimap<pid_t, pid_t> children;
  const auto close = [](DIR* directory) { ::closedir(directory); };
  const std::unique_ptr<DIR, decltype(close)> proc(::opendir("/proc"), close);
  if (!proc) return children;
  while (const dirent* entry = ::readdir(proc.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) continue;
    children.emplace(parent_of(entry->d_name), pid);
  }
  return children;
}

}  // namespace

std::vector<pid_t> descendants(pid_t root) {
  const auto children = children_by_parent();
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
