// SPDX-License-Identifier: Apache-2.0
// One training run, the same program on every rank: data, network, steps, validation, checkpoints, results.
#pragma once

#include "trainer/config.h"
#include "trainer/parallel/communicator.h"
#include "trainer/training/session.h"

namespace wflow::trainer {

enum class Outcome { finished, interrupted };

Outcome train(const TrainConfig& config, Communicator& communicator, const RunOptions& options);

}  // namespace wflow::trainer
