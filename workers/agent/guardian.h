// SPDX-License-Identifier: Apache-2.0
// The process above the agent: it does nothing but wait, and cleans up when the agent has ended in whatever
// way.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "workers/agent/agent.h"
#include "workers/agent/journal.h"
#include "workers/execute/slot_table.h"

namespace wflow::workers {

// Signals that guardian and agent wait for instead of being interrupted; blocked before the fork.
void block_signals();

// Returns the worker's exit code once the agent has ended, its finished tasks are in the journal and no
// process is left. `directory` holds the event files and is removed.
int run_guardian(pid_t agent, const WorkerOptions& options, SlotTable& table, Journal& journal,
                 const std::filesystem::path& directory);

}  // namespace wflow::workers
