// SPDX-License-Identifier: Apache-2.0
// Cores, memory and GPUs of this worker, and who has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "specs/plan/template.h"

namespace wflow::workers {

// What one task has been given.
struct Share {
  int cores = 0;
  std::int64_t memory_bytes = 0;
  std::vector<int> cpus;  // the processors themselves, where tasks are pinned
  std::vector<std::size_t> gpus;
};

struct Capacity {
  int cores = 1;
  int gpus = 0;
  std::int64_t memory_bytes = 0;
  std::string visible;  // the worker's own CUDA_VISIBLE_DEVICES, whose entries tasks are given; may be empty
  std::vector<int> cpus;  // to pin tasks to, one a core; empty: no pinning
};

class ResourcePool {
 public:
  explicit ResourcePool(const Capacity& capacity);

  // A task takes cores * procs cores and its memory, all where it wants more than there is.
  bool fits(const specs::Resources& wanted) const;
  bool possible(const specs::Resources& wanted) const;  // ever: it has so many GPUs
  Share take(const specs::Resources& wanted);           // only when it fits
  void give_back(const Share& share);

 private:
  int cores_wanted(const specs::Resources& wanted) const;
  std::int64_t memory_wanted(const specs::Resources& wanted) const;

  int cores_ = 0;
  int free_cores_ = 0;
  std::int64_t memory_bytes_ = 0;
  std::int64_t free_memory_bytes_ = 0;
  std::vector<int> free_cpus_;  // ascending
  std::vector<bool> gpu_taken_;
  int free_gpus_ = 0;
};

// What CUDA_VISIBLE_DEVICES is for a task.
class DeviceNames {
 public:
  explicit DeviceNames(const Capacity& capacity);
  std::string of(const Share& share) const;

 private:
  std::vector<std::string> names_;
};

}  // namespace wflow::workers
