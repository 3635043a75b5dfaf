// SPDX-License-Identifier: Apache-2.0
// What a task's event asks for: a campaign that is to come after its own. No I/O.
#pragma once

#include <optional>

#include "engine/store/batch.h"
#include "engine/wire/task_event.h"

namespace wflow::engine {

// The kinds of store::Followup.
inline constexpr const char* kSubmitted = "submitted";
inline constexpr const char* kRestarted = "restart";
inline constexpr const char* kIteration = "iteration";

// What the event asks for, if it is such a one.
std::optional<store::Followup> followup_of(const wire::TaskEvent& event);

}  // namespace wflow::engine
