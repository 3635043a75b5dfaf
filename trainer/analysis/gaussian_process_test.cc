// SPDX-License-Identifier: Apache-2.0
#include "trainer/analysis/surrogate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "base/random.h"
#include "trainer/analysis/sobol_indices.h"

namespace wflow::trainer {
namespace {

double ishigami(const double* u) {
  const auto x = [&](std::size_t i) { return std::numbers::pi * (2 * u[i] - 1); };
  return std::sin(x(0)) + 7 * std::pow(std::sin(x(1)), 2) + 0.1 * std::pow(x(2), 4) * std::sin(x(0));
}

struct Samples {
  std::vector<double> points;
  std::vector<double> outputs;
};

Samples samples_of(std::size_t count, double noise) {
  Samples samples;
  for (std::size_t n = 0; n < count; ++n) {
    for (std::size_t i = 0; i < 3; ++i) samples.points.push_back(unit_real(hash64(1, 3 * n + i)));
    samples.outputs.push_back(ishigami(&samples.points[3 * n]) + noise * normal_real(2, n));
  }
  return samples;
}

TEST(GaussianProcess, DerivativesAreThoseOfTheLikelihood) {
  const Samples samples = samples_of(40, 0.5);
  const auto process = fit_gaussian_process(samples.points, samples.outputs);
  std::vector<double> at = {-0.5, 0.3, -1, 0.4, -3};
  std::vector<double> slopes(5), ignored(5);
  process->likelihood(at, slopes);
  for (std::size_t k = 0; k < at.size(); ++k) {
    constexpr double kStep = 1e-5;
    std::vector<double> more = at, less = at;
    more[k] += kStep;
    less[k] -= kStep;
    EXPECT_NEAR(slopes[k],
                (process->likelihood(more, ignored) - process->likelihood(less, ignored)) / (2 * kStep),
                1e-5 * (1 + std::abs(slopes[k])))
        << k;
  }
  process->likelihood(process->logarithms(), slopes);
  for (const double slope : slopes) EXPECT_LT(std::abs(slope), 0.5);
}

TEST(GaussianProcess, FindsTheNoise) {
  const Samples samples = samples_of(300, 0.5);
  const auto process = fit_gaussian_process(samples.points, samples.outputs);
  EXPECT_NEAR(process->noise(), 0.5, 0.15);
  EXPECT_EQ(process->lengths().size(), 3);
}

// The prediction of sample `left` by the others, by the definition: k' (K + noise)^-1 y, with elimination.
double without(const Samples& samples, std::span<const double> logarithms, std::size_t left, double centre) {
  const std::size_t count = samples.outputs.size();
  const auto k = [&](std::size_t m, std::size_t n) {
    double square = 0;
    for (std::size_t i = 0; i < 3; ++i)
      square +=
          std::pow((samples.points[3 * m + i] - samples.points[3 * n + i]) / std::exp(logarithms[i]), 2);
    const double r = std::sqrt(5 * square);
    return std::exp(logarithms[3]) * (1 + r + r * r / 3) * std::exp(-r);
  };
  std::vector<std::size_t> others;
  for (std::size_t n = 0; n < count; ++n)
    if (n != left) others.push_back(n);
  std::vector<std::vector<double>> rows;
  // exp(logarithms[4]) is the noise in units of the outputs' variance, as is the kernel's variance.
  for (const std::size_t m : others) {
    rows.emplace_back();
    for (const std::size_t n : others)
      rows.back().push_back(k(m, n) + (m == n ? std::exp(logarithms[4]) : 0));
    rows.back().push_back(samples.outputs[m] - centre);
  }
  for (std::size_t a = 0; a < rows.size(); ++a)
    for (std::size_t b = 0; b < rows.size(); ++b) {
      if (b == a) continue;
      const double factor = rows[b][a] / rows[a][a];
      for (std::size_t c = a; c <= rows.size(); ++c) rows[b][c] -= factor * rows[a][c];
    }
  double sum = centre;
  for (std::size_t a = 0; a < rows.size(); ++a) sum += k(left, others[a]) * rows[a].back() / rows[a][a];
  return sum;
}

TEST(GaussianProcess, LeavesOneOut) {
  const Samples samples = samples_of(60, 0.1);
  const auto process = fit_gaussian_process(samples.points, samples.outputs);
  double centre = 0;
  for (const double y : samples.outputs) centre += y / 60;
  const std::vector<double> each = process->left_out(60, 1);
  const std::vector<double> tenths = process->left_out(10, 1);
  double one = 0, six = 0;
  for (std::size_t n = 0; n < 60; ++n) {
    EXPECT_NEAR(each[n], without(samples, process->logarithms(), n, centre), 1e-6) << n;
    one += std::pow(each[n] - samples.outputs[n], 2);
    six += std::pow(tenths[n] - samples.outputs[n], 2);
  }
  EXPECT_GT(six, 0.9 * one) << "fewer samples predict no better";
}

TEST(GaussianProcess, DrawsSpreadAroundTheMean) {
  const Samples samples = samples_of(60, 0.01);
  const auto process = fit_gaussian_process(samples.points, samples.outputs);
  constexpr std::size_t kDraws = 200;
  std::vector<double> points = {samples.points[0], samples.points[1], samples.points[2], 0.02, 0.98, 0.97};
  const auto draws = process->draws(points, kDraws, 3);
  const std::vector<double> mean = process->mean(points);
  double sums[2] = {}, squares[2] = {};
  for (const auto& draw : draws)
    for (std::size_t k = 0; k < 2; ++k) {
      sums[k] += draw[k] / kDraws;
      squares[k] += std::pow(draw[k] - mean[k], 2) / kDraws;
    }
  for (std::size_t k = 0; k < 2; ++k)
    EXPECT_NEAR(sums[k], mean[k], 5 * std::sqrt(squares[k] / kDraws) + 0.01);
  EXPECT_LT(std::sqrt(squares[0]), 0.5 * std::sqrt(squares[1])) << "a sample is known better than a corner";
}

TEST(GaussianProcess, IndicesOfIshigamiFrom200Samples) {
  const Samples samples = samples_of(200, 0);
  const auto process = fit_gaussian_process(samples.points, samples.outputs);
  const SobolDesign design(3, 1024, 1);
  std::vector<double> points;
  for (std::size_t row = 0; row < design.rows(); ++row)
    for (std::size_t i = 0; i < 3; ++i) points.push_back(design.unit(row, i));
  const SobolIndices found = sobol_indices(design, process->mean(points), 50, 1);
  EXPECT_NEAR(found.first[0].value, 0.3139, 0.03);
  EXPECT_NEAR(found.first[1].value, 0.4424, 0.03);
  EXPECT_NEAR(found.total[2].value, 0.2437, 0.03);
}

}  // namespace
}  // namespace wflow::trainer
