// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/training_loop.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/process.h"
#include "base/random.h"
#include "trainer/training/step_plan.h"

namespace wflow::trainer {

// The median needs no more steps.
static constexpr std::size_t kKeptSteps = 4096;

TrainingLoop::End TrainingLoop::run() {
  const TrainingCounters& counters = state_.counters;
  const StepPlan& plan = session_.plan;
  DataLoader loader(session_.data.train(), session_.data.scales(),
                    plan.order_in(plan.end_epoch - 1).most_of_rank(),
                    static_cast<int>(session_.config.loader_threads), batches(), session_.data.boxes());
  End end = End::complete;
  if (local_ != nullptr) local_->begin();
  outer_step_ = counters.step;
  double waited = 0;
  while (end == End::complete && counters.epoch < session_.plan.end_epoch && !counters.stopped_early) {
    end = run_epoch(loader);
    if (end != End::unsound && end != End::lost && !ranks_agree()) end = End::unsound;
    const double waited_in_epoch = loader.waited_seconds() - waited;
    waited += waited_in_epoch;
    if (end == End::complete) hooks_.epoch_done(finished_epoch(waited_in_epoch));
    for (const SlowNodeNews::News& news : stragglers_.take_news()) hooks_.node_slow(news);
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
    const double waited = loader.waited_seconds();
    const Batch* batch = loader.next();
    WFLOW_CHECK(batch != nullptr);
    const double data_wait = loader.waited_seconds() - waited;
    const double exposed = session_.waited_seconds();
    slow_down();
    if (local_ != nullptr) {
      local_->take(step_, *batch);
    } else if (!step_.take(*batch)) {
      return End::unsound;
    }
    const double rank_wait = session_.waited_seconds() - exposed;
    ++counters.step;
    ++counters.step_of_epoch;
    const double seconds = seconds_since(begin);
    counters.epoch_seconds += seconds;
    counters.seconds += seconds;
    if (step_seconds_.size() < kKeptSteps)
      step_seconds_.push_back(seconds);
    else
      step_seconds_[static_cast<std::size_t>(counters.step) % kKeptSteps] = seconds;
    epoch_time_ +=
        {seconds - data_wait - rank_wait, data_wait, rank_wait, static_cast<double>(batch->items.size())};
    if (const End end = local_ == nullptr ? after_step() : after_local_step(); end != End::complete)
      return end;
  }
  if (const End end = hold_round(); end != End::complete) return end;
  // Before an evaluation all gradients are applied.
  if (!step_.take_lagged()) return End::unsound;
  return local_ == nullptr && step_.stopping() ? End::interrupted : End::complete;
}

TrainingLoop::End TrainingLoop::after_step() {
  if (step_.stopping()) return End::interrupted;
  hooks_.step_done();
  if (!ranks_agree_after(state_.counters.step - 1)) return End::unsound;
  hooks_.step_sound();
  return End::complete;
}

// The ranks have one state after outer steps only.
TrainingLoop::End TrainingLoop::after_local_step() {
  hooks_.step_done();
  if (!local_->is_due()) return End::complete;
  TrainingCounters& counters = state_.counters;
  const Clock::time_point begin = Clock::now();
  const LocalSteps::After after = local_->outer_step();
  const double seconds = seconds_since(begin);
  counters.epoch_seconds += seconds;
  counters.seconds += seconds;
  epoch_time_ += {0, 0, seconds, 0};
  if (after == LocalSteps::After::unsound) return End::unsound;
  if (after == LocalSteps::After::stop) return End::interrupted;
  if (!ranks_agree_after(std::exchange(outer_step_, counters.step))) return End::unsound;
  hooks_.step_sound();
  return End::complete;
}

// True also where no comparison is due since `step`.
bool TrainingLoop::ranks_agree_after(std::int64_t step) {
  const std::int64_t every = session_.config.guard.agree_every;
  return every == 0 || state_.counters.step / every == step / every || ranks_agree();
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

void TrainingLoop::slow_down() const {
  for (const SlowRank& slow : session_.options.slow_ranks) {
    if (slow.sleeps(session_.communicator.rank(), host_name(), state_.counters.step))
      std::this_thread::sleep_for(std::chrono::duration<double>(slow.seconds));
  }
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
      counters.tournament.factors.rate *
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
  row.exposed_communication = std::min(1.0, epoch_time_.rank_wait / row.seconds);
  row.ranks = stragglers_.add(std::exchange(epoch_time_, {}));
  return row;
}

}  // namespace wflow::trainer
