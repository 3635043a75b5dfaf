// SPDX-License-Identifier: Apache-2.0
// A training that begins while its samples are still simulated (trainer/follow_config.h).
//
// The rate of a stage is constant and that of the last training falls: the schedule "constant, then cooldown"
// needs no number of epochs in advance (Haegele et al. 2024, "Scaling laws and compute-optimal training
// beyond fixed training durations", section 3).
#pragma once

#include <string>

#include "trainer/config.h"
#include "trainer/parallel/communicator.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {

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
