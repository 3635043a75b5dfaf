// SPDX-License-Identifier: Apache-2.0
// The learning rate and the batch over a training: pure functions of the configuration and of the place in
// the run.
#pragma once

#include <cstdint>

#include "trainer/config.h"

namespace wflow::trainer {

// The place of a step in a run.
struct SchedulePoint {
  double step = 0;                   // from the beginning, in steps of the first epoch's length
  std::int64_t steps_per_epoch = 0;  // of the first epoch
  std::int64_t plateaus = 0;         // so far: TrainingCounters::plateaus
};

// The factor on the base rate in a run of `epochs`. It rises linearly from nearly 0 during the warm-up, then
// falls to final_factor just beyond the last step.
double learning_rate_factor(const ScheduleConfig& schedule, const SchedulePoint& at, std::int64_t epochs);

// The learning rate: the base rate of `optimizer`, scaled by the batch of the first epoch, times the factor
// of `schedule`. A batch that grows during the run does not raise the rate: it takes the place of a lower
// one.
double learning_rate(const TrainConfig& config, const SchedulePoint& at);

// The batch in `epoch` (from 0) over that of the first epoch.
std::int64_t batch_growth(const ScheduleConfig& schedule, std::int64_t epoch);

}  // namespace wflow::trainer
