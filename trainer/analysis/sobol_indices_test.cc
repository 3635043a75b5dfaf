// SPDX-License-Identifier: Apache-2.0
#include "trainer/analysis/sobol_indices.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <numbers>

namespace wflow::trainer {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr std::size_t kResamples = 100;

using Function = std::function<double(const std::vector<double>&)>;

std::vector<double> evaluated(const SobolDesign& design, const Function& function) {
  std::vector<double> outputs;
  std::vector<double> x(design.inputs());
  for (std::size_t row = 0; row < design.rows(); ++row) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = design.unit(row, i);
    outputs.push_back(function(x));
  }
  return outputs;
}

// Ishigami and Homma (1990), over [-pi, pi]^3.
double ishigami(const std::vector<double>& u) {
  const auto x = [&](std::size_t i) { return kPi * (2 * u[i] - 1); };
  return std::sin(x(0)) + 7 * std::pow(std::sin(x(1)), 2) + 0.1 * std::pow(x(2), 4) * std::sin(x(0));
}

constexpr std::array kG = {0.0, 1.0, 4.5, 9.0, 99.0, 99.0};  // the weights a of Sobol's g function

double g_function(const std::vector<double>& u) {
  double product = 1;
  for (std::size_t i = 0; i < kG.size(); ++i) product *= (std::abs(4 * u[i] - 2) + kG[i]) / (1 + kG[i]);
  return product;
}

// An estimate lies within 4 of its standard errors, or within the rounding of a small index.
void expect_near(const Estimate& estimate, double truth, const char* name, std::size_t i) {
  EXPECT_NEAR(estimate.value, truth, 4 * estimate.deviation + 1e-3) << name << " " << i;
  EXPECT_LT(estimate.deviation, 0.05) << name << " " << i;
}

TEST(SobolIndices, OfIshigamiAreTheClosedForm) {
  const SobolDesign design(3, 4096, 1);
  const SobolIndices found = sobol_indices(design, evaluated(design, ishigami), kResamples, 1);
  const double first = 0.5 * std::pow(1 + 0.1 * std::pow(kPi, 4) / 5, 2);
  const double second = 49.0 / 8;
  const double both = 0.01 * std::pow(kPi, 8) * (1.0 / 18 - 1.0 / 50);
  const double variance = first + second + both;
  EXPECT_NEAR(found.mean, 3.5, 0.01);
  EXPECT_NEAR(found.variance, variance, 0.01 * variance);
  const std::array firsts = {first / variance, second / variance, 0.0};
  const std::array totals = {(first + both) / variance, second / variance, both / variance};
  const std::array seconds = {0.0, both / variance, 0.0};
  for (std::size_t i = 0; i < 3; ++i) {
    expect_near(found.first[i], firsts[i], "first", i);
    expect_near(found.total[i], totals[i], "total", i);
    expect_near(found.second[i], seconds[i], "second", i);
    EXPECT_NEAR(found.first[i].value, firsts[i], 0.01);
    EXPECT_NEAR(found.total[i].value, totals[i], 0.01);
    EXPECT_NEAR(found.second[i].value, seconds[i], 0.02);
  }
  EXPECT_EQ(found.pairs[1], (std::pair<std::size_t, std::size_t>(0, 2)));
}

TEST(SobolIndices, OfTheGFunctionAreTheClosedForm) {
  const SobolDesign design(kG.size(), 8192, 7);
  const SobolIndices found = sobol_indices(design, evaluated(design, g_function), kResamples, 1);
  std::vector<double> parts;
  double product = 1;
  for (const double a : kG) {
    parts.push_back(1 / (3 * (1 + a) * (1 + a)));
    product *= 1 + parts.back();
  }
  const double variance = product - 1;
  EXPECT_NEAR(found.variance, variance, 0.02 * variance);
  for (std::size_t i = 0; i < kG.size(); ++i) {
    expect_near(found.first[i], parts[i] / variance, "first", i);
    expect_near(found.total[i], parts[i] * product / (1 + parts[i]) / variance, "total", i);
  }
  for (std::size_t k = 0; k < found.pairs.size(); ++k) {
    const auto [i, j] = found.pairs[k];
    expect_near(found.second[k], parts[i] * parts[j] / variance, "second", k);
  }
}

TEST(SobolIndices, IntervalsCoverTheTruth) {
  // y = x0 + 2 x1: first and total are 1/5 and 4/5. A bootstrap is too wide for a Sobol' sequence, never
  // too narrow.
  const Function sum = [](const std::vector<double>& u) { return u[0] + 2 * u[1]; };
  int inside = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const SobolDesign design(2, 256, seed);
    const SobolIndices found = sobol_indices(design, evaluated(design, sum), kResamples, seed);
    for (std::size_t i = 0; i < 2; ++i)
      inside +=
          std::abs(found.first[i].value - (i == 0 ? 0.2 : 0.8)) < 1.96 * found.first[i].deviation ? 1 : 0;
  }
  EXPECT_GE(inside, 92) << "of 100";
}

TEST(SobolIndices, OfAConstantAreEmpty) {
  const SobolDesign design(2, 64, 1);
  const SobolIndices found = sobol_indices(design, std::vector<double>(design.rows(), 0.1), kResamples, 1);
  EXPECT_EQ(found.variance, 0);
  EXPECT_TRUE(found.first.empty());
  EXPECT_NEAR(found.mean, 0.1, 1e-12);
}

TEST(SobolIndices, SpreadOfMembersAddsToTheDeviation) {
  SobolIndices one;
  one.variance = 1;
  one.first = {{0.5, 0.03}};
  SobolIndices low = one, high = one, constant;
  low.first = {{0.46, 0}};
  high.first = {{0.54, 0}};
  add_spread(one, std::array{low, high, constant});
  EXPECT_EQ(one.first[0].value, 0.5);
  EXPECT_NEAR(one.first[0].deviation, std::sqrt(0.03 * 0.03 + 2 * 0.04 * 0.04), 1e-12);
}

TEST(SobolIndices, MoreInputsThanTheSequenceHas) {
  const std::size_t inputs = Sobol::kMaxDimensions / 2 + 3;
  const SobolDesign design(inputs, 2048, 3);
  const Function ends = [](const std::vector<double>& u) { return u.front() + u.back(); };
  const SobolIndices found = sobol_indices(design, evaluated(design, ends), 20, 1);
  EXPECT_NEAR(found.total.front().value, 0.5, 0.05);
  EXPECT_NEAR(found.total.back().value, 0.5, 0.05);
  EXPECT_EQ(found.total[5].value, 0);
}

TEST(SobolIndices, MainEffectsAreMeansOverTheOtherInputs) {
  const SobolDesign design(3, 4096, 1);
  const auto effects = main_effects(design, evaluated(design, ishigami), 16);
  for (std::size_t k = 0; k < 16; ++k) {
    const double x = kPi * (2 * (static_cast<double>(k) + 0.5) / 16 - 1);
    EXPECT_NEAR(effects[0][k], (1 + 0.1 * std::pow(kPi, 4) / 5) * std::sin(x) + 3.5, 0.15);
    EXPECT_NEAR(effects[2][k], 3.5, 0.15);
  }
}

TEST(SobolDesign, ExchangesOneColumn) {
  const SobolDesign design(3, 8, 5);
  for (std::size_t n = 0; n < 8; ++n) {
    for (std::size_t i = 0; i < 3; ++i) {
      const double a = design.unit(design.first_a() + n, i);
      const double b = design.unit(design.first_b() + n, i);
      EXPECT_NE(a, b);
      for (std::size_t k = 0; k < 3; ++k) {
        EXPECT_EQ(design.unit(design.first_ab(k) + n, i), k == i ? b : a);
        EXPECT_EQ(design.unit(design.first_ba(k) + n, i), k == i ? a : b);
      }
    }
  }
}

}  // namespace
}  // namespace wflow::trainer
