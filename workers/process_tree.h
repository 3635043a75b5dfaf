// SPDX-License-Identifier: Apache-2.0
// Processes below a process, found in /proc: for what has left its task's process group.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace wflow::workers {

// All below `root`, without it. A snapshot: processes may come and go.
std::vector<pid_t> descendants(pid_t root);

// Kills and reaps all children of the calling process (a subreaper: orphans of killed ones become its
// children) until none is left. False when some are still there after `limit` (they hang in the kernel).
bool kill_all_children(std::chrono::milliseconds limit);

}  // namespace wflow::workers
