// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/process_usage.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/control_group.h"
#include "base/error.h"
#include "base/file.h"
#include "workers/execute/process_tree.h"

namespace wflow::workers {

namespace {

constexpr std::uint64_t kBlock = 512;  // getrusage(2) counts I/O in these
constexpr std::uint64_t kKilobyte = 1024;

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

std::uint64_t count_of(long value, std::uint64_t unit) {
  return value > 0 ? static_cast<std::uint64_t>(value) * unit : 0;
}

std::string read_or_empty(const std::string& path) {
  try {
    return read_file(path);
  } catch (const Error&) {
    return {};
  }
}

// The number behind "oom_kill " at the beginning of a line.
std::optional<std::uint64_t> kills_in(std::string_view text) {
  constexpr std::string_view kName = "oom_kill ";
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    const std::string_view line = text.substr(at);
    if (line.starts_with(kName)) {
      std::uint64_t value = 0;
      const auto parsed = std::from_chars(line.data() + kName.size(), line.data() + line.size(), value);
      return parsed.ec == std::errc() ? std::optional(value) : std::nullopt;
    }
    if (text.find('\n', at) == std::string_view::npos) break;
  }
  return std::nullopt;
}

std::vector<std::string> candidates() {
  std::vector<std::string> files;
  if (const auto group = own_group("memory"))
    files.push_back("/sys/fs/cgroup/memory" + *group + "/memory.oom_control");
  // The worker's own group counts no memory; the one above it does.
  for (std::filesystem::path group = own_group("").value_or(""); group.has_relative_path();
       group = group.parent_path())
    files.push_back("/sys/fs/cgroup" + group.string() + "/memory.events");
  files.emplace_back("/proc/vmstat");
  return files;
}

}  // namespace

ChildState find_ended(idtype_t which, id_t id, siginfo_t& info, ProcessUsage& usage) {
  info = {};
  rusage used{};
  if (::syscall(SYS_waitid, which, id, &info, WEXITED | WNOHANG | WNOWAIT, &used) != 0)
    return ChildState::gone;
  if (info.si_pid == 0) return ChildState::running;
  usage.cpu_s = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
  usage.peak_bytes = count_of(used.ru_maxrss, kKilobyte);
  usage.read_bytes = count_of(used.ru_inblock, kBlock);
  usage.written_bytes = count_of(used.ru_oublock, kBlock);
  return ChildState::ended;
}

bool usage_is_measured() {
  static const bool measured = [] {
    const char* word = std::getenv("WFLOW_USAGE");
    return word == nullptr || std::string_view(word) != "off";
  }();
  return measured;
}

std::map<pid_t, TreeUsage> tree_usage(std::span<const pid_t> roots) {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::vector<Process> processes = all_processes();
  std::multimap<pid_t, const Process*> children;
  std::map<pid_t, const Process*> by_pid;
  for (const Process& process : processes) {
    children.emplace(process.parent, &process);
    by_pid.emplace(process.pid, &process);
  }
  std::map<pid_t, TreeUsage> usage;
  for (const pid_t root : roots) {
    TreeUsage& sum = usage[root];
    std::vector<pid_t> open = {root};
    while (!open.empty()) {
      const pid_t pid = open.back();
      open.pop_back();
      if (const auto found = by_pid.find(pid); found != by_pid.end()) {
        sum.resident_bytes += found->second->resident_pages * page;
        sum.cpu_ticks += found->second->cpu_ticks;
      }
      const auto [begin, end] = children.equal_range(pid);
      for (auto child = begin; child != end; ++child) open.push_back(child->second->pid);
    }
  }
  return usage;
}

MemoryKills::MemoryKills() {
  for (const std::string& file : candidates()) {
    const auto kills = kills_in(read_or_empty(file));
    if (!kills) continue;
    file_ = file;
    seen_ = *kills;
    return;
  }
}

std::optional<std::uint64_t> MemoryKills::count() const {
  return file_.empty() ? std::nullopt : kills_in(read_or_empty(file_));
}

bool MemoryKills::take_one() {
  const auto now = count();
  if (!now || *now <= seen_) return false;
  ++seen_;
  return true;
}

}  // namespace wflow::workers
