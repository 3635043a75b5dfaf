// SPDX-License-Identifier: Apache-2.0
// A Markov chain over the traces of a simulator whose limit is the posterior: one draw is proposed anew, the
// simulator runs again with the other draws as they were, and draws at new addresses come from their priors
// (lightweight Metropolis-Hastings, Wingate, Stuhlmueller and Goodman 2011, algorithm 2). The proposal is a
// step of a random walk, or a draw from the prior.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "traces/run.h"

namespace wflow::traces {

// Keeps the values of the run before, but for one.
class ReplaySampler final : public Sampler {
 public:
  struct Value {
    Kind kind = Kind::none;
    double value = 0;
    double log_prior = 0;
  };
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // of the name, and the attempt
  using Values = std::map<Key, Value>;

  // Without `chosen`, all values are kept or drawn from the prior.
  explicit ReplaySampler(const Values& before, std::optional<Key> chosen = {})
      : before_(before), chosen_(chosen) {}
  Choice choose(const Site& site, Random& random) override;
  Loops loops() const override { return Loops::every_try; }

  const Values& values() const { return now_; }
  bool impossible() const { return impossible_; }  // the proposed value is outside the prior
  // The logarithm of the densities' ratio of the way back to the way here, of what was proposed and drawn.
  double log_reverse_ratio() const;

 private:
  double moved(const Site& site, double value, Random& random);

  const Values& before_;
  std::optional<Key> chosen_;
  Values now_;
  bool impossible_ = false;
  double log_kernel_ = 0;  // of the move: back less here
  double log_fresh_ = 0;   // of draws at new addresses
};

class Chain {
 public:
  // Runs the simulator once; a result with a mistake is a state of probability 0.
  using Runner = std::function<RunResult(Sampler& sampler, Random& random)>;

  // Begins with a run from the prior. Error{data} if none of 1,000 runs can have made the observation.
  Chain(Runner runner, Random& random);
  // One proposal. True if the chain moved.
  bool step();
  const RunResult& state() const { return state_; }
  std::uint64_t failed() const { return failed_; }  // runs with a mistake; the first one:
  const std::string& first_mistake() const { return first_mistake_; }

 private:
  RunResult run(Sampler& sampler);

  Runner runner_;
  Random& random_;
  RunResult state_;
  ReplaySampler::Values values_;
  double log_joint_ = 0;
  std::uint64_t failed_ = 0;
  std::string first_mistake_;
};

}  // namespace wflow::traces
