// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace wflow::cli {

// "[CAMPAIGN] TASK" on the command line: one word is a task of the newest campaign here.
struct TaskArguments {
  std::string first, second;
  std::string campaign() const { return second.empty() ? std::string() : first; }
  const std::string& task() const { return second.empty() ? first : second; }
};
// `arguments` must outlive the parsing.
void add_task_arguments(CLI::App& command, TaskArguments& arguments);

}  // namespace wflow::cli
