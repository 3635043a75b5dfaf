// SPDX-License-Identifier: Apache-2.0
// Pools of batch allocations as lines.
#pragma once

#include <string>
#include <vector>

#include "engine/wire/answers.h"

namespace wflow::cli {

// A line each.
std::vector<std::string> pool_lines(const engine::wire::AllocationsAnswer& answer);
// A line a pool; `everything`: also one an allocation, else only of those that will never start.
std::vector<std::string> allocation_lines(const engine::wire::AllocationsAnswer& answer, double now_s,
                                          bool everything);
std::string allocation_line(const engine::wire::AllocationView& allocation, double now_s);

}  // namespace wflow::cli
