// SPDX-License-Identifier: Apache-2.0
// The state that a training run carries from step to step, saved in and restored from checkpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/sample_source.h"
#include "trainer/data/transform.h"
#include "trainer/metric_name.h"
#include "trainer/model/flat_state.h"
#include "trainer/training/checkpoint.h"
#include "trainer/training/gradients.h"
#include "trainer/training/objective.h"
#include "trainer/training/optimizer.h"
#include "trainer/training/part_optimizers.h"
#include "trainer/training/scale_plan.h"
#include "trainer/training/share_exchange.h"
#include "trainer/training/state_shards.h"
#include "trainer/training/stragglers.h"
#include "trainer/training/tournament.h"

namespace wflow::trainer {

class RunData;

struct EpochRow {
  std::int64_t epoch = 0;    // from 1
  std::int64_t step = 0;     // steps at its end
  double learning_rate = 0;  // at its last step
  double train_loss = 0;
  Evaluation validation;
  double samples_per_second = 0;
  double seconds = 0;                // training time without validation
  double data_wait = 0;              // share of it in which rank 0 waited for data
  double exposed_communication = 0;  // and in which it waited for sums over the ranks
  std::int64_t batch = 0;            // 0: not recorded, by a revision before schedules of the batch
  NoiseSums noise;                   // of its steps
  RankTimes ranks;                   // the work and the waits of all of them
};

struct TrainingCounters {
  std::int64_t epoch = 0;          // finished epochs
  std::int64_t step_of_epoch = 0;  // steps done in the current epoch
  std::int64_t step = 0;           // steps done in total
  double epoch_loss = 0;           // sum over the samples of the current epoch
  std::int64_t epoch_samples = 0;
  double epoch_seconds = 0;
  double seconds = 0;  // over all segments
  double best_value = 0;
  std::int64_t best_epoch = 0;  // 0: none yet
  bool stopped_early = false;
  std::int64_t plateaus = 0;  // `decay: plateau`: how often the rate has fallen
  NoiseSums epoch_noise;      // of the current epoch
  std::int64_t segments = 0;  // number of starts of the program for this run
  std::vector<EpochRow> history;
  std::int64_t rollbacks = 0;  // to an earlier checkpoint, over all segments
  LossScale loss_scale;        // on only with `precision: fp16`
  TournamentRecord tournament;
  OuterRecord outer;
  std::string begun_from;  // checkpoint of the initial weights; empty: random weights
};

// The seed of the initial weights.
std::uint64_t initial_key(const TrainConfig& config);

// The state of a training.
struct TrainingState {
  // `communicator`: of the ranks that sum gradients. `alternating`: parts that learn in some updates only.
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;
  TrainingState(const ModelGraph& graph, const OptimizerConfig& method, double average_decay,
                Communicator* communicator, std::span<const PartConfig> parts = {},
                std::span<const std::string> alternating = {}, Shard shard = Shard::none);
  // Initial weights, or those of a module; with `shard: weights`, this rank's share of them.
  void fill_initial_values(const ModelGraph& graph, std::uint64_t seed);
  // Hash of everything that all ranks must have in common: without a state of which each has a share.
  std::string hash();
  bool shares_weights() const { return shared != nullptr && shared->shares_weights(); }
  // After a change of the own share of the weights: a collective call that gives all ranks all weights, or
  // nothing, if they are collected on use.
  void weights_changed();
  // The gradients that this rank applies, once they are summed: all, or its share of each array.
  std::vector<std::span<float>> applied_gradients();
  // The sum of the squares of all gradients that are summed over the ranks. With shares, a collective call.
  double square_of_gradients();

  FlatState flat;
  StateShards shards;
  std::unique_ptr<SharedState> shared;  // null: each rank has all
  PartOptimizers optimizer;
  WeightAverage average;
  LaggedSums lagged;
  // The momentum of the outer steps, in order of the weights; empty: they have none, or there are no groups.
  std::vector<float> outer_momentum;
  TrainingCounters counters;

 private:
  Communicator* communicator_;
};

// Identifies a training: the data, and the configuration without keys that do not change the result (ranks,
// threads, directories, checkpoints, guard).
nlohmann::json fingerprint(const TrainConfig& config, const DatasetInfo& data);
// A fingerprint in the form of this revision. Its keys are read as a configuration: spellings of earlier
// revisions are understood, and newer keys get their defaults, which keep the old behaviour.
nlohmann::json upgraded_fingerprint(const nlohmann::json& fingerprint);
// "model.width is 4 in the checkpoint and 8 now; seed ...": the differences, empty if there are none.
std::string fingerprint_differences(const nlohmann::json& before, const nlohmann::json& now);

Snapshot snapshot(TrainingState& state, const Normalisation& normalisation,
                  const nlohmann::json& fingerprint);
// The one order of losses and metrics: the smaller is better, unless `larger_is_better`, and any finite value
// is better than NaN and the infinities, which are equal to each other.
bool is_better(double value, double than, bool larger_is_better = false);
// The value by which epochs are compared: the metric in validation. The training loss, where the metric is
// the loss and there is no validation; NaN, where the validation does not have the metric.
double value_of(const EpochRow& row, const MetricName& metric);

// The rule of `early_stop`: the training ends after so many epochs without progress.
struct EarlyStop {
  std::int64_t epochs = 0;     // 0: never
  double min_improvement = 0;  // the part of the best value by which a better one is progress
  MetricName metric = {};
};
class Progress {
 public:
  explicit Progress(EarlyStop rule) : rule_(std::move(rule)) {}
  void add(double value);  // of the next epoch
  bool has_stopped() const { return rule_.epochs > 0 && epochs_ - best_epoch_ >= rule_.epochs; }
  // The next `rule.epochs` epochs count again; the best loss stays.
  void wait_again() { best_epoch_ = epochs_; }

 private:
  EarlyStop rule_;
  std::int64_t epochs_ = 0;
  std::int64_t best_epoch_ = 0;
  double best_ = 0;
};
// How often the values of the epochs have stopped improving for `rule.epochs` epochs.
std::int64_t plateaus_in(const std::vector<EpochRow>& history, const EarlyStop& rule);
// Steps at the ends of the `count` best epochs (value_of()).
std::vector<std::int64_t> best_steps(const std::vector<EpochRow>& history, std::int64_t count,
                                     const MetricName& metric = {});
// Returns the normalisation of the data. Error{data} if an array is missing or has another shape.
Normalisation restore_checkpoint(const CheckpointReader& checkpoint, TrainingState& state);
// Restores the weights that the checkpoint's model was evaluated and exported with, to begin another training
// with, and returns the normalisation that they were trained with. Error{data} as restore_checkpoint().
Normalisation restore_weights(const CheckpointReader& checkpoint, TrainingState& state);
// The same for one part of the network; an average begins with its weights.
void restore_part(const CheckpointReader& checkpoint, const std::string& part, TrainingState& state);
// Restores parameters, their average and buffers.
void restore_network(const CheckpointReader& checkpoint, TrainingState& state);

// Initial weights from the data (Kraehenbuehl et al. 2016; Mishkin and Matas 2016): each convolution and each
// hidden dense layer in turn is scaled and shifted, so that over some training samples every channel of its
// output has mean 0 and variance 1. This has the effect of a norm on the beginning of a training, without
// norms.
//
// The values are the same on all ranks and, except for rounding, on any number of ranks. Layers of `parts`
// keep their weights.
void initialise_from_data(const ModelGraph& graph, RunData& data, Communicator& communicator,
                          FlatState& state, std::span<const std::string> parts = {});

}  // namespace wflow::trainer
