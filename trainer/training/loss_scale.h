// SPDX-License-Identifier: Apache-2.0
// Numbers of 16 bits (`precision: fp16`) end at 6e-8, where gradients are: the loss is multiplied before the
// backward pass and the gradients are divided after it, by a power of two that grows while nothing overflows
// (Micikevicius et al. 2018, "Mixed precision training", section 3.2).
#pragma once

#include <cstdint>

namespace wflow::trainer {

// A part of the training's state. The same calls on every rank give the same answers: they depend on sums
// over all ranks alone.
struct LossScale {
  double value = 1;
  std::int64_t good_steps = 0;  // since the value has changed
  bool on = false;

  static constexpr double kFirst = 65536;
  static constexpr std::int64_t kGrowsAfter = 2000;

  static LossScale begun() { return {kFirst, 0, true}; }

  // After a step; `finite`: all of its gradients are. False: the step is left out, and the scale is half of
  // what it was. At a scale of 1 an overflow is the training's own, and the step is not left out.
  bool takes(bool finite) {
    if (!on || (!finite && value <= 1)) return true;
    good_steps = finite ? good_steps + 1 : 0;
    if (!finite) value /= 2;
    if (good_steps == kGrowsAfter) {
      good_steps = 0;
      value *= 2;
    }
    return finite;
  }
};

}  // namespace wflow::trainer
