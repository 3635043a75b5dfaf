// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/weight_average.h"

#include <algorithm>

namespace wflow::trainer {

WeightAverage::WeightAverage(double decay, const FlatLayout& layout)
    : decay_(decay), average_(decay > 0 ? layout.size : 0) {}

void WeightAverage::update(std::span<const float> values, std::int64_t step) {
  if (!active()) return;
  const auto t = static_cast<double>(step);
  const auto take = static_cast<float>(1 - std::min(decay_, (t - 1) / (t + 9)));
  float* __restrict average = average_.data();
  for (std::size_t i = 0; i < values.size(); ++i) average[i] += take * (values[i] - average[i]);
}

void WeightAverage::swap(std::span<float> values) {
  if (active()) std::swap_ranges(values.begin(), values.end(), average_.data());
}

}  // namespace wflow::trainer
