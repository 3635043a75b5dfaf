// SPDX-License-Identifier: Apache-2.0
// How far each step is: name, bar, counts, and what there is to say of it.
#pragma once

#include <string>
#include <vector>

#include "cli/view/terminal.h"
#include "engine/monitor/status.h"

namespace wflow::cli {

// StepStatus::held is of max_disk: some of the step waits until conversions have deleted files.
bool waits_for_disk(const engine::StepStatus& step);

// A line a step, names in `name_width` columns. On a terminal that is too narrow, what there is to say goes on in
// a second line.
std::vector<std::string> step_lines(const std::vector<engine::StepStatus>& steps, const Terminal& terminal,
                                    int name_width);

}  // namespace wflow::cli
