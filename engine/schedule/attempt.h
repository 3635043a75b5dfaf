// SPDX-License-Identifier: Apache-2.0
// Executions that did not succeed: exit codes with a meaning, the budgets of an element, and when it runs
// again. The counts are durable, so that a restart of the coordinator resets no budget.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "engine/schedule/types.h"

namespace wflow::engine {

// Exit codes by which a task reports more than success or failure: Merlin's (docs/spec.md).
enum : int { kRestart = 100, kSoftFail = 101, kHardFail = 102, kRetry = 104, kStopWorkers = 105 };

// True for a success that leaves no marker.
inline bool is_success(const Outcome& outcome) {
  return outcome.reason == EndReason::exited && outcome.exit_code == kStopWorkers;
}

// An element that was running on so many workers when they were lost for unknown causes counts as their
// cause: it goes into quarantine, that is, it fails for good.
inline constexpr std::uint32_t kCrashLimit = 3;

struct AttemptCounts {
  std::uint32_t number = 0;       // all of them: the number of the next execution
  std::uint32_t failures = 0;     // ordinary failures
  std::uint32_t crashes = 0;      // lost with a worker while running
  bool restart = false;           // the next execution runs the step's restart command
  std::uint32_t neutral = 0;      // ended with their allocation or node: no limit
  std::uint32_t launches = 0;     // their launcher failed
  std::uint32_t memory = 0;       // killed for memory, and given more
  std::int64_t memory_bytes = 0;  // that the next execution gets; 0: the step's demand
  std::uint32_t uncharged() const { return neutral + launches + memory; }
  // All but those that requested another execution (exit codes 100 and 104).
  std::uint64_t not_asked() const { return std::uint64_t{failures} + crashes + neutral + launches + memory; }
  std::uint32_t asked_again() const { return number - static_cast<std::uint32_t>(not_asked()); }
  friend bool operator==(const AttemptCounts&, const AttemptCounts&) = default;
};

// When failed elements may run again. Entries of elements that have changed their state meanwhile stay until
// they are due: Scheduler compares with Attempt::due_s.
class RetryClock {
 public:
  struct Due {
    ArrayId array = 0;
    Element element = 0;
    double due_s = 0;
  };

  void add(const Due& due) { delayed_.emplace(due.due_s, due); }

  // Removes and returns an entry that is due.
  std::optional<Due> take_due(double now_s) {
    if (delayed_.empty() || delayed_.begin()->first > now_s) return std::nullopt;
    const Due due = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    return due;
  }

  std::optional<double> next_due_s() const {
    if (delayed_.empty()) return std::nullopt;
    return delayed_.begin()->first;
  }

 private:
  std::multimap<double, Due> delayed_;
};

}  // namespace wflow::engine
