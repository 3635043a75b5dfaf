// SPDX-License-Identifier: Apache-2.0
// A Gaussian process over the unit cube: constant mean, one length scale a dimension (Rasmussen and Williams
// 2006, Gaussian Processes for Machine Learning, chapters 2 and 5; Jones, Schonlau and Welch 1998, J. Global
// Optimization 13:455, for the estimates of mean and variance and the error of the mean).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "propose/config.h"
#include "propose/dense.h"

namespace wflow::propose {

using Point = std::vector<double>;

struct Prediction {
  double mean = 0;
  double deviation = 0;
};

struct Gradients {
  std::vector<double> mean, deviation;
};

// The points above which the length scales are found from this many of them: a fit takes O(n^3) some hundred
// times.
inline constexpr std::size_t kFittedPoints = 400;
inline constexpr std::size_t kMostPoints = 2000;
// Added to the diagonal of the correlations, for their condition.
inline constexpr double kNugget = 1e-8;

// The logarithm of the likelihood of the values, up to a constant, at the most likely mean and variance:
// -(n log(variance) + log |R|) / 2. `parameters`: the logarithm of each length scale and, if it has one more,
// of the noise's variance as a share of the variance of the process. Nothing if R is not positive definite.
// `gradient` may be empty.
std::optional<double> log_likelihood(const std::vector<Point>& points, std::span<const double> values,
                                     Kernel kernel, std::span<const double> parameters,
                                     std::span<double> gradient);

class GaussianProcess {
 public:
  // Finds the parameters of the largest posterior density from several starts, which `seed` decides. Needs
  // two points whose values differ.
  GaussianProcess(std::vector<Point> points, std::vector<double> values, Kernel kernel, bool noisy,
                  std::uint64_t seed);
  // With these length scales.
  GaussianProcess(std::vector<Point> points, std::vector<double> values, Kernel kernel,
                  std::vector<double> lengths, double noise = kNugget);

  Prediction at(std::span<const double> x, Gradients* gradients = nullptr) const;
  // Takes the mean at x for a value found there (Ginsbourger, Le Riche and Carraro 2010, "Kriging is
  // well-suited to parallelize optimization"): the mean stays, the deviation falls. False if x is too close
  // to a known point to make a difference.
  bool believe(std::span<const double> x);

  const std::vector<double>& lengths() const { return lengths_; }
  double noise() const { return noise_; }  // its variance, as a share of that of the process
  double deviation() const;                // of the process

 private:
  void condition();
  void solve_for_ones();
  std::vector<double> correlations(std::span<const double> x) const;

  std::vector<Point> points_;
  std::vector<double> values_;
  Kernel kernel_;
  std::vector<double> lengths_;
  double noise_ = kNugget;
  Triangle factor_;              // of the correlations of the points
  double mean_ = 0;              // of the process
  double variance_ = 0;          // of the process
  std::vector<double> weights_;  // R^-1 (values - mean)
  std::vector<double> of_ones_;  // R^-1 1
  double sum_of_ones_ = 0;       // 1^T R^-1 1
};

}  // namespace wflow::propose
