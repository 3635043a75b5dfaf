// SPDX-License-Identifier: Apache-2.0
// Exit codes by which a task says more than success or failure: Merlin's (docs/spec.md).
#pragma once

#include "engine/schedule/types.h"

namespace wflow::engine {

enum : int { kRestart = 100, kSoftFail = 101, kHardFail = 102, kDry = 103, kRetry = 104, kStopWorkers = 105 };

// A success that leaves no marker.
inline bool is_success(const Outcome& outcome) {
  return outcome.reason == EndReason::exited &&
         (outcome.exit_code == kDry || outcome.exit_code == kStopWorkers);
}

}  // namespace wflow::engine
