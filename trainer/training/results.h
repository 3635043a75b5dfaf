// SPDX-License-Identifier: Apache-2.0
// Results of a finished training: predictions and errors on the test split, models, metrics, result.json.
#pragma once

#include "trainer/model/network.h"
#include "trainer/training/checkpoint.h"
#include "trainer/training/evaluation.h"
#include "trainer/training/heads.h"
#include "trainer/training/run_report.h"
#include "trainer/training/session.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {

// Times of this run of the program; a training may take several.
struct SegmentTimes {
  Clock::time_point begin;
  double validation = 0;
  double data_wait = 0;
  double checkpoint_wait = 0;
  double outer_steps = 0;
  double step = 0;  // the median of a step; 0: there was none
  RankTimes ranks;
};

// A collective call; the evaluation weights stay in `state`.
void write_results(Session& session, const Heads& heads, TrainingState& state, const Network& network,
                   Evaluator& evaluator, const CheckpointDirectory& checkpoints, RunReport& report,
                   const SegmentTimes& times);

}  // namespace wflow::trainer
