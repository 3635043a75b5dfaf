// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/checksum.h"
#include "base/text.h"
#include "trainer/model/parts.h"
#include "trainer/training/checkpoint.h"
#include "trainer/training/training_step.h"

namespace wflow::trainer {
namespace {

constexpr double kNotJudged = std::numeric_limits<double>::quiet_NaN();

void check_exchanged(const TournamentConfig& rules, const ModelGraph& graph) {
  const std::vector<std::string> names = part_names(graph);
  for (const std::string& part : rules.parts) {
    if (std::ranges::find(names, part) != names.end()) continue;
    throw CommonError(ExitCode::spec,
                      fmt::format("'exchange' names '{}', which is no part of the network: it has {}", part,
                                  names.empty() ? "none" : text::join(names, ", ")));
  }
}

std::size_t size_of(std::span<const std::span<float>> views) {
  std::size_t size = 0;
  for (const std::span<float> view : views) size += view.size();
  return size;
}

void collect(std::span<const std::span<float>> views, std::span<float> into) {
  for (const std::span<float> view : views) {
    std::ranges::copy(view, into.begin());
    into = into.subspan(view.size());
  }
}

}  // namespace

struct Rounds::Message {
  bool diverged = false;
  PerturbFactors factors;
  std::vector<std::int64_t> optimizer_steps;
};

struct Rounds::Partner {
  Message message;
  int number = 0;
  std::unique_ptr<TrainingState> state = {};  // in a task; nullptr: its ranks send the model
};

Rounds::Rounds(Contest& contest, Session& session, TrainingState& state, Updates& updates,
               Evaluator& evaluator, CommonGuard& guard, RunReport& report)
    : contest_(contest),
      session_(session),
      state_(state),
      updates_(updates),
      evaluator_(evaluator),
      guard_(guard),
      report_(report),
      metrics_(tournament_metrics(session.config)),
      plan_(contest.rules(), session.plan) {
  check_exchanged(contest.rules(), session.graph);
}

bool Rounds::is_due() const {
  return record().rounds < contest_.rounds() && state_.counters.step >= plan_.step(record().rounds + 1);
}

// The messages of all trainers, each at the same round.
std::vector<Rounds::Message> Rounds::meet(std::int64_t round) {
  const TournamentRecord& own = record();
  nlohmann::json message = {{"diverged", own.diverged}, {"optimizer_steps", state_.optimizer.steps()}};
  own.factors.write(message);
  const Clock::time_point begin = Clock::now();
  const std::vector<nlohmann::json> messages =
      contest_.meet(fmt::format("round {}", round), std::move(message));
  contest_.add_waited(seconds_since(begin));
  std::vector<Message> all;
  for (const nlohmann::json& one : messages) {
    Message& read = all.emplace_back();
    if (contest_.stops()) continue;
    read.diverged = one.at("diverged").get<bool>();
    read.factors = PerturbFactors::from_json(one);
    read.optimizer_steps = one.at("optimizer_steps").get<std::vector<std::int64_t>>();
  }
  return all;
}

// The partner's state, as its part of the tournament has left it. Null, with a warning, if there is none.
std::unique_ptr<TrainingState> Rounds::read_partner(std::int64_t round, int number) {
  const TrainConfig& config = session_.config;
  const std::string folder = contest_.rules().before.at(1);
  std::unique_ptr<CheckpointFile> file;
  if (session_.leader()) {
    const CheckpointDirectory directory(std::filesystem::path(folder) / "checkpoints", 1);
    file = directory.newest([this](const std::string& sentence) { report_.warn(sentence); });
  }
  const auto checkpoint = SharedCheckpoint::share(session_.communicator, std::move(file));
  std::unique_ptr<TrainingState> state;
  if (checkpoint != nullptr) {
    state = std::make_unique<TrainingState>(session_.graph, config.optimizer, config.ema,
                                            &session_.communicator, config.parts, alternating_parts(config));
    restore_checkpoint(*checkpoint, *state);
  }
  if (state != nullptr && state->counters.tournament.rounds == round - 1) return state;
  if (session_.leader())
    report_.warn(
        fmt::format("trainer {} is lost: {} has no checkpoint of it before round {}; this trainer keeps "
                    "its model",
                    number + 1, folder, round));
  return nullptr;
}

// No value: the trainer has none in this round.
std::optional<Rounds::Partner> Rounds::partner_in(std::int64_t round, int number) {
  std::unique_ptr<TrainingState> state = read_partner(round, number);
  if (state == nullptr) return std::nullopt;
  const TournamentRecord& theirs = state->counters.tournament;
  return Partner{{theirs.diverged, theirs.factors, state->optimizer.steps()}, number, std::move(state)};
}

AfterRound Rounds::hold() {
  const Clock::time_point begin = Clock::now();
  TrainingCounters& counters = state_.counters;
  const std::int64_t round = record().rounds + 1;
  if (contest_.leaves_to_next(round)) {
    part_ended_ = true;
    return AfterRound::stop;
  }
  std::vector<Message> all;
  if (!contest_.in_task()) all = meet(round);
  if (contest_.stops()) return AfterRound::stop;
  if (!all.empty() && std::ranges::all_of(all, &Message::diverged))
    throw CommonError(ExitCode::data, fmt::format("every trainer has diverged before round {}: lower the "
                                                  "learning rate or look at the data",
                                                  round));
  Bout bout;
  bout.round = round;
  bout.epoch = counters.epoch + 1;
  bout.step = counters.step;
  bout.trainer = contest_.trainer() + 1;
  bout.diverged = record().diverged;
  const auto partners = partners_in(contest_.seed(), round, contest_.trainers());
  if (const auto number = partners[static_cast<std::size_t>(contest_.trainer())]) {
    std::optional<Partner> partner;
    if (contest_.in_task()) {
      partner = partner_in(round, *number);
    } else {
      partner = Partner{all[static_cast<std::size_t>(*number)], *number};
    }
    if (partner) play(*partner, bout);
  }
  bout.factors = record().factors;
  record().rounds = round;
  record().bouts.push_back(bout);
  guard_.begin_at(counters.step);
  contest_.add_seconds(seconds_since(begin));
  report_.announce(fmt::format("round {} of {}: {}", round, contest_.rounds(), describe(bout)));
  return record().diverged ? AfterRound::lost : AfterRound::go_on;
}

void Rounds::play(const Partner& other, Bout& bout) {
  const Message& partner = other.message;
  bout.partner = other.number + 1;
  const ModelExchange kind = contest_.rules().exchange;
  const bool diverged = record().diverged;
  std::vector<double> own(metrics_.size(), kNotJudged);
  std::vector<double> partners(metrics_.size(), kNotJudged);
  const bool exchanges = !(diverged && partner.diverged);
  // A trainer that has diverged has nothing to keep.
  const bool whole = kind != ModelExchange::parts || diverged || partner.diverged;
  const Views views = exchanged(state_, whole);
  FloatBuffer theirs(exchanges ? static_cast<std::int64_t>(size_of(views)) : 0);
  if (exchanges && other.state == nullptr) exchange(views, theirs.span(), other.number);
  if (exchanges && other.state != nullptr) collect(exchanged(*other.state, whole), theirs.span());
  if (!diverged) own = judged();
  if (!partner.diverged) {
    swap(views, theirs.span());
    partners = judged();
  }
  bout.took = takes_partner(own, partners, metrics_);
  if (bout.took) {
    take(partner, kind == ModelExchange::all);
    record().factors.draw(contest_.rules().perturb, contest_.seed(), bout.round, contest_.trainer());
  } else if (!partner.diverged) {
    swap(views, theirs.span());
  }
  for (std::size_t i = 0; i < metrics_.size(); ++i)
    bout.scores.push_back({metrics_[i].text(), own[i], partners[i]});
}

// After the partner's values have replaced the own ones.
void Rounds::take(const Message& partner, bool with_optimizer) {
  if (with_optimizer) {
    state_.optimizer.set_steps(partner.optimizer_steps);
    record().factors = partner.factors;
  } else if (record().diverged) {
    begin_optimizer_anew();
  }
  if (record().diverged && state_.counters.loss_scale.on) state_.counters.loss_scale = LossScale::begun();
  record().diverged = false;
  guard_.forget();
}

// The optimizer's state of a training that has diverged may be as wrong as its weights.
void Rounds::begin_optimizer_anew() {
  for (const PartOptimizers::Slot& slot : state_.optimizer.slots()) std::ranges::fill(slot.values, 0.0F);
  state_.optimizer.set_steps(std::vector<std::int64_t>(state_.optimizer.steps().size(), 0));
}

std::vector<double> Rounds::judged() {
  const Evaluation evaluation = evaluator_.errors_on(session_.data.held_out());
  std::vector<double> values;
  for (const MetricName& metric : metrics_)
    values.push_back(metric_of(evaluation, metric).value_or(kNotJudged));
  return values;
}

// The arrays of a model that go to the partner.
Rounds::Views Rounds::exchanged(TrainingState& state, bool whole) const {
  FlatState& flat = state.flat;
  std::vector<std::pair<const FlatLayout*, std::span<float>>> arrays = {
      {&flat.parameters(), flat.values()}, {&flat.buffers(), flat.buffer_values()}};
  if (state.average.active()) arrays.emplace_back(&flat.parameters(), state.average.values());
  Views views;
  const std::vector<std::string>& parts = contest_.rules().parts;
  for (const auto& array : arrays) {
    if (whole) {
      views.push_back(array.second);
      continue;
    }
    for (const FlatEntry& entry : array.first->entries)
      if (std::ranges::find(parts, entry.spec.part) != parts.end())
        views.push_back(array.second.subspan(static_cast<std::size_t>(entry.offset),
                                             static_cast<std::size_t>(entry.count)));
  }
  if (contest_.rules().exchange == ModelExchange::all)
    for (const PartOptimizers::Slot& slot : state.optimizer.slots()) views.push_back(slot.values);
  return views;
}

// Every rank has the whole model: it exchanges it with the rank of the same place.
void Rounds::exchange(const Views& own, std::span<float> partners, int number) {
  const int rank = contest_.counterpart(number);
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  std::size_t at = 0;
  for (const std::span<float> view : own) {
    outgoing.push_back({rank, std::as_bytes(view)});
    incoming.push_back({rank, std::as_writable_bytes(partners.subspan(at, view.size()))});
    at += view.size();
  }
  contest_.world().exchange(std::move(outgoing), std::move(incoming));
}

void Rounds::swap(const Views& own, std::span<float> partners) {
  std::size_t at = 0;
  for (const std::span<float> view : own) {
    std::ranges::swap_ranges(view, partners.subspan(at, view.size()));
    at += view.size();
  }
  updates_.values_changed();
}

void Rounds::lose(const std::string& reason) {
  record().diverged = true;
  guard_.begin_at(state_.counters.step);
  if (session_.leader())
    report_.warn(fmt::format("{}; the trainer waits for the next round and the model of a partner", reason));
}

}  // namespace wflow::trainer
