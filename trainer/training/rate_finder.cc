// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/rate_finder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <memory>

#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "trainer/model/network.h"
#include "trainer/training/common_guard.h"
#include "trainer/training/evaluation.h"
#include "trainer/training/heads.h"
#include "trainer/training/recovery.h"
#include "trainer/training/run_report.h"
#include "trainer/training/training_loop.h"
#include "trainer/training/training_state.h"
#include "trainer/training/training_step.h"
#include "trainer/training/updates.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTrials = 120;
constexpr double kRange = 1e4;      // of rates below and above the configured one
constexpr double kSmoothing = 0.9;  // weight of the losses before in the smoothed loss
constexpr double kRise = 3;
// The first trials, whose rates are too low to change the loss: they give its level and its scatter.
constexpr std::size_t kFlatTrials = 30;
constexpr double kDeviations = 3;  // of the scatter, by which the loss must fall to count
constexpr std::size_t kTrialsPerBar = 5;
constexpr int kBarWidth = 50;

double rate_of(double middle, std::int64_t trial) {
  return middle / kRange * std::pow(kRange * kRange, static_cast<double>(trial) / (kTrials - 1));
}

// The configuration of a training's beginning, without keys that only matter in a long one.
TrainConfig probe_of(TrainConfig config) {
  config.guard.on = false;  // a loss that rises is what is looked for
  config.noise_scale_every = 0;
  config.groups = {};
  config.schedule.batch_epochs.clear();
  config.epochs = kTrials;  // enough also where an epoch is one step
  return config;
}

void forget_epoch(TrainingCounters& counters) {
  ++counters.epoch;
  counters.step_of_epoch = 0;
  counters.epoch_loss = 0;
  counters.epoch_samples = 0;
  counters.epoch_seconds = 0;
}

RateCurve curve_of(Session& session) {
  const TrainConfig& config = session.config;
  const Heads heads = network_heads(config, session.data.targets(), session.graph, session.modules);
  TrainingState state(session.graph, config.optimizer, config.ema, &session.communicator, config.parts,
                      alternating_parts(config), config.shard);
  RunReport report(session);
  state.fill_initial_values(session.graph, initial_key(config));
  begin_training(session, state, report);
  const std::unique_ptr<Network> network = session.network(state.flat);
  Updates updates(session, heads, state.flat, *network);
  CommonGuard guard(config.guard, session.communicator, session.summing(), report, updates.all().size());
  PassBuffers buffers;
  RateCurve curve;
  TrainingCounters& counters = state.counters;
  const auto is_done = [&] {
    return curve.diverged() || counters.step >= kTrials ||
           (session.options.stop_asked && session.options.stop_asked());
  };
  TrainingStep step(session, heads, state, updates, buffers, guard, report, is_done);
  const double reference = static_cast<double>(config.optimizer.reference_batch);
  const double scaled = reference > 0 ? static_cast<double>(config.batch) / reference : 1.0;
  const auto rate_at = [&](std::int64_t trial) { return rate_of(config.optimizer.learning_rate, trial); };
  LoopHooks hooks;
  hooks.step_done = [&] {
    curve.add(rate_at(counters.step - 1), step.loss());
    step.set_rate(rate_at(counters.step) * scaled);
  };
  hooks.step_sound = [] {};
  hooks.epoch_done = [&](const EpochRow&) { forget_epoch(counters); };
  step.set_rate(rate_at(0) * scaled);
  TrainingLoop loop(session, heads.terms(), state, step, guard, nullptr, hooks);
  try {
    loop.run();
  } catch (const NotFinite&) {  // on every rank
    curve.add(rate_at(counters.step), std::numeric_limits<double>::infinity());
  }
  return curve;
}

std::string sentence(const std::optional<double>& rate, const char* rule, const char* otherwise) {
  return rate ? fmt::format("  {:<10.2g} {}\n", *rate, rule) : fmt::format("  {:<10} {}\n", "-", otherwise);
}

std::string text_of(const RateCurve& curve, const TrainConfig& config, const fs::path& file) {
  std::string out =
      fmt::format("loss over the learning rate, {} steps of batch {} from the initial weights\n\n{}\n",
                  curve.trials().size(), config.batch, curve.plot());
  out +=
      sentence(curve.halfway(), "the loss has fallen halfway to its lowest value", "the loss does not fall");
  out += sentence(curve.tenth_of_divergence(), "a tenth of the rate at which the loss diverges",
                  "the loss does not diverge");
  if (const auto rate = curve.suggested()) {
    out += fmt::format("\nthe smaller of them:  optimizer: {{name: {}, learning_rate: {:.2g}}}\n",
                       name_of(config.optimizer.name), *rate);
  } else {
    out +=
        "\nno rate to suggest: look at the data, and try another 'learning_rate' as the middle of the "
        "range\n";
  }
  return out + fmt::format("the curve is in {}\n", file.string());
}

}  // namespace

void RateCurve::add(double rate, double loss) {
  const auto count = static_cast<double>(trials_.size() + 1);
  average_ = kSmoothing * average_ + (1 - kSmoothing) * loss;
  const double smoothed = average_ / (1 - std::pow(kSmoothing, count));
  trials_.push_back({rate, loss, smoothed});
  if (trials_.size() == 1 || smoothed < lowest_) lowest_ = smoothed;
  const double fallen = trials_.front().smoothed - lowest_;
  diverged_ = !std::isfinite(smoothed) || smoothed - lowest_ > kRise * std::max(std::abs(lowest_), fallen);
}

std::optional<double> RateCurve::halfway() const {
  if (trials_.size() <= kFlatTrials) return std::nullopt;
  double level = 0;
  for (std::size_t i = 0; i < kFlatTrials; ++i) level += trials_[i].loss / kFlatTrials;
  double variance = 0;
  for (std::size_t i = 0; i < kFlatTrials; ++i)
    variance += std::pow(trials_[i].loss - level, 2) / kFlatTrials;
  // A smoothed loss has the scatter of a mean of (1 + s) / (1 - s) losses.
  const double scatter = std::sqrt(variance * (1 - kSmoothing) / (1 + kSmoothing));
  if (!(level - lowest_ > kDeviations * scatter)) return std::nullopt;
  const auto lowest = std::ranges::find(trials_, lowest_, &RateTrial::smoothed);
  const auto above = [&](const RateTrial& trial) { return trial.smoothed >= (level + lowest_) / 2; };
  const auto last = std::find_if(std::make_reverse_iterator(lowest), trials_.rend(), above);
  if (last == trials_.rend()) return std::nullopt;
  return last->rate;
}

std::optional<double> RateCurve::tenth_of_divergence() const {
  if (!diverged_) return std::nullopt;
  return trials_.back().rate / 10;
}

std::optional<double> RateCurve::suggested() const {
  const auto falls = halfway();
  const auto limit = tenth_of_divergence();
  if (falls && limit) return std::min(*falls, *limit);
  return falls ? falls : limit;
}

std::string RateCurve::csv() const {
  std::string out = "step,learning_rate,loss,smoothed\n";
  for (std::size_t i = 0; i < trials_.size(); ++i) {
    const RateTrial& trial = trials_[i];
    out += fmt::format("{},{},{},{}\n", i + 1, text::from_real(trial.rate), text::from_real(trial.loss),
                       text::from_real(trial.smoothed));
  }
  return out;
}

std::string RateCurve::plot() const {
  if (trials_.empty()) return "";
  // The bars end as far above the first loss as the lowest is below it: a diverging loss would hide the rest.
  const double top = trials_.front().smoothed + (trials_.front().smoothed - lowest_);
  const double range = top > lowest_ ? top - lowest_ : 1;
  std::string out = "      rate  loss\n";
  for (std::size_t i = 0; i < trials_.size(); i += kTrialsPerBar) {
    const RateTrial& trial = trials_[std::min(i + kTrialsPerBar - 1, trials_.size() - 1)];
    const bool inside = trial.smoothed <= top;
    const double part = inside ? (trial.smoothed - lowest_) / range : 1;
    out += fmt::format("{:10.2g}  {:<10.4g} {}{}\n", trial.rate, trial.smoothed,
                       std::string(static_cast<std::size_t>(std::lround(part * kBarWidth)), '#'),
                       inside ? "" : " >");
  }
  return out;
}

void find_rate(const TrainConfig& config, Communicator& communicator, const RunOptions& options) {
  PlannedConfig plan = planned(config, communicator);
  plan.config = probe_of(std::move(plan.config));
  Session session(std::move(plan), communicator, options);
  const RateCurve curve = curve_of(session);
  if (!session.leader()) return;
  const fs::path file = fs::path(config.output) / "find_rate.csv";
  make_directories(config.output);
  write_file_durably(file, curve.csv());
  std::fputs(text_of(curve, session.config, file).c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace wflow::trainer
