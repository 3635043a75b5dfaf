// SPDX-License-Identifier: Apache-2.0
// What processes used: the kernel's count of an ended child, memory of what still runs, kills for memory.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace wflow::workers {

// Of a process and all descendants that were waited for.
struct ProcessUsage {
  double cpu_s = 0;              // user and system
  std::uint64_t peak_bytes = 0;  // resident, of the largest one
  std::uint64_t read_bytes = 0;  // from storage
  std::uint64_t written_bytes = 0;
};

enum class ChildState : std::uint8_t { gone, running, ended };  // gone: there is no such child

// waitid(2) without waiting and without reaping, with the usage, which glibc's function leaves out: no system
// call more than without it. `info` and `usage` are those of a child that has ended.
ChildState find_ended(idtype_t which, id_t id, siginfo_t& info, ProcessUsage& usage);

// The resident bytes of each root and its descendants together; 0 where it has ended. One look at /proc for all.
std::map<pid_t, std::uint64_t> resident_bytes(std::span<const pid_t> roots);

// False with WFLOW_USAGE=off in the environment: what usage costs is measured against that (bench/usage_cost).
bool usage_is_measured();

// How often the kernel has killed for want of memory: in this process's control group where there is one that
// counts, else on this host. Whether a task that was killed is one of those, nobody else can say.
class MemoryKills {
 public:
  MemoryKills();
  // Another one since the last call that was true, or since the construction.
  bool take_one();

 private:
  std::optional<std::uint64_t> count() const;

  std::string file_;  // empty: none counts
  std::uint64_t seen_ = 0;
};

}  // namespace wflow::workers
