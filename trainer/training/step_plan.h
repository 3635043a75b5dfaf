// SPDX-License-Identifier: Apache-2.0
// The steps of a run: epochs in phases of one batch each.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/data_loader.h"

namespace wflow::trainer {

// The learning rate and the batch over a training: pure functions of the configuration and of the place in
// the run.

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

// Epochs and steps count from 0. The learning rate follows the full run, also where a search ends earlier.
class StepPlan {
 public:
  StepPlan(const TrainingOrder& first, const ScheduleConfig& schedule, std::int64_t end);

  struct Place {
    std::int64_t epoch = 0;
    std::int64_t step_of_epoch = 0;
  };
  Place place(std::int64_t step) const;
  std::int64_t first_step(std::int64_t epoch) const;
  std::int64_t steps(std::int64_t epoch) const;
  std::int64_t total_steps() const { return first_step(end_epoch); }
  const TrainingOrder& order_in(std::int64_t epoch) const { return phase_of(epoch).order; }
  // Batch of the epoch over that of the first one, rounded up.
  std::int64_t growth(std::int64_t epoch) const;
  SchedulePoint point(const Place& place, std::int64_t plateaus) const;

  const TrainingOrder order;     // of the first epoch
  const std::int64_t end_epoch;  // a search: the end of the rung

 private:
  struct Phase {
    std::int64_t epoch = 0;
    std::int64_t step = 0;
    TrainingOrder order;
  };
  const Phase& phase_of(std::int64_t epoch) const;

  std::vector<Phase> phases_;  // the first begins at epoch 0
};

}  // namespace wflow::trainer
