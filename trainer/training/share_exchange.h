// SPDX-License-Identifier: Apache-2.0
// The exchanges of ranks that have shares of a flat array each (state_shards.h).
#pragma once

#include <span>

#include "trainer/parallel/communicator.h"
#include "trainer/training/state_shards.h"

namespace wflow::trainer {

// A collective call: every rank gets the others' shares of `values`, the whole array.
void gather_shares(Communicator& communicator, const StateShards& shards, std::span<float> values);

// A collective call: rank 0 gets the values at `range`, which lie in the shares of several ranks. `own`: this
// rank's share. `values`: for rank 0, of the range's length.
void collect_range(Communicator& communicator, const StateShards& shards, const Range& range,
                   std::span<const float> own, std::span<float> values);

}  // namespace wflow::trainer
