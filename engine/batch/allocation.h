// SPDX-License-Identifier: Apache-2.0
// A batch allocation as the coordinator records it, and the allocation around this process: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/batch/batch_system.h"

namespace wflow::engine::batch {

// intended ─▶ queued ─▶ running ─▶ ended. A job that is requeued goes back to `queued`, as a new incarnation.
enum class AllocationState : std::uint8_t { intended, queued, running, ended };
inline constexpr std::size_t kAllocationStates = 4;

inline std::string_view name_of(AllocationState state) {
  constexpr std::string_view kStates[] = {"intended", "queued", "running", "ended"};
  return kStates[static_cast<std::size_t>(state)];
}

inline std::string_view name_of(JobEnd end) {
  constexpr std::string_view kEnds[] = {"", "exit", "walltime", "node", "memory", "preempted", "cancelled"};
  return kEnds[static_cast<std::size_t>(end)];
}

// Exists from the intention to submit it to its end; its durable part is a row of the table `allocations`.
struct Allocation {
  std::string token, pool, scheduler;
  std::string id;  // empty until the scheduler has given one
  int nodes = 1;
  double walltime_s = 0;  // 0: the scheduler's default
  AllocationState state = AllocationState::intended;
  JobEnd end = JobEnd::none;
  bool by_hand = false;  // `wflow allocations add`: the backlog need not justify it
  double created_s = 0, started_s = 0, ended_s = 0;  // Unix time; 0: not yet
  double ends_s = 0;                                 // Unix time of its walltime; 0: not known
  int restarts = 0;
  std::string reason;        // why it waits or has ended, in the scheduler's words
  std::string never_clears;  // a plain sentence if that reason never clears
  std::vector<std::string> node_names;
};

// The batch allocation that this process was started in (`salloc -N2 wflow run`, `wflow run` in a batch
// script): a campaign that names no scheduler runs on all of its nodes.
struct AllocationAround {
  std::string scheduler;  // "slurm"
  std::string id;
  std::vector<std::string> nodes;
  bool starts_workers = false;        // it can: else tasks run on this machine alone
  std::vector<std::string> launcher;  // words before the worker's command: one worker on each node
  int cores = 0;                      // per node; 0: not known
};

// Returns a variable of the environment; null: it is not set.
using Variable = std::function<const char*(const char*)>;

// Empty outside an allocation, and if this is its only node: then a worker of this machine runs in the
// allocation.
std::optional<AllocationAround> allocation_around(const Variable& variable, bool has_srun);
std::optional<AllocationAround> allocation_around();

// Removes the variables that would change the workers' step.
std::vector<std::string> environment_for_launcher(std::vector<std::string> variables);

}  // namespace wflow::engine::batch
