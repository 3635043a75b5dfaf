// SPDX-License-Identifier: Apache-2.0
// Tasks that outlived their worker: when agent and guardian are killed together, nobody is left to end what
// their tasks had started. It must end before the tasks run again: two would write the same files.
#pragma once

#include <cstddef>
#include <string>

namespace wflow::engine::batch {

// Kills every process of this host and user that a task of this worker has started (known by the event file
// in its environment) and waits for their end, at most some seconds. Gives how many there were.
std::size_t end_orphans(const std::string& worker);

}  // namespace wflow::engine::batch
