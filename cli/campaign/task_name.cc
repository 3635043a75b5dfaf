// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/task_name.h"

#include <fmt/format.h>

#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace wflow::cli {

TaskId find_task(const specs::Plan& plan, const std::string& name) {
  std::vector<std::string> names;
  for (specs::ArrayId array = 0; array < plan.array_count(); ++array) {
    const std::string array_name = plan.array_name(array);
    const std::uint64_t elements = plan.steps()[plan.step_of(array)].elements;
    if (name == array_name && elements == 1) return {array, 0};
    if (name == array_name) {
      throw Error(ExitCode::usage, fmt::format("{} has {} tasks; name one, for example {}/0", name,
                                               text::format_count(elements), name));
    }
    if (name.starts_with(array_name + "/")) {
      const auto element = text::to_integer(name.substr(array_name.size() + 1));
      if (element && *element >= 0 && static_cast<std::uint64_t>(*element) < elements) {
        return {array, static_cast<specs::Element>(*element)};
      }
      if (element) {
        throw Error(ExitCode::usage, fmt::format("{} has tasks 0 to {}", array_name, elements - 1));
      }
    }
    names.push_back(array_name);
  }
  throw Error(ExitCode::usage,
              fmt::format("no task '{}' in this campaign{}", name, text::suggestion(name, names)));
}

void add_task_arguments(CLI::App& command, TaskArguments& arguments) {
  command
      .add_option("campaign-or-task", arguments.first,
                  "the campaign (default: the newest here), then the task")
      ->required();
  command.add_option("task", arguments.second,
                     "the task: step/12, step/<labels>/12, or step where it is a single one");
}

}  // namespace wflow::cli
