// SPDX-License-Identifier: Apache-2.0
// Why a task waits, failed or moved, as lines: for `wflow explain` and the dashboard.
#pragma once

#include <string>
#include <vector>

#include "cli/view/terminal.h"
#include "engine/wire/answers.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

// `live`: the answer came from a coordinator.
std::vector<std::string> explain_lines(const specs::Plan& plan, const engine::wire::ExplainAnswer& answer,
                                       bool live, const Terminal& terminal);

}  // namespace wflow::cli
