// SPDX-License-Identifier: Apache-2.0
// Cores, memory and GPUs of this worker, and their assignment to tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "specs/plan/template.h"

namespace wflow::workers {

// The resources assigned to one task.
struct Share {
  int cores = 0;
  std::int64_t memory_bytes = 0;
  std::vector<int> cpus;  // processors, if tasks are pinned
  std::vector<std::size_t> gpus;
};

struct Capacity {
  int cores = 1;
  int gpus = 0;
  std::int64_t memory_bytes = 0;
  std::string visible;    // the worker's own CUDA_VISIBLE_DEVICES, whose entries tasks get; may be empty
  std::vector<int> cpus;  // processors to pin tasks to, one a core; empty: no pinning
};

class ResourcePool {
 public:
  explicit ResourcePool(const Capacity& capacity);

  // A task takes cores * procs cores and its memory; all of them if it needs more than the worker has.
  bool fits(const specs::Resources& wanted) const;
  bool possible(const specs::Resources& wanted) const;  // true if the worker has enough GPUs in all
  Share take(const specs::Resources& wanted);           // only if it fits
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

// The value of CUDA_VISIBLE_DEVICES for a task.
class DeviceNames {
 public:
  explicit DeviceNames(const Capacity& capacity);
  std::string of(const Share& share) const;

 private:
  std::vector<std::string> names_;
};

}  // namespace wflow::workers
