// SPDX-License-Identifier: Apache-2.0
// The posterior of an observation as weighted traces: draws by name, and how good they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainer/inference/posterior.h"

namespace wflow::trainer {

// Traces of one observation. Chains: in order of chain and step, each with weight 1.
struct TracePosterior {
  std::vector<double> log_weight;
  std::vector<std::uint64_t> chain;  // rmh: the number of the chain
  // For each name of a draw or tag the value in each trace; NaN where a trace does not have it.
  std::map<std::string, std::vector<double>> values;
  // For each trace the log likelihood of the observation, and of a replica, which its distributions have
  // made.
  std::vector<double> log_likelihood, log_likelihood_of_replica;
  // [traces, observed values]: the replicas. Empty if the observation has more than traces::kMostReplicas
  // values.
  std::vector<double> replicas;

  std::size_t count() const { return log_weight.size(); }
  // Sum to 1. All zero if no trace can have made the observation.
  std::vector<double> weights() const;
};

// (sum of weights)^2 / sum of their squares.
double effective_samples(std::span<const double> weights);
// The logarithm of the mean weight, and the relative error of that mean.
struct Evidence {
  double log_mean = 0;
  double relative_error = 0;
};
Evidence evidence_of(std::span<const double> log_weights);

// The traces that have the name, with their weights.
ParameterSummary summary_of(std::span<const double> values, std::span<const double> weights);
// The weight of the traces that have a value.
double presence_of(std::span<const double> values, std::span<const double> weights);

// Posterior predictive check (Gelman, Meng and Stern 1996): how the observation lies among its replicas.
struct PredictiveCheck {
  // Share of replicas that are less likely than the observation, given their traces. Near 0: the simulator
  // hardly makes such observations.
  double p_value = 0;
  struct Value {
    double observed = 0;
    double low = 0, median = 0, high = 0;  // of the replicas: quantiles 0.05, 0.5 and 0.95
    double below = 0;  // share of the replicas below the observed value, and half of the equal ones
    bool within_90() const { return below >= 0.05 && below <= 0.95; }
  };
  std::vector<Value> values;  // none if there are no replicas
};
PredictiveCheck predictive_check(const TracePosterior& posterior, std::span<const double> observed);

// Potential scale reduction of chains that are split in two (Gelman et al. 2013, "Bayesian Data Analysis",
// section 11.4). 1: they agree; NaN if a state has no value or nothing varies.
double split_r_hat(std::span<const double> values, std::span<const std::uint64_t> chains);

// `count` traces drawn by their weights (systematic resampling, Kitagawa 1996), as equally weighted draws of
// the names that all of them have.
PosteriorDraws resampled(const TracePosterior& posterior, const std::vector<std::string>& names,
                         std::size_t count, std::uint64_t key);

}  // namespace wflow::trainer
