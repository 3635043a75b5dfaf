// SPDX-License-Identifier: Apache-2.0
// The optimizers of a network's parts: one for all weights, or others for parts with settings of their own.
// Frozen weights have none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/training/optimizer.h"

namespace wflow::trainer {

class PartOptimizers {
 public:
  // `alternating`: parts that have an optimizer of their own even without settings.
  // `ranks`, `rank`: of those that divide the state. `add_up`: as in Optimizer.
  PartOptimizers(const OptimizerConfig& common, std::span<const PartConfig> parts, const FlatLayout& layout,
                 std::span<const std::string> alternating = {}, int ranks = 1, int rank = 0,
                 const AddUp& add_up = {});

  // As Optimizer::step(); `learning_rate`: that of the common optimizer, which the others follow in
  // proportion. `clip_norm` limits the gradient of each optimizer by itself. `learn`: the parts that move;
  // empty: all.
  void step(std::span<float> values, std::span<float> gradients, double learning_rate,
            std::span<const std::string> learn = {});

  void set_decay_factor(double factor) {
    for (Group& group : groups_) group.optimizer.set_decay_factor(factor);
  }

  // The steps of each optimizer, in a fixed order.
  std::vector<std::int64_t> steps() const;
  // One number is that of all.
  void set_steps(const std::vector<std::int64_t>& steps);

  // The state arrays of all optimizers, each with its layout; of each array this rank's share.
  struct Slot {
    const FlatLayout& layout;
    const StateShards& shards;
    std::string name;
    std::span<float> values;
  };
  std::vector<Slot> slots();

 private:
  // The weights of one optimizer.
  struct Group {
    FlatLayout layout;  // their places in the whole arrays
    Optimizer optimizer;
    double rate = 1;   // over the common rate
    std::string part;  // empty: those without an optimizer of their own
  };
  std::vector<Group> groups_;
};

}  // namespace wflow::trainer
