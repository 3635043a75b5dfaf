// SPDX-License-Identifier: Apache-2.0
// The tasks of a plan that a request names, in any state. No I/O.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/wire/requests.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

// The arrays of a step of the study or plan ("data" is also "data.manifest"), all of them for an empty name.
// Error{usage} for a step that the study does not have.
std::vector<ArrayId> arrays_of_step(const specs::Plan& plan, const std::string& step);

// The places of the planned steps that `step` does not need, and is not. Error{usage} as above.
std::set<std::size_t> steps_beyond(const specs::Plan& plan, const std::string& step);

std::vector<std::pair<ArrayId, Range>> parts_named(const specs::Plan& plan, const wire::Selection& selection);

// True if it selects all tasks.
bool is_everything(const wire::Selection& selection);

}  // namespace wflow::engine
