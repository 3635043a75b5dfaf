// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace wflow::trainer {

double learning_rate_factor(const ScheduleConfig& schedule, std::int64_t step, std::int64_t steps_per_epoch,
                            std::int64_t epochs) {
  const auto per_epoch = static_cast<double>(steps_per_epoch);
  const double warmup = std::floor(schedule.warmup_epochs * per_epoch);
  const auto at = static_cast<double>(step);
  if (at < warmup) return (at + 1) / (warmup + 1);
  const double rest = std::max(1.0, static_cast<double>(epochs) * per_epoch - warmup);
  const double t = std::clamp((at - warmup) / rest, 0.0, 1.0);
  const double last = schedule.final_factor;
  switch (schedule.decay) {
    case Decay::none:
      return 1;
    case Decay::cosine:
      return last + (1 - last) * 0.5 * (1 + std::cos(std::numbers::pi * t));
    case Decay::linear:
      return last + (1 - last) * (1 - t);
    case Decay::polynomial:
      return last + (1 - last) * std::pow(1 - t, schedule.power);
    case Decay::one_cycle: {
      // Smith and Topin 2018, as torch.optim has it: half a cosine up from 1/25, another one down.
      constexpr double kBegin = 1.0 / 25;
      const auto half_cosine = [](double from, double to, double part) {
        return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * part));
      };
      if (t < schedule.rise) return half_cosine(kBegin, 1, t / schedule.rise);
      return half_cosine(1, last, schedule.rise < 1 ? (t - schedule.rise) / (1 - schedule.rise) : 1);
    }
    case Decay::step: {
      double factor = 1;
      for (const double epoch : schedule.step_epochs) {
        if (at >= epoch * per_epoch) factor *= schedule.step_factor;
      }
      return factor;
    }
  }
  return 1;
}

double learning_rate(const TrainConfig& config, std::int64_t step, std::int64_t steps_per_epoch) {
  // Goyal et al. 2017: the rate in proportion to the batch.
  const auto reference = static_cast<double>(config.optimizer.reference_batch);
  const double scaled = reference > 0 ? static_cast<double>(config.batch) / reference : 1.0;
  return config.optimizer.learning_rate * scaled *
         learning_rate_factor(config.schedule, step, steps_per_epoch, config.epochs);
}

}  // namespace wflow::trainer
