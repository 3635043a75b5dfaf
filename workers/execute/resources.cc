// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/resources.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace wflow::workers {

ResourcePool::ResourcePool(const Capacity& capacity)
    : cores_(capacity.cores),
      free_cores_(capacity.cores),
      memory_bytes_(capacity.memory_bytes),
      free_memory_bytes_(capacity.memory_bytes),
      free_cpus_(capacity.cpus),
      gpu_taken_(static_cast<std::size_t>(capacity.gpus)),
      free_gpus_(capacity.gpus) {
  WFLOW_CHECK(free_cpus_.empty() || free_cpus_.size() >= static_cast<std::size_t>(cores_));
  const auto listed =
      capacity.visible.empty() ? std::vector<std::string>() : text::split(capacity.visible, ',');
  for (std::size_t i = 0; i < gpu_taken_.size(); ++i) {
    gpu_names_.push_back(i < listed.size() ? listed[i] : std::to_string(i));
  }
}

int ResourcePool::cores_wanted(const specs::Resources& wanted) const {
  const std::int64_t product = std::int64_t{std::max(1, wanted.cores)} * std::max(1, wanted.procs);
  return static_cast<int>(std::min<std::int64_t>(product, cores_));
}

std::int64_t ResourcePool::memory_wanted(const specs::Resources& wanted) const {
  return std::min(wanted.memory_bytes, memory_bytes_);
}

bool ResourcePool::fits(const specs::Resources& wanted) const {
  return cores_wanted(wanted) <= free_cores_ && memory_wanted(wanted) <= free_memory_bytes_ &&
         wanted.gpus <= free_gpus_;
}

bool ResourcePool::possible(const specs::Resources& wanted) const {
  return wanted.gpus <= static_cast<int>(gpu_taken_.size());
}

Share ResourcePool::take(const specs::Resources& wanted) {
  WFLOW_CHECK(fits(wanted));
  Share share{cores_wanted(wanted), memory_wanted(wanted), {}, {}};
  free_cores_ -= share.cores;
  free_memory_bytes_ -= share.memory_bytes;
  if (!free_cpus_.empty()) {
    const auto end = free_cpus_.begin() + share.cores;
    share.cpus.assign(free_cpus_.begin(), end);
    free_cpus_.erase(free_cpus_.begin(), end);
  }
  for (std::size_t gpu = 0; gpu < gpu_taken_.size() && static_cast<int>(share.gpus.size()) < wanted.gpus;
       ++gpu) {
    if (gpu_taken_[gpu]) continue;
    gpu_taken_[gpu] = true;
    share.gpus.push_back(gpu);
  }
  free_gpus_ -= static_cast<int>(share.gpus.size());
  return share;
}

void ResourcePool::give_back(const Share& share) {
  free_cores_ += share.cores;
  free_memory_bytes_ += share.memory_bytes;
  free_cpus_.insert(free_cpus_.end(), share.cpus.begin(), share.cpus.end());
  std::sort(free_cpus_.begin(), free_cpus_.end());
  free_gpus_ += static_cast<int>(share.gpus.size());
  for (const std::size_t gpu : share.gpus) gpu_taken_[gpu] = false;
}

std::string ResourcePool::visible_devices(const Share& share) const {
  std::vector<std::string> names;
  for (const std::size_t gpu : share.gpus) names.push_back(gpu_names_[gpu]);
  return text::join(names, ",");
}

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
  std::error_code missing;
  if (!std::filesystem::exists("/proc/self/cgroup", missing)) return limit;
  for (const std::string& line : text::split(read_file("/proc/self/cgroup"), '\n')) {
    const auto parts = text::split(line, ':');
    if (parts.size() < 3 || (!parts[1].empty() && parts[1] != "memory")) continue;
    const bool unified = parts[1].empty();
    const std::filesystem::path root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (auto group = std::filesystem::path(parts[2]).relative_path();; group = group.parent_path()) {
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
