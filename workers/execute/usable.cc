// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/usable.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "base/control_group.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace wflow::workers {

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

int usable_cores() {
  return static_cast<int>(usable_cpus().size());
}

namespace {

// The number in a file, if there is one: control groups write "max", or a number beyond all memory.
std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
  std::error_code missing;
  if (!std::filesystem::is_regular_file(path, missing)) return std::nullopt;
  try {
    return text::to_integer(text::trim(read_file(path)));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Of this process's control group and those above it.
std::int64_t control_group_limit(std::int64_t limit) {
  for (const bool unified : {false, true}) {
    const auto own_path = own_group(unified ? "" : "memory");
    if (!own_path) continue;
    const std::filesystem::path root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (auto group = std::filesystem::path(*own_path).relative_path();; group = group.parent_path()) {
      const auto own = number_in(root / group / (unified ? "memory.max" : "memory.limit_in_bytes"));
      if (own && *own > 0) limit = std::min(limit, *own);
      if (group.empty()) break;
    }
  }
  return limit;
}

}  // namespace

std::int64_t usable_memory_bytes() {
  std::int64_t limit = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  limit = control_group_limit(limit);
  const char* slurm = std::getenv("SLURM_MEM_PER_NODE");
  const auto mebibytes = slurm == nullptr ? std::nullopt : text::to_integer(slurm);
  if (mebibytes && *mebibytes > 0 && *mebibytes < (limit >> 20)) limit = *mebibytes << 20;
  return limit;
}

}  // namespace wflow::workers
