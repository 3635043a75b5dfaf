// SPDX-License-Identifier: Apache-2.0
// The scheduler's state of the elements of one task array. Only Scheduler changes it; its parts read it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "engine/schedule/array_spec.h"
#include "engine/schedule/attempt.h"
#include "engine/schedule/intervals.h"
#include "engine/schedule/states.h"
#include "engine/schedule/types.h"

namespace wflow::engine {

// The next execution of an element that ran without success.
struct Attempt : AttemptCounts {
  double due_s = 0;       // not before
  double at_least_s = 0;  // it lasts longer than this: an execution was cut by the end of its allocation
};

// The success of an element whose parent's success is not known yet; durations of each element.
struct EarlyResult {
  LeaseId lease = 0;
  double duration_s = 0;
  double duration_square = 0;
  friend bool operator==(const EarlyResult&, const EarlyResult&) = default;
};

// A failure that came before the report of an earlier execution, or the last failure of an element whose
// parent's end is not known yet.
struct EarlyFailure {
  Outcome outcome;
  WorkerId worker;
  double heard_s = 0;
};

struct TaskArray {
  explicit TaskArray(ArraySpec s) : spec(std::move(s)), states(spec.count, ElementState::blocked) {}

  ArraySpec spec;
  RunMap<ElementState, kElementStates> states;
  IntervalSet ended;
  std::map<Element, Attempt> attempts;  // elements that ran without success and have not ended
  IntervalSet cancel_requested;         // leased, and cancelled as soon as their worker gives them back
  // Executions under leases below its floor do not count for an element. One that is leased below its floor
  // is *invalidated*: it runs on input that is made again, and will run again.
  IntervalMap<LeaseId> floors;
  IntervalMap<EarlyResult> early;
  std::map<std::pair<Element, std::uint32_t>, EarlyFailure> early_failures;  // by element and attempt
  // Leased by an earlier coordinator, while what they wait for has not ended as far as this one knows.
  IntervalSet ahead;
  // skip_rest_for(): elements that come back from a worker are skipped, until some are opened again.
  bool enough = false;
  std::uint64_t timed = 0;
  double duration_sum_s = 0;
  double duration_square_sum = 0;

  bool has(Element first, std::uint64_t size) const {
    return size > 0 && first < spec.count && size <= spec.count - first;
  }

  // Calls visit(Range, LeaseId floor) for all parts of `range`, in order. `visit` must not change floors.
  template <typename Visit>
  void for_each_floor(Range range, Visit visit) const {
    Element next = range.first;
    floors.for_each_in(range, [&](Range part, LeaseId floor) {
      if (part.first > next) visit(Range{next, part.first - 1}, LeaseId{0});
      visit(part, floor);
      next = part.last + 1;
    });
    if (next <= range.last) visit(Range{next, range.last}, LeaseId{0});
  }

  LeaseId floor_of(Element element) const {
    const LeaseId* floor = floors.find(element);
    return floor == nullptr ? 0 : *floor;
  }
};

}  // namespace wflow::engine
