// SPDX-License-Identifier: Apache-2.0
// SGD, Adam, AdamW, LARS, LARC and LAMB on flat arrays, and the average of the weights. All ranks run the
// same update on the same gradients, or each that of its share. Layer-wise rates (LARS, LARC, LAMB) act on
// weights that decay; biases and norms get the plain rate.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/model/flat_state.h"
#include "trainer/training/state_shards.h"

namespace wflow::trainer {

// Adds up numbers over the ranks, of which each comes from one rank and is 0 on the others.
using AddUp = std::function<void(std::span<double>)>;

// The sum of the squares of each array's values: of blocks (block_of()), each by the rank that has it in its
// share, then over the blocks in order, so that the bits do not depend on the ranks. `block_sum`: that of the
// values at these positions of an array, all of one block. With shares, a collective call.
template <class BlockSum>
std::vector<double> squares_of(const FlatLayout& layout, const StateShards& shards, const AddUp& add_up,
                               const BlockSum& block_sum) {
  std::vector<double> blocks;
  std::vector<std::size_t> ends;
  for (std::size_t array = 0; array < layout.entries.size(); ++array) {
    const FlatEntry& entry = layout.entries[array];
    const std::int64_t block = block_of(entry.count);
    const std::size_t first = blocks.size();
    blocks.resize(first + static_cast<std::size_t>((entry.count + block - 1) / block), 0.0);
    ends.push_back(blocks.size());
    const Range own = shards.own(array);
    for (std::int64_t begin = own.begin; begin < own.end; begin += block)
      blocks[first + static_cast<std::size_t>((begin - entry.offset) / block)] =
          block_sum(array, Range{begin, std::min(own.end, begin + block)});
  }
  if (shards.active()) add_up(blocks);
  std::vector<double> squares;
  std::size_t at = 0;
  for (const std::size_t end : ends) {
    double sum = 0;
    for (; at < end; ++at) sum += blocks[at];
    squares.push_back(sum);
  }
  return squares;
}

// The same of the arrays' own values.
std::vector<double> squares_in(std::span<const float> values, const FlatLayout& layout,
                               const StateShards& shards, const AddUp& add_up);

class Optimizer {
 public:
  Optimizer(const OptimizerConfig& config, const FlatLayout& layout);
  // Has this rank's share of the state alone, and updates its share of the values.
  Optimizer(const OptimizerConfig& config, const FlatLayout& layout, StateShards shards, AddUp add_up);

  // Reads and writes this rank's share of the two flat arrays. May change the gradients (clipping, decay).
  // Same formulae as torch.optim, if it has the method. With shares, a collective call where norms are
  // wanted.
  void step(std::span<float> values, std::span<float> gradients, double learning_rate);

  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

  // A factor on the weight decay of the next steps.
  void set_decay_factor(double factor) { decay_factor_ = factor; }

  // The state arrays: "momentum", or "first_moment" and "second_moment". Laid out as the parameters; with
  // shares, of this rank's share.
  struct Slot {
    std::string name;
    FloatBuffer values;
  };
  std::vector<Slot>& slots() { return slots_; }
  const StateShards& shards() const { return shards_; }

 private:
  std::vector<double> squares_in(std::span<const float> values) const;
  void clip(std::span<float> gradients) const;
  void adapt_rates(std::span<const float> values, std::span<float> gradients, double learning_rate) const;
  std::vector<double> lars_factors(std::span<const float> values, std::span<const float> gradients) const;
  void lamb_step(std::span<float> values, std::span<float> gradients, double learning_rate);
  double weight_decay() const { return config_.weight_decay * decay_factor_; }
  struct AdamFactors;
  AdamFactors adam_factors(double learning_rate, double decay) const;
  // This rank's part of an array, in the flat arrays and in the slots.
  std::span<float> own(std::size_t array, std::span<float> all) const;
  std::span<float> in_slot(std::size_t slot, std::size_t array);

  OptimizerConfig config_;
  FlatLayout layout_;
  StateShards shards_;
  AddUp add_up_;
  std::vector<Slot> slots_;
  std::int64_t steps_ = 0;
  double decay_factor_ = 1;
};

// An exponential moving average of the weights over the steps. It is smoother than the weights of a single
// step, so validation and the exported network depend less on the step at which the training stops.
class WeightAverage {
 public:
  // `decay` 0: there is no average, and every call does nothing.
  WeightAverage(double decay, const FlatLayout& layout) : WeightAverage(decay, StateShards(layout), layout) {}
  // An average of this rank's share of the weights.
  WeightAverage(double decay, StateShards shards, const FlatLayout& layout);

  bool active() const { return decay_ > 0; }
  // To be called after step number `step` (from 1). The decay rises to its value during the first steps, so
  // that the initial weights do not count.
  void update(std::span<const float> values, std::int64_t step);
  // Exchanges average and weights, of this rank's share; a second call restores both.
  void swap(std::span<float> values);
  // Begins anew with these weights.
  void begin_with(std::span<const float> values);

  // Laid out as an optimizer's state array.
  std::span<float> values() { return average_.span(); }

 private:
  template <class Value, class Change>
  void for_each(std::span<Value> values, const Change& change);

  double decay_;
  StateShards shards_;
  std::size_t arrays_;
  FloatBuffer average_;
};

// The outer step of groups of ranks that have trained by themselves since the last one: local SGD (Stich
// 2019, "Local SGD converges fast and communicates little"), with a rate and Nesterov momentum (Wang et al.
// 2020, "SlowMo"; Douillard et al. 2023, "DiLoCo", algorithm 1, lines 11 to 14).

// With d = anchor - mean, the weights of the last outer step minus the mean of the groups' weights now:
//     momentum = config.momentum * momentum + d
//     mean     = anchor - config.rate * (d + config.momentum * momentum)
// and anchor = mean. All spans have one length; `momentum` is empty where config.momentum is 0. Where
// config.is_mean(), all stay as they are, and `anchor` may be empty.
void outer_step(const OuterConfig& config, std::span<float> anchor, std::span<float> momentum,
                std::span<float> mean);

// Counts of a training's outer steps, in its checkpoints.
struct OuterRecord {
  std::int64_t steps = 0;
  std::int64_t left_out = 0;  // groups without a sound model, over all outer steps

  nlohmann::json to_json() const;
  static OuterRecord from_json(const nlohmann::json& json);
};

}  // namespace wflow::trainer
