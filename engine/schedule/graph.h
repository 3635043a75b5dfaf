// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/store/batch.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

// What the scheduler needs of a plan. Deeper steps have priority, so that a sample's chain is finished (and
// its block converted) before new samples begin.
// `runs_here`: all of it runs on this machine, whatever scheduler the study asks for.
// `in_one`: its workers run on the nodes of one allocation, whatever the study says.
std::vector<ArraySpec> array_specs(const specs::Plan& plan, bool runs_here = false, bool in_one = false);

// What earlier coordinators committed; before start().
void restore_states(Scheduler& scheduler, const store::Restored& restored);

}  // namespace wflow::engine
