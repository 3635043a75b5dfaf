// SPDX-License-Identifier: Apache-2.0
// Processes of this host: the tree below a process, its usage, and kills for memory.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace wflow::workers {

struct Process {
  pid_t pid = 0, parent = 0;
  std::uint64_t resident_pages = 0;
  std::uint64_t cpu_ticks = 0;  // in units of sysconf(_SC_CLK_TCK), with the children that it has waited for
};

// A snapshot of all processes in /proc.
std::vector<Process> all_processes();

// A snapshot of all descendants of `root`, without it. They may have left its process group.
std::vector<pid_t> descendants(pid_t root);

// Returns those of `pids` that were started with all of these variables ("KEY=value" each) in their
// environment. Finds the processes of a task that have left its group and whose parents have ended.
std::vector<pid_t> started_with(std::span<const pid_t> pids, std::span<const std::string> variables);

// Kills and reaps all children of the calling process (a subreaper: orphans of killed ones become its
// children) until none is left. Returns false if some are left after `limit` (they hang in the kernel).
bool kill_all_children(std::chrono::milliseconds limit);

// The usage of a process and of all its descendants that were waited for.
struct ProcessUsage {
  double cpu_s = 0;              // user and system
  std::uint64_t peak_bytes = 0;  // resident, of the largest process
  std::uint64_t read_bytes = 0;  // from storage
  std::uint64_t written_bytes = 0;
};

enum class ChildState : std::uint8_t { gone, running, ended };  // gone: there is no such child

// waitid(2) without waiting and without reaping, and with the usage, which glibc's function leaves out; no
// additional system call. Fills `info` and `usage` for a child that has ended.
ChildState find_ended(idtype_t which, id_t id, siginfo_t& info, ProcessUsage& usage);

// The usage of a root and its descendants together; 0 if the root has ended.
struct TreeUsage {
  std::uint64_t resident_bytes = 0;
  std::uint64_t cpu_ticks = 0;  // Process::cpu_ticks
};
// Reads /proc once for all roots.
std::map<pid_t, TreeUsage> tree_usage(std::span<const pid_t> roots);

// False with WFLOW_USAGE=off in the environment, so that bench/usage_cost can measure the cost of usage
// records.
bool usage_is_measured();

// Counts the kernel's kills for want of memory: in this process's control group if that has a counter, else
// on this host. No other source tells if the kernel has killed a task for memory.
class MemoryKills {
 public:
  MemoryKills();
  // True if there was another kill since the last call that returned true, or since the construction.
  bool take_one();

 private:
  std::optional<std::uint64_t> count() const;

  std::string file_;  // with the counter; empty: there is none
  std::uint64_t seen_ = 0;
};

// Files that Open MPI leaves behind when mpirun is killed: a session's folder ompi.HOST.UID/pid.N in TMPDIR,
// N being mpirun's process id, and its ranks' segments of shared memory, vader_segment.HOST.UID.JOB.RANK in
// /dev/shm.

// Removes the sessions of these processes, which have been killed.
void remove_mpi_sessions(std::span<const pid_t> pids);

// Removes all sessions of this user on this host whose mpirun no longer runs: no process has its number, and
// nothing listens at its address. The second test spares the sessions of a container that shares TMPDIR and
// numbers its processes by itself.
void remove_left_mpi_sessions();

}  // namespace wflow::workers
