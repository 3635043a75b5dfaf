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

// Why a conversion leaves out a sample whose task of this step ended in `state`.
std::string reason_left_out(const std::string& step, ElementState state);
struct MissingCounts {
  std::uint64_t failed = 0;    // or cancelled: left out because of its task's end
  std::uint64_t skipped = 0;   // a training had reached its goal
  std::uint64_t unusable = 0;  // its task is done, its output is not usable
};
MissingCounts counts_of(const std::vector<wire::MissingReason>& reasons);

}  // namespace wflow::engine
