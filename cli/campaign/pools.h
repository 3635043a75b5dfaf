// SPDX-License-Identifier: Apache-2.0
// What a study would ask of batch schedulers: for `wflow plan`, `validate` and `run --dry`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/batch/batch_system.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

struct PlannedPool {
  std::string name, scheduler;
  int min = 0, max = 1;            // allocations at the same time
  engine::batch::JobRequest job;   // of one of them; its token is not yet chosen
  std::vector<std::string> steps;  // which it serves
};

// Of those that run in allocations.
std::vector<PlannedPool> planned_pools(const specs::Plan& plan);

// The submission script of each, byte for byte but for the job's name. Empty where everything is local.
std::string scripts_text(const specs::Plan& plan);
// DIRECTORY/.wflow/allocations/POOL.sh of each; gives how many.
int write_allocation_scripts(const specs::Plan& plan);

// Throws Error{spec} for a step whose `walltime` no allocation of its pools can hold.
void check_walltimes(const specs::Plan& plan);
// The same for a step that asks for more nodes than any allocation of its pools has.
void check_nodes(const specs::Plan& plan);

// Allocations, node-hours, and when the first would start where the scheduler can say.
nlohmann::ordered_json batch_plan(const specs::Plan& plan);
std::string batch_plan_text(const specs::Plan& plan);

// A sentence for each scheduler that the study asks for and that can't be used here.
std::vector<std::string> unusable_schedulers(const specs::Study& study);

}  // namespace wflow::cli
