// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/evaluation.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace wflow::trainer {
namespace {

struct Term {
  double value;
  double slope;
};

Term term(LossName loss, double difference) {
  const double size = std::abs(difference);
  switch (loss) {
    case LossName::mse:
      return {difference * difference, 2 * difference};
    case LossName::mae:
      return {size, difference > 0 ? 1.0 : difference < 0 ? -1.0 : 0.0};
    case LossName::huber:
      if (size < 1) return {0.5 * difference * difference, difference};
      return {size - 0.5, difference > 0 ? 1.0 : -1.0};
  }
  return {0, 0};
}

}  // namespace

double loss_and_gradient(LossName loss, std::span<const float> outputs, std::span<const float> truths,
                         double scale, std::span<float> gradient) {
  double sum = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Term t = term(loss, static_cast<double>(outputs[i]) - truths[i]);
    sum += t.value;
    gradient[i] = static_cast<float>(scale * t.slope);
  }
  return sum;
}

double Evaluation::mean_ratio() const {
  double sum = 0;
  for (const TargetErrors& target : targets) sum += target.ratio();
  return targets.empty() ? 0 : sum / static_cast<double>(targets.size());
}

Evaluation evaluate(LossName loss, const std::vector<std::string>& labels, const Normalisation& normalisation,
                    std::span<const float> outputs, std::span<const double> truths) {
  const std::size_t count = labels.size();
  const std::size_t samples = outputs.size() / count;
  Evaluation result;
  for (const std::string& label : labels) result.targets.push_back({label, 0, 0, 0});
  for (std::size_t n = 0; n < samples; ++n) {
    for (std::size_t t = 0; t < count; ++t) {
      TargetErrors& errors = result.targets[t];
      const double mean = normalisation.y_mean[t];
      const double deviation = normalisation.y_std[t];
      const double targets = truths[n * count + t];
      const double difference = outputs[n * count + t] * deviation + mean - targets;
      result.loss += term(loss, difference / deviation).value;
      errors.mae += std::abs(difference);
      errors.mse += difference * difference;
      errors.mean_guess_mae += std::abs(targets - mean);
    }
  }
  if (samples == 0) return result;
  const double share = 1.0 / static_cast<double>(samples);
  for (TargetErrors& errors : result.targets) {
    errors.mae *= share;
    errors.mse *= share;
    errors.mean_guess_mae *= share;
  }
  result.loss *= share / static_cast<double>(count);
  return result;
}

nlohmann::json to_json(const Evaluation& evaluation) {
  nlohmann::json targets = nlohmann::json::object();
  for (const TargetErrors& errors : evaluation.targets) {
    targets[errors.label] = {{"mae", errors.mae},
                             {"mse", errors.mse},
                             {"mean_guess_mae", errors.mean_guess_mae},
                             {"mae_ratio", errors.ratio()}};
  }
  return {{"loss", evaluation.loss}, {"mean_mae_ratio", evaluation.mean_ratio()}, {"targets", targets}};
}

}  // namespace wflow::trainer
