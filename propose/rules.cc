// SPDX-License-Identifier: Apache-2.0
#include "propose/choose.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/random.h"

namespace wflow::propose {

namespace {

double normal_density(double z) {
  return std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
}

}  // namespace

double expected_improvement(const Prediction& prediction, double best) {
  const double gain = best - prediction.mean;
  if (!(prediction.deviation > 0)) return std::max(gain, 0.0);
  const double z = gain / prediction.deviation;
  return std::max(gain * normal_below(z) + prediction.deviation * normal_density(z), 0.0);
}

double bound_improvement(const Prediction& prediction, double best, double kappa) {
  return best - (prediction.mean - kappa * prediction.deviation);
}

double Judge::worth(const Prediction& prediction) const {
  switch (rule) {
    case Rule::expected_improvement:
      return expected_improvement(prediction, best);
    case Rule::upper_confidence_bound:
      return bound_improvement(prediction, best, kappa);
    case Rule::variance:
    case Rule::maximin:
      break;
  }
  return prediction.deviation;
}

double Judge::merit(const Prediction& prediction, const Gradients& of, std::span<double> gradient) const {
  const double value = worth(prediction);
  if (rule != Rule::expected_improvement) {
    const double of_mean = rule == Rule::upper_confidence_bound ? -1 : 0;
    const double of_deviation = rule == Rule::upper_confidence_bound ? kappa : 1;
    for (std::size_t k = 0; k < gradient.size(); ++k)
      gradient[k] = of_mean * of.mean[k] + of_deviation * of.deviation[k];
    return value;
  }
  if (!(value > 0) || !(prediction.deviation > 0)) {
    std::fill(gradient.begin(), gradient.end(), 0);
    return -std::numeric_limits<double>::infinity();
  }
  const double z = (best - prediction.mean) / prediction.deviation;
  for (std::size_t k = 0; k < gradient.size(); ++k)
    gradient[k] = (normal_density(z) * of.deviation[k] - normal_below(z) * of.mean[k]) / value;
  return std::log(value);
}

}  // namespace wflow::propose
