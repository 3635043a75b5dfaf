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
  std::uint32_t neutral = 0;   // ended with their allocation or node: no limit
  std::uint32_t launches = 0;  // their launcher failed
  std::uint32_t memory = 0;    // killed for memory, and given more
  std::int64_t memory_bytes = 0;  // that the next execution gets; 0: what the step asks for
  std::uint32_t uncharged() const { return neutral + launches + memory; }
  // All but those that asked for another one (exit codes 100 and 104).
  std::uint64_t not_asked() const {
    return std::uint64_t{failures} + crashes + neutral + launches + memory;
  }
  std::uint32_t asked_again() const { return number - static_cast<std::uint32_t>(not_asked()); }
  friend bool operator==(const AttemptCounts&, const AttemptCounts&) = default;
};

}  // namespace wflow::engine
