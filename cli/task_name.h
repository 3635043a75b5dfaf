// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "specs/plan.h"

namespace wflow::cli {

struct TaskId {
  specs::ArrayId array = 0;
  specs::Element element = 0;
};

// "simulate/12", "simulate/OMEGA.0.3/12", "train". Throws Error{usage} with what there is.
TaskId find_task(const specs::Plan& plan, const std::string& name);

}  // namespace wflow::cli
