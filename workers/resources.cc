// SPDX-License-Identifier: Apache-2.0
#include "workers/resources.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/text.h"

namespace wflow::workers {

ResourcePool::ResourcePool(int cores, int gpus, const std::string& visible)
    : cores_(cores), free_cores_(cores), gpu_taken_(static_cast<std::size_t>(gpus)), free_gpus_(gpus) {
  const auto listed = visible.empty() ? std::vector<std::string>() : text::split(visible, ',');
  for (std::size_t i = 0; i < gpu_taken_.size(); ++i) {
    gpu_names_.push_back(i < listed.size() ? listed[i] : std::to_string(i));
  }
}

int ResourcePool::cores_wanted(const specs::Resources& wanted) const {
  const std::int64_t product = std::int64_t{std::max(1, wanted.cores)} * std::max(1, wanted.procs);
  return static_cast<int>(std::min<std::int64_t>(product, cores_));
}

bool ResourcePool::fits(const specs::Resources& wanted) const {
  return cores_wanted(wanted) <= free_cores_ && wanted.gpus <= free_gpus_;
}

bool ResourcePool::possible(const specs::Resources& wanted) const {
  return wanted.gpus <= static_cast<int>(gpu_taken_.size());
}

Share ResourcePool::take(const specs::Resources& wanted) {
  WFLOW_CHECK(fits(wanted));
  Share share{cores_wanted(wanted), {}};
  free_cores_ -= share.cores;
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
  free_gpus_ += static_cast<int>(share.gpus.size());
  for (const std::size_t gpu : share.gpus) gpu_taken_[gpu] = false;
}

std::string ResourcePool::visible_devices(const Share& share) const {
  std::vector<std::string> names;
  for (const std::size_t gpu : share.gpus) names.push_back(gpu_names_[gpu]);
  return text::join(names, ",");
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace wflow::workers
