// SPDX-License-Identifier: Apache-2.0
// The requests of a study to batch schedulers: for `wflow plan`, `validate` and `run --dry`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "specs/plan/plan.h"

namespace wflow::cli {

// The submission script of each pool that runs in allocations, byte for byte except for the job's name. Empty
// if everything is local.
std::string scripts_text(const specs::Plan& plan);
// Writes DIRECTORY/.wflow/allocations/POOL.sh for each pool; returns their number.
int write_allocation_scripts(const specs::Plan& plan);

// Throws Error{spec} for a step whose `walltime` no allocation of its pools can hold.
void check_walltimes(const specs::Plan& plan);
// The same for a step that asks for more nodes than any allocation of its pools has.
void check_nodes(const specs::Plan& plan);
// The same for GPUs, memory and processors of one task that no node of its pools has, if the study says so.
void check_room(const specs::Plan& plan);

// Allocations, node-hours, and when the first would start if the scheduler can tell.
nlohmann::ordered_json batch_plan(const specs::Plan& plan);
std::string batch_plan_text(const nlohmann::ordered_json& rows);
// The first refusal among the rows as a sentence; empty if the schedulers would accept all.
std::optional<std::string> refusal_in(const nlohmann::ordered_json& rows);
// Throws Error{system} with that sentence. Asks the schedulers.
void check_submissions(const specs::Plan& plan);

// A sentence for each scheduler that the study asks for and that can't be used here.
std::vector<std::string> unusable_schedulers(const specs::Study& study);

}  // namespace wflow::cli
