// SPDX-License-Identifier: Apache-2.0
// Zero mode, for benchmarks of the coordinator alone: the worker completes every lease at once and runs
// nothing.
#pragma once

#include "workers/agent/machine.h"

namespace wflow::workers {

// `failures`: the fraction of tasks that fails, by a hash of array, element and attempt.
CompleteLease complete_at_once(double failures);

}  // namespace wflow::workers
