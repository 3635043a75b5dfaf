// SPDX-License-Identifier: Apache-2.0
// The events and actions of the coordinator machine as one line of text each, for logs at the level `trace`
// and for the simulator.
#pragma once

#include <string>

#include "engine/coordinate/machine.h"

namespace wflow::engine {

std::string describe(const CoordinatorEvent& event);
std::string describe(const CoordinatorAction& action);

}  // namespace wflow::engine
