// SPDX-License-Identifier: Apache-2.0
// The process that talks to the coordinator and runs tasks: one thread, one loop.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/plain_types.h"
#include "engine/wire/keys.h"
#include "workers/agent/agent.h"
#include "workers/agent/end_watch.h"
#include "workers/agent/journal.h"
#include "workers/execute/resources.h"
#include "workers/execute/slot_table.h"

namespace wflow::workers {

// What is settled before the fork.
struct Identity {
  std::string worker;  // "<host>-<pid>-<random>"
  ProcessIdentity guardian;
  std::filesystem::path directory;  // <campaign>/.wflow/workers/<worker>
  engine::wire::CampaignKeys keys;
};

int run_agent(const WorkerOptions& options, const Identity& identity, const Capacity& capacity,
              const EndWatch& end, SlotTable& table, Journal& journal);

}  // namespace wflow::workers
