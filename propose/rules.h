// SPDX-License-Identifier: Apache-2.0
// The rules by which a point's worth follows from a model's prediction. All for a minimum.
#pragma once

#include <span>
#include <vector>

#include "propose/gaussian_process.h"

namespace wflow::propose {

// E max(best - value, 0) for a normal distribution: Mockus 1975; Jones, Schonlau and Welch 1998, equation 15.
double expected_improvement(const Prediction& prediction, double best);

// The improvement on `best` that the bound mean - kappa deviation promises (Srinivas, Krause, Kakade and
// Seeger 2010, "Gaussian process optimization in the bandit setting").
double bound_improvement(const Prediction& prediction, double best, double kappa);

struct Judge {
  Rule rule = Rule::expected_improvement;
  double best = 0;  // the least value known
  double kappa = 2;

  // The worth of a point by the rule; by `variance`, the deviation (MacKay 1992, Neural Computation 4:590).
  double worth(const Prediction& prediction) const;
  // A monotone function of the worth that an optimiser can follow, and its gradient: the logarithm of the
  // expected improvement, which is flat nearly everywhere (Ament et al. 2023, "Unexpected improvements to
  // expected improvement").
  double merit(const Prediction& prediction, const Gradients& of_prediction,
               std::span<double> gradient) const;
};

}  // namespace wflow::propose
