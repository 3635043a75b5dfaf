// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/scheduler.h"
#include "specs/plan.h"

namespace wflow::engine {

// What the scheduler needs of a plan. Deeper steps have priority, so that a sample's chain is finished (and its block
// converted) before new samples begin.
std::vector<ArraySpec> array_specs(const specs::Plan& plan);

}  // namespace wflow::engine
