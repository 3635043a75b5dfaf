// SPDX-License-Identifier: Apache-2.0
#include "traces/distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "traces/proposal_network.h"

namespace wflow::traces {
namespace {

struct Case {
  Kind kind;
  std::vector<double> p;
  double low, high;  // nearly all of the probability is between them
};

const std::vector<Case> kCases = {{Kind::normal, {1, 2}, -11, 13},
                                  {Kind::uniform, {-1, 3}, -1, 3},
                                  {Kind::categorical, {1, 0, 3, 2}, 0, 3},
                                  {Kind::poisson, {3.5}, 0, 40},
                                  {Kind::exponential, {2}, 0, 12},
                                  {Kind::gamma, {2.5, 0.5}, 1e-9, 60},
                                  {Kind::beta, {2, 3}, 1e-9, 1 - 1e-9},
                                  {Kind::truncated_normal, {0, 1, 0.5, 2}, 0.5, 2},
                                  {Kind::truncated_normal, {0, 1, 6, 9}, 6, 9}};

bool is_discrete(Kind kind) {
  return kind == Kind::categorical || kind == Kind::poisson;
}

// The sum of f over the support: whole numbers, or Simpson's rule.
template <class F>
double integral(const Case& c, F f) {
  double sum = 0;
  if (is_discrete(c.kind)) {
    for (double x = c.low; x <= c.high; ++x) sum += f(x);
    return sum;
  }
  constexpr int kSteps = 20000;
  const double h = (c.high - c.low) / kSteps;
  for (int i = 0; i <= kSteps; ++i)
    sum += (i == 0 || i == kSteps ? 1 : (i % 2 == 1 ? 4 : 2)) * f(c.low + h * i) * h / 3;
  return sum;
}

TEST(DistributionTest, DensitiesHaveTheirMoments) {
  for (const Case& c : kCases) {
    const Distribution d = {c.kind, c.p};
    ASSERT_EQ(problem_of(d), "");
    const auto density = [&](double x) { return std::exp(log_density(d, x)); };
    EXPECT_NEAR(integral(c, density), 1, 2e-4) << name_of(c.kind);
    if (c.kind == Kind::categorical) continue;  // its numbers are names
    const double mean = integral(c, [&](double x) { return x * density(x); });
    EXPECT_NEAR(mean_of(d), mean, 1e-3 * deviation_of(d)) << name_of(c.kind);
    const double variance = integral(c, [&](double x) { return (x - mean) * (x - mean) * density(x); });
    EXPECT_NEAR(deviation_of(d), std::sqrt(variance), 1e-3 * deviation_of(d)) << name_of(c.kind);
  }
}

TEST(DistributionTest, DrawsHaveTheDensity) {
  constexpr int kDraws = 40000;
  for (const Case& c : kCases) {
    const Distribution d = {c.kind, c.p};
    Random random(7);
    double sum = 0;
    double squares = 0;
    double log_densities = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double x = draw(d, random);
      sum += x;
      squares += x * x;
      log_densities += log_density(d, x);
    }
    const double entropy = integral(c, [&](double x) {
      const double log = log_density(d, x);
      return std::isinf(log) ? 0 : log * std::exp(log);
    });
    EXPECT_NEAR(log_densities / kDraws, entropy, 0.02) << name_of(c.kind);
    if (c.kind == Kind::categorical) continue;
    const double mean = sum / kDraws;
    EXPECT_NEAR(mean, mean_of(d), 0.02 * deviation_of(d)) << name_of(c.kind);
    EXPECT_NEAR(std::sqrt(squares / kDraws - mean * mean), deviation_of(d), 0.02 * deviation_of(d));
  }
}

TEST(DistributionTest, NothingIsOutsideTheSupport) {
  const double rate[] = {2};
  const double box[] = {0, 1};
  const double weights[] = {1, 1};
  EXPECT_TRUE(std::isinf(log_density({Kind::poisson, rate}, -1)));
  EXPECT_TRUE(std::isinf(log_density({Kind::poisson, rate}, 1.5)));
  EXPECT_TRUE(std::isinf(log_density({Kind::uniform, box}, 1.0001)));
  EXPECT_TRUE(std::isinf(log_density({Kind::categorical, weights}, 2)));
  EXPECT_TRUE(std::isinf(log_density({Kind::exponential, rate}, -0.1)));
}

TEST(DistributionTest, WrongParametersAreNamed) {
  const auto problem = [](Kind kind, std::vector<double> p) { return problem_of({kind, p}); };
  EXPECT_EQ(problem(Kind::normal, {0, -1}), "normal: its standard deviation is -1");
  EXPECT_EQ(problem(Kind::normal, {0}), "normal: it takes 2 parameters and got 1");
  EXPECT_EQ(problem(Kind::uniform, {1, 1}), "uniform: from 1 to 1 is no range");
  EXPECT_EQ(problem(Kind::categorical, {0, 0}), "categorical: no category has a weight");
  EXPECT_EQ(problem(Kind::poisson, {std::nan("")}), "poisson: parameter 0 is nan");
  EXPECT_EQ(problem(static_cast<Kind>(99), {}), "99 is no kind of distribution");
}

TEST(DistributionTest, QuantilesInvertTheDistribution) {
  for (const double z : {-30.0, -8.0, -1.5, 0.0, 0.3, 4.0})
    EXPECT_NEAR(normal_quantile(normal_below(z)), z, 1e-6) << z;
  EXPECT_NEAR(log_normal_between(6, 7), std::log(9.865876e-10 - 1.279813e-12), 1e-6);
  EXPECT_NEAR(log_normal_between(-1, 1), std::log(0.6826895), 1e-6);
}

// The values of a head that are not all alike.
std::vector<float> head_values(std::size_t count) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(std::sin(1.7F * static_cast<float>(i)));
  return values;
}

TEST(ProposalTest, ProposalsAreDensitiesAndDrawsHaveThem) {
  constexpr int kDraws = 40000;
  for (const Case& c : kCases) {
    const Distribution prior = {c.kind, c.p};
    const Proposal form = proposal_of(c.kind);
    const std::vector<float> values = head_values(form == Proposal::categories ? c.p.size() : 12);
    const auto log_q = [&](double x) {
      return log_proposal(form, values, features_of(row_of(1, prior, x, true)), c.p.size());
    };
    Case wide = c;  // proposals of unbounded kinds reach beyond the prior
    if (c.kind == Kind::normal) wide.low = -60, wide.high = 60;
    if (c.kind == Kind::exponential || c.kind == Kind::gamma) wide.low = 1e-7, wide.high *= 60;
    if (c.kind == Kind::poisson) wide.high = 200;
    if (form == Proposal::mixture && c.kind != Kind::normal)
      continue;  // in the logarithm: Simpson's rule is too coarse
    EXPECT_NEAR(integral(wide, [&](double x) { return std::exp(log_q(x)); }), 1, 2e-3) << name_of(c.kind);
  }
  for (const Case& c : kCases) {
    const Distribution prior = {c.kind, c.p};
    const Proposal form = proposal_of(c.kind);
    const std::vector<float> values = head_values(form == Proposal::categories ? c.p.size() : 12);
    Random random(3);
    // The mean of p / q over draws of q is 1, as p is a density.
    double sum = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double x = propose(form, values, prior, random);
      const double log_q = log_proposal(form, values, features_of(row_of(1, prior, x, true)), c.p.size());
      sum += std::exp(log_density(prior, x) - log_q);
    }
    EXPECT_NEAR(sum / kDraws, 1, 0.04) << name_of(c.kind);
  }
}

}  // namespace
}  // namespace wflow::traces
