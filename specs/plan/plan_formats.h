// SPDX-License-Identifier: Apache-2.0
// The plan and the study in other forms: as text for users (`wflow plan`), as JSON and Graphviz for programs
// (`--json`,
// `--dot`), and as the expanded YAML of Merlin.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/yaml.h"
#include "specs/plan/plan.h"
#include "specs/samples/samples.h"
#include "specs/study/study.h"

namespace wflow::specs {

// Steps with their counts, keys, edges and the first combination's command; docs/spec.md lists the fields.
nlohmann::ordered_json plan_to_json(const Plan& plan);

// Graphviz: one box a step, one edge a dependency.
std::string plan_to_dot(const Plan& plan);

// The value as the study writes it.
const char* name_of(ContinueOn continue_on);

// merlin_info/<study>.expanded.yaml: the study with all variables replaced, for users and for Merlin's own
// tools. A Merlin file also gets Merlin's defaults for missing keys (batch:, run:, merlin:), which `merlin
// detailed-status` expects.
yaml::Node expanded_copy(const Study& study);

// The text of `wflow plan`: steps, arrays, counts, dependencies, first and last command, and a last line with
// the sum.
std::string describe(const Plan& plan);

// The text of pieces: with the holes as $(NAME), and filled for one sample.
std::string template_text(const Plan& plan, const Pieces& pieces);
std::string command_text(const Pieces& pieces, std::uint64_t sample, const SampleTable* table,
                         std::uint64_t count, std::uint32_t level_max_dirs);

}  // namespace wflow::specs
