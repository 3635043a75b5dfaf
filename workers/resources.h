// SPDX-License-Identifier: Apache-2.0
// Cores and GPUs of this worker, and who has them.
#pragma once

#include <string>
#include <vector>

#include "specs/template.h"

namespace wflow::workers {

// What one task has been given.
struct Share {
  int cores = 0;
  std::vector<std::size_t> gpus;
};

class ResourcePool {
 public:
  // `visible`: the worker's own CUDA_VISIBLE_DEVICES, whose entries tasks are given; may be empty.
  ResourcePool(int cores, int gpus, const std::string& visible);

  // A task takes cores * procs cores, all where it wants more than there are.
  bool fits(const specs::Resources& wanted) const;
  bool possible(const specs::Resources& wanted) const;  // ever: it has so many GPUs
  Share take(const specs::Resources& wanted);           // only when it fits
  void give_back(const Share& share);
  std::string visible_devices(const Share& share) const;  // for CUDA_VISIBLE_DEVICES

 private:
  int cores_wanted(const specs::Resources& wanted) const;

  int cores_ = 0;
  int free_cores_ = 0;
  std::vector<std::string> gpu_names_;
  std::vector<bool> gpu_taken_;
  int free_gpus_ = 0;
};

// The cores that this process may use.
int usable_cores();

}  // namespace wflow::workers
