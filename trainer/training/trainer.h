// SPDX-License-Identifier: Apache-2.0
// One training run, the same program on every rank: data, network, steps, validation, checkpoints, results.
#pragma once

#include <string>

#include "trainer/config.h"
#include "trainer/parallel/communicator.h"
#include "trainer/training/session.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {

enum class Outcome { finished, interrupted };

Outcome train(const TrainConfig& config, Communicator& communicator, const RunOptions& options);

// An ensemble of networks that differ only in their seed: its mean predicts better than one of them, and its
// spread says how sure that is (Lakshminarayanan et al. 2017).
//
// Trains the members one after the other, each in OUTPUT/member-K, K from 1, with the seed `seed + K - 1` and
// checkpoints of its own, so that it may be killed and continued at any time; then writes the ensemble's
// predictions.h5, model.pt and result.json to OUTPUT. Every rank calls it.
Outcome train_members(const TrainConfig& config, Communicator& communicator, const RunOptions& options);

// A tournament (docs/tournaments.md): the ranks of `world` are trainers of as many consecutive ranks, each
// with a part of the training samples, the seed `seed + K - 1` and the folder OUTPUT/trainer-K, K from 1.
// Then writes the results of the best model to OUTPUT. Every rank calls it.
Outcome train_tournament(const TrainConfig& config, Communicator& world, const RunOptions& options);

// One task of a tournament (TournamentConfig::part): the ranks of `world` are those of its trainer.
Outcome train_tournament_task(const TrainConfig& config, Communicator& world, const RunOptions& options);

// A training that begins while its samples are still simulated (trainer/follow_config.h).
//
// The rate of a stage is constant and that of the last training falls: the schedule "constant, then cooldown"
// needs no number of epochs in advance (Haegele et al. 2024, "Scaling laws and compute-optimal training
// beyond fixed training durations", section 3).

struct Followed {
  TrainConfig config;  // the stage's epochs and rate, and the weights to begin with
  std::string done;    // why nothing is left to train in this stage; else empty
};

// A collective call: rank 0 looks into the folders of the stages before. For a training without `follow`, its
// own configuration.
Followed followed(const TrainConfig& config, Communicator& ranks);

// The sentence on the goal after the epoch; empty if it is not met, or there is none.
std::string goal_met(const TrainConfig& config, const EpochRow& row);

// On rank 0: records in the stage's folder that the goal is met, so that the stages behind it have nothing to
// do. Replaces the file.
void write_goal(const TrainConfig& config, const EpochRow& row, std::size_t validation_samples);

}  // namespace wflow::trainer
