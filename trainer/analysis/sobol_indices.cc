// SPDX-License-Identifier: Apache-2.0
#include "trainer/analysis/sobol_indices.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace wflow::trainer {
namespace {

constexpr double kRounding = 1e-12;  // relative to the output: a smaller deviation is no variation

// The sums from which all indices follow, over points with a weight each.
class Sums {
 public:
  Sums(const SobolDesign& design, std::span<const double> outputs)
      : design_(design), outputs_(outputs), inputs_(design.inputs()) {}

  // first, total, then second order of each pair; empty if the output is constant at these points.
  std::vector<double> indices(std::span<const std::uint32_t> weights) const {
    const double mean = mean_of(weights);
    const double variance = variance_of(weights, mean);
    if (variance <= 0) return {};
    std::vector<double> first(inputs_), total(inputs_), second;
    for (std::size_t i = 0; i < inputs_; ++i) {
      double covariance = 0, squares = 0;
      for (std::size_t n = 0; n < weights.size(); ++n) {
        const double change = ab(i, n) - a(n);
        covariance += weights[n] * (b(n) - mean) * change;
        squares += weights[n] * change * change;
      }
      first[i] = covariance / static_cast<double>(weights.size()) / variance;
      total[i] = squares / static_cast<double>(2 * weights.size()) / variance;
    }
    for (std::size_t i = 0; i < inputs_; ++i)
      for (std::size_t j = i + 1; j < inputs_; ++j)
        second.push_back(closed(weights, mean, i, j) / variance - first[i] - first[j]);
    first.insert(first.end(), total.begin(), total.end());
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }

  double mean_of(std::span<const std::uint32_t> weights) const {
    double sum = 0;
    for (std::size_t n = 0; n < weights.size(); ++n) sum += weights[n] * (a(n) + b(n));
    return sum / static_cast<double>(2 * weights.size());
  }
  double variance_of(std::span<const std::uint32_t> weights, double mean) const {
    double sum = 0;
    for (std::size_t n = 0; n < weights.size(); ++n)
      sum += weights[n] * ((a(n) - mean) * (a(n) - mean) + (b(n) - mean) * (b(n) - mean));
    return sum / static_cast<double>(2 * weights.size());
  }

 private:
  // The variance that inputs i and j explain together.
  double closed(std::span<const std::uint32_t> weights, double mean, std::size_t i, std::size_t j) const {
    double sum = 0;
    for (std::size_t n = 0; n < weights.size(); ++n)
      sum += weights[n] * ((ba(i, n) - mean) * (ab(j, n) - mean) - (a(n) - mean) * (b(n) - mean));
    return sum / static_cast<double>(weights.size());
  }
  double a(std::size_t n) const { return outputs_[design_.first_a() + n]; }
  double b(std::size_t n) const { return outputs_[design_.first_b() + n]; }
  double ab(std::size_t i, std::size_t n) const { return outputs_[design_.first_ab(i) + n]; }
  double ba(std::size_t i, std::size_t n) const { return outputs_[design_.first_ba(i) + n]; }

  const SobolDesign& design_;
  std::span<const double> outputs_;
  std::size_t inputs_;
};

std::vector<std::uint32_t> drawn_weights(std::size_t points, std::uint64_t key) {
  std::vector<std::uint32_t> weights(points, 0);
  for (std::size_t n = 0; n < points; ++n) ++weights[hash64(key, n) % points];
  return weights;
}

// The standard deviation of each index over bootstrap samples.
std::vector<double> deviations(const Sums& sums, std::size_t count, std::size_t points, std::size_t resamples,
                               std::uint64_t seed) {
  std::vector<double> mean(count, 0), spread(count, 0);
  double used = 0;
  for (std::size_t r = 0; r < resamples; ++r) {
    const std::vector<double> found = sums.indices(drawn_weights(points, hash64(seed, r)));
    if (found.empty()) continue;
    ++used;
    for (std::size_t k = 0; k < count; ++k) {  // Welford (1962)
      const double step = found[k] - mean[k];
      mean[k] += step / used;
      spread[k] += step * (found[k] - mean[k]);
    }
  }
  for (double& value : spread) value = used > 1 ? std::sqrt(value / (used - 1)) : 0;
  return spread;
}

}  // namespace

SobolDesign::SobolDesign(std::size_t inputs, std::size_t points, std::uint64_t seed)
    : inputs_(inputs), points_(points), seed_(seed), sequence_(std::min(2 * inputs, Sobol::kMaxDimensions)) {
  WFLOW_CHECK(std::has_single_bit(points));
}

double SobolDesign::column(std::size_t point, std::size_t dimension) const {
  const std::uint64_t key = hash64(seed_, dimension);
  if (dimension >= Sobol::kMaxDimensions) return unit_real(hash64(key, point));
  const std::uint64_t bits = sequence_.bits(point, dimension) ^ (hash64(key, 0) >> (64 - Sobol::kBits));
  return std::ldexp(static_cast<double>(bits), -Sobol::kBits);
}

double SobolDesign::unit(std::size_t row, std::size_t input) const {
  const std::size_t set = row / points_;
  const bool of_ab = set >= 2 && set < 2 + inputs_;
  const bool own_of_b = set == 1 || set >= 2 + inputs_;
  const bool exchanged = set >= 2 && (set - 2) % inputs_ == input;
  // The first columns, which are the best distributed, alternate between A and B.
  const bool from_b = exchanged ? of_ab : own_of_b;
  return column(row % points_, 2 * input + (from_b ? 1 : 0));
}

SobolIndices sobol_indices(const SobolDesign& design, std::span<const double> outputs, std::size_t resamples,
                           std::uint64_t seed) {
  WFLOW_CHECK(outputs.size() == design.rows());
  const Sums sums(design, outputs);
  const std::vector<std::uint32_t> once(design.points(), 1);
  SobolIndices indices;
  indices.mean = sums.mean_of(once);
  indices.variance = sums.variance_of(once, indices.mean);
  if (std::sqrt(indices.variance) <= kRounding * std::abs(indices.mean)) indices.variance = 0;
  if (indices.variance == 0) return indices;
  const std::vector<double> values = sums.indices(once);
  const std::vector<double> errors = deviations(sums, values.size(), design.points(), resamples, seed);
  const std::size_t inputs = design.inputs();
  for (std::size_t i = 0; i < inputs; ++i) indices.first.push_back({values[i], errors[i]});
  for (std::size_t i = 0; i < inputs; ++i) indices.total.push_back({values[inputs + i], errors[inputs + i]});
  for (std::size_t i = 0; i < inputs; ++i)
    for (std::size_t j = i + 1; j < inputs; ++j) indices.pairs.emplace_back(i, j);
  for (std::size_t k = 2 * inputs; k < values.size(); ++k) indices.second.push_back({values[k], errors[k]});
  return indices;
}

void add_spread(std::vector<Estimate>& estimates, std::span<const std::vector<Estimate>> others) {
  const auto count = static_cast<double>(others.size());
  if (others.size() < 2) return;
  for (std::size_t k = 0; k < estimates.size(); ++k) {
    double mean = 0, spread = 0;
    for (const std::vector<Estimate>& other : others) mean += other[k].value / count;
    for (const std::vector<Estimate>& other : others)
      spread += (other[k].value - mean) * (other[k].value - mean) / (count - 1);
    estimates[k].deviation = std::hypot(estimates[k].deviation, std::sqrt(spread));
  }
}

void add_spread(SobolIndices& indices, std::span<const SobolIndices> others) {
  for (const auto list : {&SobolIndices::first, &SobolIndices::total, &SobolIndices::second}) {
    std::vector<std::vector<Estimate>> found;
    for (const SobolIndices& other : others)
      if (other.variance > 0) found.push_back(other.*list);
    add_spread(indices.*list, found);
  }
}

std::vector<std::vector<double>> main_effects(const SobolDesign& design, std::span<const double> outputs,
                                              std::size_t bins) {
  std::vector<std::vector<double>> means(design.inputs(), std::vector<double>(bins, 0));
  for (std::size_t i = 0; i < design.inputs(); ++i) {
    std::vector<double> counts(bins, 0);
    for (std::size_t row = 0; row < design.rows(); ++row) {
      const auto bin = static_cast<std::size_t>(design.unit(row, i) * static_cast<double>(bins));
      means[i][bin] += outputs[row];
      ++counts[bin];
    }
    for (std::size_t k = 0; k < bins; ++k) means[i][k] /= std::max(1.0, counts[k]);
  }
  return means;
}

}  // namespace wflow::trainer
