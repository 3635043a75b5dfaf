// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/objective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

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

double probability_of(double score) {
  return 1 / (1 + std::exp(-score));
}

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

bool predicts_deviations(LossName loss) {
  return loss == LossName::gaussian || loss == LossName::mixture;
}

Objective::Objective(const LossConfig& config, TargetShape shape, std::span<const MetricConfig> metrics,
                     const ModuleScores& modules)
    : config_(config), shape_(std::move(shape)) {
  for (const MetricConfig& metric : metrics)
    metrics_.emplace_back(metric, shape_.labels, modules, sample_shape());
  if (const auto module = modules.find(config_.file); module != modules.end()) module_ = module->second;
  if (config_.name == LossName::formula) formula_.emplace(config_.formula, shape_.labels);
  if (config_.class_weighting != ClassWeighting::listed && !shape_.class_counts.empty())
    config_.class_weights = weights_of_classes(config_.class_weighting, shape_.class_counts);
  if (config_.name == LossName::detection)
    detection_.emplace(config_, static_cast<std::size_t>(shape_.classes), shape_.grid, shape_.labels.front());
}

std::vector<double> weights_of_classes(ClassWeighting weighting, std::span<const std::uint64_t> counts) {
  double all = 0;
  for (const std::uint64_t count : counts) all += static_cast<double>(count);
  std::vector<double> weights;
  double mean = 0;
  for (const std::uint64_t count : counts) {
    const double share = static_cast<double>(count) / std::max(1.0, all);
    const double weight = share == 0                             ? 0
                          : weighting == ClassWeighting::inverse ? 1 / share
                                                                 : 1 / std::sqrt(share);
    weights.push_back(weight);
    mean += weight * share;
  }
  for (double& weight : weights) weight /= mean > 0 ? mean : 1;
  return weights;
}

std::int64_t Objective::output_channels() const {
  const auto targets = static_cast<std::int64_t>(shape_.labels.size());
  if (is_classification(config_.name)) return shape_.classes;
  if (detection_) return static_cast<std::int64_t>(detection_->channels().outputs());
  if (config_.name == LossName::quantile) return std::ssize(config_.quantiles) * targets;
  if (config_.name == LossName::mixture)
    return static_cast<std::int64_t>(
        MixtureDensity::value_count(static_cast<std::size_t>(config_.components), shape_.labels.size()));
  return config_.name == LossName::gaussian ? 2 * targets : targets;
}

// The channels of a quantile loss are the first quantile of all targets, then the second.
std::size_t Objective::prediction_channel() const {
  if (config_.name != LossName::quantile) return 0;
  return nearest_to_median(config_.quantiles) * shape_.labels.size();
}

std::vector<double> Objective::deviations(std::span<const float> outputs) const {
  if (config_.name == LossName::mixture) return density_of(outputs).deviations();
  std::vector<double> deviations;
  for (const float log_variance : outputs.last(truth_count()))
    deviations.push_back(std::exp(0.5 * log_variance));
  return deviations;
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
  if (config_.name == LossName::dice || config_.name == LossName::mixture) return 1;
  if (detection_) return detection_->cells();
  return config_.name == LossName::quantile ? config_.quantiles.size() * truth_count() : truth_count();
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
  if (detection_) return detection_->padding_factor(truths);
  if (config_.name == LossName::dice) return 1;  // it has the sizes of the classes, without padding
  if (config_.name == LossName::module || config_.name == LossName::mixture) return 1;  // of whole samples
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
    case LossName::focal:
      return cross_entropy(outputs, truths, scale, gradient);
    case LossName::quantile:
      return quantiles(outputs, truths, scale, gradient);
    case LossName::dice:
      return dice(outputs, truths, scale, gradient);
    case LossName::detection:
      return detection_->loss(outputs, truths, scale, gradient);
    case LossName::formula:
      return formula_->evaluate(outputs, truths, scale, gradient);
    case LossName::module:
      return module_loss(outputs, truths, scale, gradient);
    case LossName::mixture:
      return mixture(outputs, truths, scale, gradient);
    case LossName::bce:
    case LossName::wasserstein:
      return score(outputs, truths, scale, gradient);
    default:
      return regression(outputs, truths, scale, gradient);
  }
}

std::vector<std::int64_t> Objective::sample_shape() const {
  std::vector<std::int64_t> shape = {std::ssize(shape_.labels)};
  shape.insert(shape.end(), shape_.grid.begin(), shape_.grid.end());
  return shape;
}

// A number for each sample, which counts like the mean of as many values as the sample has.
double Objective::module_loss(std::span<const float> outputs, std::span<const float> truths, double scale,
                              std::span<float> gradient) const {
  WFLOW_CHECK(module_ != nullptr);
  const auto is_padding = [](float t) { return std::isnan(t); };
  if (std::ranges::all_of(truths, is_padding)) {
    std::ranges::fill(gradient, 0.0F);
    return 0;
  }
  const auto values = static_cast<double>(truths.size());
  const double loss = module_->score(outputs, truths, sample_shape(), gradient);
  for (float& slope : gradient) slope = static_cast<float>(slope * scale * values);
  return loss * values;
}

MixtureDensity Objective::density_of(std::span<const float> outputs) const {
  const std::vector<double> values(outputs.begin(), outputs.end());
  return {values, static_cast<std::size_t>(config_.components), shape_.labels.size()};
}

// The density is that of all targets: without one of them a sample has none.
double Objective::mixture(std::span<const float> outputs, std::span<const float> truths, double scale,
                          std::span<float> gradient) const {
  if (std::ranges::any_of(truths, [](float t) { return std::isnan(t); })) {
    std::ranges::fill(gradient, 0.0F);
    return 0;
  }
  return density_of(outputs).loss(truths, scale, gradient);
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

// bce: the cross entropy of the probability 1 / (1 + exp(-score)) (Goodfellow et al. 2014; as the generator's
// loss against 1 it is their second one, which does not saturate). wasserstein: the score of made samples
// minus that of real ones (Arjovsky et al. 2017).
double Objective::score(std::span<const float> outputs, std::span<const float> truths, double scale,
                        std::span<float> gradient) const {
  double sum = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const double y = outputs[i];
    const double truth = truths[i];
    if (config_.name == LossName::wasserstein) {
      sum += (1 - 2 * truth) * y;
      gradient[i] = static_cast<float>(scale * (1 - 2 * truth));
      continue;
    }
    sum += std::max(y, 0.0) - y * truth + std::log1p(std::exp(-std::abs(y)));
    gradient[i] = static_cast<float>(scale * (probability_of(y) - truth));
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

std::size_t class_number(float value, const TargetShape& shape) {
  const double nearest = std::round(static_cast<double>(value));
  if (nearest < 0 || nearest >= static_cast<double>(shape.classes) || std::abs(nearest - value) > 1e-3) {
    throw Error(ExitCode::data,
                fmt::format("the target '{}' is {}, and the loss needs whole class numbers from 0 to {}",
                            shape.labels.front(), value, shape.classes - 1));
  }
  return static_cast<std::size_t>(nearest);
}

// For each quantile q: q times the error where the truth lies above, 1 - q times where it lies below (Koenker
// and Bassett 1978).
double Objective::quantiles(std::span<const float> outputs, std::span<const float> truths, double scale,
                            std::span<float> gradient) const {
  double sum = 0;
  for (std::size_t k = 0; k < config_.quantiles.size(); ++k) {
    for (std::size_t i = 0; i < truths.size(); ++i) {
      float& slope = gradient[k * truths.size() + i];
      slope = 0;
      if (std::isnan(truths[i])) continue;
      const double difference = static_cast<double>(truths[i]) - outputs[k * truths.size() + i];
      const double side = config_.quantiles[k] - (difference < 0 ? 1 : 0);
      sum += side * difference;
      if (difference != 0) slope = static_cast<float>(-scale * side);
    }
  }
  return sum;
}

// The focal loss multiplies with (1 - p)^gamma for the probability p of the true class (Lin et al. 2017).
double Objective::cross_entropy(std::span<const float> outputs, std::span<const float> truths, double scale,
                                std::span<float> gradient) const {
  const double gamma = config_.name == LossName::focal ? config_.gamma : 0;
  const auto cells = static_cast<std::size_t>(shape_.cells);
  std::vector<double> p(static_cast<std::size_t>(shape_.classes));
  double sum = 0;
  for (std::size_t cell = 0; cell < cells; ++cell) {
    if (std::isnan(truths[cell])) {
      for (std::size_t k = 0; k < p.size(); ++k) gradient[k * cells + cell] = 0;
      continue;
    }
    const std::size_t truth = class_number(truths[cell], shape_);
    softmax(outputs, cells, cell, p);
    const double w = weight(truth);
    const double logarithm = std::log(std::max(p[truth], 1e-300));
    double slope = w;  // minus the derivative by the logarithm of p[truth]
    if (gamma == 0) {
      sum -= w * logarithm;
    } else {
      const double miss = 1 - p[truth];
      const double factor = std::pow(miss, gamma);
      sum -= w * factor * logarithm;
      slope = miss > 0 ? w * (factor - gamma * p[truth] * factor / miss * logarithm) : 0;
    }
    for (std::size_t k = 0; k < p.size(); ++k)
      gradient[k * cells + cell] = static_cast<float>(scale * slope * (p[k] - (k == truth ? 1 : 0)));
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
    const std::size_t truth = class_number(truths[cell], shape_);
    softmax(outputs, cells, cell, one);
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
    const std::size_t truth = class_number(truths[cell], shape_);
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

Objective::TargetSums Objective::class_sums(std::span<const float> outputs, std::span<const float> truths,
                                            std::span<std::uint64_t> counts) const {
  const std::size_t cells = truths.size();
  std::vector<double> p(static_cast<std::size_t>(shape_.classes));
  TargetSums sums;
  for (std::size_t cell = 0; cell < cells; ++cell) {
    if (std::isnan(truths[cell])) continue;
    ++sums.cells;
    const std::size_t truth = class_number(truths[cell], shape_);
    softmax(outputs, cells, cell, p);
    const auto best = static_cast<std::size_t>(std::max_element(p.begin(), p.end()) - p.begin());
    sums.absolute += best == truth ? 0 : 1;
    sums.mean_guess += truth == static_cast<std::size_t>(shape_.usual_class) ? 0 : 1;
    if (!counts.empty()) count_class(truth, p, counts);
  }
  sums.squared = sums.absolute;
  return sums;
}

Objective::TargetSums Objective::number_sums(std::span<const float> outputs, std::span<const float> truths,
                                             std::size_t target, const Physical& physical) const {
  const auto cells = static_cast<std::size_t>(shape_.cells);
  const std::span<const float> y = outputs.subspan(prediction_channel() * cells, truth_count());
  // Relative to the guess, so that the squares are of small numbers.
  const double guess = physical ? physical(0, target) : 0;
  const auto value = [&](double normalised) {
    return physical ? physical(normalised, target) - guess : normalised;
  };
  const auto prediction = [&](double output) {
    return value(config_.name == LossName::bce ? probability_of(output) : output);
  };
  TargetSums sums;
  for (std::size_t cell = target * cells; cell < (target + 1) * cells; ++cell) {
    if (std::isnan(truths[cell])) continue;
    ++sums.cells;
    const double truth = value(truths[cell]);
    const double difference = prediction(y[cell]) - truth;
    sums.absolute += std::abs(difference);
    sums.squared += difference * difference;
    // A constant target equals its mean but for rounding.
    if (shape_.truth == Truth::data && std::abs(truths[cell]) > kRounding) sums.mean_guess += std::abs(truth);
    sums.truth += truth;
    sums.truth_squared += truth * truth;
  }
  return sums;
}

// For numbers: the cells that count, then those of each share of TargetErrors::calibration.
std::size_t Objective::counts_of_target() const {
  if (predicts_deviations(config_.name)) return 1 + kIntervals.size();
  return config_.name == LossName::quantile ? 1 + config_.quantiles.size() : 0;
}

std::size_t Objective::record_size() const {
  std::size_t size = 1 + kSumsPerTarget * shape_.labels.size();
  for (const UserMetric& metric : metrics_) size += metric.record_size();
  return size + (detection_ ? detection_->record_size() : 0);
}

std::size_t Objective::count_size() const {
  if (detection_) return detection_->count_size();
  if (is_classification(config_.name)) return class_count_size(static_cast<std::size_t>(shape_.classes));
  return counts_of_target() * shape_.labels.size();
}

// A truth lies in the interval of a probability around the median if as much lies below it as above.
void Objective::count_density(std::span<const float> outputs, std::span<const float> truths,
                              std::span<std::uint64_t> counts) const {
  const MixtureDensity density = density_of(outputs);
  for (std::size_t target = 0; target < truths.size(); ++target) {
    if (std::isnan(truths[target])) continue;
    const std::span<std::uint64_t> own = counts.subspan(target * counts_of_target(), counts_of_target());
    ++own[0];
    const double side = std::abs(density.below(target, truths[target]) - 0.5);
    for (std::size_t k = 0; k < kIntervals.size(); ++k)
      if (side <= 0.5 * std::erf(kIntervals[k].deviations / std::numbers::sqrt2)) ++own[1 + k];
  }
}

void Objective::count_calibration(std::span<const float> outputs, std::span<const float> truths,
                                  std::size_t target, std::span<std::uint64_t> counts) const {
  const auto cells = static_cast<std::size_t>(shape_.cells);
  for (std::size_t cell = target * cells; cell < (target + 1) * cells; ++cell) {
    if (std::isnan(truths[cell])) continue;
    ++counts[0];
    if (config_.name == LossName::quantile) {
      for (std::size_t k = 0; k < config_.quantiles.size(); ++k)
        if (truths[cell] <= outputs[k * truths.size() + cell]) ++counts[1 + k];
      continue;
    }
    const double deviation = std::exp(0.5 * outputs[truths.size() + cell]);
    const double distance = std::abs(static_cast<double>(outputs[cell]) - truths[cell]);
    for (std::size_t k = 0; k < kIntervals.size(); ++k)
      if (distance <= kIntervals[k].deviations * deviation) ++counts[1 + k];
  }
}

std::vector<std::pair<std::string, double>> Objective::calibration(
    std::size_t target, std::span<const std::uint64_t> counts) const {
  std::vector<std::pair<std::string, double>> shares;
  if (counts_of_target() == 0 || is_classification(config_.name)) return shares;
  const std::span<const std::uint64_t> own = counts.subspan(target * counts_of_target(), counts_of_target());
  for (std::size_t k = 0; k + 1 < own.size() && own[0] > 0; ++k) {
    const std::string name = predicts_deviations(config_.name)
                                 ? std::string(kIntervals[k].name)
                                 : fmt::format("below_{}", config_.quantiles[k]);
    shares.emplace_back(name, static_cast<double>(own[1 + k]) / static_cast<double>(own[0]));
  }
  return shares;
}

void Objective::record(std::span<const float> outputs, std::span<const float> truths, std::size_t samples,
                       std::vector<double>& records, const Physical& physical,
                       std::span<std::uint64_t> counts) const {
  WFLOW_CHECK(counts.empty() || counts.size() == count_size());
  const std::size_t count = output_count();
  std::vector<float> ignored(count);
  for (std::size_t n = 0; n < samples; ++n) {
    const std::span<const float> y = outputs.subspan(n * count, count);
    const std::span<const float> t = truths.subspan(n * truth_count(), truth_count());
    const double loss = padding_factor(t) * first_output(y, t, 1, ignored);
    if (detection_) {
      record_detected(detection_->physical(y), std::vector<double>(t.begin(), t.end()), records, counts);
      records[records.size() - record_size()] = loss;
      continue;
    }
    records.push_back(loss);
    for (std::size_t target = 0; target < shape_.labels.size(); ++target) {
      const TargetSums sums =
          is_classification(config_.name) ? class_sums(y, t, counts) : number_sums(y, t, target, physical);
      records.insert(records.end(), {sums.absolute, sums.squared, sums.mean_guess, sums.truth,
                                     sums.truth_squared, sums.cells});
      if (!counts.empty() && !is_classification(config_.name) && config_.name != LossName::mixture)
        count_calibration(y, t, target, counts.subspan(target * counts_of_target(), counts_of_target()));
    }
    if (!counts.empty() && config_.name == LossName::mixture) count_density(y, t, counts);
    record_metrics(y, t, physical, records);
  }
}

void Objective::record_metrics(std::span<const float> outputs, std::span<const float> truths,
                               const Physical& physical, std::vector<double>& records) const {
  if (metrics_.empty()) return;
  const auto cells = static_cast<std::size_t>(shape_.cells);
  const std::span<const float> y = outputs.subspan(prediction_channel() * cells, truth_count());
  std::vector<double> predicted(y.begin(), y.end());
  std::vector<double> wanted(truths.begin(), truths.end());
  for (std::size_t i = 0; i < wanted.size() && physical; ++i) {
    predicted[i] = physical(predicted[i], i / cells);
    wanted[i] = physical(wanted[i], i / cells);
  }
  for (const UserMetric& metric : metrics_) metric.record(predicted, wanted, records);
}

void Objective::record_detected(std::span<const double> physical, std::span<const double> truths,
                                std::vector<double>& records, std::span<std::uint64_t> counts) const {
  records.push_back(0);
  for (std::size_t target = 0; target < shape_.labels.size(); ++target) {
    const Detection::Sums sums = detection_->sums(physical, truths, target);
    records.insert(records.end(),
                   {sums.absolute, sums.squared, sums.guess, sums.truth, sums.truth_squared, sums.cells});
  }
  detection_->record(physical, truths, records, counts);
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

std::vector<std::pair<std::string, Evaluation>> Evaluation::by_head() const {
  if (heads.empty()) return {{"", *this}};
  std::vector<std::pair<std::string, Evaluation>> parts;
  std::size_t begin = 0;
  for (const Head& head : heads) {
    Evaluation& part = parts.emplace_back(head.name, Evaluation()).second;
    part.loss = head.loss;
    part.classes = head.classes;
    const auto first = targets.begin() + static_cast<std::ptrdiff_t>(begin);
    part.targets.assign(first, first + static_cast<std::ptrdiff_t>(head.targets));
    begin += head.targets;
  }
  return parts;
}

namespace {

// The means of the user's metrics, from the last numbers of each record.
void add_metrics(const Objective& objective, std::span<const double> records, Evaluation& result) {
  const std::size_t size = objective.record_size();
  std::size_t begin = 1 + Objective::kSumsPerTarget * result.targets.size();
  for (const UserMetric& metric : objective.metrics()) {
    for (std::size_t mean = 0; mean < metric.means(); ++mean, begin += 2) {
      double sum = 0;
      double count = 0;
      for (std::size_t at = begin; at < records.size(); at += size) {
        sum += records[at];
        count += records[at + 1];
      }
      result.targets[mean].more.push_back({metric.name(), UserMetric::mean_of(sum, count)});
    }
  }
}

}  // namespace

Evaluation evaluate(const Objective& objective, std::span<const double> deviations,
                    std::span<const double> records, std::span<const std::uint64_t> counts) {
  const TargetShape& shape = objective.shape();
  Evaluation result;
  result.classes = is_classification(objective.name());
  const std::size_t size = objective.record_size();
  const std::size_t samples = records.size() / size;
  if (samples == 0) return result;
  for (const std::string& label : shape.labels) result.targets.emplace_back().label = label;
  std::vector<double> means(result.targets.size(), 0.0);
  std::vector<double> cells(result.targets.size(), 0.0);
  std::vector<double> boxes;
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
    const std::span<const double> left = record.subspan(1 + Objective::kSumsPerTarget * shape.labels.size());
    boxes.insert(boxes.end(), left.begin(), left.end());
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
    if (counts.empty()) continue;
    if (result.classes) {
      result.targets[t].classification = classification_of(static_cast<std::size_t>(shape.classes), counts);
    } else {
      result.targets[t].calibration = objective.calibration(t, counts);
    }
  }
  add_metrics(objective, records, result);
  if (objective.detection() != nullptr && !counts.empty())
    result.targets.front().more = objective.detection()->metrics(boxes, counts);
  return result;
}

std::vector<NamedMetric> metrics_of(const TargetErrors& errors) {
  std::vector<NamedMetric> metrics;
  for (const auto& [name, share] : errors.calibration) metrics.push_back({name, share});
  metrics.insert(metrics.end(), errors.more.begin(), errors.more.end());
  if (!errors.classification) return metrics;
  const Classification& all = *errors.classification;
  metrics.push_back({"accuracy", all.accuracy()});
  metrics.push_back({"mean_iou", all.mean_iou()});
  metrics.push_back({"mean_dice", all.mean_dice()});
  metrics.push_back({"mean_auc", all.mean_auc()});
  if (all.classes.size() > kMostDetailedClasses) return metrics;
  for (std::size_t k = 0; k < all.classes.size(); ++k) {
    const ClassMetrics& one = all.classes[k];
    metrics.push_back({fmt::format("iou_{}", k), one.iou()});
    metrics.push_back({fmt::format("dice_{}", k), one.dice()});
    metrics.push_back({fmt::format("precision_{}", k), one.precision()});
    metrics.push_back({fmt::format("recall_{}", k), one.recall()});
    metrics.push_back({fmt::format("auc_{}", k), one.auc});
  }
  return metrics;
}

std::vector<NamedMetric> main_metrics_of(const TargetErrors& errors) {
  constexpr std::size_t kMostFollowed = 16;
  std::vector<NamedMetric> metrics = metrics_of(errors);
  const auto is_late = [](const NamedMetric& metric) {
    const std::optional<MetricName> name = metric_named(metric.name);
    return name && name->of_class && *name->of_class >= kMostFollowed;
  };
  const bool with_classes = std::ranges::none_of(metrics, is_late);
  std::erase_if(metrics, [&](const NamedMetric& metric) {
    const std::optional<MetricName> name = metric_named(metric.name);
    if (!name) return false;
    if (name->of_class) return !with_classes || (name->name != "iou" && name->name != "ap");
    return name->name == "mean_dice" || name->name == "mean_auc";
  });
  return metrics;
}

namespace {

std::optional<double> metric_of_class(const ClassMetrics& one, const std::string& name) {
  if (name == "iou") return one.iou();
  if (name == "dice") return one.dice();
  if (name == "precision") return one.precision();
  return name == "recall" ? one.recall() : one.auc;
}

std::optional<double> metric_of_target(const TargetErrors& errors, const MetricName& metric) {
  if (metric.name == "mae") return errors.mae;
  if (metric.name == "mae_ratio") return errors.ratio();
  if (metric.name == "rmse") return errors.rmse();
  if (metric.name == "r2") return errors.r2();
  const auto more = std::ranges::find(errors.more, metric.key(), &NamedMetric::name);
  if (more != errors.more.end()) return more->value;
  if (!errors.classification) return std::nullopt;
  const Classification& all = *errors.classification;
  if (metric.of_class)
    return *metric.of_class < all.classes.size() ? metric_of_class(all.classes[*metric.of_class], metric.name)
                                                 : std::nullopt;
  if (metric.name == "accuracy") return all.accuracy();
  if (metric.name == "mean_iou") return all.mean_iou();
  return metric.name == "mean_dice" ? all.mean_dice() : all.mean_auc();
}

}  // namespace

std::optional<double> metric_of(const Evaluation& evaluation, const MetricName& metric) {
  if (evaluation.targets.empty()) return std::nullopt;
  if (metric.is_loss()) return evaluation.loss;
  double sum = 0;
  double count = 0;
  for (const TargetErrors& errors : evaluation.targets) {
    if (!metric.target.empty() && errors.label != metric.target) continue;
    const std::optional<double> value = metric_of_target(errors, metric);
    if (!value) continue;
    sum += *value;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / count;
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
    for (const auto& [name, share] : errors.calibration) targets[errors.label]["calibration"][name] = share;
    for (const NamedMetric& metric : errors.more)
      targets[errors.label]["metrics"][metric.name] = or_null(metric.value);
    if (errors.classification) targets[errors.label].update(to_json(*errors.classification));
  }
  nlohmann::json json = {
      {"loss", evaluation.targets.empty() ? nlohmann::json() : nlohmann::json(evaluation.loss)},
      {"mean_mae_ratio", or_null(evaluation.mean_ratio())},
      {"targets", targets}};
  for (const auto& [name, part] : evaluation.by_head())
    if (!name.empty())
      json["heads"][name] = {{"loss", part.loss}, {"mean_mae_ratio", or_null(part.mean_ratio())}};
  return json;
}

}  // namespace wflow::trainer
