// SPDX-License-Identifier: Apache-2.0
// One task: its output, which its step keeps in two files or a packed log, and why it waits, failed or moved.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/view/terminal.h"
#include "engine/wire/answers.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

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
