// SPDX-License-Identifier: Apache-2.0
// A page of the list of tasks (wflow tasks): runs of equal state, and what is known of single elements in
// them. Each page costs and holds a bounded number of records, however the campaign looks.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/store/store.h"
#include "engine/wire/answers.h"
#include "engine/wire/messages.h"

namespace wflow::engine {

// What workers said last: with the names of the workers.
using RunningElements = std::vector<std::pair<WorkerId, wire::RunningElement>>;

inline constexpr std::size_t kPageItems = 5000;      // of each list at most
inline constexpr std::size_t kPageVisits = 200'000;  // runs and leases looked at

wire::TasksAnswer task_page(const specs::Plan& plan, const Scheduler& scheduler, store::Store& store,
                            const RunningElements& running, const wire::TasksRequest& request);

}  // namespace wflow::engine
