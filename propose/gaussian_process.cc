// SPDX-License-Identifier: Apache-2.0
#include "propose/gaussian_process.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "propose/dense.h"

namespace wflow::propose {

namespace {

constexpr double kShortest = 0.01, kLongest = 20;        // length scales in the unit cube
constexpr double kUsualLength = 0.5, kLengthSpread = 1;  // of the prior; the spread in logarithms
constexpr double kMostNoise = 1;
constexpr double kMostNugget = 1e-4;
constexpr int kFitSteps = 60;
constexpr int kRandomStarts = 3;
constexpr std::array<double, 3> kStarts = {0.2, 0.6, 2};

double scaled_square(std::span<const double> a, std::span<const double> b, std::span<const double> lengths) {
  double sum = 0;
  for (std::size_t k = 0; k < lengths.size(); ++k) {
    const double difference = (a[k] - b[k]) / lengths[k];
    sum += difference * difference;
  }
  return sum;
}

// The correlation at a squared distance, and its slope: the derivative by a coordinate is
// -slope * difference / length^2, that by the logarithm of a length is slope * difference^2 / length^2.
struct Correlation {
  double value = 0, slope = 0;
};

Correlation correlation(Kernel kernel, double square) {
  if (kernel == Kernel::squared_exponential) {
    const double value = std::exp(-square / 2);
    return {value, value};
  }
  const double r = std::sqrt(5 * square);  // Matern 5/2: equation 4.17 of Rasmussen and Williams
  const double decay = std::exp(-r);
  return {(1 + r + r * r / 3) * decay, 5.0 / 3 * (1 + r) * decay};
}

Triangle correlations_of(const std::vector<Point>& points, Kernel kernel, std::span<const double> lengths,
                         double noise) {
  Triangle matrix(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      matrix.row(i)[j] = correlation(kernel, scaled_square(points[i], points[j], lengths)).value;
    matrix.row(i)[i] = 1 + noise;
  }
  return matrix;
}

std::vector<double> exponentials(std::span<const double> logarithms) {
  std::vector<double> values;
  for (const double logarithm : logarithms) values.push_back(std::exp(logarithm));
  return values;
}

// Adds the logarithm of the prior of the length scales, which is log-normal (as in Hvarfner, Hellsten and
// Nardi 2024, "Vanilla Bayesian optimization performs great in high dimensions"). Few points often make a
// length most likely that is far too long, and the search then stays where it is.
double with_prior(double likelihood, std::span<const double> logarithms, std::span<double> gradient) {
  for (std::size_t k = 0; k < logarithms.size(); ++k) {
    const double z = (logarithms[k] - std::log(kUsualLength)) / kLengthSpread;
    likelihood -= z * z / 2;
    if (!gradient.empty()) gradient[k] -= z / kLengthSpread;
  }
  return likelihood;
}

// The parameters of a fit with values of mean 0 and deviation 1.
std::vector<double> fit(const std::vector<Point>& points, std::span<const double> values, Kernel kernel,
                        bool noisy, std::uint64_t seed) {
  const std::size_t dimensions = points.front().size();
  Box box{std::vector<double>(dimensions, std::log(kShortest)),
          std::vector<double>(dimensions, std::log(kLongest))};
  if (noisy) {
    box.low.push_back(std::log(kNugget));
    box.high.push_back(std::log(kMostNoise));
  }
  const Function loss = [&](std::span<const double> parameters, std::span<double> gradient) {
    const auto likelihood = log_likelihood(points, values, kernel, parameters, gradient);
    if (!likelihood) return std::numeric_limits<double>::infinity();
    const double likely = with_prior(*likelihood, parameters.first(dimensions), gradient);
    for (double& slope : gradient) slope = -slope;
    return -likely;
  };
  Minimum best{{}, std::numeric_limits<double>::infinity()};
  for (std::size_t i = 0; i < kStarts.size() + kRandomStarts; ++i) {
    std::vector<double> start;
    for (std::size_t k = 0; k < box.low.size(); ++k) {
      const double random = unit_real(hash64(seed + i, k));
      start.push_back(i < kStarts.size() ? std::log(kStarts[i]) : std::log(kStarts[0]) + 3 * random);
    }
    if (noisy) start.back() = std::log(1e-4);
    Minimum found = minimize(loss, std::move(start), box, kFitSteps);
    if (best.point.empty() || found.value < best.value) best = std::move(found);
  }
  return best.point;
}

}  // namespace

std::optional<double> log_likelihood(const std::vector<Point>& points, std::span<const double> values,
                                     Kernel kernel, std::span<const double> parameters,
                                     std::span<double> gradient) {
  const std::size_t count = points.size();
  const std::size_t dimensions = points.front().size();
  const bool noisy = parameters.size() > dimensions;
  const std::vector<double> lengths = exponentials(parameters.first(dimensions));
  const double noise = noisy ? std::exp(parameters.back()) : kNugget;
  Triangle factor = correlations_of(points, kernel, lengths, noise);
  if (!factorise(factor)) return std::nullopt;
  const std::vector<double> of_ones = solve(factor, std::vector<double>(count, 1));
  const double mean = dot(of_ones, values) / std::accumulate(of_ones.begin(), of_ones.end(), 0.0);
  std::vector<double> rest(values.begin(), values.end());
  for (double& value : rest) value -= mean;
  const std::vector<double> weights = solve(factor, rest);
  const double variance = dot(rest, weights) / static_cast<double>(count);
  const double result = -(static_cast<double>(count) * std::log(variance) + log_determinant(factor)) / 2;
  if (gradient.empty()) return result;
  // (weights^T dR weights / variance - trace(R^-1 dR)) / 2; mean and variance are at their optimum.
  const Triangle inverted = inverse(factor);
  std::fill(gradient.begin(), gradient.end(), 0);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const double slope = correlation(kernel, scaled_square(points[i], points[j], lengths)).slope;
      const double both = (weights[i] * weights[j] / variance - inverted.row(i)[j]) * slope;
      for (std::size_t k = 0; k < dimensions; ++k) {
        const double difference = (points[i][k] - points[j][k]) / lengths[k];
        gradient[k] += both * difference * difference;
      }
    }
    if (noisy) gradient[dimensions] += noise / 2 * (weights[i] * weights[i] / variance - inverted.row(i)[i]);
  }
  return result;
}

GaussianProcess::GaussianProcess(std::vector<Point> points, std::vector<double> values, Kernel kernel,
                                 bool noisy, std::uint64_t seed)
    : points_(std::move(points)), values_(std::move(values)), kernel_(kernel) {
  std::vector<Point> some = points_;
  std::vector<double> their = values_;
  if (points_.size() > kFittedPoints) {
    const Permutation order(points_.size(), seed);
    some.resize(kFittedPoints);
    their.resize(kFittedPoints);
    for (std::size_t i = 0; i < kFittedPoints; ++i) {
      some[i] = points_[order(i)];
      their[i] = values_[order(i)];
    }
  }
  lengths_ = exponentials(fit(some, their, kernel, noisy, seed));
  if (noisy) {
    noise_ = lengths_.back();
    lengths_.pop_back();
  }
  condition();
}

GaussianProcess::GaussianProcess(std::vector<Point> points, std::vector<double> values, Kernel kernel,
                                 std::vector<double> lengths, double noise)
    : points_(std::move(points)),
      values_(std::move(values)),
      kernel_(kernel),
      lengths_(std::move(lengths)),
      noise_(noise) {
  condition();
}

void GaussianProcess::condition() {
  for (;; noise_ *= 10) {
    factor_ = correlations_of(points_, kernel_, lengths_, noise_);
    if (factorise(factor_)) break;
    if (noise_ >= kMostNugget)
      throw Error(ExitCode::data,
                  "the known points have too many equal ones for a Gaussian process; set 'noise: true'");
  }
  solve_for_ones();
  mean_ = dot(of_ones_, values_) / sum_of_ones_;
  std::vector<double> rest = values_;
  for (double& value : rest) value -= mean_;
  weights_ = solve(factor_, rest);
  variance_ = dot(rest, weights_) / static_cast<double>(points_.size());
}

void GaussianProcess::solve_for_ones() {
  of_ones_ = solve(factor_, std::vector<double>(points_.size(), 1));
  sum_of_ones_ = std::accumulate(of_ones_.begin(), of_ones_.end(), 0.0);
}

double GaussianProcess::deviation() const {
  return std::sqrt(variance_);
}

std::vector<double> GaussianProcess::correlations(std::span<const double> x) const {
  std::vector<double> result;
  result.reserve(points_.size() + 1);
  for (const Point& point : points_)
    result.push_back(correlation(kernel_, scaled_square(x, point, lengths_)).value);
  return result;
}

Prediction GaussianProcess::at(std::span<const double> x, Gradients* gradients) const {
  const std::vector<double> r = correlations(x);
  std::vector<double> half = r;
  solve_lower(factor_, half);
  const double unknown = 1 - dot(of_ones_, r);
  const double share = std::max(1 - dot(half, half) + unknown * unknown / sum_of_ones_, 0.0);
  const Prediction result{mean_ + dot(weights_, r), std::sqrt(variance_ * share)};
  if (gradients == nullptr) return result;
  solve_upper(factor_, half);  // now R^-1 r
  gradients->mean.assign(x.size(), 0);
  gradients->deviation.assign(x.size(), 0);
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const double slope = correlation(kernel_, scaled_square(x, points_[i], lengths_)).slope;
    const double of_share = -2 * half[i] - 2 * unknown * of_ones_[i] / sum_of_ones_;
    for (std::size_t k = 0; k < x.size(); ++k) {
      const double change = -slope * (x[k] - points_[i][k]) / (lengths_[k] * lengths_[k]);
      gradients->mean[k] += weights_[i] * change;
      gradients->deviation[k] += of_share * change;
    }
  }
  for (double& slope : gradients->deviation)
    slope *= result.deviation > 0 ? variance_ / (2 * result.deviation) : 0;
  return result;
}

bool GaussianProcess::believe(std::span<const double> x) {
  const double value = at(x).mean;
  std::vector<double> row = correlations(x);
  row.push_back(1 + noise_);
  if (!extend(factor_, std::move(row))) return false;
  points_.emplace_back(x.begin(), x.end());
  values_.push_back(value);
  solve_for_ones();
  weights_.push_back(0);  // the value is the mean's
  return true;
}

}  // namespace wflow::propose
