// SPDX-License-Identifier: Apache-2.0
// Benchmarks of the coordinator alone: every lease is over at once and nothing is run.
#pragma once

#include "engine/wire/messages.h"

namespace wflow::workers {

// `failures`: the fraction that fails, by a hash of array, element and attempt.
engine::wire::Results complete_at_once(const engine::wire::Lease& lease, double failures, double unix_s);

}  // namespace wflow::workers
