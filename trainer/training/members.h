// SPDX-License-Identifier: Apache-2.0
// An ensemble of networks that differ in their seed alone: its mean predicts better than one of them, and its
// spread says how sure that is (Lakshminarayanan et al. 2017).
#pragma once

#include "trainer/config.h"
#include "trainer/parallel/communicator.h"
#include "trainer/training/trainer.h"

namespace wflow::trainer {

// Trains the members one after the other, each in OUTPUT/member-K, K from 1, with the seed `seed + K - 1` and
// checkpoints of its own, so that it may be killed and continued at any time; then writes the ensemble's
// predictions.h5, model.pt and result.json to OUTPUT. Every rank calls it.
Outcome train_members(const TrainConfig& config, Communicator& communicator, const RunOptions& options);

}  // namespace wflow::trainer
