// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "specs/plan/plan.h"

namespace wflow::cli {

// Calls look() several times a second until the task has ended or nobody runs the campaign any more, and once
// after.
void follow_task(const specs::Plan& plan, const specs::TaskId& task, const std::function<void()>& look);

}  // namespace wflow::cli
