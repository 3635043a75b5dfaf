// SPDX-License-Identifier: Apache-2.0
// One training run, the same program on every rank: data, network, steps, validation, checkpoints, results.
#pragma once

#include "trainer/config.h"
#include "trainer/parallel/communicator.h"
#include "trainer/training/session.h"

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

}  // namespace wflow::trainer
