// SPDX-License-Identifier: Apache-2.0
// The loss that a user writes as a formula (trainer/formula.h), over the targets of one sample.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "trainer/formula.h"

namespace wflow::trainer {

class FormulaLoss {
 public:
  // Error{spec} if the formula names a target that is not among `labels`.
  FormulaLoss(const std::string& formula, const std::vector<std::string>& labels);

  // The sum over all targets and cells of a sample, both [targets, cells]; a formula of several targets
  // counts as often as there are targets, so that the mean is that of the formula. Fills `gradient` with
  // scale * its slopes. Where a target is NaN (padding), there is no loss.
  double evaluate(std::span<const float> outputs, std::span<const float> truths, double scale,
                  std::span<float> gradient) const;

 private:
  struct Name {
    bool is_prediction = false;
    std::size_t target = 0;  // with `joint_`
  };

  Formula formula_;
  std::vector<Name> names_;  // of the formula
  std::size_t targets_;
  bool joint_ = false;  // of all targets of a cell together
};

}  // namespace wflow::trainer
