// SPDX-License-Identifier: Apache-2.0
// By which names and addresses other hosts may reach this one.
#pragma once

#include <string>
#include <vector>

namespace wflow::engine::wire {

// The best first, at least one: $WFLOW_HOST alone where it is set; else the host's name where it stands for
// more than the loopback, the addresses of its networks, and its name again where that may mean more
// elsewhere than here.
std::vector<std::string> reachable_hosts();

}  // namespace wflow::engine::wire
