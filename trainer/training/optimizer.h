// SPDX-License-Identifier: Apache-2.0
// SGD, Adam, AdamW, LARS, LARC and LAMB on flat arrays, and the average of the weights. All ranks run the
// same update on the same gradients. Layer-wise rates (LARS, LARC, LAMB) act on weights that decay; biases
// and norms get the plain rate.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/model/flat_state.h"

namespace wflow::trainer {

class Optimizer {
 public:
  Optimizer(const OptimizerConfig& config, const FlatLayout& layout);

  // May change the gradients (clipping, decay). Same formulae as torch.optim, if it has the method.
  void step(std::span<float> values, std::span<float> gradients, double learning_rate);

  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

  // The state arrays, laid out as the parameters: "momentum", or "first_moment" and "second_moment".
  struct Slot {
    std::string name;
    FloatBuffer values;
  };
  std::vector<Slot>& slots() { return slots_; }

 private:
  void clip(std::span<float> gradients) const;
  void adapt_rates(std::span<const float> values, std::span<float> gradients, double learning_rate) const;

  OptimizerConfig config_;
  FlatLayout layout_;
  std::vector<Slot> slots_;
  std::int64_t steps_ = 0;
};

// An exponential moving average of the weights over the steps. It is smoother than the weights of a single
// step, so validation and the exported network depend less on the step at which the training stops.
class WeightAverage {
 public:
  // `decay` 0: there is no average, and every call does nothing.
  WeightAverage(double decay, const FlatLayout& layout);

  bool active() const { return decay_ > 0; }
  // To be called after step number `step` (from 1). The decay rises to its value during the first steps, so
  // that the initial weights do not count.
  void update(std::span<const float> values, std::int64_t step);
  // Exchanges average and weights; a second call restores both.
  void swap(std::span<float> values);

  std::span<float> values() { return average_.span(); }

 private:
  double decay_;
  FloatBuffer average_;
};

}  // namespace wflow::trainer
