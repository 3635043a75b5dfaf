// SPDX-License-Identifier: Apache-2.0
// What MERLIN_FINISHED in the directories of a campaign says against its record.
#pragma once

#include <utility>
#include <vector>

#include "engine/query/client.h"
#include "engine/schedule/intervals.h"
#include "engine/schedule/types.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

// Tasks that are recorded as done and whose marker is not in their directory. Tasks that end without a marker
// by themselves (exit codes 103 and 105) are none of them. One look at the file system for each task that is
// done.
std::vector<std::pair<engine::ArrayId, engine::Range>> lost_markers(const specs::Plan& plan,
                                                                    engine::Client& client);

}  // namespace wflow::cli
