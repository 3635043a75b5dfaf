// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "engine/query/client.h"
#include "engine/schedule/intervals.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

// The tasks whose output a conversion could not use (`wflow tasks --state missing`), as ranges in order of array and
// element. Their blocks and what follows stand below them.
std::vector<std::pair<specs::ArrayId, engine::Range>> missing_parts(const specs::Plan& plan, engine::Client& client);

}  // namespace wflow::cli
