// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "trainer/training/step_plan.h"

namespace wflow::trainer {
namespace {

void multiply(std::span<float> values, double factor) {
  for (float& value : values) value *= static_cast<float>(factor);
}

// Gradients that are 0 in a batch that does not use their weights, as parts of the exchange array.
ValueParts used_alone(const FlatState& flat) {
  ValueParts parts;
  for (const FlatEntry& entry : flat.parameters().entries) {
    auto at = static_cast<std::size_t>(flat.gradients_begin() + entry.offset);
    for (const std::int64_t length : entry.spec.used_alone) {
      if (length > 0) parts.emplace_back(at, at + static_cast<std::size_t>(length));
      at += static_cast<std::size_t>(length);
    }
  }
  return parts;
}

}  // namespace

TrainingStep::TrainingStep(Session& session, const Heads& heads, TrainingState& state, Updates& updates,
                           PassBuffers& buffers, CommonGuard& guard, RunReport& report,
                           std::function<bool()> stop_wanted)
    : session_(session),
      heads_(heads),
      state_(state),
      updates_(updates),
      buffers_(buffers),
      guard_(guard),
      report_(report),
      stop_wanted_(std::move(stop_wanted)),
      flips_(session.options.bit_flips),
      exchange_(session.summing(), state.flat.exchange()) {
  exchange_.send_used(used_alone(state.flat));
  SharedState* shared = state.shared.get();
  if (shared == nullptr) return;
  exchange_.share_out([shared](std::int64_t begin, std::int64_t end) { return shared->owners(begin, end); },
                      [shared](std::int64_t begin, std::int64_t end) { shared->summed(begin, end); });
}

double TrainingStep::rate() const {
  const TrainingCounters& counters = state_.counters;
  if (fixed_rate_) return *fixed_rate_;
  return counters.tournament.factors.rate *
         learning_rate(session_.config,
                       session_.plan.point({counters.epoch, counters.step_of_epoch}, counters.plateaus));
}

// Only gradients may be rounded: scalars and the norms' statistics must be exact.
Wire TrainingStep::wire() const {
  return {session_.config.gradients.wire == WireFormat::half,
          hash64(session_.config.seed, static_cast<std::uint64_t>(state_.counters.step)), 0,
          static_cast<std::size_t>(state_.flat.gradients_begin())};
}

// The samples that are summed over.
std::size_t TrainingStep::samples_of_step(const TrainingOrder& order, std::uint64_t step_of_epoch) const {
  if (!session_.local) return order.global_batch(step_of_epoch);
  const auto [first, end] =
      order.share_of(step_of_epoch, session_.local->first_place, session_.local->end_place);
  return end - first;
}

bool TrainingStep::take(const Batch& batch) {
  const TrainingOrder& order = session_.plan.order_in(state_.counters.epoch);
  const auto step_of_epoch = static_cast<std::uint64_t>(state_.counters.step_of_epoch);
  inject(BitFlip::Where::weights, state_.flat.values());
  const auto [first, end] = order.share(step_of_epoch);
  const std::size_t global_batch = samples_of_step(order, step_of_epoch);
  const std::size_t most =
      order.subset ? order.most_of_rank() : (global_batch + order.ranks - 1) / order.ranks;
  const Share share = {batch.items.size(), most, first, global_batch};
  WFLOW_CHECK(share.samples == end - first);
  session_.data.fill(buffers_.feed, batch, session_.data.train(), true,
                     RunData::StepOfBatch{static_cast<std::uint64_t>(state_.counters.step), first});
  stopping_ = false;
  loss_ = 0;
  if (global_batch == 0) return true;  // the last batch of an epoch has none for this group of ranks
  for (const Update& update : updates_.all())
    if (is_due(update) && !take(update, share)) return false;
  if (updates_.alternate()) finish_step(static_cast<std::int64_t>(share.global_batch));
  return true;
}

// The same sums, sample by sample and exact, so that they do not depend on the ranks.
bool TrainingStep::take_by_sample(const Update& update, const Share& share, ExactSums& sums) {
  FlatState& flat = state_.flat;
  for (std::size_t n = 0; n < share.samples; ++n) {
    const Pass pass = begin_pass(update, {n, n + 1}, share);
    const auto loss = static_cast<float>(pass.loss);
    if (session_.counts_samples()) sums.add(static_cast<std::size_t>(Scalar::loss), {&loss, 1});
    if (n + 1 == share.samples) inject(BitFlip::Where::gradients, output_gradients_);
    pass.network->backward(output_gradients_, [](std::int64_t) {});
  }
  const float alarm = guard_.has_own_alarm() ? 1.0F : 0.0F;
  const float stop = stop_wanted_() ? 1.0F : 0.0F;
  sums.add(static_cast<std::size_t>(Scalar::alarm), {&alarm, 1});
  sums.add(static_cast<std::size_t>(Scalar::stop), {&stop, 1});
  sums.take(session_.communicator, flat.exchange());
  return apply(update,
               {static_cast<std::int64_t>(share.global_batch), state_.counters.loss_scale.value, rate()});
}

bool TrainingStep::take(const Update& update, const Share& share) {
  if (ExactSums* sums = update.network->exact_sums()) return take_by_sample(update, share, *sums);
  const TrainConfig& config = session_.config;
  FlatState& flat = state_.flat;
  const std::size_t samples = share.samples;
  // A batch that has grown takes more passes, each as large as before: it needs no more memory.
  const auto most_passes =
      static_cast<std::size_t>(config.accumulate * session_.plan.growth(state_.counters.epoch));
  const std::size_t passes = std::min(samples, most_passes);
  const bool measures = measures_noise();
  // A measurement makes a second pass where there is one.
  const auto all_passes = [&](std::size_t count) { return count + (measures && count == 1 ? 1 : 0); };
  sit_out(update, all_passes(std::min(share.most_samples, most_passes)) - all_passes(passes));
  double loss = 0;
  if (samples == 0 || updates_.alternate()) {
    // A rank that has no part of the last batch adds zeros and takes part in every collective; and so do
    // weights that this update does not reach.
    clear_exchange();
  }
  std::optional<SmallGradient> own;
  if (measures && passes == 1) {
    // The gradients of a single pass are summed over the ranks while it runs: half of it runs once more.
    const auto half = std::max<std::size_t>(1, samples / 2);
    begin_pass(update, {0, half}, share).network->backward(output_gradients_, [](std::int64_t) {});
    own = small_gradient(half, share.global_batch);
  }
  for (std::size_t pass = 0; pass + 1 < passes; ++pass) {
    const auto part = even_part(samples, pass, passes);
    const Pass begun = begin_pass(update, part, share);
    loss += begun.loss;
    begun.network->backward(output_gradients_, [](std::int64_t) {});
    if (pass == 0 && measures) own = small_gradient(part.second - part.first, share.global_batch);
    accumulated_.add(flat.exchange());
  }
  Pass last;
  if (samples > 0) last = begin_pass(update, even_part(samples, passes - 1, passes), share);
  loss += last.loss;
  flat.scalar(Scalar::loss) = session_.counts_samples() ? static_cast<float>(loss) : 0.0F;
  flat.scalar(Scalar::alarm) = guard_.has_own_alarm() ? 1.0F : 0.0F;
  flat.scalar(Scalar::stop) = stop_wanted_() ? 1.0F : 0.0F;
  const bool lags = config.optimizer.lag > 0;
  exchange_.set_wire(wire());
  exchange_.leave_out(flat.gradients_begin(), update.begin, update.end);
  if (samples > 0) {
    inject(BitFlip::Where::gradients, output_gradients_);
    last.network->backward(output_gradients_, [this, lags](std::int64_t from) {
      accumulated_.add_to(state_.flat.exchange(), from);
      if (!lags) exchange_.ready(from);
    });
  }
  accumulated_.add_to(flat.exchange(), kScalarSpace);
  const LaggedSums::Step now = {static_cast<std::int64_t>(share.global_batch),
                                state_.counters.loss_scale.value, rate()};
  if (!lags) {
    exchange_.finish();
    if (state_.shared != nullptr) state_.shared->all_summed();
    return measures ? apply(update, now, mean_over_ranks(own)) : apply(update, now);
  }
  const auto before = state_.lagged.exchange(flat.exchange(), now, wire());
  return !before || apply(update, *before);
}

bool TrainingStep::take_lagged() {
  if (session_.config.optimizer.lag == 0) return true;
  const auto last = state_.lagged.take(state_.flat.exchange());
  return !last || apply(updates_.all().front(), *last);
}

void TrainingStep::clear_exchange() {
  const std::span<float> all = state_.flat.exchange();
  if (state_.shared == nullptr) {
    std::ranges::fill(all, 0.0F);
    return;
  }
  std::ranges::fill(all.first(static_cast<std::size_t>(state_.flat.gradients_begin())), 0.0F);
  state_.shared->clear_gradients();
}

// The passes that other ranks make for more samples than this one has.
void TrainingStep::sit_out(const Update& update, std::size_t passes) {
  for (std::size_t pass = 0; pass < passes; ++pass) {
    update.network->sit_out(Network::Pass::forward);
    update.network->sit_out(Network::Pass::backward);
  }
}

// Applies the sums over the ranks, which are in state_.flat.exchange().
bool TrainingStep::apply(const Update& update, const LaggedSums::Step& step,
                         const std::optional<SmallGradient>& small) {
  FlatState& flat = state_.flat;
  TrainingCounters& counters = state_.counters;
  const auto global_batch = static_cast<std::size_t>(step.samples);
  const std::vector<std::span<float>> gradients = state_.applied_gradients();
  double largest = 0;
  for (const std::span<float> part : gradients) {
    if (counters.loss_scale.on) multiply(part, 1 / step.loss_scale);
    largest = std::max(largest, largest_of(part));
  }
  if (state_.shared != nullptr) largest = most_of(session_.communicator, largest);
  const double total = flat.scalar(Scalar::loss);
  const double loss = total / static_cast<double>(global_batch * update.heads.terms());
  const auto number = static_cast<std::size_t>(&update - updates_.all().data());
  const bool taken = counters.loss_scale.takes(std::isfinite(largest));
  if (taken && session_.config.guard.on) {
    const bool alarm = flat.scalar(Scalar::alarm) > 0;
    if (!guard_.is_sound(counters.step, loss, largest, alarm, number)) return false;
  }
  if (taken && !guard_.has_own_alarm()) check_finite(total, std::isfinite(largest));
  stopping_ = stopping_ || flat.scalar(Scalar::stop) > 0;
  loss_ = updates_.alternate() ? loss_ + loss : loss;
  if (std::isfinite(total)) {  // a step that is left out may overflow
    const double terms = static_cast<double>(heads_.terms()) / static_cast<double>(update.heads.terms());
    counters.epoch_loss += total * terms * static_cast<double>(update.every);
  }
  if (!updates_.alternate()) counters.epoch_samples += step.samples;
  if (!taken) return true;
  if (small)
    counters.epoch_noise.add(*small, state_.square_of_gradients(), static_cast<double>(global_batch));
  if (session_.graph.is_module()) {
    flat.add_to_running_statistics(step.samples);
  } else {
    flat.update_running_statistics(step.samples, kNormMomentum, update.buffers);
  }
  inject(BitFlip::Where::optimizer, state_.optimizer.slots().back().values);
  state_.optimizer.set_decay_factor(counters.tournament.factors.weight_decay);
  state_.optimizer.step(flat.values(), flat.gradients(), step.rate, update.learn);
  state_.weights_changed();
  if (!updates_.alternate()) state_.average.update(flat.values(), counters.step + 1);
  updates_.values_changed();
  return true;
}

// After the updates of a step that has several.
void TrainingStep::finish_step(std::int64_t samples) {
  state_.counters.epoch_samples += samples;
  state_.average.update(state_.flat.values(), state_.counters.step + 1);
}

bool TrainingStep::measures_noise() const {
  const std::int64_t every = session_.config.noise_scale_every;
  return every > 0 && state_.counters.step % every == 0;
}

SmallGradient TrainingStep::small_gradient(std::size_t samples, std::size_t global_batch) {
  // The loss is divided by the whole batch: see `scale` in take().
  const double factor =
      static_cast<double>(global_batch) / (static_cast<double>(samples) * state_.counters.loss_scale.value);
  return {square_of(state_.flat.gradients()) * factor * factor, 1 / static_cast<double>(samples)};
}

// A collective call. A rank without samples has none to add.
SmallGradient TrainingStep::mean_over_ranks(const std::optional<SmallGradient>& own) {
  std::vector<double> values;
  if (own) values = {own->square, own->inverse};
  const std::vector<double> all = gather_values(session_.communicator, values);
  const auto count = static_cast<double>(all.size()) / 2;
  SmallGradient mean;
  for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
    mean.square += all[i] / count;
    mean.inverse += all[i + 1] / count;
  }
  return mean;
}

void TrainingStep::check_finite(double loss, bool gradient_finite) const {
  const bool finite = std::isfinite(loss);
  if (finite && gradient_finite) return;
  throw NotFinite(
      ExitCode::data,
      fmt::format("the {} is not finite at epoch {}, step {}; lower the learning rate (now "
                  "{:.3g}) or look at the data",
                  finite ? "gradient" : "loss", state_.counters.epoch + 1, state_.counters.step + 1, rate()));
}

// Each flip comes once: steps that are computed again after a step back run without it.
void TrainingStep::inject(BitFlip::Where where, std::span<float> values) {
  std::erase_if(flips_, [&](const BitFlip& what) {
    if (what.where != where || what.step != state_.counters.step) return false;
    if (what.rank != session_.communicator.rank() || values.empty()) return true;
    report_.warn("injected " + flip(what, values));
    updates_.values_changed();
    return true;
  });
}

TrainingStep::Pass TrainingStep::begin_pass(const Update& update,
                                            const std::pair<std::size_t, std::size_t>& part,
                                            const Share& share) {
  double loss = forward(update, part, share);
  if (!update.penalty) return {loss, update.network};
  update.network->backward(output_gradients_, [](std::int64_t) {});
  accumulated_.add(state_.flat.exchange());
  std::ranges::fill(state_.flat.exchange(), 0.0F);
  loss += begin_penalty(update, part, share);
  return {loss, update.penalty->network.get()};
}

StepKey TrainingStep::key_of(const std::pair<std::size_t, std::size_t>& part, const Share& share) const {
  return {hash64(session_.config.seed, 3), static_cast<std::uint64_t>(state_.counters.step),
          static_cast<std::int64_t>(share.first + part.first)};
}

// Adds the first of the two passes of the difference to the accumulated gradients, and begins the second.
// Returns the sum of the samples' penalties, in the unit of the heads' losses.
double TrainingStep::begin_penalty(const Update& update, const std::pair<std::size_t, std::size_t>& part,
                                   const Share& share) {
  constexpr double kShift = 3e-3;  // of each value, in the mean square
  const UpdatePenalty& penalty = *update.penalty;
  const std::size_t samples = part.second - part.first;
  const std::size_t values = penalty.values;
  const auto count = static_cast<std::int64_t>(samples);
  const StepKey key = key_of(part, share);
  const std::span<const float> at =
      penalty.input ? buffers_.feed.inputs[*penalty.input].subspan(part.first * values, samples * values)
                    : std::span<const float>(buffers_.outputs).last(samples * values);
  std::vector<float>& from = penalised_values_;  // the network reads them until its backward pass
  from.assign(at.begin(), at.end());
  std::vector<float> scores(samples * penalty.scores);
  std::vector<float> direction(from.size());
  const auto run = [&] {
    penalty.network->forward(from, count, key, scores);
    penalty.network->backward(output_gradients_, [](std::int64_t) {});
  };
  output_gradients_.assign(scores.size(), 1.0F);
  run();
  penalty.network->input_gradient(direction);

  const double shift = kShift * std::sqrt(static_cast<double>(values));
  double sum = 0;
  for (std::size_t n = 0; n < samples; ++n) {
    const std::span<float> own = std::span(direction).subspan(n * values, values);
    const double norm = std::sqrt(square_of(own));
    const double excess = norm - penalty.config.norm;
    sum += penalty.config.weight * excess * excess;
    const double slope = norm > 0 ? 2 * penalty.config.weight * excess / (2 * shift) : 0;
    std::ranges::fill(std::span(output_gradients_).subspan(n * penalty.scores, penalty.scores),
                      static_cast<float>(slope / static_cast<double>(share.global_batch)));
    for (float& value : own) value = norm > 0 ? static_cast<float>(value * (shift / norm)) : 0;
  }
  if (state_.counters.loss_scale.on) multiply(output_gradients_, state_.counters.loss_scale.value);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] += direction[i];
  run();
  accumulated_.add(state_.flat.exchange());
  for (std::size_t i = 0; i < from.size(); ++i) from[i] -= 2 * direction[i];
  penalty.network->forward(from, count, key, scores);
  multiply(output_gradients_, -1);
  return sum * static_cast<double>(update.heads.terms());
}

// Runs the samples [part) of the batch in buffers_.feed. Returns the sum of their losses and leaves the
// gradient of the outputs in output_gradients_.
double TrainingStep::forward(const Update& update, const std::pair<std::size_t, std::size_t>& part,
                             const Share& share) {
  const Feed& feed = buffers_.feed;
  const Heads& heads = update.heads;
  std::vector<float>& outputs = buffers_.outputs;
  const LossScale& loss_scale = state_.counters.loss_scale;
  const std::size_t samples = part.second - part.first;
  const auto slice = [&](std::span<const float> all, std::size_t values) {
    return all.subspan(part.first * values, samples * values);
  };
  std::vector<std::span<const float>> inputs;
  for (std::size_t i = 0; i < feed.inputs.size(); ++i)
    inputs.push_back(slice(feed.inputs[i], feed.inputs[i].size() / share.samples));
  std::vector<std::span<const float>> truths;
  for (std::size_t h = 0; h < update.numbers.size(); ++h)
    truths.push_back(slice(feed.truths[update.numbers[h]], heads.all()[h].objective.truth_count()));
  outputs.resize(samples * update.output_count());
  output_gradients_.assign(outputs.size(), 0.0F);
  update.network->forward(inputs, static_cast<std::int64_t>(samples), key_of(part, share), outputs);
  inject(BitFlip::Where::activations, outputs);
  const double scale = 1.0 / static_cast<double>(share.global_batch * heads.terms());
  const std::size_t compared = samples * heads.all_output_count();
  const double loss = heads.loss_and_gradient(std::span(outputs).first(compared), truths, samples, scale,
                                              std::span(output_gradients_).first(compared));
  if (loss_scale.on) multiply(output_gradients_, loss_scale.value);
  return loss;
}

}  // namespace wflow::trainer
