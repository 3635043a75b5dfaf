// SPDX-License-Identifier: Apache-2.0
// The tasks that run at a time, as the agent's own parts share them: what the guardian needs of a slot too is
// in its record (slot_table.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/wire/messages.h"
#include "steps/step.h"
#include "workers/execute/event_tail.h"
#include "workers/execute/process_usage.h"
#include "workers/execute/resources.h"
#include "workers/execute/slot_files.h"
#include "workers/execute/slot_table.h"

namespace wflow::workers {

struct SlotTask {
  engine::wire::Lease lease;  // of the elements of this process alone
  Share share;
  EventTail events;
  bool interrupted = false;  // asked to end at a checkpoint
  bool dropped = false;      // killed at once for its fence: no result, if it had not ended before
  bool printed = false;      // something that goes into the pack
  // Of its process; when its outputs are looked at afterwards, of the task all the same.
  ProcessUsage used;
  double ended_steady_s = 0;
  // When it was last looked at for its stall_timeout, and for how long it had done nothing.
  std::uint64_t told_bytes = ~std::uint64_t{0};  // not yet
  double cpu_s = 0;
  double silent_s = 0;
  std::vector<pid_t> below;  // its descendants when it was told to end

  steps::Execution execution() const {
    return {lease.first, lease.attempt, lease.restart, lease.count, false, lease.nodes, lease.id, lease.left_out};
  }
};

struct Slots {
  Slots(std::span<SlotRecord> given, const std::filesystem::path& worker_directory)
      : directory(worker_directory.string()), records(given), tasks(given.size()) {
    for (std::size_t slot = 0; slot < given.size(); ++slot) files.emplace_back(worker_directory, slot);
  }

  std::string directory;  // the worker's own
  std::span<SlotRecord> records;
  std::vector<SlotTask> tasks;
  std::vector<SlotFiles> files;
};

}  // namespace wflow::workers
