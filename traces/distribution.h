// SPDX-License-Identifier: Apache-2.0
// The distributions that a simulator may draw from: densities, draws, and the coordinates in which a network
// describes a draw. Parameters as in traces/wflow_trace.h.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "base/random.h"

namespace wflow::traces {

// By the numbers of traces/wflow_trace.h, which files of traces hold, too.
enum class Kind : std::uint8_t {
  none = 0,
  normal = 1,       // mean, standard deviation
  uniform,          // low, high
  categorical,      // weights of 0, 1, ...
  poisson,          // rate
  exponential,      // rate
  gamma,            // shape, rate
  beta,             // a, b
  truncated_normal  // mean and standard deviation before the truncation, low, high
};
inline constexpr std::uint8_t kKinds = 9;
const char* name_of(Kind kind);

struct Distribution {
  Kind kind = Kind::none;
  std::span<const double> p;
};

// Uniform numbers, a function of the key and of how many were drawn before.
class Random {
 public:
  using result_type = std::uint64_t;
  explicit Random(std::uint64_t key) : key_(key) {}
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() { return hash64(key_, drawn_++); }
  double uniform() { return unit_real((*this)()); }
  double normal();
  // Numbers that do not depend on those of this one, and leave it as it is.
  Random beside() const { return Random(hash64(~key_, drawn_)); }

 private:
  std::uint64_t key_;
  std::uint64_t drawn_ = 0;
};

// Empty, or a sentence about the parameters: "normal: its standard deviation is -1".
std::string problem_of(const Distribution& distribution);

double draw(const Distribution& distribution, Random& random);
// The natural logarithm of the density (discrete kinds: of the probability); -infinity outside the support.
double log_density(const Distribution& distribution, double x);
double mean_of(const Distribution& distribution);
double deviation_of(const Distribution& distribution);

// The logarithm of the standard normal distribution's density, and the inverse of its distribution function.
double log_normal_density(double z);
double normal_quantile(double probability);
// The logarithm of the probability between two values of a standard normal variable, low < high.
double log_normal_between(double low, double high);

// The form of a network's proposal for a draw.
enum class Proposal : std::uint8_t { none, mixture, bounded_mixture, counts, categories };
Proposal proposal_of(Kind kind);

// The rows of a trace: address in two halves of 24 bits, which float32 holds exactly; kind; value; the first
// parameters. Of a categorical draw the first parameter is the number of categories.
inline constexpr std::size_t kRowValues = 8;
inline constexpr std::size_t kRowParameters = 4;
using Row = std::array<double, kRowValues>;
enum RowColumn : std::size_t { kHigh = 0, kLow = 1, kKind = 2, kValue = 3, kParameters = 4 };
// Added to the kind of a draw that no network proposes, such as those of a rejection loop.
inline constexpr double kNotProposed = 100;

// A draw as a network reads it, and the coordinate in which it describes the value. A function of the row
// alone, so that training and inference agree.
struct DrawFeatures {
  double z = 0;      // the value less the prior's mean, in its deviations, within -5 and 5
  double place = 0;  // of the prior: asinh of the mean
  double width = 0;  // of the prior: logarithm of the deviation, within -20 and 20
  int category = -1;

  double coordinate = 0;  // mixture: a standardised value; bounded: a value in [0, 1]; counts: standardised
  double half_step = 0;   // counts: half of the distance between two values
  bool count_is_zero = false;
  double log_jacobian = 0;  // log density of the value = that of the coordinate + log_jacobian
  double log_prior = 0;     // of the value; categories: that of a uniform choice
};
DrawFeatures features_of(std::span<const double> row);

// A value from a coordinate, the reverse of features_of().
double value_of(const Distribution& prior, double coordinate);

// The share of the prior in each proposal, which bounds the importance weights (Hesterberg 1995, "Weighted
// Average Importance Sampling and Defensive Mixture Distributions", section 2).
inline constexpr double kPriorShare = 0.05;
// Limits of the logarithms of a mixture's widths.
inline constexpr double kLeastLogWidth = -7;
inline constexpr double kMostLogWidth = 3;

}  // namespace wflow::traces
