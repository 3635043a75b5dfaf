// SPDX-License-Identifier: Apache-2.0
// An exponential moving average of the weights over the steps: smoother than the weights of any single step,
// so that validation and the exported network depend less on when the training stopped.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/model/flat_state.h"

namespace wflow::trainer {

class WeightAverage {
 public:
  // `decay` 0: no average is kept, and every call does nothing.
  WeightAverage(double decay, const FlatLayout& layout);

  bool active() const { return decay_ > 0; }
  // After step number `step` (from 1). The decay rises to its value during the first steps, so that the
  // initial weights are forgotten.
  void update(std::span<const float> values, std::int64_t step);
  // Exchanges average and weights; twice restores both.
  void swap(std::span<float> values);

  std::span<float> values() { return average_.span(); }

 private:
  double decay_;
  FloatBuffer average_;
};

}  // namespace wflow::trainer
