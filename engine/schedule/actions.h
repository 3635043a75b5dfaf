// SPDX-License-Identifier: Apache-2.0
// What the scheduler decides: the coordinator sends the leases and makes the records durable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/schedule/attempt.h"
#include "engine/schedule/intervals.h"
#include "engine/schedule/states.h"
#include "engine/schedule/types.h"

namespace wflow::engine {

struct GrantLease {
  WorkerId worker;
  Lease lease;
};

struct RevokeLease {
  WorkerId worker;
  Lease part;  // elements [first, first + count) of lease `id`
  bool kill_running = false;
};

// Neighbouring elements reached a final state, or were opened again (blocked): to be made durable.
struct RecordEnd {
  ArrayId array = 0;
  Range range;
  ElementState state = ElementState::done;
};

// One execution did not succeed. `final`: it was the last one; otherwise the element will run again.
struct RecordFailure {
  Outcome outcome;
  WorkerId worker;
  bool final = false;
  AttemptCounts counts;  // with this one
};

// The cause of a loss that was recorded as `worker_lost` before its scheduler had reported it.
struct RecordCause {
  ArrayId array = 0;
  Element element = 0;
  std::uint32_t attempt = 0;
  WorkerId worker;
  EndReason reason = EndReason::node;
  std::string detail;
  std::optional<AttemptCounts> counts;  // the new counts, if it runs again
  bool final = false;                   // it was the last one, as is known now
  double started_s = 0;                 // Unix time
};

// These elements were opened again (wflow retry): what ran under leases below `lease` does not count for
// them, whenever and from whichever journal it arrives. Their budgets are reset.
struct RecordFloor {
  ArrayId array = 0;
  Range range;
  LeaseId lease = 0;
};

// The size of what a simulation has left for a conversion that deletes it: DiskLimit counts with it.
struct MeasureOutputs {
  ArrayId array = 0;
  Element element = 0;
};

struct Actions {
  std::vector<GrantLease> grants;
  std::vector<RevokeLease> revokes;
  std::vector<RecordEnd> ends;
  std::vector<RecordFailure> failures;
  std::vector<RecordFloor> floors;
  std::vector<RecordCause> causes;
  std::vector<MeasureOutputs> measurements;
};

}  // namespace wflow::engine
