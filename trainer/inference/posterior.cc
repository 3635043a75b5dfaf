// SPDX-License-Identifier: Apache-2.0
#include "trainer/inference/posterior.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace wflow::trainer {
namespace {

constexpr double kLeastInside = 1e-3;
constexpr std::uint64_t kTriesBeforeJudgement = 20000;

bool is_inside(std::span<const double> y, const PriorBox& box) {
  for (std::size_t i = 0; i < box.size(); ++i)
    if (!(y[i] >= box[i].first && y[i] <= box[i].second)) return false;
  return true;
}

std::vector<double> column(const PosteriorDraws& draws, std::size_t parameters, std::size_t i) {
  std::vector<double> values;
  for (std::size_t n = 0; n < draws.count(); ++n) values.push_back(draws.values[n * parameters + i]);
  return values;
}

// The value below which a share of sorted values lies, interpolated.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

PosteriorDraws draw_posterior(const MixtureDensity& density, const PriorBox& box, std::size_t count,
                              std::uint64_t key) {
  PosteriorDraws draws;
  std::vector<double> normal(density.numbers());
  std::uint64_t tries = 0;
  while (draws.count() < count) {
    const std::uint64_t own = hash64(key, tries++);
    for (std::size_t i = 0; i < normal.size(); ++i) normal[i] = normal_real(own, i);
    const std::vector<double> y = density.draw(unit_real(hash64(own, ~std::uint64_t{0})), normal);
    if (is_inside(y, box)) {
      draws.values.insert(draws.values.end(), y.begin(), y.end());
      draws.log_density.push_back(density.log_density(y));
    }
    if (tries >= kTriesBeforeJudgement &&
        static_cast<double>(draws.count()) < kLeastInside * static_cast<double>(tries))
      throw Error(ExitCode::data,
                  fmt::format("{} of {} draws lie outside of the range of the training samples' parameters: "
                              "the observation is not like the training samples, or the network needs more "
                              "training",
                              tries - draws.count(), tries));
  }
  const double inside = static_cast<double>(draws.count()) / static_cast<double>(tries);
  draws.outside = 1 - inside;
  for (double& l : draws.log_density) l -= std::log(inside);
  return draws;
}

namespace {

// The range of the draws and a fifth of it on each side, within the box: it holds the region of the draws.
PriorBox around(const PosteriorDraws& draws, const PriorBox& box) {
  constexpr double kMargin = 0.2;
  PriorBox found;
  for (std::size_t i = 0; i < box.size(); ++i) {
    const std::vector<double> values = column(draws, box.size(), i);
    const auto [low, high] = std::ranges::minmax(values);
    const double margin = kMargin * (high - low);
    found.emplace_back(std::max(box[i].first, low - margin), std::min(box[i].second, high + margin));
  }
  return found;
}

double volume_of(const PriorBox& box) {
  double volume = 1;
  for (const auto& [low, high] : box) volume *= high - low;
  return volume;
}

}  // namespace

Proposals propose(const MixtureDensity& density, const PosteriorDraws& draws, const PriorBox& box,
                  std::size_t count, std::uint64_t key) {
  constexpr double kLeftOut = 1e-3;
  constexpr std::uint64_t kMostTries = 10000;  // for each point
  if (box.empty())
    throw Error(ExitCode::data,
                "proposals need the range of the parameters, which the training's data set does not have");
  std::vector<double> sorted = draws.log_density;
  std::ranges::sort(sorted);
  // That of the draws is the density within the box.
  const double least = quantile(sorted, kLeftOut) + std::log(1 - draws.outside);
  const PriorBox region = around(draws, box);
  Proposals proposals;
  std::vector<double> y(box.size());
  std::uint64_t tries = 0;
  std::size_t found = 0;
  while (found < count) {
    if (tries >= kMostTries * (found + 1))
      throw Error(ExitCode::data,
                  fmt::format("only {} of {} points around the posterior have its density: the posterior is "
                              "too thin to propose samples from; take draws of it instead (--samples)",
                              found, tries));
    const std::uint64_t own = hash64(key, tries++);
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = region[i].first + unit_real(hash64(own, i)) * (region[i].second - region[i].first);
    if (density.log_density(y) < least) continue;
    proposals.values.insert(proposals.values.end(), y.begin(), y.end());
    ++found;
  }
  proposals.share =
      static_cast<double>(found) / static_cast<double>(tries) * volume_of(region) / volume_of(box);
  return proposals;
}

std::vector<ParameterSummary> summaries(const PosteriorDraws& draws, std::size_t parameters) {
  std::vector<ParameterSummary> all;
  for (std::size_t i = 0; i < parameters; ++i) {
    std::vector<double> values = column(draws, parameters, i);
    ParameterSummary& summary = all.emplace_back();
    summary.mean = mean_of(values);
    double squares = 0;
    for (const double v : values) squares += (v - summary.mean) * (v - summary.mean);
    summary.deviation = std::sqrt(squares / static_cast<double>(values.size()));
    std::ranges::sort(values);
    for (const double share : kPosteriorQuantiles) summary.quantiles.push_back(quantile(values, share));
  }
  return all;
}

std::vector<double> correlations(const PosteriorDraws& draws, std::span<const ParameterSummary> all) {
  const std::size_t parameters = all.size();
  std::vector<double> matrix(parameters * parameters, 0.0);
  for (std::size_t i = 0; i < parameters; ++i) {
    for (std::size_t j = 0; j < parameters; ++j) {
      double sum = 0;
      for (std::size_t n = 0; n < draws.count(); ++n)
        sum += (draws.values[n * parameters + i] - all[i].mean) *
               (draws.values[n * parameters + j] - all[j].mean);
      const double scale = all[i].deviation * all[j].deviation * static_cast<double>(draws.count());
      matrix[i * parameters + j] = scale > 0 ? sum / scale : i == j ? 1 : 0;
    }
  }
  return matrix;
}

Calibration::Calibration(std::size_t parameters) : shares_(parameters + 1), deviations_(parameters, 0.0) {}

void Calibration::add(const PosteriorDraws& draws, std::span<const double> truth, double log_density) {
  ++samples_;
  const auto count = static_cast<double>(draws.count());
  const std::size_t parameters = truth.size();
  const std::vector<ParameterSummary> all = summaries(draws, parameters);
  for (std::size_t i = 0; i < parameters; ++i) {
    double below = 0;
    double equal = 0;
    for (std::size_t n = 0; n < draws.count(); ++n) {
      const double value = draws.values[n * parameters + i];
      below += value < truth[i] ? 1 : 0;
      equal += value == truth[i] ? 1 : 0;
    }
    // Draws of whole numbers may equal the truth: an arbitrary part of these is below, or the shares are not
    // uniform.
    shares_[i].push_back((below + equal * unit_real(hash64(samples_, i))) / count);
    deviations_[i] += all[i].deviation;
  }
  const auto denser = std::ranges::count_if(draws.log_density, [&](double l) { return l > log_density; });
  shares_.back().push_back(static_cast<double>(denser) / count);
}

double Calibration::mean_deviation(std::size_t i) const {
  return samples_ == 0 ? 0 : deviations_[i] / static_cast<double>(samples_);
}

Calibration::Row Calibration::row_of(const std::vector<double>& shares, bool joint) {
  Row row;
  row.ranks.assign(kBins, 0);
  const auto samples = static_cast<double>(shares.size());
  if (shares.empty()) return row;
  for (const double share : shares) {
    ++row.ranks[std::min(kBins - 1, static_cast<std::size_t>(share * kBins))];
    const double place = joint ? share : 2 * std::abs(share - 0.5);
    row.within_68 += place <= 0.68 ? 1 / samples : 0;
    row.within_95 += place <= 0.95 ? 1 / samples : 0;
  }
  // At least five samples are expected in a bin of the test.
  std::size_t bins = kBins;
  while (bins > 2 && samples < 5.0 * static_cast<double>(bins)) bins /= 2;
  std::vector<double> counts(bins, 0.0);
  for (const double share : shares)
    ++counts[std::min(bins - 1, static_cast<std::size_t>(share * static_cast<double>(bins)))];
  const double expected = samples / static_cast<double>(bins);
  double value = 0;
  for (const double n : counts) value += (n - expected) * (n - expected) / expected;
  row.p_value = chi_square_tail(value, static_cast<double>(bins - 1));
  return row;
}

// The regularised incomplete gamma function Q(freedom / 2, value / 2), by its series or its continued
// fraction (Abramowitz and Stegun, 6.5.29 and 6.5.31).
double chi_square_tail(double value, double freedom) {
  const double a = freedom / 2;
  const double x = value / 2;
  if (x <= 0) return 1;
  constexpr int kMostTerms = 500;
  constexpr double kSmall = 1e-15;
  const double front = std::exp(-x + a * std::log(x) - std::lgamma(a));
  if (x < a + 1) {
    double term = 1 / a;
    double sum = term;
    for (int n = 1; n < kMostTerms && std::abs(term) > kSmall * std::abs(sum); ++n) {
      term *= x / (a + n);
      sum += term;
    }
    return 1 - sum * front;
  }
  // Lentz's method.
  constexpr double kTiny = 1e-300;
  double b = x + 1 - a;
  double c = 1 / kTiny;
  double d = 1 / b;
  double h = d;
  for (int n = 1; n < kMostTerms; ++n) {
    const double an = -n * (n - a);
    b += 2;
    d = an * d + b;
    d = 1 / (std::abs(d) < kTiny ? kTiny : d);
    c = b + an / c;
    c = std::abs(c) < kTiny ? kTiny : c;
    const double change = d * c;
    h *= change;
    if (std::abs(change - 1) < kSmall) break;
  }
  return front * h;
}

}  // namespace wflow::trainer
