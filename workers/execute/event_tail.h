// SPDX-License-Identifier: Apache-2.0
// Follows the $WFLOW_EVENTS file of one slot (docs/formats/events.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/wire/task_event.h"

namespace wflow::workers {

using engine::wire::kMaxEventLine;

// What has been read of the file so far. A value: the agent keeps `offset` in the slot table, for the
// guardian.
struct EventTail {
  std::uint64_t offset = 0;   // before the first line that was not given yet
  bool skipping = false;      // within a line that is too long
  std::uint64_t dropped = 0;  // lines that were too long, or no events
};

// The whole lines that were appended since, in order; lines over kMaxEventLine are left out. `at_end`: the
// task has ended, so a last line without a line feed counts too, and all of the file is read instead of a
// bounded part. A file that is not there has no lines: most tasks write none.
std::vector<std::string> read_events(const std::string& path, EventTail& tail, bool at_end);

// The same as events. Sample reports are not among them: the worker takes those itself (sample_reports.h).
std::vector<engine::wire::EventBody> read_event_bodies(const std::string& path, EventTail& tail, bool at_end);

}  // namespace wflow::workers
