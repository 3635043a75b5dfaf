// SPDX-License-Identifier: Apache-2.0
// A campaign's status as text. `wflow status`, the live display and the end of a run share these lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/top/progress.h"
#include "cli/top/words.h"
#include "cli/view/terminal.h"
#include "engine/monitor/status.h"
#include "engine/wire/answers.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

namespace top {
struct TopData;
}
struct TrainingRows;

// Name, state, percentage and times; one line per step; the training curve if there is one. On a terminal no
// line is longer than its width, and no text is cut off. `command_s`: the time of the command that runs the
// campaign, shown where the campaign ran before it.
std::vector<std::string> overview(const engine::CampaignStatus& status, const Terminal& terminal,
                                  std::optional<double> command_s = std::nullopt);
// Failures with the end of their output, workers, artifacts and history.
std::vector<std::string> details(const engine::CampaignStatus& status, const Terminal& terminal,
                                 bool everything, const top::WorkerNames& names);

// All of this for `wflow status`: also trainings to compare, and their results.
std::vector<std::string> status_lines(const engine::CampaignStatus& status, const TrainingRows& trainings,
                                      const top::WorkerNames& names, const Terminal& terminal);

// On a terminal the lines in its width. Words that are longer stay whole: one can copy them.
std::vector<std::string> wrapped_lines(const std::vector<std::string>& lines, const Terminal& terminal);

// "1 h 02 min", or "1 h 02 min, 3 min 05 s of it in this command".
std::string elapsed_text(double campaign_s, std::optional<double> command_s);
// "5 min 12 s left", "at least 5 min 12 s left".
std::string left_text(const top::Left& left);

std::string clock_time(double unix_s);  // "2026-11-21 16:00:01"

// ---- step_lines.cc: the progress of each step: name, bar, counts, remarks

// True if max_disk holds the step back: tasks wait until conversions have deleted files.
bool waits_for_disk(const engine::StepStatus& step);

// One line per step. On a terminal that is too narrow, the remarks continue on a second line.
// The parts as signs and colours.
std::string bar_of(const top::Shares& shares, const Terminal& terminal, int columns);
std::vector<std::string> step_lines(const engine::CampaignStatus& status, const Terminal& terminal);

// ---- curve_lines.cc: one line for each loss, error and score of a training, with a small curve

std::vector<std::string> curve_lines(const engine::CampaignStatus& status, const Terminal& terminal);

// ---- training_results.cc: test errors, the chosen network, and the change against the training before

// The training before is that of the same step in the iteration before, or in the study's campaign before.
std::vector<std::string> training_results(const engine::CampaignStatus& status, const Terminal& terminal);

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

// One task: its output, which its step keeps in two files or a packed log, and why it waits, failed or moved.

// The output of one execution; in files, all executions of a task form one text.
struct TaskOutput {
  std::string out, err;
  std::string out_from, err_from;  // the source of each, to show to the user
};

// The files of standard output and standard error; empty for a step whose output is packed.
std::optional<std::pair<std::filesystem::path, std::filesystem::path>> output_files(
    const specs::Plan& plan, const specs::TaskId& task);

// Throws Error{data} if the task has printed nothing yet. Reads at most the last `most` bytes of files.
std::vector<TaskOutput> task_output(const specs::Plan& plan, const specs::TaskId& task,
                                    std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

// Throws Error{data} if none of these files of a task exists.
void require_output(const specs::Plan& plan, const specs::TaskId& task,
                    const std::pair<std::filesystem::path, std::filesystem::path>& files);

// For `wflow explain` and the dashboard. `live`: the answer came from a coordinator.
std::vector<std::string> explain_lines(const specs::Plan& plan, const engine::wire::ExplainAnswer& answer,
                                       bool live, const Terminal& terminal);

}  // namespace wflow::cli
