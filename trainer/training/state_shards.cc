// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/state_shards.h"

#include <algorithm>

namespace wflow::trainer {

StateShards::StateShards(std::int64_t size, int ranks, int rank) : rank_(rank) {
  const std::int64_t blocks = (size + kBlock - 1) / kBlock;
  for (int i = 0; i <= ranks; ++i) cuts_.push_back(std::min(size, blocks * i / ranks * kBlock));
}

}  // namespace wflow::trainer
