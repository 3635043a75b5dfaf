// SPDX-License-Identifier: Apache-2.0
// A campaign's status as text. `wflow status`, the live display and the end of a run share these lines.
#pragma once

#include <string>
#include <vector>

#include "cli/view/terminal.h"
#include "engine/monitor/status.h"
#include "engine/wire/answers.h"

namespace wflow::cli {

namespace top {
struct TopData;
}
struct TrainingRows;

// Name, state and elapsed time; one line per step; the training curve if there is one. On a terminal no line
// is longer than its width, and no text is cut off.
std::vector<std::string> overview(const engine::CampaignStatus& status, const Terminal& terminal);
// Failures with the end of their output, workers, artifacts and history.
std::vector<std::string> details(const engine::CampaignStatus& status, const Terminal& terminal,
                                 bool everything);

std::string clock_time(double unix_s);  // "2026-11-21 16:00:01"

// ---- step_lines.cc: the progress of each step: name, bar, counts, remarks

// True if max_disk holds the step back: tasks wait until conversions have deleted files.
bool waits_for_disk(const engine::StepStatus& step);

// One line per step, with names in `name_width` columns. On a terminal that is too narrow, the remarks
// continue on a second line.
std::vector<std::string> step_lines(const std::vector<engine::StepStatus>& steps, const Terminal& terminal,
                                    int name_width);

// ---- allocation_lines.cc: pools of batch allocations

// One line per pool.
std::vector<std::string> pool_lines(const engine::wire::AllocationsAnswer& answer);
// One line per pool, then one per allocation: with `everything` all, else only those that will never start.
std::vector<std::string> allocation_lines(const engine::wire::AllocationsAnswer& answer, double now_s,
                                          bool everything);
std::string allocation_line(const engine::wire::AllocationView& allocation, double now_s);

// ---- status_table.cc: the status as one plain table, for a mail: steps, then failures, then trainings

// Uses `data.status`, `data.workers` and `data.needs`. Lines have no colours if the terminal has none.
std::vector<std::string> status_table(const top::TopData& data, const TrainingRows& trainings,
                                      const Terminal& terminal);

}  // namespace wflow::cli
