// SPDX-License-Identifier: Apache-2.0
// The rules of a tournament (Jacobs et al. 2017, LTFB): who meets whom, when, and who takes over whose model.
// All of them are functions of the configuration, the seed and the round.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/metric_name.h"
#include "trainer/training/step_plan.h"

namespace wflow::trainer {

// True if the partner's model replaces the own one: it must be better in every metric, and a tie is not
// better. A model with a value that is not finite loses against one without; of two such models each trainer
// keeps its own.
bool takes_partner(std::span<const double> own, std::span<const double> partners,
                   std::span<const MetricName> metrics);

// Factors on numbers of the training, by which `perturb` changes them.
struct PerturbFactors {
  double rate = 1;          // on the learning rate
  double weight_decay = 1;  // on the weight decay of every optimizer

  // Multiplies each number that `perturb` names by one of its factors, drawn for a trainer (from 0) that
  // takes over a model in this round.
  void draw(std::span<const PerturbConfig> perturb, std::uint64_t seed, std::int64_t round, int trainer);
  // Adds "rate_factor" and "weight_decay_factor".
  void write(nlohmann::json& json) const;
  static PerturbFactors from_json(const nlohmann::json& json);
  bool operator==(const PerturbFactors&) const = default;
};

// The steps of one trainer after which its rounds take place. Trainers with unequal data have epochs of
// unequal lengths, and as many rounds as the one with the fewest.
class RoundPlan {
 public:
  RoundPlan(const TournamentConfig& config, const StepPlan& plan) : config_(config), plan_(plan) {}
  // The number of rounds before the end; training follows the last one.
  std::int64_t most_rounds() const;
  std::int64_t step(std::int64_t round) const;

 private:
  const TournamentConfig& config_;
  const StepPlan& plan_;
};

// A trainer's decision in a round.
struct Bout {
  std::int64_t round = 0;
  std::int64_t epoch = 0;  // from 1
  std::int64_t step = 0;
  std::int64_t trainer = 0;  // from 1
  std::int64_t partner = 0;  // 0: none
  struct Score {             // both models on the trainer's held-out samples
    std::string metric;
    double own = 0;
    double partners = 0;
  };
  std::vector<Score> scores;
  bool diverged = false;  // the trainer's own model
  bool took = false;      // the partner's model
  PerturbFactors factors;
};
nlohmann::json to_json(const Bout& bout);
// "takes the model of trainer 3 (loss 0.5 against 0.6)"
std::string describe(const Bout& bout);

// The state of a training that a tournament adds.
struct TournamentRecord {
  std::int64_t rounds = 0;  // held so far
  bool diverged = false;    // the model waits for one that replaces it
  PerturbFactors factors;
  std::vector<Bout> bouts;  // one of each round

  bool has_begun() const { return rounds > 0; }
  nlohmann::json to_json() const;
  static TournamentRecord from_json(const nlohmann::json& json);
};

}  // namespace wflow::trainer
