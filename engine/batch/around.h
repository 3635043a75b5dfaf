// SPDX-License-Identifier: Apache-2.0
// The batch allocation that this process was started in (`salloc -N2 wflow run`, `wflow run` in a batch script): a
// campaign that asks for no scheduler runs on all of its nodes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace wflow::engine::batch {

struct AllocationAround {
  std::string scheduler;  // "slurm"
  std::string id;
  std::vector<std::string> nodes;
  bool starts_workers = false;        // it can: else tasks run on this machine alone
  std::vector<std::string> launcher;  // words before the worker's command: one worker on each node
  int cores = 0;                      // of a node; 0: not known
};

// A variable of the environment; null: it is not set.
using Variable = std::function<const char*(const char*)>;

// Nothing outside one. Nor where this is its only node: a worker of this machine is one in the allocation.
std::optional<AllocationAround> allocation_around(const Variable& variable, bool has_srun);
std::optional<AllocationAround> allocation_around();

// Without what would change the step of the workers.
std::vector<std::string> environment_for_launcher(std::vector<std::string> variables);

}  // namespace wflow::engine::batch
