// SPDX-License-Identifier: Apache-2.0
// The learning rate as a function of the step.
#pragma once

#include <cstdint>

#include "trainer/config.h"

namespace wflow::trainer {

// The factor on the base rate at step `step` of `epochs * steps_per_epoch`. Linear from nearly 0 during the
// warm-up, then falling to final_factor just beyond the last step.
double learning_rate_factor(const ScheduleConfig& schedule, std::int64_t step, std::int64_t steps_per_epoch,
                            std::int64_t epochs);
// The rate of the step, of which `optimizer` and `schedule` of the configuration are the base and the factor.
double learning_rate(const TrainConfig& config, std::int64_t step, std::int64_t steps_per_epoch);

}  // namespace wflow::trainer
