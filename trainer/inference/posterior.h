// SPDX-License-Identifier: Apache-2.0
// The posterior of a simulator's parameters that a network has learnt (`loss: mixture`): draws from it, their
// summaries, and the test of its calibration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/training/mixture_density.h"

namespace wflow::trainer {

// Least and greatest value of each parameter that the prior allows.
using PriorBox = std::vector<std::pair<double, double>>;

struct PosteriorDraws {
  std::vector<double> values;       // [draws, parameters]
  std::vector<double> log_density;  // of each draw, within the box
  double outside = 0;               // share of the density outside of the box, as found by the draws
  std::size_t count() const { return log_density.size(); }
};

// Draws that lie in the box: others are drawn again. They are a function of `key`. Error{data} if less than
// one in 1,000 lies in the box. An empty box allows all.
PosteriorDraws draw_posterior(const MixtureDensity& density, const PriorBox& box, std::size_t count,
                              std::uint64_t key);

double mean_of(std::span<const double> values);

struct ParameterSummary {
  double mean = 0;
  double deviation = 0;
  std::vector<double> quantiles;  // at kPosteriorQuantiles
};
inline constexpr double kPosteriorQuantiles[] = {0.025, 0.16, 0.5, 0.84, 0.975};
std::vector<ParameterSummary> summaries(const PosteriorDraws& draws, std::size_t parameters);
// [parameters, parameters]; `summaries`: those of the draws.
std::vector<double> correlations(const PosteriorDraws& draws, std::span<const ParameterSummary> summaries);

// `count` points with equal probability in the part of the box where the density is at least that of all
// draws but the thousandth part with the lowest density: the prior of the next round, for a uniform prior in
// the box (truncated sequential neural posterior estimation, Deistler, Goncalves and Macke 2022,
// arXiv:2210.04815, section 3). [count, parameters]. `share`: the part of the box's volume that this is, as
// found by the points. Error{data} without a box, or if it finds less than a point in 10,000 tries.
struct Proposals {
  std::vector<double> values;
  double share = 0;
};
Proposals propose(const MixtureDensity& density, const PosteriorDraws& draws, const PriorBox& box,
                  std::size_t count, std::uint64_t key);

// Simulation-based calibration (Talts et al. 2018, arXiv:1804.06788, algorithm 1): if the posterior is right,
// the share of its draws below the truth is uniform over samples of the prior. The same holds for the share
// of draws whose density is higher than that of the truth (Hyndman 1996, "Computing and Graphing Highest
// Density Regions"), which gives the coverage of the joint regions.
class Calibration {
 public:
  static constexpr std::size_t kBins = 20;

  explicit Calibration(std::size_t parameters);
  // `log_density`: of the truth, as that of the draws.
  void add(const PosteriorDraws& draws, std::span<const double> truth, double log_density);

  struct Row {
    std::vector<std::size_t> ranks;  // samples in each bin of the share of draws below the truth
    double within_68 = 0;            // share of the truths in the central (joint: densest) 68 % of the draws
    double within_95 = 0;
    double p_value = 1;  // of the chi-square test that the ranks are uniform
  };
  std::size_t samples() const { return samples_; }
  Row parameter(std::size_t i) const { return row_of(shares_[i], false); }
  Row joint() const { return row_of(shares_.back(), true); }
  // The mean over the samples of the draws' standard deviation.
  double mean_deviation(std::size_t i) const;

 private:
  static Row row_of(const std::vector<double>& shares, bool joint);

  std::size_t samples_ = 0;
  std::vector<std::vector<double>> shares_;  // of each parameter, then the joint ones
  std::vector<double> deviations_;           // sums
};

// The probability that a chi-square variable with `freedom` degrees of freedom is at least `value`.
double chi_square_tail(double value, double freedom);

}  // namespace wflow::trainer
