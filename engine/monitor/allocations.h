// SPDX-License-Identifier: Apache-2.0
// Batch allocations as people and programs see them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/batch/allocation.h"
#include "engine/wire/answers.h"

namespace wflow::engine {

inline constexpr std::size_t kListedAllocations = 1000;  // the newest

wire::AllocationView view_of(const batch::Allocation& allocation);
// Of a campaign at rest: what was recorded, without pools.
wire::AllocationsAnswer recorded_allocations(const std::vector<batch::Allocation>& rows);
nlohmann::json to_json(const wire::AllocationsAnswer& answer);

}  // namespace wflow::engine
