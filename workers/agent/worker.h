// SPDX-License-Identifier: Apache-2.0
// The interface of the worker: `wflow worker` fills the options and calls run_worker().
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "engine/wire/messages.h"

namespace wflow::workers {

struct WorkerOptions {
  std::filesystem::path campaign;
  std::string group;
  int slots = 0;                  // tasks at a time; 0: the number of cores that this process may use
  int cores = 0;                  // shared by the tasks; 0: the number of slots
  int gpus = 0;                   // numbered from 0, or as CUDA_VISIBLE_DEVICES lists them
  std::int64_t memory_bytes = 0;  // shared by the tasks that request memory; 0: all that this process may use
  bool pin = false;               // pins every task to processors of its own
  double idle_timeout_s = 0;      // the worker ends after this time without work; 0: never
  // ---- inside a batch allocation
  std::string allocation;  // its token if the coordinator submitted it; else "slurm:1234", or empty
  std::string node;        // the name that the allocation's launcher uses for this node
  int incarnation = 0;     // number of earlier starts of the allocation's job
  double ends_unix_s = 0;  // end of the allocation; 0: not known, or no end
  // Returns the present end of the allocation, which schedulers may move. A separate process calls it
  // periodically. Empty: the end does not change.
  std::function<std::optional<double>()> ask_end;
  double ask_end_every_s = 300;
  double linger_s = 300;  // the worker ends after this time without a coordinator, once nothing runs
  double grace_s = 5;     // time between SIGTERM and SIGKILL
  std::uint64_t started_by =
      0;  // epoch of the coordinator that starts the worker; 0: started by hand or a scheduler
  // Set by benchmarks: completes a lease at once, so that no task runs. Given with Unix time.
  std::function<engine::wire::Results(const engine::wire::Lease&, double unix_s)> complete;
};

// Runs the worker to its end and leaves no process behind. Call it from a process without threads, because it
// forks. Returns the exit code: 0 after Drain, idle time-out or a signal; `system` if no coordinator
// appeared; `usage` if the coordinator refused this worker; `internal` if the agent was killed or failed (its
// guardian has cleaned up).
int run_worker(const WorkerOptions& options);

}  // namespace wflow::workers
