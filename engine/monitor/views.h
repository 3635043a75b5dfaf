// SPDX-License-Identifier: Apache-2.0
// Batch allocations as people and programs see them.
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
// Of a campaign at rest: what was recorded, without pools.
wire::AllocationsAnswer recorded_allocations(const std::vector<batch::Allocation>& rows);
nlohmann::json to_json(const wire::AllocationsAnswer& answer);

// `reason`: an EndReason. "exit code 3", "signal 9 (Killed)", "killed at its time limit", ...
std::string describe_end(int reason, int exit_code);

// Why a conversion leaves a sample out whose task of this step ended so; and whether a reason is one of these.
std::string reason_left_out(const std::string& step, ElementState state);
bool is_left_out(std::string_view reason);

}  // namespace wflow::engine
