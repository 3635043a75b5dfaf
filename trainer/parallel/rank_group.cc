// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/rank_group.h"

#include <algorithm>

namespace wflow::trainer {

void RankGroup::sum_by_rank(std::span<double> values) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<double> all = values_of_ranks<double>(*this, values);
  for (std::size_t stride = 1; stride < ranks; stride *= 2) {
    for (std::size_t left = 0; left + stride < ranks; left += 2 * stride) {
      for (std::size_t i = 0; i < values.size(); ++i)
        all[left * values.size() + i] += all[(left + stride) * values.size() + i];
    }
  }
  std::copy_n(all.begin(), values.size(), values.begin());
}

}  // namespace wflow::trainer
