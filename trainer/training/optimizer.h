// SPDX-License-Identifier: Apache-2.0
// SGD, Adam, AdamW, LARS, LARC and LAMB on flat arrays. All ranks run the same update on the same gradients.
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

  // May change the gradients (clipping, decay). Same formulae as torch.optim where that has the method.
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

}  // namespace wflow::trainer
