// SPDX-License-Identifier: Apache-2.0
// The names of tasks, as commands print and take them: "simulate/12", "simulate/OMEGA.0.3/12", "train".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "specs/plan/plan.h"

namespace wflow::specs {

struct TaskId {
  ArrayId array = 0;
  Element element = 0;
  bool operator==(const TaskId&) const = default;
};

// An array of one element gives its name to that element.
std::string task_name(std::string_view array_name, std::uint64_t elements, Element element);
std::string task_name(const Plan& plan, ArrayId array, Element element);

// Always with the element's number, as WFLOW_TASK has it: "train/0".
std::string numbered_task_name(std::string_view array_name, Element element);

// "simulate", or "simulate/OMEGA.0.3" where the array has a label.
std::string array_name(std::string_view step, std::string_view label);

// The task of that name. Throws Error{usage} that lists what there is.
TaskId find_task(const Plan& plan, std::string_view name);

}  // namespace wflow::specs
