// SPDX-License-Identifier: Apache-2.0
#include "base/control_group.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"

namespace wflow {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "wflow-";
constexpr const char* kMembers = "cgroup.procs";

struct Hierarchy {
  std::string_view controllers;  // as in /proc/<pid>/cgroup
  std::string mount;
};
const std::array<Hierarchy, 5> kHierarchies{{{"", "/sys/fs/cgroup"},
                                             {"", "/sys/fs/cgroup/unified"},
                                             {"name=systemd", "/sys/fs/cgroup/systemd"},
                                             {"pids", "/sys/fs/cgroup/pids"},
                                             {"freezer", "/sys/fs/cgroup/freezer"}}};

std::vector<std::string> lines_of(const fs::path& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// A mark that is constant while a process lives and that no other process of this process table has.
std::string name_of(const ProcessIdentity& process) {
  return fmt::format("{}.{}", process.pid, process.start_ticks);
}

// "pid:[4026531836]" as a part of a file name.
std::string table_of(const ProcessIdentity& process) {
  std::string digits;
  std::copy_if(process.namespace_id.begin(), process.namespace_id.end(), std::back_inserter(digits),
               [](char c) { return c >= '0' && c <= '9'; });
  return digits;
}

bool lives(std::string_view name) {
  const auto parts = text::split(name, '.');
  const auto pid = parts.size() == 2 ? text::to_integer(parts[0]) : std::nullopt;
  if (!pid) return true;  // another kind of name: assume that it lives
  const ProcessIdentity now = identify(static_cast<pid_t>(*pid));
  try {
    return now.known() && name_of(now) == name && !ProcessHandle(now).ended();
  } catch (const Error&) {
    return true;  // no descriptor available: unknown, so assume that it lives
  }
}

// wflow-<campaign>-<PID namespace>-<owner>-<owner>. The calling process does not count as an owner.
bool is_abandoned(const std::string& group, const ProcessIdentity& own) {
  const auto parts = text::split(group, '-');
  if (!group.starts_with(kPrefix) || parts.size() != 5 || parts[2] != table_of(own)) return false;
  return std::none_of(parts.begin() + 3, parts.end(),
                      [&](const std::string& owner) { return owner != name_of(own) && lives(owner); });
}

bool is_in(pid_t pid, const fs::path& group) {
  const auto members = lines_of(group / kMembers);
  return std::find(members.begin(), members.end(), std::to_string(pid)) != members.end();
}

// Checks again: the pid may have been given to another process since.
bool kill_member(pid_t pid, const fs::path& group) {
  try {
    const ProcessHandle process(identify(pid));
    return is_in(pid, group) && process.send_signal(SIGKILL);
  } catch (const Error&) {
    return false;  // another user's process, or no descriptor is left
  }
}

}  // namespace

// A line has the form "4:memory:/path", or "0::/path" in version 2.
std::optional<std::string> own_group(std::string_view controllers) {
  for (const std::string& line : lines_of("/proc/self/cgroup")) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    if (std::string_view(line).substr(first + 1, second - first - 1) == controllers)
      return line.substr(second + 1);
  }
  return std::nullopt;
}

fs::path group_folder() {
  for (const Hierarchy& hierarchy : kHierarchies) {
    const auto own = own_group(hierarchy.controllers);
    if (!own) continue;
    // The group of a worker that a task of another worker started is beside that worker's group, not below
    // it.
    fs::path folder = *own == "/" ? hierarchy.mount : hierarchy.mount + *own;
    while (folder.filename().string().starts_with(kPrefix)) folder = folder.parent_path();
    if (::access((folder / kMembers).c_str(), W_OK) == 0 && ::access(folder.c_str(), W_OK) == 0)
      return folder;
  }
  return {};
}

ControlGroups::ControlGroups(const fs::path& campaign, fs::path folder) : folder_(std::move(folder)) {
  std::error_code ignored;
  const std::string path = fs::weakly_canonical(campaign, ignored).string();
  prefix_ = fmt::format("{}{:016x}-", kPrefix, XXH3_64bits(path.data(), path.size()));
}

fs::path ControlGroups::enter(const ProcessIdentity& other) const {
  if (folder_.empty()) return {};
  const ProcessIdentity own = own_identity();
  const fs::path group =
      folder_ / fmt::format("{}{}-{}-{}", prefix_, table_of(own), name_of(other), name_of(own));
  std::error_code refused;
  if (!fs::create_directory(group, refused)) return {};
  std::ofstream members(group / kMembers);
  if (members << own.pid << std::flush) return group;
  fs::remove(group, refused);
  return {};
}

std::vector<pid_t> ControlGroups::end_abandoned() const {
  std::vector<pid_t> ended;
  if (folder_.empty()) return ended;
  const ProcessIdentity own = own_identity();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (!is_abandoned(name, own)) continue;
    const auto members = lines_of(entry.path() / kMembers);
    if (members.empty()) ::rmdir(entry.path().c_str());
    if (!name.starts_with(prefix_)) continue;
    for (const std::string& member : members) {
      const auto pid = text::to_integer(member);
      if (pid && *pid > 0 && kill_member(static_cast<pid_t>(*pid), entry.path()))
        ended.push_back(static_cast<pid_t>(*pid));
    }
  }
  return ended;
}

void leave_group(const fs::path& group) {
  if (group.empty()) return;
  std::ofstream(group.parent_path() / kMembers) << ::getpid() << std::flush;
  ::rmdir(group.c_str());
}

}  // namespace wflow
