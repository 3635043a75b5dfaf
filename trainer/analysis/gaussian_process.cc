// SPDX-License-Identifier: Apache-2.0
#include "trainer/analysis/surrogate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace wflow::trainer {
namespace {

constexpr int kSteps = 100;         // of Rprop
constexpr double kFirstStep = 0.2;  // in logarithms
constexpr double kMostStep = 1;
constexpr double kLeastStep = 1e-4;       // the fit ends where all steps are smaller
constexpr std::int64_t kFeatures = 1024;  // of a draw's prior
constexpr std::size_t kRows = 4096;       // points in one product of matrices

// Bounds of the logarithms: lengths in units of the range, variances in units of the outputs' variance.
constexpr std::array<double, 2> kLengths = {-4, 5};
constexpr std::array<double, 2> kVariances = {-6, 9};
constexpr std::array<double, 2> kNoises = {-18, 1};

at::Tensor tensor_of(std::span<const double> values, at::IntArrayRef shape) {
  return at::from_blob(const_cast<double*>(values.data()), shape, at::TensorOptions().dtype(at::kDouble))
      .clone();
}

std::vector<double> list_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
}

struct Parameters {
  at::Tensor lengths;  // [inputs]
  double variance = 1;
  double noise = 0;  // variance

  explicit Parameters(std::span<const double> logarithms)
      : lengths(tensor_of(logarithms.first(logarithms.size() - 2),
                          {static_cast<std::int64_t>(logarithms.size()) - 2})
                    .exp()),
        variance(std::exp(logarithms[logarithms.size() - 2])),
        noise(std::exp(logarithms.back())) {}
};

// sqrt(5) times the distance of each pair of points, in lengths.
at::Tensor distances(const at::Tensor& a, const at::Tensor& b, const Parameters& parameters) {
  return std::sqrt(5.0) * at::cdist(a / parameters.lengths, b / parameters.lengths, 2, 2);
}

at::Tensor kernel(const at::Tensor& r, double variance) {
  return variance * (1 + r + r.square() / 3) * (-r).exp();
}

at::Tensor normal_numbers(at::IntArrayRef shape, std::uint64_t key) {
  at::Tensor numbers = at::empty(shape, at::TensorOptions().dtype(at::kDouble));
  double* values = numbers.data_ptr<double>();
  for (std::int64_t i = 0; i < numbers.numel(); ++i)
    values[i] = normal_real(key, static_cast<std::uint64_t>(i));
  return numbers;
}

class MaternProcess final : public GaussianProcess {
 public:
  MaternProcess(std::vector<double> points, std::span<const double> outputs);
  std::vector<double> lengths() const override;
  double noise() const override;
  std::vector<double> mean(std::span<const double> points) const override;
  std::vector<std::vector<double>> draws(std::span<const double> points, std::size_t count,
                                         std::uint64_t seed) const override;
  std::vector<double> left_out(std::size_t folds, std::uint64_t seed) const override;
  double likelihood(std::span<const double> logarithms, std::span<double> derivatives) const override;
  std::vector<double> logarithms() const override;

 private:
  std::int64_t samples() const { return points_.size(0); }

  // The lower factor of Cholesky; undefined if rounding made the matrix indefinite.
  at::Tensor factor(const at::Tensor& covariance) const {
    const auto [lower, info] = at::linalg_cholesky_ex(covariance);
    return info.item<int>() == 0 ? lower : at::Tensor();
  }
  at::Tensor covariance(const Parameters& parameters) const {
    at::Tensor matrix = kernel(distances(points_, points_, parameters), parameters.variance);
    matrix.diagonal().add_(parameters.noise);
    return matrix;
  }

  at::Tensor points_;   // [samples, inputs]
  at::Tensor outputs_;  // [samples], of mean 0 and variance 1
  double centre_ = 0;
  double scale_ = 1;
  std::vector<double> logarithms_;
  at::Tensor inverse_;  // of the samples' covariance
  at::Tensor weights_;  // the inverse times the outputs
};

double MaternProcess::likelihood(std::span<const double> logarithms, std::span<double> derivatives) const {
  const Parameters parameters(logarithms);
  const at::Tensor r = distances(points_, points_, parameters);
  const at::Tensor smooth = kernel(r, parameters.variance);
  at::Tensor matrix = smooth.clone();
  matrix.diagonal().add_(parameters.noise);
  const at::Tensor lower = factor(matrix);
  if (!lower.defined()) return -HUGE_VAL;
  const at::Tensor inverse = at::cholesky_inverse(lower);
  const at::Tensor weights = at::mv(inverse, outputs_);
  // dL/dt = tr((w w' - inverse) dK/dt) / 2
  const at::Tensor outer = at::outer(weights, weights) - inverse;
  const std::size_t inputs = logarithms.size() - 2;
  const at::Tensor slope = outer * (1 + r) * (-r).exp() * (5 * parameters.variance / 3);
  for (std::size_t i = 0; i < inputs; ++i) {
    const at::Tensor x =
        points_.select(1, static_cast<std::int64_t>(i)) / parameters.lengths[static_cast<std::int64_t>(i)];
    derivatives[i] = 0.5 * (slope * (x.unsqueeze(1) - x.unsqueeze(0)).square()).sum().item<double>();
  }
  derivatives[inputs] = 0.5 * (outer * smooth).sum().item<double>();
  derivatives[inputs + 1] = 0.5 * parameters.noise * outer.trace().item<double>();
  return -0.5 * outputs_.dot(weights).item<double>() - lower.diagonal().log().sum().item<double>() -
         0.5 * static_cast<double>(samples()) * std::log(2 * std::numbers::pi);
}

MaternProcess::MaternProcess(std::vector<double> points, std::span<const double> outputs) {
  const auto samples = static_cast<std::int64_t>(outputs.size());
  const auto inputs = static_cast<std::int64_t>(points.size() / outputs.size());
  WFLOW_CHECK(outputs.size() <= kMostGaussianSamples);
  points_ = tensor_of(points, {samples, inputs});
  const at::Tensor values = tensor_of(outputs, {samples});
  centre_ = values.mean().item<double>();
  scale_ = values.std(false).item<double>();
  WFLOW_CHECK(scale_ > 0);
  outputs_ = (values - centre_) / scale_;

  // Rprop without backtracking (Igel and Hüsken 2000): only the signs of the derivatives count.
  std::vector<double> now(static_cast<std::size_t>(inputs) + 2, 0);
  now.back() = std::log(1e-3);
  std::vector<double> best = now, slopes(now.size(), 0), before(now.size(), 0), steps(now.size(), kFirstStep);
  double most = -HUGE_VAL;
  for (int step = 0; step<kSteps&& * std::ranges::max_element(steps)> kLeastStep; ++step) {
    const double value = likelihood(now, slopes);
    if (value > most) {
      most = value;
      best = now;
    }
    if (!std::isfinite(value)) {  // more noise makes the matrix definite again
      now.back() += 1;
      continue;
    }
    for (std::size_t k = 0; k < now.size(); ++k) {
      const double sign = slopes[k] * before[k];
      if (sign > 0) steps[k] = std::min(steps[k] * 1.2, kMostStep);
      if (sign < 0) steps[k] *= 0.5;
      before[k] = sign < 0 ? 0 : slopes[k];
      const auto& bounds = k + 1 == now.size() ? kNoises : k + 2 == now.size() ? kVariances : kLengths;
      now[k] = std::clamp(now[k] + (before[k] > 0   ? steps[k]
                                    : before[k] < 0 ? -steps[k]
                                                    : 0),
                          bounds[0], bounds[1]);
    }
  }
  logarithms_ = best;
  inverse_ = at::cholesky_inverse(factor(covariance(Parameters(best))));
  weights_ = at::mv(inverse_, outputs_);
}

std::vector<double> MaternProcess::logarithms() const {
  return logarithms_;
}

std::vector<double> MaternProcess::lengths() const {
  return list_of(Parameters(logarithms_).lengths);
}

double MaternProcess::noise() const {
  return scale_ * std::sqrt(Parameters(logarithms_).noise);
}

std::vector<double> MaternProcess::mean(std::span<const double> points) const {
  const auto inputs = static_cast<std::size_t>(points_.size(1));
  const Parameters parameters(logarithms_);
  std::vector<double> means;
  for (std::size_t begin = 0; begin < points.size(); begin += kRows * inputs) {
    const auto part = points.subspan(begin, std::min(kRows * inputs, points.size() - begin));
    const at::Tensor x =
        tensor_of(part, {static_cast<std::int64_t>(part.size() / inputs), static_cast<std::int64_t>(inputs)});
    const at::Tensor cross = kernel(distances(x, points_, parameters), parameters.variance);
    const std::vector<double> found = list_of(at::mv(cross, weights_) * scale_ + centre_);
    means.insert(means.end(), found.begin(), found.end());
  }
  return means;
}

std::vector<std::vector<double>> MaternProcess::draws(std::span<const double> points, std::size_t count,
                                                      std::uint64_t seed) const {
  const std::int64_t inputs = points_.size(1);
  const auto number = static_cast<std::int64_t>(count);
  const Parameters parameters(logarithms_);
  // The spectrum of the kernel is Student's t with 2 nu = 5 degrees of freedom.
  const at::Tensor chi = normal_numbers({kFeatures, 5}, hash64(seed, 0)).square().sum(1, true);
  const at::Tensor frequencies =
      normal_numbers({kFeatures, inputs}, hash64(seed, 1)) * (5 / chi).sqrt() / parameters.lengths;
  at::Tensor phases = at::empty({kFeatures}, at::TensorOptions().dtype(at::kDouble));
  for (std::int64_t m = 0; m < kFeatures; ++m)
    phases.data_ptr<double>()[m] =
        2 * std::numbers::pi * unit_real(hash64(hash64(seed, 2), static_cast<std::uint64_t>(m)));
  const auto features = [&](const at::Tensor& x) {
    return std::sqrt(2 * parameters.variance / kFeatures) * (at::matmul(x, frequencies.t()) + phases).cos();
  };
  const at::Tensor prior = normal_numbers({kFeatures, number}, hash64(seed, 3));
  const at::Tensor noise = std::sqrt(parameters.noise) * normal_numbers({samples(), number}, hash64(seed, 4));
  const at::Tensor weights =
      at::matmul(inverse_, outputs_.unsqueeze(1) - at::matmul(features(points_), prior) - noise);

  std::vector<std::vector<double>> draws(count);
  const std::size_t step = kRows * static_cast<std::size_t>(inputs);
  for (std::size_t begin = 0; begin < points.size(); begin += step) {
    const auto part = points.subspan(begin, std::min(step, points.size() - begin));
    const at::Tensor x = tensor_of(part, {std::ssize(part) / inputs, inputs});
    const at::Tensor cross = kernel(distances(x, points_, parameters), parameters.variance);
    const at::Tensor values =
        ((at::matmul(features(x), prior) + at::matmul(cross, weights)) * scale_ + centre_).t();
    for (std::size_t k = 0; k < count; ++k) {
      const std::vector<double> found = list_of(values[static_cast<std::int64_t>(k)]);
      draws[k].insert(draws[k].end(), found.begin(), found.end());
    }
  }
  return draws;
}

std::vector<double> MaternProcess::left_out(std::size_t folds, std::uint64_t seed) const {
  const auto samples = static_cast<std::size_t>(points_.size(0));
  const Permutation order(samples, seed);
  std::vector<double> predictions(samples);
  for (std::size_t fold = 0; fold < folds; ++fold) {
    std::vector<std::int64_t> members;
    for (std::size_t k = fold; k < samples; k += folds)
      members.push_back(static_cast<std::int64_t>(order(k)));
    const at::Tensor places = at::from_blob(members.data(), {std::ssize(members)}, at::kLong);
    // The block of the inverse and the weights hold the residuals of a fit without the fold (Rasmussen and
    // Williams 2006, 5.12, for several samples at once).
    const at::Tensor block = inverse_.index_select(0, places).index_select(1, places);
    const at::Tensor lower = at::linalg_cholesky(block);
    const at::Tensor residuals =
        at::cholesky_solve(weights_.index_select(0, places).unsqueeze(1), lower).squeeze(1);
    const std::vector<double> found =
        list_of((outputs_.index_select(0, places) - residuals) * scale_ + centre_);
    for (std::size_t k = 0; k < members.size(); ++k)
      predictions[static_cast<std::size_t>(members[k])] = found[k];
  }
  return predictions;
}

}  // namespace

std::unique_ptr<GaussianProcess> fit_gaussian_process(std::vector<double> points,
                                                      std::span<const double> outputs) {
  return std::make_unique<MaternProcess>(std::move(points), outputs);
}

}  // namespace wflow::trainer
