// SPDX-License-Identifier: Apache-2.0
#include "traces/distribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

namespace wflow::traces {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLeastPositive = 1e-300;

double sum_of(std::span<const double> weights) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  return sum;
}

std::string need(bool holds, const Distribution& d, const char* what, std::size_t i) {
  return holds ? std::string() : fmt::format("{}: its {} is {:g}", name_of(d.kind), what, d.p[i]);
}

std::size_t parameters_of(Kind kind) {
  switch (kind) {
    case Kind::poisson:
    case Kind::exponential:
      return 1;
    case Kind::truncated_normal:
      return 4;
    default:
      return 2;
  }
}

bool is_whole(double x) {
  return std::floor(x) == x;
}

double truncated_draw(const Distribution& d, Random& random) {
  const double low = (d.p[2] - d.p[0]) / d.p[1];
  const double high = (d.p[3] - d.p[0]) / d.p[1];
  // In the upper half the complement keeps the digits of the tail.
  const bool upper = low > 0;
  const double a = normal_below(upper ? -high : low);
  const double b = normal_below(upper ? -low : high);
  double z = normal_quantile(a + random.uniform() * (b - a));
  if (upper) z = -z;
  return std::clamp(d.p[0] + d.p[1] * z, d.p[2], d.p[3]);
}

double categorical_draw(const Distribution& d, Random& random) {
  double left = random.uniform() * sum_of(d.p);
  for (std::size_t k = 0; k + 1 < d.p.size(); ++k) {
    left -= d.p[k];
    if (left < 0) return static_cast<double>(k);
  }
  // The last one with a weight: sums are rounded.
  std::size_t last = d.p.size() - 1;
  while (last > 0 && d.p[last] == 0) --last;
  return static_cast<double>(last);
}

// Moments of a truncated normal variable (Johnson, Kotz and Balakrishnan 1994, section 13.10.1).
struct Truncated {
  double mean;
  double deviation;
};

Truncated moments_of_truncated(const Distribution& d) {
  const double a = (d.p[2] - d.p[0]) / d.p[1];
  const double b = (d.p[3] - d.p[0]) / d.p[1];
  const double log_mass = log_normal_between(a, b);
  const double fa = std::exp(log_normal_density(a) - log_mass);
  const double fb = std::exp(log_normal_density(b) - log_mass);
  const double shift = fa - fb;
  const double least = 1e-6 * (b - a) * (b - a);
  return {std::clamp(d.p[0] + d.p[1] * shift, d.p[2], d.p[3]),
          d.p[1] * std::sqrt(std::max(1 + a * fa - b * fb - shift * shift, least))};
}

}  // namespace

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"none",        "normal", "uniform", "categorical",     "poisson",
                                    "exponential", "gamma",  "beta",    "truncated_normal"};
  return kNames[static_cast<std::size_t>(kind)];
}

double Random::normal() {
  return normal_real((*this)(), 0);
}

double log_normal_density(double z) {
  return -0.5 * z * z - 0.5 * std::log(2 * std::numbers::pi);
}

// A start within 4.5e-4 (Abramowitz and Stegun 1964, 26.2.23), and steps of Newton's method for the
// logarithm.
double normal_quantile(double probability) {
  const double p = std::clamp(probability, kLeastPositive, 1 - 1e-16);
  const double tail = std::min(p, 1 - p);
  const double t = std::sqrt(-2 * std::log(tail));
  double z = -(t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                       (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))));
  for (int step = 0; step < 3; ++step) {
    const double below = normal_below(z);
    z -= (std::log(below) - std::log(tail)) * below / std::exp(log_normal_density(z));
  }
  return p < 0.5 ? z : -z;
}

double log_normal_between(double low, double high) {
  if (low > 0) return log_normal_between(-high, -low);
  const double mass = normal_below(high) - normal_below(low);
  if (mass > 0) return std::log(mass);
  // Both in the far lower tail, or too close together: the density in the middle times the width.
  return log_normal_density(high) + std::log(std::max(high - low, kLeastPositive));
}

std::string problem_of(const Distribution& d) {
  if (d.kind == Kind::none || static_cast<std::uint8_t>(d.kind) >= kKinds)
    return fmt::format("{} is no kind of distribution", static_cast<int>(d.kind));
  for (std::size_t i = 0; i < d.p.size(); ++i)
    if (!std::isfinite(d.p[i])) return fmt::format("{}: parameter {} is {:g}", name_of(d.kind), i, d.p[i]);
  if (d.kind == Kind::categorical) {
    for (std::size_t i = 0; i < d.p.size(); ++i)
      if (d.p[i] < 0) return fmt::format("categorical: the weight of {} is {:g}", i, d.p[i]);
    return sum_of(d.p) > 0 ? "" : "categorical: no category has a weight";
  }
  if (d.p.size() != parameters_of(d.kind))
    return fmt::format("{}: it takes {} parameters and got {}", name_of(d.kind), parameters_of(d.kind),
                       d.p.size());
  switch (d.kind) {
    case Kind::normal:
      return need(d.p[1] > 0, d, "standard deviation", 1);
    case Kind::uniform:
      return d.p[0] < d.p[1] ? "" : fmt::format("uniform: from {:g} to {:g} is no range", d.p[0], d.p[1]);
    case Kind::poisson:
    case Kind::exponential:
      return need(d.p[0] > 0, d, "rate", 0);
    case Kind::gamma:
      return need(d.p[0] > 0, d, "shape", 0) + need(d.p[1] > 0, d, "rate", 1);
    case Kind::beta:
      return need(d.p[0] > 0, d, "first parameter", 0) + need(d.p[1] > 0, d, "second parameter", 1);
    case Kind::truncated_normal:
      if (d.p[2] >= d.p[3])
        return fmt::format("truncated_normal: from {:g} to {:g} is no range", d.p[2], d.p[3]);
      return need(d.p[1] > 0, d, "standard deviation", 1);
    default:
      return "";
  }
}

double draw(const Distribution& d, Random& random) {
  switch (d.kind) {
    case Kind::normal:
      return d.p[0] + d.p[1] * random.normal();
    case Kind::uniform:
      return d.p[0] + (d.p[1] - d.p[0]) * random.uniform();
    case Kind::categorical:
      return categorical_draw(d, random);
    case Kind::poisson:
      return std::poisson_distribution<std::int64_t>(d.p[0])(random);
    case Kind::exponential:
      return -std::log(1 - random.uniform()) / d.p[0];
    case Kind::gamma:
      return std::max(std::gamma_distribution<double>(d.p[0], 1 / d.p[1])(random), kLeastPositive);
    case Kind::beta: {
      const double a = std::gamma_distribution<double>(d.p[0], 1)(random);
      const double b = std::gamma_distribution<double>(d.p[1], 1)(random);
      return a + b > 0 ? a / (a + b) : 0.5;
    }
    case Kind::truncated_normal:
      return truncated_draw(d, random);
    case Kind::none:
      break;
  }
  return 0;
}

double log_density(const Distribution& d, double x) {
  switch (d.kind) {
    case Kind::normal:
      return log_normal_density((x - d.p[0]) / d.p[1]) - std::log(d.p[1]);
    case Kind::uniform:
      return x >= d.p[0] && x <= d.p[1] ? -std::log(d.p[1] - d.p[0]) : -kInfinity;
    case Kind::categorical:
      if (x < 0 || !is_whole(x) || x >= static_cast<double>(d.p.size())) return -kInfinity;
      return std::log(d.p[static_cast<std::size_t>(x)] / sum_of(d.p));
    case Kind::poisson:
      if (x < 0 || !is_whole(x)) return -kInfinity;
      return x * std::log(d.p[0]) - d.p[0] - std::lgamma(x + 1);
    case Kind::exponential:
      return x >= 0 ? std::log(d.p[0]) - d.p[0] * x : -kInfinity;
    case Kind::gamma:
      if (x <= 0) return -kInfinity;
      return d.p[0] * std::log(d.p[1]) + (d.p[0] - 1) * std::log(x) - d.p[1] * x - std::lgamma(d.p[0]);
    case Kind::beta:
      if (x <= 0 || x >= 1) return -kInfinity;
      return (d.p[0] - 1) * std::log(x) + (d.p[1] - 1) * std::log1p(-x) + std::lgamma(d.p[0] + d.p[1]) -
             std::lgamma(d.p[0]) - std::lgamma(d.p[1]);
    case Kind::truncated_normal:
      if (x < d.p[2] || x > d.p[3]) return -kInfinity;
      return log_normal_density((x - d.p[0]) / d.p[1]) - std::log(d.p[1]) -
             log_normal_between((d.p[2] - d.p[0]) / d.p[1], (d.p[3] - d.p[0]) / d.p[1]);
    case Kind::none:
      break;
  }
  return -kInfinity;
}

double mean_of(const Distribution& d) {
  switch (d.kind) {
    case Kind::normal:
    case Kind::poisson:
      return d.p[0];
    case Kind::uniform:
      return (d.p[0] + d.p[1]) / 2;
    case Kind::categorical:
      return (static_cast<double>(d.p.size()) - 1) / 2;
    case Kind::exponential:
      return 1 / d.p[0];
    case Kind::gamma:
      return d.p[0] / d.p[1];
    case Kind::beta:
      return d.p[0] / (d.p[0] + d.p[1]);
    case Kind::truncated_normal:
      return moments_of_truncated(d).mean;
    case Kind::none:
      break;
  }
  return 0;
}

double deviation_of(const Distribution& d) {
  switch (d.kind) {
    case Kind::normal:
      return d.p[1];
    case Kind::uniform:
      return (d.p[1] - d.p[0]) / std::sqrt(12.0);
    case Kind::categorical:
      return std::max(1.0, static_cast<double>(d.p.size()) / std::sqrt(12.0));
    case Kind::poisson:
      return std::sqrt(d.p[0]);
    case Kind::exponential:
      return 1 / d.p[0];
    case Kind::gamma:
      return std::sqrt(d.p[0]) / d.p[1];
    case Kind::beta: {
      const double sum = d.p[0] + d.p[1];
      return std::sqrt(d.p[0] * d.p[1] / (sum + 1)) / sum;
    }
    case Kind::truncated_normal:
      return moments_of_truncated(d).deviation;
    case Kind::none:
      break;
  }
  return 1;
}

Proposal proposal_of(Kind kind) {
  switch (kind) {
    case Kind::normal:
    case Kind::exponential:
    case Kind::gamma:
      return Proposal::mixture;
    case Kind::uniform:
    case Kind::beta:
    case Kind::truncated_normal:
      return Proposal::bounded_mixture;
    case Kind::poisson:
      return Proposal::counts;
    case Kind::categorical:
      return Proposal::categories;
    case Kind::none:
      break;
  }
  return Proposal::none;
}

namespace {

// Where a coordinate of 0 is, and a coordinate of 1: in the value, or for positive kinds in its logarithm.
struct Scale {
  double offset;
  double factor;
};

Scale scale_of(const Distribution& d) {
  switch (d.kind) {
    case Kind::normal:
      return {d.p[0], d.p[1]};
    case Kind::uniform:
      return {d.p[0], d.p[1] - d.p[0]};
    case Kind::truncated_normal:
      return {d.p[2], d.p[3] - d.p[2]};
    case Kind::poisson:
      return {d.p[0], std::sqrt(d.p[0] + 1)};
    case Kind::exponential:
    case Kind::gamma:
      // The logarithm's deviation is about 1 / sqrt(shape), and at most a few.
      return {std::log(mean_of(d)), d.kind == Kind::gamma ? std::min(2.0, 1 / std::sqrt(d.p[0])) : 1.0};
    default:
      return {0, 1};
  }
}

bool is_positive(Kind kind) {
  return kind == Kind::exponential || kind == Kind::gamma;
}

}  // namespace

double value_of(const Distribution& prior, double coordinate) {
  const Scale scale = scale_of(prior);
  const double value = scale.offset + scale.factor * coordinate;
  return is_positive(prior.kind) ? std::exp(value) : value;
}

DrawFeatures features_of(std::span<const double> row) {
  DrawFeatures features;
  const double stored = row[kKind] >= kNotProposed ? row[kKind] - kNotProposed : row[kKind];
  const auto kind = static_cast<Kind>(static_cast<std::uint8_t>(stored));
  const double x = row[kValue];
  if (kind == Kind::categorical) {
    const double categories = row[kParameters];
    features.category = static_cast<int>(x);
    features.z = categories > 1 ? (2 * x / (categories - 1) - 1) : 0;
    features.log_prior = -std::log(categories);
    return features;
  }
  const Distribution prior = {kind, row.subspan(kParameters, parameters_of(kind))};
  const double mean = mean_of(prior);
  const double deviation = deviation_of(prior);
  features.z = std::clamp((x - mean) / deviation, -5.0, 5.0);
  features.place = std::asinh(mean);
  features.width = std::clamp(std::log(deviation), -20.0, 20.0);
  features.log_prior = log_density(prior, x);
  const Scale scale = scale_of(prior);
  if (is_positive(kind)) {
    const double log_x = std::log(std::max(x, kLeastPositive));
    features.coordinate = (log_x - scale.offset) / scale.factor;
    features.log_jacobian = -log_x - std::log(scale.factor);
    return features;
  }
  features.coordinate = (x - scale.offset) / scale.factor;
  if (kind == Kind::poisson) {
    features.half_step = 0.5 / scale.factor;
    features.count_is_zero = x == 0;
  } else {
    features.log_jacobian = -std::log(scale.factor);
  }
  return features;
}

}  // namespace wflow::traces
