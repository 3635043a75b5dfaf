// SPDX-License-Identifier: Apache-2.0
// The plan for people: `wflow plan`.
#pragma once

#include <string>

#include "specs/plan/plan.h"
#include "specs/samples/samples.h"

namespace wflow::specs {

// Steps, arrays, counts, what waits for what, first and last command; a last line with the sum.
std::string describe(const Plan& plan);

// Pieces with the holes as $(NAME), and filled for one sample.
std::string template_text(const Plan& plan, const Pieces& pieces);
std::string command_text(const Pieces& pieces, std::uint64_t sample, const SampleTable* table,
                         std::uint64_t count, std::uint32_t level_max_dirs);

}  // namespace wflow::specs
