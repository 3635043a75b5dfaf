// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/control_group.h"
#include "base/error.h"
#include "base/file.h"

namespace wflow::workers {

namespace {

// Fields of /proc/PID/stat (proc(5)): 4 the parent, 14 to 17 CPU time, 24 the resident pages. The second, the
// name in brackets, may hold anything.
Process read_process(int proc, const char* name, pid_t pid) {
  constexpr int kParent = 4;
  constexpr int kFirstCpu = 14;
  constexpr int kLastCpu = 17;
  constexpr int kResident = 24;
  Process process{pid, 0, 0, 0};
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
    if (field >= kFirstCpu && field <= kLastCpu) {
      std::uint64_t ticks = 0;
      std::from_chars(begin, end, ticks);
      process.cpu_ticks += ticks;
    }
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
      continue;  // it has ended, or belongs to another user
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

// Returns the number after "oom_kill " at the beginning of a line.
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
