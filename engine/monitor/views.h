// SPDX-License-Identifier: Apache-2.0
// Views of records for users and programs: batch allocations, and how a task ended.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/batch/allocation.h"
#include "engine/schedule/states.h"
#include "engine/wire/answers.h"

namespace wflow::engine {

inline constexpr std::size_t kListedAllocations = 1000;  // the newest

wire::AllocationView view_of(const batch::Allocation& allocation);
// For a campaign at rest: the recorded allocations, without pools.
wire::AllocationsAnswer recorded_allocations(const std::vector<batch::Allocation>& rows);
nlohmann::json to_json(const wire::AllocationsAnswer& answer);

// `reason`: an EndReason. "exit code 3", "signal 9 (Killed)", "killed at its time limit", ...
std::string describe_end(int reason, int exit_code);

// Why a conversion leaves out a sample whose task of this step ended in `state`; is_left_out() is true for
// such a reason.
std::string reason_left_out(const std::string& step, ElementState state);
bool is_left_out(std::string_view reason);

}  // namespace wflow::engine
