// SPDX-License-Identifier: Apache-2.0
// The events and actions of the agent machine as one line of text each, for logs at the level `trace` and for
// the simulator.
#pragma once

#include <string>

#include "workers/agent/machine.h"

namespace wflow::workers {

std::string describe(const AgentEvent& event);
std::string describe(const AgentAction& action);

}  // namespace wflow::workers
