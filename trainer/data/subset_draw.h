// SPDX-License-Identifier: Apache-2.0
// The training samples that each rank draws with `stage: {subset: N}`: a function of the seed, the number of
// the subset and the place in it. python/wflow/_stage.py has the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"

namespace wflow::trainer {

// `subsets` subsets of `size` samples each, drawn with replacement from `samples` ones. There is one for each
// rank that the configuration asks for. A training on fewer ranks has the same subsets: some ranks keep
// several.
struct SubsetDraw {
  std::uint64_t seed = 0;  // of the training
  std::size_t samples = 0;
  std::size_t size = 0;
  std::size_t subsets = 1;

  std::size_t sample(std::size_t subset, std::size_t place) const {
    const std::uint64_t key = hash64(hash64(seed, 8), subset);
    return static_cast<std::size_t>(hash64(key, place) % samples);
  }
  // The subsets [first, second) of a rank.
  std::pair<std::size_t, std::size_t> of_rank(std::size_t rank, std::size_t ranks) const {
    return {subsets * rank / ranks, subsets * (rank + 1) / ranks};
  }
  // The samples of some subsets, ascending, each once.
  std::vector<std::size_t> distinct(std::pair<std::size_t, std::size_t> range) const {
    std::vector<std::size_t> list;
    list.reserve((range.second - range.first) * size);
    for (std::size_t subset = range.first; subset < range.second; ++subset)
      for (std::size_t place = 0; place < size; ++place) list.push_back(sample(subset, place));
    std::ranges::sort(list);
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  }
};

}  // namespace wflow::trainer
