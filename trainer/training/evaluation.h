// SPDX-License-Identifier: Apache-2.0
// Loss on normalised targets, errors in physical units, and their ratio to always guessing the mean.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/transform.h"

namespace wflow::trainer {

// Sum of the losses of all values; fills `gradient` with scale * dloss/doutput.
double loss_and_gradient(LossName loss, std::span<const float> outputs, std::span<const float> truths,
                         double scale, std::span<float> gradient);

struct TargetErrors {
  std::string label;
  double mae = 0;  // in the label's own unit
  double mse = 0;
  double mean_guess_mae = 0;  // of guessing the training split's mean
  double ratio() const { return mean_guess_mae > 0 ? mae / mean_guess_mae : 0; }
  bool operator==(const TargetErrors&) const = default;
};

struct Evaluation {
  double loss = 0;
  std::vector<TargetErrors> targets;
  double mean_ratio() const;
};

// outputs and truths: [samples, targets], normalised and physical.
Evaluation evaluate(LossName loss, const std::vector<std::string>& labels, const Normalisation& normalisation,
                    std::span<const float> outputs, std::span<const double> truths);

nlohmann::json to_json(const Evaluation& evaluation);

}  // namespace wflow::trainer
