// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/task_name.h"

#include <fmt/format.h>

#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace wflow::specs {

std::string array_name(std::string_view step, std::string_view label) {
  return label.empty() ? std::string(step) : fmt::format("{}/{}", step, label);
}

std::string numbered_task_name(std::string_view array_name, Element element) {
  return fmt::format("{}/{}", array_name, element);
}

std::string task_name(std::string_view array_name, std::uint64_t elements, Element element) {
  return elements > 1 ? numbered_task_name(array_name, element) : std::string(array_name);
}

std::string task_name(const Plan& plan, ArrayId array, Element element) {
  return task_name(plan.array_name(array), plan.steps()[plan.step_of(array)].elements, element);
}

TaskId find_task(const Plan& plan, std::string_view name) {
  std::vector<std::string> names;
  for (ArrayId array = 0; array < plan.array_count(); ++array) {
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
        return {array, static_cast<Element>(*element)};
      }
      if (element) {
        throw Error(ExitCode::usage, fmt::format("{} has tasks 0 to {}", array_name, elements - 1));
      }
    }
    names.push_back(array_name);
  }
  throw Error(ExitCode::usage, fmt::format("no task '{}' in this campaign{}", name,
                                           text::suggestion(std::string(name), names)));
}

}  // namespace wflow::specs
