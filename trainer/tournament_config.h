// SPDX-License-Identifier: Apache-2.0
// The `tournament:` block of `train:`.
#pragma once

#include <cstdint>
#include <optional>
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

// Where the trainers of a tournament run: in one job of all ranks, or as tasks of a campaign.
enum class TournamentForm { job, tasks };

inline constexpr const char* kPerturbedRate = "optimizer.learning_rate";
inline constexpr const char* kPerturbedDecay = "optimizer.weight_decay";

// A number of the training that changes when a trainer takes its partner's model.
struct PerturbConfig {
  std::string key;  // kPerturbedRate or kPerturbedDecay
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
  TournamentForm as = TournamentForm::job;

  // Set by a campaign, with TournamentForm::tasks: one task of the tournament. Part 0, of trainer 1, finds
  // the normalisation that all have. Part P of a trainer holds round P - 1, with the models that the parts P
  // - 1 have left, and trains to the next round. The part behind the last one ranks the trainers.
  std::optional<std::int64_t> part;
  std::int64_t trainer = 1;
  // Output folders of tasks before: of part 0; of the trainer's part before, and of its partner's where it
  // has one; of all trainers' last parts.
  std::vector<std::string> before;

  bool on() const { return trainers > 0; }
  std::int64_t groups() const { return on() && !part ? trainers : 1; }  // of ranks
  bool operator==(const TournamentConfig&) const = default;
};

// The keys that a campaign sets.
inline constexpr const char* kCampaignTournamentKeys[] = {"part", "trainer", "before"};

// The number of rounds of a training of so many epochs, where it does not depend on the data.
std::optional<std::int64_t> known_rounds(const TournamentConfig& config, std::int64_t epochs);

// The partner of each trainer, from 0, in a round, from 1. With an odd number one has none.
std::vector<std::optional<int>> partners_in(std::uint64_t seed, std::int64_t round, int trainers);

const config::Table<TournamentConfig>& tournament_table();
// The value of `every`, as in YAML.
yaml::Node every_node(const TournamentConfig& config);

}  // namespace wflow::trainer
