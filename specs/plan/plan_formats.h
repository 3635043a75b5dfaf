// SPDX-License-Identifier: Apache-2.0
// The plan for programs: `wflow plan --json` and `--dot`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "specs/plan/plan.h"

namespace wflow::specs {

// Steps with their counts, keys, edges and the first combination's command; docs/spec.md lists the fields.
nlohmann::ordered_json plan_to_json(const Plan& plan);

// Graphviz: a box a step, an edge a dependency.
std::string plan_to_dot(const Plan& plan);

// As the study has it.
const char* name_of(ContinueOn continue_on);

}  // namespace wflow::specs
