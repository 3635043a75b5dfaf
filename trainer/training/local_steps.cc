// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/local_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace wflow::trainer {
namespace {

// Ranges of weights that some update changes, as long as possible. The mean of frozen ones could round.
std::vector<std::pair<std::int64_t, std::int64_t>> learning_ranges(const FlatLayout& layout) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const FlatEntry& entry : layout.entries) {
    if (entry.spec.frozen) continue;
    if (!ranges.empty() && ranges.back().second == entry.offset) {
      ranges.back().second += entry.count;
    } else {
      ranges.emplace_back(entry.offset, entry.offset + entry.count);
    }
  }
  return ranges;
}

}  // namespace

struct LocalSteps::Message {
  Trouble trouble = Trouble::none;
  std::string reason;
  bool may_come_again = false;
  bool stops = false;
  double loss = 0;  // since the last outer step
  std::int64_t samples = 0;
  double loss_scale = 1;
  std::int64_t good_steps = 0;
  std::vector<std::int64_t> optimizer_steps;

  std::string text() const {
    return nlohmann::json({static_cast<int>(trouble), reason, may_come_again, stops, loss, samples,
                           loss_scale, good_steps, optimizer_steps})
        .dump();
  }
  static Message from(const std::string& text) {
    const nlohmann::json json = nlohmann::json::parse(text);
    return {static_cast<Trouble>(json.at(0).get<int>()),
            json.at(1).get<std::string>(),
            json.at(2).get<bool>(),
            json.at(3).get<bool>(),
            json.at(4).get<double>(),
            json.at(5).get<std::int64_t>(),
            json.at(6).get<double>(),
            json.at(7).get<std::int64_t>(),
            json.at(8).get<std::vector<std::int64_t>>()};
  }
};

LocalSteps::LocalSteps(Session& session, TrainingState& state, Updates& updates, CommonGuard& guard,
                       RunReport& report)
    : session_(session),
      state_(state),
      updates_(updates),
      guard_(guard),
      report_(report),
      learning_(learning_ranges(state.flat.parameters())) {}

void LocalSteps::begin() {
  trouble_ = Trouble::none;
  stops_ = false;
  loss_before_ = state_.counters.epoch_loss;
  samples_before_ = state_.counters.epoch_samples;
  if (!session_.config.groups.outer.is_mean())
    anchor_.assign(state_.flat.values().begin(), state_.flat.values().end());
}

void LocalSteps::take(TrainingStep& step, const Batch& batch) {
  if (state_.counters.step_of_epoch == 0) {
    loss_before_ = 0;
    samples_before_ = 0;
  }
  if (trouble_ != Trouble::none) return;
  try {
    if (!step.take(batch)) {
      trouble_ = Trouble::unsound;
      reason_ = guard_.reason();
    }
  } catch (const NotFinite& error) {
    trouble_ = Trouble::not_finite;
    reason_ = error.what();
  }
  stops_ = stops_ || step.stopping();
}

bool LocalSteps::is_due() const {
  const std::int64_t step = state_.counters.step_of_epoch;
  return step % session_.config.groups.steps == 0 || step == session_.plan.steps(state_.counters.epoch);
}

LocalSteps::Message LocalSteps::own_message() const {
  const TrainingCounters& counters = state_.counters;
  Message own = {trouble_,
                 reason_,
                 trouble_ == Trouble::unsound && guard_.may_come_again(),
                 stops_,
                 counters.epoch_loss - loss_before_,
                 counters.epoch_samples - samples_before_,
                 counters.loss_scale.value,
                 counters.loss_scale.good_steps,
                 state_.optimizer.steps()};
  // It would be sent with the next step, after weights that may be wrong have been added to the others'.
  if (trouble_ == Trouble::none && guard_.has_own_alarm()) {
    own.trouble = Trouble::unsound;
    own.reason = guard_.own_alarm();
    own.may_come_again = true;
  }
  return own;
}

// A message of each group. Where a rank of it is in trouble, the group is.
std::vector<LocalSteps::Message> LocalSteps::meet() {
  const std::vector<std::string> all = session_.communicator.all_gather(own_message().text());
  const std::size_t size = all.size() / static_cast<std::size_t>(session_.local->count);
  std::vector<Message> groups;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Message message = Message::from(all[rank]);
    stops_ = stops_ || message.stops;
    if (rank % size == 0) {
      groups.push_back(message);
    } else if (message.trouble != Trouble::none && groups.back().trouble == Trouble::none) {
      groups.back().trouble = message.trouble;
      groups.back().reason = message.reason;
      groups.back().may_come_again = message.may_come_again;
    }
  }
  return groups;
}

LocalSteps::After LocalSteps::outer_step() {
  const Clock::time_point begin = Clock::now();
  const std::vector<Message> groups = meet();
  const auto unsound = std::ranges::find(groups, Trouble::unsound, &Message::trouble);
  if (unsound != groups.end()) {
    guard_.adopt(unsound->reason, unsound->may_come_again);
    return After::unsound;
  }
  leave_out(groups);
  const auto sound = static_cast<std::size_t>(std::ranges::count(groups, Trouble::none, &Message::trouble));
  average(sound, trouble_ == Trouble::none && leads_group());
  trainer::outer_step(session_.config.groups.outer, anchor_, state_.outer_momentum, state_.flat.values());
  take_sums(groups);
  updates_.values_changed();
  if (trouble_ != Trouble::none) guard_.forget();
  trouble_ = Trouble::none;
  seconds_ += seconds_since(begin);
  return stops_ ? After::stop : After::go_on;
}

void LocalSteps::leave_out(const std::vector<Message>& groups) {
  OuterRecord& record = state_.counters.outer;
  std::int64_t lost = 0;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    if (groups[group].trouble == Trouble::none) continue;
    ++lost;
    if (session_.leader())
      report_.warn(
          fmt::format("group {} is left out of outer step {} and goes on with the others' weights: {}",
                      group + 1, record.steps + 1, groups[group].reason));
  }
  if (lost == session_.local->count) throw NotFinite(ExitCode::data, groups.front().reason);
  record.left_out += lost;
  ++record.steps;
}

// The counters of all groups together, and the state that is no array.
void LocalSteps::take_sums(const std::vector<Message>& groups) {
  TrainingCounters& counters = state_.counters;
  if (groups.size() == 1) return;
  LossScale& scale = counters.loss_scale;
  std::vector<std::int64_t> steps = state_.optimizer.steps();
  for (const Message& group : groups) {
    loss_before_ += group.loss;
    samples_before_ += group.samples;
    scale.value = std::min(scale.value, group.loss_scale);
    scale.good_steps = std::min(scale.good_steps, group.good_steps);
    // A group without samples in the last batch has made a step less.
    for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = std::max(steps[i], group.optimizer_steps[i]);
  }
  counters.epoch_loss = loss_before_;
  counters.epoch_samples = samples_before_;
  state_.optimizer.set_steps(steps);
}

std::vector<std::span<float>> LocalSteps::summed_arrays() {
  std::vector<std::span<float>> arrays;
  const std::span<float> values = state_.flat.values();
  for (const auto& [begin, end] : learning_)
    arrays.push_back(values.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
  arrays.push_back(state_.flat.buffer_values());
  if (state_.average.active()) arrays.push_back(state_.average.values());
  for (const PartOptimizers::Slot& slot : state_.optimizer.slots()) arrays.push_back(slot.values);
  return arrays;
}

// The mean over the sound groups, of which the first rank of each adds its values: sums over all ranks are
// made within nodes first, and a sum with zeros is exact.
void LocalSteps::average(std::size_t groups, bool contributes) {
  if (session_.local->count == 1) return;
  Communicator& all = session_.communicator;
  const std::vector<std::span<float>> arrays = summed_arrays();
  Communicator::Ticket last = 0;
  for (const std::span<float> array : arrays) {
    if (!contributes) std::ranges::fill(array, 0.0F);
    if (!array.empty()) last = all.start_all_reduce(array);
  }
  all.wait(last);
  const auto count = static_cast<float>(groups);
  for (const std::span<float> array : arrays)
    for (float& value : array) value /= count;
}

}  // namespace wflow::trainer
