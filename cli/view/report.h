// SPDX-License-Identifier: Apache-2.0
// A campaign's status as text; the same lines serve `wflow status`, the live display and the end of a run.
#pragma once

#include <string>
#include <vector>

#include "cli/view/terminal.h"
#include "engine/monitor/status.h"

namespace wflow::cli {

// Name, state, elapsed time; one line a step; the training curve while there is one. On a terminal no line is
// longer than its width, and nothing is cut off.
std::vector<std::string> overview(const engine::CampaignStatus& status, const Terminal& terminal);
// Failures with the end of their output, workers, artifacts, history.
std::vector<std::string> details(const engine::CampaignStatus& status, const Terminal& terminal,
                                 bool everything);

std::string clock_time(double unix_s);  // "2026-11-21 16:00:01"

}  // namespace wflow::cli
