// SPDX-License-Identifier: Apache-2.0
// The joint density of several numbers as a sum of normal distributions, with the values of a network as its
// parameters: mixture density networks (Bishop 1994, "Mixture Density Networks", sections 3 and 4), with
// correlations as in Papamakarios and Murray 2016 (arXiv:1605.06376, section 2.3).
//
//   q(y) = sum over k of w_k N(y; mu_k, (L_k L_k^T)^-1),   w = softmax(a),   mu_k = m + d_k - sum_j w_j d_j
//
// L_k is lower triangular; the logarithms of its diagonal are values of the network. m is the mean of q, so
// that the first values of the network are its point prediction, as with every other loss.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace wflow::trainer {

class MixtureDensity {
 public:
  // Values of a network for `components` distributions of `numbers` numbers:
  //   m [numbers], a [components], d [components, numbers], then of each L_k the logarithms of the diagonal
  //   [components, numbers] and what is below it, row by row [components, numbers * (numbers - 1) / 2].
  static std::size_t value_count(std::size_t components, std::size_t numbers);
  static std::size_t components_of(std::size_t values, std::size_t numbers);

  MixtureDensity(std::span<const double> values, std::size_t components, std::size_t numbers);

  std::size_t components() const { return weights_.size(); }
  std::size_t numbers() const { return numbers_; }
  double weight(std::size_t k) const { return weights_[k]; }
  std::span<const double> mean_of(std::size_t k) const { return row(means_, k); }
  // L_k at (i, j), j <= i.
  double factor(std::size_t k, std::size_t i, std::size_t j) const {
    return factors_[(k * numbers_ + i) * numbers_ + j];
  }

  // The natural logarithm of the density.
  double log_density(std::span<const double> y) const;
  // -log_density(y), and scale times its derivative by each value of the network.
  double loss(std::span<const float> y, double scale, std::span<float> gradient) const;

  std::vector<double> mean() const;
  // The standard deviation of each number.
  std::vector<double> deviations() const;
  // The probability of a value of number `i` below `y`, whatever the others are.
  double below(std::size_t i, double y) const;
  // A draw: `u` in [0, 1) chooses the component, `normal` are independent standard normal numbers.
  std::vector<double> draw(double u, std::span<const double> normal) const;

 private:
  std::span<const double> row(const std::vector<double>& all, std::size_t k) const {
    return std::span(all).subspan(k * numbers_, numbers_);
  }
  // The logarithm of w_k N_k(y); `v` receives L_k^T (y - mu_k).
  double log_component(std::size_t k, std::span<const double> y, std::span<double> v) const;
  std::vector<double> solved(std::size_t k, std::span<const double> v) const;  // L_k^-T v
  // The variance of number `i` within component k.
  double variance(std::size_t k, std::size_t i) const;

  std::size_t numbers_ = 0;
  std::vector<double> weights_;
  std::vector<double> log_weights_;
  std::vector<double> offsets_;  // d
  std::vector<double> means_;
  std::vector<double> factors_;  // [components, numbers, numbers]
};

}  // namespace wflow::trainer
