// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/mixture_density.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/random.h"

namespace wflow::trainer {
namespace {

// exp() of it, and of its negative, stays finite through all products.
constexpr double kMostLogarithm = 80;

double log_of_sum(std::span<const double> logarithms) {
  const double most = *std::ranges::max_element(logarithms);
  if (!std::isfinite(most)) return most;
  double sum = 0;
  for (const double l : logarithms) sum += std::exp(l - most);
  return most + std::log(sum);
}

}  // namespace

std::size_t MixtureDensity::value_count(std::size_t components, std::size_t numbers) {
  return numbers + components * (1 + 2 * numbers + numbers * (numbers - 1) / 2);
}

std::size_t MixtureDensity::components_of(std::size_t values, std::size_t numbers) {
  return (values - numbers) / (value_count(1, numbers) - numbers);
}

MixtureDensity::MixtureDensity(std::span<const double> values, std::size_t components, std::size_t numbers)
    : numbers_(numbers) {
  WFLOW_CHECK(values.size() == value_count(components, numbers));
  const std::span<const double> m = values.first(numbers);
  const std::span<const double> a = values.subspan(numbers, components);
  const std::span<const double> d = values.subspan(numbers + components, components * numbers);
  const std::span<const double> diagonals =
      values.subspan(numbers + components + components * numbers, components * numbers);
  const std::size_t below = numbers * (numbers - 1) / 2;
  const std::span<const double> others = values.last(components * below);

  log_weights_.assign(a.begin(), a.end());
  const double all = log_of_sum(log_weights_);
  for (double& l : log_weights_) l -= all;
  for (const double l : log_weights_) weights_.push_back(std::exp(l));
  offsets_.assign(d.begin(), d.end());
  means_.resize(components * numbers);
  for (std::size_t i = 0; i < numbers; ++i) {
    double centre = 0;
    for (std::size_t k = 0; k < components; ++k) centre += weights_[k] * offsets_[k * numbers + i];
    for (std::size_t k = 0; k < components; ++k)
      means_[k * numbers + i] = m[i] + offsets_[k * numbers + i] - centre;
  }
  factors_.assign(components * numbers * numbers, 0.0);
  for (std::size_t k = 0; k < components; ++k) {
    std::size_t next = k * below;
    for (std::size_t i = 0; i < numbers; ++i) {
      double* line = &factors_[(k * numbers + i) * numbers];
      for (std::size_t j = 0; j < i; ++j) line[j] = others[next++];
      line[i] = std::exp(std::clamp(diagonals[k * numbers + i], -kMostLogarithm, kMostLogarithm));
    }
  }
}

// Element (i, i) of (L L^T)^-1 is |L^-1 e_i|^2.
double MixtureDensity::variance(std::size_t k, std::size_t i) const {
  std::vector<double> x(numbers_, 0.0);
  double sum = 0;
  for (std::size_t row = i; row < numbers_; ++row) {
    x[row] = row == i ? 1 : 0;
    for (std::size_t j = i; j < row; ++j) x[row] -= factor(k, row, j) * x[j];
    x[row] /= factor(k, row, row);
    sum += x[row] * x[row];
  }
  return sum;
}

std::vector<double> MixtureDensity::solved(std::size_t k, std::span<const double> v) const {
  std::vector<double> x(v.begin(), v.end());
  for (std::size_t i = numbers_; i-- > 0;) {
    for (std::size_t j = i + 1; j < numbers_; ++j) x[i] -= factor(k, j, i) * x[j];
    x[i] /= factor(k, i, i);
  }
  return x;
}

double MixtureDensity::log_component(std::size_t k, std::span<const double> y, std::span<double> v) const {
  const std::span<const double> mu = mean_of(k);
  double sum = log_weights_[k] - 0.5 * static_cast<double>(numbers_) * std::log(2 * std::numbers::pi);
  std::ranges::fill(v, 0.0);
  for (std::size_t i = 0; i < numbers_; ++i)
    for (std::size_t j = 0; j <= i; ++j) v[j] += factor(k, i, j) * (y[i] - mu[i]);
  for (std::size_t i = 0; i < numbers_; ++i) sum += std::log(factor(k, i, i)) - 0.5 * v[i] * v[i];
  return sum;
}

double MixtureDensity::log_density(std::span<const double> y) const {
  std::vector<double> logarithms(components());
  std::vector<double> v(numbers_);
  for (std::size_t k = 0; k < components(); ++k) logarithms[k] = log_component(k, y, v);
  return log_of_sum(logarithms);
}

double MixtureDensity::loss(std::span<const float> truths, double scale, std::span<float> gradient) const {
  const std::size_t count = components();
  const std::vector<double> y(truths.begin(), truths.end());
  std::vector<double> logarithms(count);
  std::vector<double> v(count * numbers_);
  for (std::size_t k = 0; k < count; ++k)
    logarithms[k] = log_component(k, y, std::span(v).subspan(k * numbers_, numbers_));
  const double log_density = log_of_sum(logarithms);

  // By the means of the components, and by m, which moves all of them.
  std::vector<double> by_means(count * numbers_, 0.0);
  std::vector<double> by_all(numbers_, 0.0);
  std::vector<double> shares(count);
  for (std::size_t k = 0; k < count; ++k) {
    shares[k] = std::isfinite(log_density) ? std::exp(logarithms[k] - log_density) : weights_[k];
    for (std::size_t i = 0; i < numbers_; ++i) {
      double slope = 0;
      for (std::size_t j = 0; j <= i; ++j) slope -= factor(k, i, j) * v[k * numbers_ + j];
      by_means[k * numbers_ + i] = shares[k] * slope;
      by_all[i] += shares[k] * slope;
    }
  }
  std::vector<double> along(count, 0.0);  // d_k in the direction of by_all
  double mean_along = 0;
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t i = 0; i < numbers_; ++i) along[k] += by_all[i] * offsets_[k * numbers_ + i];
    mean_along += weights_[k] * along[k];
  }
  auto out = gradient.begin();
  const auto put = [&](double slope) { *out++ = static_cast<float>(scale * slope); };
  for (const double slope : by_all) put(slope);
  for (std::size_t k = 0; k < count; ++k)
    put(weights_[k] - shares[k] - weights_[k] * (along[k] - mean_along));
  for (std::size_t k = 0; k < count; ++k)
    for (std::size_t i = 0; i < numbers_; ++i) put(by_means[k * numbers_ + i] - weights_[k] * by_all[i]);
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t i = 0; i < numbers_; ++i) {
      const double distance = factor(k, i, i) * (y[i] - mean_of(k)[i]);
      put(shares[k] * (v[k * numbers_ + i] * distance - 1));
    }
  }
  for (std::size_t k = 0; k < count; ++k)
    for (std::size_t i = 0; i < numbers_; ++i)
      for (std::size_t j = 0; j < i; ++j) put(shares[k] * v[k * numbers_ + j] * (y[i] - mean_of(k)[i]));
  return -log_density;
}

std::vector<double> MixtureDensity::mean() const {
  std::vector<double> mean(numbers_, 0.0);
  for (std::size_t k = 0; k < components(); ++k)
    for (std::size_t i = 0; i < numbers_; ++i) mean[i] += weights_[k] * mean_of(k)[i];
  return mean;
}

std::vector<double> MixtureDensity::deviations() const {
  const std::vector<double> centre = mean();
  std::vector<double> deviations(numbers_, 0.0);
  for (std::size_t i = 0; i < numbers_; ++i) {
    for (std::size_t k = 0; k < components(); ++k) {
      const double distance = mean_of(k)[i] - centre[i];
      deviations[i] += weights_[k] * (variance(k, i) + distance * distance);
    }
    deviations[i] = std::sqrt(deviations[i]);
  }
  return deviations;
}

double MixtureDensity::below(std::size_t i, double y) const {
  double share = 0;
  for (std::size_t k = 0; k < components(); ++k)
    share += weights_[k] * normal_below((y - mean_of(k)[i]) / std::sqrt(variance(k, i)));
  return share;
}

std::vector<double> MixtureDensity::draw(double u, std::span<const double> normal) const {
  std::size_t k = 0;
  while (k + 1 < components() && u >= weights_[k]) u -= weights_[k++];
  std::vector<double> y = solved(k, normal);
  for (std::size_t i = 0; i < numbers_; ++i) y[i] += mean_of(k)[i];
  return y;
}

}  // namespace wflow::trainer
