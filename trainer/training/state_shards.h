// SPDX-License-Identifier: Apache-2.0
// `shard: optimizer`: each rank keeps and updates a share of the optimizer's state, and receives the updated
// weights of the others (Rajbhandari et al. 2020, "ZeRO", section 5.1). Gradients and weights stay on all
// ranks, so that clipping and layer-wise rates read whole arrays: the bits are those of a training without
// shares.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/model/layout.h"

namespace wflow::trainer {

// The ranks' shares of a flat array of `size` floats: ranges of its positions.
class StateShards {
 public:
  // The shares begin at multiples of as many floats, so that a sum over blocks of this length is the same for
  // any number of ranks.
  static constexpr std::int64_t kBlock = 4096;

  explicit StateShards(std::int64_t size, int ranks = 1, int rank = 0);

  bool active() const { return ranks() > 1; }
  int ranks() const { return static_cast<int>(cuts_.size()) - 1; }
  int rank() const { return rank_; }
  Range own() const { return of(rank_); }
  Range of(int rank) const {
    return {cuts_[static_cast<std::size_t>(rank)], cuts_[static_cast<std::size_t>(rank) + 1]};
  }

 private:
  int rank_;
  std::vector<std::int64_t> cuts_;
};

}  // namespace wflow::trainer
