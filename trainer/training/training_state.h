// SPDX-License-Identifier: Apache-2.0
// All that a training run carries from step to step, and its way into a checkpoint and back.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/sample_source.h"
#include "trainer/data/transform.h"
#include "trainer/model/flat_state.h"
#include "trainer/training/checkpoint.h"
#include "trainer/training/lagged_sums.h"
#include "trainer/training/loss_scale.h"
#include "trainer/training/objective.h"
#include "trainer/training/optimizer.h"
#include "trainer/training/weight_average.h"

namespace wflow::trainer {

struct EpochRow {
  std::int64_t epoch = 0;    // from 1
  std::int64_t step = 0;     // at its end
  double learning_rate = 0;  // of its last step
  double train_loss = 0;
  Evaluation validation;
  double samples_per_second = 0;
  double seconds = 0;                // of training, without validation
  double data_wait = 0;              // share of that in which rank 0 waited for data
  double exposed_communication = 0;  // and for sums over the ranks
};

struct TrainingCounters {
  std::int64_t epoch = 0;          // finished ones
  std::int64_t step_of_epoch = 0;  // steps done in the epoch under way
  std::int64_t step = 0;           // steps done in all
  double epoch_loss = 0;           // sum over the samples of the epoch under way
  std::int64_t epoch_samples = 0;
  double epoch_seconds = 0;
  double seconds = 0;  // over all segments
  double best_value = 0;
  std::int64_t best_epoch = 0;  // 0: none yet
  bool stopped_early = false;
  std::int64_t segments = 0;  // how many times the program was started for this run
  std::vector<EpochRow> history;
  std::int64_t rollbacks = 0;  // to an earlier checkpoint, over all segments
  LossScale loss_scale;        // on with `precision: fp16` alone
  std::string begun_from;      // the checkpoint whose weights it began with; empty: random ones
};

// What makes two runs the same training: the configuration without what does not change the result (ranks,
// threads, directories, checkpoint policy, guard), and the data.
nlohmann::json fingerprint(const TrainConfig& config, const DatasetInfo& data);
// A fingerprint as this revision would have written it: its keys are read as a configuration, so that words
// of earlier revisions are understood and keys that came later have their defaults, which compute what was
// computed then.
nlohmann::json upgraded_fingerprint(const nlohmann::json& fingerprint);
// "model.width is 4 in the checkpoint and 8 now; seed ...": the differences, empty if there are none.
std::string fingerprint_differences(const nlohmann::json& before, const nlohmann::json& now);

// An unsealed checkpoint (checkpoint.h): a copy of all state.
std::string snapshot(FlatState& state, Optimizer& optimizer, WeightAverage& average, LaggedSums& lagged,
                     const TrainingCounters& counters, const Normalisation& normalisation,
                     const nlohmann::json& fingerprint);
// The one order of losses and of a search's metrics: the smaller is better, and any finite value is better than
// NaN and the infinities, which are equal to each other.
bool is_better(double loss, double than);
// Steps at the ends of the `count` epochs with the best validation (or training loss, without one).
std::vector<std::int64_t> best_steps(const std::vector<EpochRow>& history, std::int64_t count);
// Error{data} if an array is missing or has another shape.
void restore_checkpoint(const Checkpoint& checkpoint, FlatState& state, Optimizer& optimizer,
                        WeightAverage& average, LaggedSums& lagged, TrainingCounters& counters,
                        Normalisation& normalisation);
// The weights that the checkpoint's model was evaluated and exported with, to begin another training with,
// and the normalisation that they were trained with. Error{data} as restore_checkpoint().
void restore_weights(const Checkpoint& checkpoint, FlatState& state, WeightAverage& average,
                     Normalisation& normalisation);
// Parameters, their average and buffers alone.
void restore_network(const Checkpoint& checkpoint, FlatState& state, WeightAverage& average);

}  // namespace wflow::trainer
