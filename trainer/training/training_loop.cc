// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/training_loop.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/random.h"
#include "trainer/training/schedule.h"

namespace wflow::trainer {

TrainingLoop::End TrainingLoop::run() {
  const TrainingCounters& counters = state_.counters;
  const StepPlan& plan = session_.plan;
  DataLoader loader(session_.data.train(), session_.data.scales(),
                    plan.largest_batch() / plan.order.ranks + 1,
                    static_cast<int>(session_.config.loader_threads), batches(), session_.data.boxes());
  End end = End::complete;
  double waited = 0;
  while (end == End::complete && counters.epoch < session_.plan.end_epoch && !counters.stopped_early) {
    end = run_epoch(loader);
    if (end != End::unsound && end != End::lost && !ranks_agree()) end = End::unsound;
    const double waited_in_epoch = loader.waited_seconds() - waited;
    waited += waited_in_epoch;
    if (end == End::complete) hooks_.epoch_done(finished_epoch(waited_in_epoch));
  }
  data_wait_seconds_ += loader.waited_seconds();
  return end;
}

TrainingLoop::End TrainingLoop::run_epoch(DataLoader& loader) {
  TrainingCounters& counters = state_.counters;
  const std::int64_t steps = session_.plan.steps(counters.epoch);
  while (counters.step_of_epoch < steps) {
    if (const End end = hold_round(); end != End::complete) return end;
    const Clock::time_point begin = Clock::now();
    const Batch* batch = loader.next();
    WFLOW_CHECK(batch != nullptr);
    const double exposed = session_.waited_seconds();
    if (!step_.take(*batch)) return End::unsound;
    exposed_seconds_ += session_.waited_seconds() - exposed;
    ++counters.step;
    ++counters.step_of_epoch;
    const double seconds = seconds_since(begin);
    counters.epoch_seconds += seconds;
    counters.seconds += seconds;
    if (step_.stopping()) return End::interrupted;
    hooks_.step_done();
    const std::int64_t agree_every = session_.config.guard.agree_every;
    if (agree_every > 0 && counters.step % agree_every == 0 && !ranks_agree()) return End::unsound;
    hooks_.step_sound();
  }
  if (const End end = hold_round(); end != End::complete) return end;
  // Before an evaluation all gradients are applied.
  if (!step_.take_lagged()) return End::unsound;
  return step_.stopping() ? End::interrupted : End::complete;
}

TrainingLoop::End TrainingLoop::hold_round() {
  if (!hooks_.round_is_due || !hooks_.round_is_due()) return End::complete;
  if (!ranks_agree()) return End::unsound;
  switch (hooks_.hold_round()) {
    case AfterRound::go_on:
      return End::complete;
    case AfterRound::stop:
      return End::interrupted;
    case AfterRound::lost:
      return End::lost;
  }
  return End::complete;
}

bool TrainingLoop::ranks_agree() {
  return guard_.ranks_agree(state_.counters.step, [this] { return state_.hash(); });
}

// This rank's part of each batch, from the counters' step on.
DataLoader::Plan TrainingLoop::batches() {
  const std::int64_t first = session_.plan.first_step(state_.counters.epoch) + state_.counters.step_of_epoch;
  const std::int64_t last = session_.plan.total_steps();
  return [this, first, last](std::uint64_t n) -> std::optional<std::vector<BatchItem>> {
    const std::int64_t at = first + static_cast<std::int64_t>(n);
    if (at >= last) return std::nullopt;
    const TrainConfig& config = session_.config;
    RunData& data = session_.data;
    const StepPlan::Place place = session_.plan.place(at);
    const auto epoch = static_cast<std::uint64_t>(place.epoch);
    std::vector<BatchItem> items;
    for (const std::size_t index : session_.plan.order_in(place.epoch)
                                       .indices(epoch, static_cast<std::uint64_t>(place.step_of_epoch))) {
      const std::int64_t id = data.train().source().id(index);
      BatchItem& item = items.emplace_back(BatchItem{index});
      item.augmentation = draw_augmentation(config.augment, data.grid(), hash64(config.seed, 2), epoch, id);
      if (config.augment.noise > 0) item.noise = noise_key(hash64(config.seed, 2), epoch, id);
    }
    return items;
  };
}

EpochRow TrainingLoop::finished_epoch(double waited_seconds) {
  const TrainingCounters& counters = state_.counters;
  const auto samples = static_cast<double>(counters.epoch_samples);
  EpochRow row;
  row.learning_rate =
      counters.tournament.rate_factor *
      learning_rate(session_.config,
                    session_.plan.point({counters.epoch, counters.step_of_epoch - 1}, counters.plateaus));
  row.batch = static_cast<std::int64_t>(session_.plan.order_in(counters.epoch).batch);
  row.noise = counters.epoch_noise;
  row.epoch = counters.epoch + 1;
  row.step = counters.step;
  row.train_loss = counters.epoch_loss / (samples * static_cast<double>(loss_terms_));
  row.seconds = counters.epoch_seconds;
  row.samples_per_second = counters.epoch_seconds > 0 ? samples / counters.epoch_seconds : 0;
  row.data_wait = std::min(1.0, waited_seconds / row.seconds);
  row.exposed_communication = std::min(1.0, exposed_seconds_ / row.seconds);
  exposed_seconds_ = 0;
  return row;
}

}  // namespace wflow::trainer
