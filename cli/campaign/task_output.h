// SPDX-License-Identifier: Apache-2.0
// What a task printed, from where its step keeps it: two files, or a packed log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "specs/plan/plan.h"

namespace wflow::cli {

// What one execution left; in files all executions of a task are one text.
struct TaskOutput {
  std::string out, err;
  std::string out_from, err_from;  // where that was found, for people
};

// The files of standard output and standard error; nothing for a step whose output is packed.
std::optional<std::pair<std::filesystem::path, std::filesystem::path>> output_files(
    const specs::Plan& plan, const specs::TaskId& task);

// Throws Error{data} where the task has printed nothing yet. Of files at most this many of the last bytes.
std::vector<TaskOutput> task_output(const specs::Plan& plan, const specs::TaskId& task,
                                    std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

// Throws Error{data} where none of these files of a task is there.
void require_output(const specs::Plan& plan, const specs::TaskId& task,
                    const std::pair<std::filesystem::path, std::filesystem::path>& files);

}  // namespace wflow::cli
