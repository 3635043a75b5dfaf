// SPDX-License-Identifier: Apache-2.0
// What a step's tasks used against what the study asked for: the lines to write for the next run. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/usage/step_usage.h"
#include "engine/wire/answers.h"

namespace wflow::cli {

// What the study asks for, a task.
struct StepAsked {
  int cores = 1;                  // of each process
  int procs = 1;                  // MPI processes
  std::int64_t memory_bytes = 0;  // 0: nothing was asked
  double timeout_s = 0;           // 0: none
  int all_cores() const { return cores * procs; }
};

struct Advice {
  std::string about;  // memory, cores, timeout, walltime
  std::string text;   // "asked 8.0 GiB, 95 % need 1.1 GiB, the largest 1.3 GiB"
  std::string line;   // to write in the study: "memory: 1664 MiB"; empty: there is no single one
};

// CPU seconds a second of the executions, all together; 0 without executions.
double cores_used(const engine::StepUsage& used);

// `lost`: executions of this step that did not succeed. Nothing where what was asked fits what was used.
std::vector<Advice> step_advice(const engine::StepUsage& used, const StepAsked& asked,
                                const std::vector<engine::wire::LostTime>& lost);

// Of the allocations of a campaign that has ended, pool by pool: a walltime of which none used half.
std::vector<Advice> walltime_advice(const std::vector<engine::wire::AllocationView>& allocations);

// "memory: asked ...; write `memory: 1664 MiB`".
std::string sentence_of(const Advice& advice);

}  // namespace wflow::cli
