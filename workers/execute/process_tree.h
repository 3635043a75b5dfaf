// SPDX-License-Identifier: Apache-2.0
// Processes below a process, found in /proc: for what has left its task's process group.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace wflow::workers {

struct Process {
  pid_t pid = 0, parent = 0;
  std::uint64_t resident_pages = 0;
  std::uint64_t cpu_ticks =
      0;  // of sysconf(_SC_CLK_TCK): its own, and those of children that it has waited for
};

// All of this process table. A snapshot.
std::vector<Process> all_processes();

// All below `root`, without it. A snapshot: processes may come and go.
std::vector<pid_t> descendants(pid_t root);

// Those of `pids` that began with all of these variables ("KEY=value" each) in their environment: what a task
// started, though its parents have ended and it has left the task's group.
std::vector<pid_t> started_with(std::span<const pid_t> pids, std::span<const std::string> variables);

// Kills and reaps all children of the calling process (a subreaper: orphans of killed ones become its
// children) until none is left. False when some are still there after `limit` (they hang in the kernel).
bool kill_all_children(std::chrono::milliseconds limit);

}  // namespace wflow::workers
