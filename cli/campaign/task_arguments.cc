// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/task_arguments.h"

namespace wflow::cli {

void add_task_arguments(CLI::App& command, TaskArguments& arguments) {
  command
      .add_option("campaign-or-task", arguments.first,
                  "the campaign (default: the newest here), then the task")
      ->required();
  command.add_option("task", arguments.second,
                     "the task: step/12, step/<labels>/12, or step where it is a single one");
}

}  // namespace wflow::cli
