// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/objective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace wflow::trainer {
namespace {

// Limit on logarithms of variances, which only a diverging training exceeds: the exponential must stay
// finite.
constexpr double kMostLogVariance = 40;

constexpr double kRounding = 1e-9;  // deviations

struct Term {
  double value;
  double slope;
};

Term term(const LossConfig& loss, double difference) {
  const double size = std::abs(difference);
  switch (loss.name) {
    case LossName::mae:
      return {size, difference > 0 ? 1.0 : difference < 0 ? -1.0 : 0.0};
    case LossName::huber:
      if (size < loss.delta) return {0.5 * difference * difference, difference};
      return {loss.delta * (size - 0.5 * loss.delta), difference > 0 ? loss.delta : -loss.delta};
    default:
      return {difference * difference, 2 * difference};
  }
}

}  // namespace

Objective::Objective(const LossConfig& config, TargetShape shape)
    : config_(config), shape_(std::move(shape)) {
  if (config_.name == LossName::formula) formula_.emplace(config_.formula, shape_.labels);
}

std::int64_t Objective::output_channels() const {
  const auto targets = static_cast<std::int64_t>(shape_.labels.size());
  if (is_classification(config_.name)) return shape_.classes;
  return config_.name == LossName::gaussian ? 2 * targets : targets;
}

std::size_t Objective::truth_count() const {
  return shape_.labels.size() * static_cast<std::size_t>(shape_.cells);
}

std::size_t Objective::output_count() const {
  return static_cast<std::size_t>(output_channels() * shape_.cells);
}

std::size_t Objective::all_output_count() const {
  return output_count() + 2 * static_cast<std::size_t>(shape_.latent);
}

std::size_t Objective::terms() const {
  return config_.name == LossName::dice ? 1 : truth_count();
}

double Objective::loss_and_gradient(std::span<const float> outputs, std::span<const float> truths,
                                    std::size_t samples, double scale, std::span<float> gradient) const {
  WFLOW_CHECK(outputs.size() == samples * all_output_count() && truths.size() == samples * truth_count());
  const std::size_t count = output_count();
  const auto latent = static_cast<std::size_t>(shape_.latent);
  const std::size_t means = samples * count;
  const std::size_t log_variances = means + samples * latent;
  double sum = 0;
  for (std::size_t n = 0; n < samples; ++n) {
    const std::span<const float> sample_truths = truths.subspan(n * truth_count(), truth_count());
    const double factor = padding_factor(sample_truths);
    sum += factor * first_output(outputs.subspan(n * count, count), sample_truths, factor * scale,
                                 gradient.subspan(n * count, count));
    if (latent == 0) continue;
    const double kl_factor = factor * config_.kl_weight;
    sum += kl_factor * kl_divergence(outputs.subspan(means + n * latent, latent),
                                     outputs.subspan(log_variances + n * latent, latent), scale * kl_factor,
                                     gradient.subspan(means + n * latent, latent),
                                     gradient.subspan(log_variances + n * latent, latent));
  }
  return sum;
}

double Objective::padding_factor(std::span<const float> truths) const {
  if (config_.name == LossName::dice) return 1;  // it has the sizes of the classes, without padding
  const auto padding = static_cast<std::size_t>(
      std::count_if(truths.begin(), truths.end(), [](float t) { return std::isnan(t); }));
  if (padding == truths.size()) return 1;  // the loss is 0
  return static_cast<double>(truths.size()) / static_cast<double>(truths.size() - padding);
}

double Objective::first_output(std::span<const float> outputs, std::span<const float> truths, double scale,
                               std::span<float> gradient) const {
  switch (config_.name) {
    case LossName::gaussian:
      return gaussian(outputs, truths, scale, gradient);
    case LossName::cross_entropy:
      return cross_entropy(outputs, truths, scale, gradient);
    case LossName::dice:
      return dice(outputs, truths, scale, gradient);
    case LossName::formula:
      return formula_->evaluate(outputs, truths, scale, gradient);
    default:
      return regression(outputs, truths, scale, gradient);
  }
}

double Objective::regression(std::span<const float> outputs, std::span<const float> truths, double scale,
                             std::span<float> gradient) const {
  double sum = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (std::isnan(truths[i])) {
      gradient[i] = 0;
      continue;
    }
    const Term t = term(config_, static_cast<double>(outputs[i]) - truths[i]);
    sum += t.value;
    gradient[i] = static_cast<float>(scale * t.slope);
  }
  return sum;
}

// Minus the logarithm of the likelihood, without its constant: (log v + (m - t)^2 / v) / 2.
double Objective::gaussian(std::span<const float> outputs, std::span<const float> truths, double scale,
                           std::span<float> gradient) const {
  const std::size_t count = truths.size();
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isnan(truths[i])) {
      gradient[i] = gradient[count + i] = 0;
      continue;
    }
    const double given = outputs[count + i];
    const double log_variance = std::clamp(given, -kMostLogVariance, kMostLogVariance);
    const double difference = static_cast<double>(outputs[i]) - truths[i];
    const double precision = std::exp(-log_variance);
    sum += 0.5 * (log_variance + difference * difference * precision);
    gradient[i] = static_cast<float>(scale * difference * precision);
    const double slope = log_variance == given ? 0.5 * (1 - difference * difference * precision) : 0.0;
    gradient[count + i] = static_cast<float>(scale * slope);
  }
  return sum;
}

std::size_t Objective::class_of(float truth) const {
  const double nearest = std::round(static_cast<double>(truth));
  if (nearest < 0 || nearest >= static_cast<double>(shape_.classes) || std::abs(nearest - truth) > 1e-3) {
    throw Error(ExitCode::data,
                fmt::format("the target '{}' is {}, and the loss needs whole class numbers from 0 to {}",
                            shape_.labels.front(), truth, shape_.classes - 1));
  }
  return static_cast<std::size_t>(nearest);
}

// Softmax over the classes of one cell; outputs are [classes, cells].
void Objective::probabilities(std::span<const float> outputs, std::size_t cell, std::span<double> to) const {
  const auto cells = static_cast<std::size_t>(shape_.cells);
  double most = outputs[cell];
  for (std::size_t k = 1; k < to.size(); ++k) most = std::max<double>(most, outputs[k * cells + cell]);
  double sum = 0;
  for (std::size_t k = 0; k < to.size(); ++k) sum += to[k] = std::exp(outputs[k * cells + cell] - most);
  for (double& p : to) p /= sum;
}

double Objective::cross_entropy(std::span<const float> outputs, std::span<const float> truths, double scale,
                                std::span<float> gradient) const {
  const auto cells = static_cast<std::size_t>(shape_.cells);
  std::vector<double> p(static_cast<std::size_t>(shape_.classes));
  double sum = 0;
  for (std::size_t cell = 0; cell < cells; ++cell) {
    if (std::isnan(truths[cell])) {
      for (std::size_t k = 0; k < p.size(); ++k) gradient[k * cells + cell] = 0;
      continue;
    }
    const std::size_t truth = class_of(truths[cell]);
    probabilities(outputs, cell, p);
    const double w = weight(truth);
    sum -= w * std::log(std::max(p[truth], 1e-300));
    for (std::size_t k = 0; k < p.size(); ++k)
      gradient[k * cells + cell] = static_cast<float>(scale * w * (p[k] - (k == truth ? 1 : 0)));
  }
  return sum;
}

// 1 - the weighted mean over the classes of 2 |P and T| / (|P| + |T|), of a sample's softmax probabilities
// (Milletari et al. 2016, without the squares).
double Objective::dice(std::span<const float> outputs, std::span<const float> truths, double scale,
                       std::span<float> gradient) const {
  const auto cells = static_cast<std::size_t>(shape_.cells);
  const auto classes = static_cast<std::size_t>(shape_.classes);
  std::vector<double> p(classes * cells);
  std::vector<double> shared(classes, 0.0);
  std::vector<double> sizes(classes, 0.0);
  std::vector<double> one(classes);
  double weights = 0;
  for (std::size_t k = 0; k < classes; ++k) weights += weight(k);
  for (std::size_t cell = 0; cell < cells; ++cell) {
    if (std::isnan(truths[cell])) continue;
    const std::size_t truth = class_of(truths[cell]);
    probabilities(outputs, cell, one);
    for (std::size_t k = 0; k < classes; ++k) {
      p[k * cells + cell] = one[k];
      sizes[k] += one[k];
    }
    shared[truth] += one[truth];
    sizes[truth] += 1;
  }
  double loss = 1;
  for (std::size_t k = 0; k < classes; ++k)
    loss -= weight(k) / weights * (2 * shared[k] + config_.smooth) / (sizes[k] + config_.smooth);
  for (std::size_t cell = 0; cell < cells; ++cell) {
    if (std::isnan(truths[cell])) {
      for (std::size_t k = 0; k < classes; ++k) gradient[k * cells + cell] = 0;
      continue;
    }
    const std::size_t truth = class_of(truths[cell]);
    // Derivatives by the probabilities, then through the softmax.
    double mean = 0;
    for (std::size_t k = 0; k < classes; ++k) {
      const double size = sizes[k] + config_.smooth;
      one[k] = -weight(k) / weights *
               ((k == truth ? 2.0 : 0.0) / size - (2 * shared[k] + config_.smooth) / (size * size));
      mean += one[k] * p[k * cells + cell];
    }
    for (std::size_t k = 0; k < classes; ++k)
      gradient[k * cells + cell] = static_cast<float>(scale * p[k * cells + cell] * (one[k] - mean));
  }
  return loss;
}

double kl_divergence(std::span<const float> mean, std::span<const float> log_variance, double scale,
                     std::span<float> mean_gradient, std::span<float> log_variance_gradient) {
  double sum = 0;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const double m = mean[i];
    const double variance = std::exp(std::min<double>(log_variance[i], kMostLogVariance));
    sum += 0.5 * (m * m + variance - 1 - log_variance[i]);
    mean_gradient[i] = static_cast<float>(scale * m);
    log_variance_gradient[i] = static_cast<float>(scale * 0.5 * (variance - 1));
  }
  return sum;
}

void Objective::record(std::span<const float> outputs, std::span<const float> truths, std::size_t samples,
                       std::vector<double>& records, const Physical& physical) const {
  const std::size_t count = output_count();
  const auto cells = static_cast<std::size_t>(shape_.cells);
  std::vector<float> ignored(count);
  std::vector<double> p(static_cast<std::size_t>(shape_.classes));
  for (std::size_t n = 0; n < samples; ++n) {
    const std::span<const float> y = outputs.subspan(n * count, count);
    const std::span<const float> t = truths.subspan(n * truth_count(), truth_count());
    records.push_back(padding_factor(t) * first_output(y, t, 1, ignored));
    for (std::size_t target = 0; target < shape_.labels.size(); ++target) {
      TargetSums sums;
      // Relative to the guess, so that the squares are of small numbers.
      const double guess = physical ? physical(0, target) : 0;
      const auto value = [&](double normalised) {
        return physical ? physical(normalised, target) - guess : normalised;
      };
      for (std::size_t cell = target * cells; cell < (target + 1) * cells; ++cell) {
        if (std::isnan(t[cell])) continue;
        ++sums.cells;
        if (is_classification(config_.name)) {
          probabilities(y, cell, p);
          const auto best = static_cast<std::size_t>(std::max_element(p.begin(), p.end()) - p.begin());
          sums.absolute += best == class_of(t[cell]) ? 0 : 1;
          sums.mean_guess += class_of(t[cell]) == static_cast<std::size_t>(shape_.usual_class) ? 0 : 1;
          continue;
        }
        const double truth = value(t[cell]);
        const double difference = value(y[cell]) - truth;
        sums.absolute += std::abs(difference);
        sums.squared += difference * difference;
        // A constant target equals its mean but for rounding.
        if (physical || std::abs(truth) > kRounding) sums.mean_guess += std::abs(truth);
        sums.truth += truth;
        sums.truth_squared += truth * truth;
      }
      if (is_classification(config_.name)) sums.squared = sums.absolute;
      records.insert(records.end(), {sums.absolute, sums.squared, sums.mean_guess, sums.truth,
                                     sums.truth_squared, sums.cells});
    }
  }
}

double TargetErrors::rmse() const {
  return std::sqrt(mse);
}

std::optional<double> TargetErrors::r2() const {
  if (variance <= 0) return std::nullopt;
  return 1 - mse / variance;
}

std::optional<double> TargetErrors::ratio() const {
  if (mean_guess_mae == 0) return std::nullopt;
  return mae / mean_guess_mae;
}

std::optional<double> Evaluation::mean_ratio() const {
  double sum = 0;
  double count = 0;
  for (const TargetErrors& target : targets) {
    if (!target.ratio()) continue;
    sum += *target.ratio();
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

Evaluation evaluate(const Objective& objective, std::span<const double> deviations,
                    std::span<const double> records) {
  const TargetShape& shape = objective.shape();
  Evaluation result;
  result.classes = is_classification(objective.name());
  const std::size_t size = objective.record_size();
  const std::size_t samples = records.size() / size;
  if (samples == 0) return result;
  for (const std::string& label : shape.labels) result.targets.emplace_back().label = label;
  std::vector<double> means(result.targets.size(), 0.0);
  std::vector<double> cells(result.targets.size(), 0.0);
  for (std::size_t n = 0; n < samples; ++n) {
    const std::span<const double> record = records.subspan(n * size, size);
    result.loss += record[0];
    for (std::size_t t = 0; t < result.targets.size(); ++t) {
      const std::span<const double> sums =
          record.subspan(1 + Objective::kSumsPerTarget * t, Objective::kSumsPerTarget);
      result.targets[t].mae += sums[0];
      result.targets[t].mse += sums[1];
      result.targets[t].mean_guess_mae += sums[2];
      means[t] += sums[3];
      result.targets[t].variance += sums[4];
      cells[t] += sums[5];
    }
  }
  result.loss /= static_cast<double>(samples * objective.terms());
  for (std::size_t t = 0; t < result.targets.size(); ++t) {
    const double share = 1 / std::max(1.0, cells[t]);
    const double unit = is_classification(objective.name()) ? 1.0 : deviations[t];
    result.targets[t].mae *= share * unit;
    result.targets[t].mse *= share * unit * unit;
    result.targets[t].mean_guess_mae *= share * unit;
    const double mean = means[t] * share;
    result.targets[t].variance =
        std::max(0.0, result.targets[t].variance * share - mean * mean) * unit * unit;
  }
  return result;
}

nlohmann::json to_json(const Evaluation& evaluation) {
  const auto or_null = [](const std::optional<double>& value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
  };
  nlohmann::json targets = nlohmann::json::object();
  for (const TargetErrors& errors : evaluation.targets) {
    targets[errors.label] = {{"mae", errors.mae},
                             {"mse", errors.mse},
                             {"rmse", errors.rmse()},
                             {"r2", or_null(errors.r2())},
                             {"mean_guess_mae", errors.mean_guess_mae},
                             {"mae_ratio", or_null(errors.ratio())}};
  }
  return {{"loss", evaluation.targets.empty() ? nlohmann::json() : nlohmann::json(evaluation.loss)},
          {"mean_mae_ratio", or_null(evaluation.mean_ratio())},
          {"targets", targets}};
}

}  // namespace wflow::trainer
