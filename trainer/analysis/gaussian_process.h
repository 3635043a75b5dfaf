// SPDX-License-Identifier: Apache-2.0
// An exact Gaussian process: a surrogate for few samples, with the error of its own predictions. Pure: no
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace wflow::trainer {

// Memory and time grow with the square and the cube of the samples.
inline constexpr std::size_t kMostGaussianSamples = 2000;

// The kernel is Matérn's with nu = 5/2 and a length for each input, plus noise; the mean is the samples'
// mean. Lengths, variance and noise maximise the marginal likelihood of the samples (Rasmussen and Williams
// 2006, Gaussian Processes for Machine Learning, 4.17 and 5.9), by Rprop with the derivatives in closed form.
class GaussianProcess {
 public:
  virtual ~GaussianProcess() = default;

  virtual std::vector<double> lengths() const = 0;  // of each input
  virtual double noise() const = 0;                 // standard deviation

  virtual std::vector<double> mean(std::span<const double> points) const = 0;
  // Functions drawn from the posterior, at the points: [draws][rows]. The prior of a draw is made of random
  // Fourier features and corrected at the samples (Wilson et al. 2020, ICML, Efficiently sampling functions
  // from Gaussian process posteriors).
  virtual std::vector<std::vector<double>> draws(std::span<const double> points, std::size_t count,
                                                 std::uint64_t seed) const = 0;
  // The prediction of each sample by a process without the samples of its fold, with the same lengths,
  // variance and noise. As many folds as samples: leave one out.
  virtual std::vector<double> left_out(std::size_t folds, std::uint64_t seed) const = 0;
  // The logarithm of the marginal likelihood of scaled outputs, and its derivatives by the logarithms of the
  // lengths, of the variance and of the noise's variance.
  virtual double likelihood(std::span<const double> logarithms, std::span<double> derivatives) const = 0;
  virtual std::vector<double> logarithms() const = 0;  // where it has its maximum
};

// `points`: [samples, inputs], each input scaled to about [0, 1]. `outputs`: one a sample, not all equal.
std::unique_ptr<GaussianProcess> fit_gaussian_process(std::vector<double> points,
                                                      std::span<const double> outputs);

}  // namespace wflow::trainer
