// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/resources.h"

#include <algorithm>

#include "base/error.h"
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

DeviceNames::DeviceNames(const Capacity& capacity) {
  const auto listed =
      capacity.visible.empty() ? std::vector<std::string>() : text::split(capacity.visible, ',');
  const auto count = static_cast<std::size_t>(capacity.gpus);
  for (std::size_t i = 0; i < count; ++i) names_.push_back(i < listed.size() ? listed[i] : std::to_string(i));
}

std::string DeviceNames::of(const Share& share) const {
  std::vector<std::string> names;
  for (const std::size_t gpu : share.gpus) names.push_back(names_.at(gpu));
  return text::join(names, ",");
}

}  // namespace wflow::workers
