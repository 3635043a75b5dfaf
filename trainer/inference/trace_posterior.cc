// SPDX-License-Identifier: Apache-2.0
#include "trainer/inference/trace_posterior.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "base/random.h"

namespace wflow::trainer {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double greatest(std::span<const double> values) {
  double most = -std::numeric_limits<double>::infinity();
  for (const double value : values) most = std::max(most, value);
  return most;
}

double sample_variance(std::span<const double> values, double mean) {
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return sum / (static_cast<double>(values.size()) - 1);
}

}  // namespace

std::vector<double> TracePosterior::weights() const {
  const double most = greatest(log_weight);
  std::vector<double> weights(log_weight.size(), 0.0);
  if (std::isinf(most)) return weights;
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += weights[i] = std::exp(log_weight[i] - most);
  for (double& weight : weights) weight /= sum;
  return weights;
}

double effective_samples(std::span<const double> weights) {
  double sum = 0;
  double squares = 0;
  for (const double weight : weights) {
    sum += weight;
    squares += weight * weight;
  }
  return squares > 0 ? sum * sum / squares : 0;
}

Evidence evidence_of(std::span<const double> log_weights) {
  const double most = greatest(log_weights);
  if (std::isinf(most)) return {most, 0};
  std::vector<double> scaled;
  for (const double value : log_weights) scaled.push_back(std::exp(value - most));
  const double mean = mean_of(scaled);
  const auto count = static_cast<double>(scaled.size());
  return {most + std::log(mean), std::sqrt(sample_variance(scaled, mean) / count) / mean};
}

double presence_of(std::span<const double> values, std::span<const double> weights) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isnan(values[i])) sum += weights[i];
  return sum;
}

namespace {

// The first value up to which the weights come to `least`; the last one if none does. Values with their
// weights, in order.
double quantile_of(std::span<const std::pair<double, double>> sorted, double least) {
  double below = 0;
  for (const auto& [value, weight] : sorted)
    if ((below += weight) >= least) return value;
  return sorted.back().first;
}

}  // namespace

ParameterSummary summary_of(std::span<const double> values, std::span<const double> weights) {
  std::vector<std::pair<double, double>> known;  // value, weight
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i]) || weights[i] == 0) continue;
    known.emplace_back(values[i], weights[i]);
    sum += weights[i];
  }
  ParameterSummary summary;
  for (const auto& [value, weight] : known) summary.mean += value * weight / sum;
  double variance = 0;
  for (const auto& [value, weight] : known)
    variance += (value - summary.mean) * (value - summary.mean) * weight / sum;
  summary.deviation = std::sqrt(variance);
  std::ranges::sort(known);
  for (const double level : kPosteriorQuantiles)
    summary.quantiles.push_back(known.empty() ? kNan : quantile_of(known, level * sum));
  return summary;
}

PredictiveCheck predictive_check(const TracePosterior& posterior, std::span<const double> observed) {
  const std::vector<double> weights = posterior.weights();
  const auto share_below = [&](const auto& value_of, const auto& limit_of) {
    double share = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double value = value_of(i);
      const double limit = limit_of(i);
      share += weights[i] * (value < limit ? 1 : value == limit ? 0.5 : 0);
    }
    return share;
  };
  PredictiveCheck check;
  check.p_value = share_below([&](std::size_t i) { return posterior.log_likelihood_of_replica[i]; },
                              [&](std::size_t i) { return posterior.log_likelihood[i]; });
  if (posterior.replicas.size() != weights.size() * observed.size()) return check;
  for (std::size_t k = 0; k < observed.size(); ++k) {
    const auto replica = [&](std::size_t i) { return posterior.replicas[i * observed.size() + k]; };
    std::vector<std::pair<double, double>> sorted;
    for (std::size_t i = 0; i < weights.size(); ++i) sorted.emplace_back(replica(i), weights[i]);
    std::ranges::sort(sorted);
    check.values.push_back({observed[k], quantile_of(sorted, 0.05), quantile_of(sorted, 0.5),
                            quantile_of(sorted, 0.95),
                            share_below(replica, [&](std::size_t) { return observed[k]; })});
  }
  return check;
}

double split_r_hat(std::span<const double> values, std::span<const std::uint64_t> chains) {
  std::vector<std::span<const double>> halves;
  for (std::size_t begin = 0; begin < values.size();) {
    std::size_t end = begin;
    while (end < values.size() && chains[end] == chains[begin]) ++end;
    const std::size_t half = (end - begin) / 2;
    if (half < 2) return kNan;
    halves.push_back(values.subspan(begin, half));
    halves.push_back(values.subspan(end - half, half));
    begin = end;
  }
  if (halves.empty()) return kNan;
  std::vector<double> means;
  double within = 0;
  for (const std::span<const double> half : halves) {
    means.push_back(mean_of(half));
    within += sample_variance(half, means.back()) / static_cast<double>(halves.size());
  }
  if (!(within > 0)) return kNan;
  const auto length = static_cast<double>(halves.front().size());
  const double between = sample_variance(means, mean_of(means));
  return std::sqrt((length - 1) / length + between / within);
}

PosteriorDraws resampled(const TracePosterior& posterior, const std::vector<std::string>& names,
                         std::size_t count, std::uint64_t key) {
  std::vector<double> weights = posterior.weights();
  for (const std::string& name : names) {
    const std::vector<double>& values = posterior.values.at(name);
    for (std::size_t i = 0; i < weights.size(); ++i)
      if (std::isnan(values[i])) weights[i] = 0;
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  PosteriorDraws draws;
  const double step = sum / static_cast<double>(count);
  double next = step * unit_real(key);
  double passed = 0;
  for (std::size_t i = 0; i < weights.size() && draws.count() < count; ++i) {
    passed += weights[i];
    for (; next < passed && draws.count() < count; next += step) {
      for (const std::string& name : names) draws.values.push_back(posterior.values.at(name)[i]);
      draws.log_density.push_back(0);
    }
  }
  return draws;
}

}  // namespace wflow::trainer
