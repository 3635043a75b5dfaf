// SPDX-License-Identifier: Apache-2.0
// The executions of an element that did not succeed, as its budgets count them: durable, so that a restart of
// the coordinator grants no budget anew.
#pragma once

#include <cstdint>

namespace wflow::engine {

struct AttemptCounts {
  std::uint32_t number = 0;    // all of them: the number of the next execution
  std::uint32_t failures = 0;  // ordinary ones
  std::uint32_t crashes = 0;   // lost with a worker while running
  bool restart = false;        // the next execution runs the step's restart command
  // Those that asked for another one (exit codes 100 and 104).
  std::uint32_t asked_again() const { return number - failures - crashes; }
  friend bool operator==(const AttemptCounts&, const AttemptCounts&) = default;
};

}  // namespace wflow::engine
