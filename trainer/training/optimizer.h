// SPDX-License-Identifier: Apache-2.0
// SGD, Adam, AdamW, LARS, LARC and LAMB on flat arrays, and the average of the weights. All ranks run the
// same update on the same gradients, or each that of its share. Layer-wise rates (LARS, LARC, LAMB) act on
// weights that decay; biases and norms get the plain rate.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/model/flat_state.h"
#include "trainer/training/state_shards.h"

namespace wflow::trainer {

class Optimizer {
 public:
  // Adds up numbers over the ranks, of which each comes from one rank and is 0 on the others.
  using AddUp = std::function<void(std::span<double>)>;

  Optimizer(const OptimizerConfig& config, const FlatLayout& layout);
  // Has this rank's share of the state alone, and updates its share of the values.
  Optimizer(const OptimizerConfig& config, const FlatLayout& layout, StateShards shards, AddUp add_up);

  // May change the gradients (clipping, decay). Same formulae as torch.optim, if it has the method. With
  // shares, a collective call of LAMB.
  void step(std::span<float> values, std::span<float> gradients, double learning_rate);

  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

  // The state arrays, laid out as the parameters: "momentum", or "first_moment" and "second_moment". With
  // shares, this rank's part of each.
  struct Slot {
    std::string name;
    FloatBuffer values;
  };
  std::vector<Slot>& slots() { return slots_; }

 private:
  void clip(std::span<float> gradients) const;
  void adapt_rates(std::span<const float> values, std::span<float> gradients, double learning_rate) const;
  void lamb_step(std::span<float> values, std::span<float> gradients, double learning_rate);
  struct AdamFactors;
  AdamFactors adam_factors(double learning_rate, double decay) const;
  // This rank's part of an entry, in the flat arrays and in the slots.
  Range own_part(const FlatEntry& entry) const;
  std::span<float> in_slot(std::size_t slot, const Range& range);

  OptimizerConfig config_;
  FlatLayout layout_;
  StateShards shards_;
  AddUp add_up_;
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
