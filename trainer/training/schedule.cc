// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/step_plan.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace wflow::trainer {
namespace {

// Smith and Topin 2018, as in torch.optim: half a cosine up from 1/25, another one down.
double one_cycle_factor(const ScheduleConfig& schedule, double t) {
  constexpr double kBegin = 1.0 / 25;
  const auto half_cosine = [](double from, double to, double part) {
    return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * part));
  };
  if (t < schedule.rise) return half_cosine(kBegin, 1, t / schedule.rise);
  return half_cosine(1, schedule.final_factor,
                     schedule.rise < 1 ? (t - schedule.rise) / (1 - schedule.rise) : 1);
}

double step_factor(const ScheduleConfig& schedule, const SchedulePoint& at) {
  double factor = 1;
  for (const double epoch : schedule.step_epochs) {
    if (at.step >= epoch * static_cast<double>(at.steps_per_epoch)) factor *= schedule.step_factor;
  }
  return factor;
}

double plateau_factor(const ScheduleConfig& schedule, std::int64_t plateaus) {
  return std::max(std::pow(schedule.step_factor, static_cast<double>(plateaus)), schedule.final_factor);
}

}  // namespace

double learning_rate_factor(const ScheduleConfig& schedule, const SchedulePoint& at, std::int64_t epochs) {
  const auto per_epoch = static_cast<double>(at.steps_per_epoch);
  const double warmup = std::floor(schedule.warmup_epochs * per_epoch);
  if (at.step < warmup) return (at.step + 1) / (warmup + 1);
  const double rest = std::max(1.0, static_cast<double>(epochs) * per_epoch - warmup);
  const double t = std::clamp((at.step - warmup) / rest, 0.0, 1.0);
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
    case Decay::one_cycle:
      return one_cycle_factor(schedule, t);
    case Decay::step:
      return step_factor(schedule, at);
    case Decay::plateau:
      return plateau_factor(schedule, at.plateaus);
  }
  return 1;
}

double learning_rate(const TrainConfig& config, const SchedulePoint& at) {
  // Goyal et al. 2017: the rate is proportional to the batch.
  const auto reference = static_cast<double>(config.optimizer.reference_batch);
  const double scaled = reference > 0 ? static_cast<double>(config.batch) / reference : 1.0;
  return config.optimizer.learning_rate * scaled * learning_rate_factor(config.schedule, at, config.epochs);
}

std::int64_t batch_growth(const ScheduleConfig& schedule, std::int64_t epoch) {
  std::int64_t growth = 1;
  for (const std::int64_t begin : schedule.batch_epochs) {
    if (epoch >= begin) growth = std::min(growth * schedule.batch_factor, kMostBatchGrowth);
  }
  return growth;
}

}  // namespace wflow::trainer
