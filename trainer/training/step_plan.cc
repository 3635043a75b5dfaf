// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/step_plan.h"

#include <algorithm>
#include <ranges>

namespace wflow::trainer {
namespace {

std::int64_t steps_of(const TrainingOrder& order) {
  return static_cast<std::int64_t>(order.steps_per_epoch());
}

}  // namespace

StepPlan::StepPlan(const TrainingOrder& first, const ScheduleConfig& schedule, std::int64_t end)
    : order(first), end_epoch(end), phases_{{0, 0, first}} {
  for (const std::int64_t epoch : schedule.batch_epochs) {
    if (epoch >= end_epoch) break;
    TrainingOrder grown = first;
    // More than all samples make no difference.
    grown.batch = std::min(first.batch * static_cast<std::size_t>(batch_growth(schedule, epoch)),
                           std::max(first.batch, first.samples));
    phases_.push_back({epoch, first_step(epoch), grown});
  }
}

const StepPlan::Phase& StepPlan::phase_of(std::int64_t epoch) const {
  return *(std::ranges::upper_bound(phases_, epoch, {}, &Phase::epoch) - 1);
}

StepPlan::Place StepPlan::place(std::int64_t step) const {
  const Phase& phase = *(std::ranges::upper_bound(phases_, step, {}, &Phase::step) - 1);
  const std::int64_t in_phase = step - phase.step;
  return {phase.epoch + in_phase / steps_of(phase.order), in_phase % steps_of(phase.order)};
}

std::int64_t StepPlan::first_step(std::int64_t epoch) const {
  const Phase& phase = phase_of(epoch);
  return phase.step + (epoch - phase.epoch) * steps_of(phase.order);
}

std::int64_t StepPlan::steps(std::int64_t epoch) const {
  return steps_of(order_in(epoch));
}

std::int64_t StepPlan::growth(std::int64_t epoch) const {
  return static_cast<std::int64_t>((order_in(epoch).batch + order.batch - 1) / order.batch);
}

SchedulePoint StepPlan::point(const Place& place, std::int64_t plateaus) const {
  const std::int64_t first = steps_of(order);
  const double part =
      static_cast<double>(place.step_of_epoch * first) / static_cast<double>(steps(place.epoch));
  return {static_cast<double>(place.epoch * first) + part, first, plateaus};
}

}  // namespace wflow::trainer
