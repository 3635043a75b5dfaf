// SPDX-License-Identifier: Apache-2.0
// The `tournament:` block of `train:`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/yaml.h"

namespace wflow::config {
template <typename Config>
class Table;
}

namespace wflow::trainer {

// Where the trainers of a tournament get their training samples: each has a part of its own, or all have all.
enum class TournamentData { disjoint, shared };
// The arrays that the trainers of a pair exchange: weights, the optimizer's with them, or named parts.
enum class ModelExchange { weights, all, parts };

// A number of the training that changes when a trainer takes its partner's model.
struct PerturbConfig {
  std::string key;  // "optimizer.learning_rate"
  std::vector<double> factors;
  bool operator==(const PerturbConfig&) const = default;
};

// Trainers that train by themselves and compare their models in rounds: trainer/training/tournament.h.
struct TournamentConfig {
  std::int64_t trainers = 0;      // 0: no tournament
  std::int64_t every_epochs = 1;  // between rounds; 0: every_steps says it
  std::int64_t every_steps = 0;
  std::int64_t rounds = 0;           // 0: as many as fit
  std::vector<std::string> metrics;  // empty: `metric` of the training
  double fraction = 0.1;             // of a trainer's samples, on which it compares models
  TournamentData data = TournamentData::disjoint;
  ModelExchange exchange = ModelExchange::weights;
  std::vector<std::string> parts;  // ModelExchange::parts
  std::vector<PerturbConfig> perturb;
  bool on() const { return trainers > 0; }
  std::int64_t groups() const { return on() ? trainers : 1; }  // of ranks
  bool operator==(const TournamentConfig&) const = default;
};

const config::Table<TournamentConfig>& tournament_table();
// The value of `every`, as in YAML.
yaml::Node every_node(const TournamentConfig& config);

}  // namespace wflow::trainer
