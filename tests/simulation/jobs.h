// SPDX-License-Identifier: Apache-2.0
// Many schedules on all processors: processes by fork, which share their counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulation/world.h"

namespace wflow::simulation {

struct JobOptions {
  std::uint64_t first = 1;
  std::uint64_t count = 0;                       // number of seeds; 0: as many as fit into `seconds`
  std::uint64_t more_first = 0, more_count = 0;  // seeds after these
  double seconds = 0;
  unsigned jobs = 1;
  // For a planted bug: only its own invariant counts as a failure, and the first one ends the search.
  std::uint64_t check_replay_every = 0;  // these run twice, and must be the same schedule; 0: none
  RunOptions run;
};

struct JobResult {
  std::uint64_t seeds = 0;
  std::uint64_t others = 0;  // with a planted bug: seeds that broke another invariant than the bug's
  std::uint64_t steps = 0;
  std::uint64_t executions = 0;
  std::uint64_t lost_results = 0;
  double simulated_s = 0;
  double worst_over_bound = 0;
  std::uint64_t worst_seed = 0;
  FaultCounts faults;
  std::vector<std::uint64_t> failed;
};

JobResult run_jobs(const Studies& studies, Vfs& vfs, const JobOptions& options);
// Says what was broken, and how to see it again. Runs the seed once more for its last lines.
void report_failure(const Studies& studies, Vfs& vfs, std::uint64_t seed, const RunOptions& run);

}  // namespace wflow::simulation
