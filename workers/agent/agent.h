// SPDX-License-Identifier: Apache-2.0
// The worker as its starter sees it: `wflow worker` fills the options and calls run_worker().
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace wflow::workers {

struct WorkerOptions {
  std::filesystem::path campaign;
  std::string group;
  int slots = 0;                  // tasks at a time; 0: as many as the cores that this process may use
  int cores = 0;                  // shared by the tasks; 0: as many as slots
  int gpus = 0;                   // numbered from 0, or as CUDA_VISIBLE_DEVICES lists them
  std::int64_t memory_bytes = 0;  // shared by the tasks that ask for some; 0: what this process may use
  bool pin = false;               // every task to processors of its own
  double idle_timeout_s = 0;      // ends after so long without work; 0: never
  // ---- inside a batch allocation
  std::string allocation;  // its token, where the coordinator has submitted it; else "slurm:1234", or empty
  std::string node;        // the name that the allocation's launcher knows this node by
  int incarnation = 0;     // how often the scheduler has started its job before
  double ends_unix_s = 0;  // 0: not known, or no end
  // Asked now and then for that end, which schedulers may move, by a process of its own. Empty: nobody is
  // asked.
  std::function<std::optional<double>()> ask_end;
  double ask_end_every_s = 300;
  double linger_s = 300;         // ends after so long without a coordinator, once nothing runs
  double grace_s = 5;            // between SIGTERM and SIGKILL
  std::uint64_t started_by = 0;  // epoch of the coordinator that starts it; 0: somebody else does
  bool zero = false;             // benchmarks: every task is over at once and nothing is run
  double zero_failures = 0;  // of these, the fraction that fails (by a hash of array, element and attempt)
};

// Runs until told to end, and leaves no process behind. Call it from a process without threads: it forks.
// Gives the exit code: 0 after Drain, idle time-out or a signal; `system` when the coordinator stayed away;
// `usage` when it refused this worker; `internal` when the agent was killed or failed (its guardian has
// cleaned up).
int run_worker(const WorkerOptions& options);

}  // namespace wflow::workers
