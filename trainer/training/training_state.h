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
#include "trainer/training/gradients.h"
#include "trainer/training/objective.h"
#include "trainer/training/optimizer.h"

namespace wflow::trainer {

class RunData;

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

// All that a training carries from step to step.
struct TrainingState {
  // `communicator` as LaggedSums takes it.
  TrainingState(const ModelGraph& graph, const OptimizerConfig& method, double average_decay,
                Communicator* communicator)
      : flat(graph),
        optimizer(method, flat.parameters()),
        average(average_decay, flat.parameters()),
        lagged(communicator) {}
  // Hash of everything that all ranks must have in common.
  std::string hash();

  FlatState flat;
  Optimizer optimizer;
  WeightAverage average;
  LaggedSums lagged;
  TrainingCounters counters;
};

// Identifies a training: the data, and the configuration without keys that do not change the result (ranks,
// threads, directories, checkpoints, guard).
nlohmann::json fingerprint(const TrainConfig& config, const DatasetInfo& data);
// A fingerprint as this revision would have written it: its keys are read as a configuration, so that words
// of earlier revisions are understood and keys that came later have their defaults, which compute what was
// computed then.
nlohmann::json upgraded_fingerprint(const nlohmann::json& fingerprint);
// "model.width is 4 in the checkpoint and 8 now; seed ...": the differences, empty if there are none.
std::string fingerprint_differences(const nlohmann::json& before, const nlohmann::json& now);

// An unsealed checkpoint (checkpoint.h): a copy of all state.
std::string snapshot(TrainingState& state, const Normalisation& normalisation,
                     const nlohmann::json& fingerprint);
// True if `loss` is less. Every number is less than NaN and infinity, which are equal.
bool is_better(double loss, double than);
// Steps at the ends of the `count` epochs with the best validation (or training loss, without one).
std::vector<std::int64_t> best_steps(const std::vector<EpochRow>& history, std::int64_t count);
// Returns the normalisation of the data. Error{data} if an array is missing or has another shape.
Normalisation restore_checkpoint(const Checkpoint& checkpoint, TrainingState& state);
// Restores the weights that the checkpoint's model was evaluated and exported with, to begin another training
// with, and returns the normalisation that they were trained with. Error{data} as restore_checkpoint().
Normalisation restore_weights(const Checkpoint& checkpoint, FlatState& state, WeightAverage& average);
// Restores parameters, their average and buffers.
void restore_network(const Checkpoint& checkpoint, FlatState& state, WeightAverage& average);

// Initial weights from the data (Kraehenbuehl et al. 2016; Mishkin and Matas 2016): each convolution and each
// hidden dense layer in turn is scaled and shifted, so that over some training samples every channel of its
// output has mean 0 and variance 1. What a norm does for the begin of a training, without a norm behind it.
//
// The same values on all ranks and, but for rounding, on any number of ranks.
void initialise_from_data(const ModelGraph& graph, RunData& data, Communicator& communicator,
                          FlatState& state);

}  // namespace wflow::trainer
