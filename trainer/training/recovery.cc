// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "trainer/training/contest.h"
#include "trainer/training/search.h"
#include "trainer/training/share_exchange.h"
#include "trainer/training/tournament.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

std::int64_t rounds_in(const CheckpointReader& checkpoint) {
  const nlohmann::json& header = checkpoint.header();
  return header.contains("tournament") ? header.at("tournament").value("rounds", std::int64_t{0}) : 0;
}

// True for a task of a tournament that goes on where another one ended.
bool takes_over_part(const Session& session) {
  const Contest* contest = session.options.contest;
  return contest != nullptr && contest->in_task() && contest->rules().part.value() > 1;
}

// The steps of start_training().
struct Start {
  Session& session;
  TrainingState& state;
  const CheckpointDirectory& checkpoints;
  RunReport& report;

  fs::path kept_model() const { return fs::path(session.config.output) / "initial.wfck"; }
  std::function<void(const std::string&)> warnings() const {
    return [this](const std::string& sentence) { report.warn(sentence); };
  }
  using File = std::unique_ptr<CheckpointFile>;
  File newest() const;
  File of_part_before() const;
  File newest_of_round(std::int64_t round) const;
  std::vector<std::int64_t> offered_rounds() const;
  std::unique_ptr<SharedCheckpoint> agreed(bool has_one) const;
  void forget(const CheckpointReader& newest) const;
  void keep_last_model(const fs::path& newest) const;
  bool differs_in_data_only(const CheckpointReader& checkpoint) const;
  void go_on(const CheckpointReader& checkpoint) const;
  std::unique_ptr<SharedCheckpoint> initial_weights(const std::string& from) const;
  File file_of_weights(const std::string& from) const;
  void begin() const;
  void initialise_with_data(std::span<const std::string> begun) const;
  void begin_with(const CheckpointReader& checkpoint) const;
  void share_normalisation() const;
  std::vector<std::string> begin_parts() const;
  void take_input_scales(const PartConfig& part, const CheckpointReader& checkpoint) const;
};

// On rank 0.
Start::File Start::newest() const {
  const RunOptions& options = session.options;
  make_directories(session.config.output);
  remove_temporaries(session.config.output);
  remove_temporaries(checkpoints.directory());
  if (options.fresh) {
    checkpoints.clear();
    std::error_code ignored;
    fs::remove(kept_model(), ignored);
  }
  if (options.search.rung > 1) take_over_checkpoints(options.search, checkpoints.directory());
  if (takes_over_part(session)) return of_part_before();
  return checkpoints.newest(warnings());
}

// Own checkpoints, or those of the part of the tournament before.
Start::File Start::of_part_before() const {
  const fs::path before = session.options.contest->rules().before.at(0);
  take_over_checkpoints(before / "checkpoints", checkpoints.directory());
  return checkpoints.newest(warnings());
}

// Rounds after which there are checkpoints: the newest one, and the one before.
std::vector<std::int64_t> Start::offered_rounds() const {
  std::vector<std::int64_t> rounds;
  std::int64_t limit = CheckpointDirectory::kNoLimit;
  while (const File file = checkpoints.newest(warnings(), limit)) {
    limit = file->header().at("step").get<std::int64_t>();
    if (rounds.empty() || rounds.back() != rounds_in(*file)) rounds.push_back(rounds_in(*file));
    if (rounds.size() == 2) break;
  }
  return rounds;
}

Start::File Start::newest_of_round(std::int64_t round) const {
  std::int64_t limit = CheckpointDirectory::kNoLimit;
  while (File file = checkpoints.newest(warnings(), limit)) {
    if (rounds_in(*file) <= round) return file;
    limit = file->header().at("step").get<std::int64_t>();
  }
  return nullptr;
}

// In a tournament: the newest checkpoint of the newest round after which every trainer has one.
std::unique_ptr<SharedCheckpoint> Start::agreed(bool has_one) const {
  Contest& contest = *session.options.contest;
  const std::vector<std::int64_t> offered = session.leader() ? offered_rounds() : std::vector<std::int64_t>();
  const auto round = contest.start(offered, RoundPlan(contest.rules(), session.plan).most_rounds());
  File file;
  if (round && session.leader()) {
    file = newest_of_round(*round);
    checkpoints.remove_from(file->header().at("step").get<std::int64_t>() + 1);
  } else if (has_one && !round) {
    report.announce("not every trainer has a checkpoint of the same round: the training starts anew");
    if (session.leader()) checkpoints.clear();
  }
  return SharedCheckpoint::share(session.communicator, std::move(file));
}

bool Start::differs_in_data_only(const CheckpointReader& checkpoint) const {
  const std::string hash = session.fingerprint.at("data_hash").get<std::string>();
  nlohmann::json before =
      upgraded_fingerprint(checkpoint.header().value("fingerprint", nlohmann::json::object()));
  if (before.value("data_hash", "") == hash) return false;
  before["data_hash"] = hash;
  return fingerprint_differences(before, session.fingerprint).empty();
}

// Removes the checkpoints of the data as they were.
void Start::forget(const CheckpointReader& newest) const {
  const bool with_weights = session.config.init_from == kInitFromLast;
  report.announce(fmt::format("the data have changed since the last checkpoint: training starts anew{}",
                              with_weights ? " with the weights of the last model" : ""));
  if (!session.leader()) return;
  if (with_weights) keep_last_model(newest.name());
  checkpoints.clear();
}

// Before the checkpoints are removed, so that a run that is killed before its first checkpoint begins with
// the same weights again.
void Start::keep_last_model(const fs::path& newest) const {
  File best;
  if (session.config.select == Select::best) best = checkpoints.best(warnings());
  DurableFile copy(kept_model());
  fs::copy_file(best != nullptr ? best->path() : newest, copy.temporary());
  copy.publish();
}

void Start::go_on(const CheckpointReader& checkpoint) const {
  const TrainingCounters& counters = state.counters;
  const std::string differences = fingerprint_differences(
      upgraded_fingerprint(checkpoint.header().value("fingerprint", nlohmann::json())), session.fingerprint);
  if (!differences.empty()) {
    throw CommonError(ExitCode::data,
                      fmt::format("the checkpoints in {} are of another training: {}; use --fresh to start "
                                  "anew, or another output directory",
                                  session.config.output, differences));
  }
  session.data.set_normalisation(restore_checkpoint(checkpoint, state));
  const bool complete = counters.epoch >= session.plan.end_epoch || counters.stopped_early;
  report.announce(fmt::format("continued from epoch {}, step {}{}", counters.epoch, counters.step,
                              complete ? ": nothing is left to train, as the data are the same" : ""));
  report.repeat(counters.history);
}

// On rank 0. Null if the weights are random.
Start::File Start::file_of_weights(const std::string& from) const {
  if (from.empty()) return nullptr;
  const fs::path path = from == kInitFromLast ? kept_model() : fs::path(from);
  if (from == kInitFromLast && !fs::exists(path)) return nullptr;  // the first training
  if (fs::is_directory(path)) {
    const CheckpointDirectory directory(fs::exists(path / "checkpoints") ? path / "checkpoints" : path, 1);
    if (File best = directory.best(warnings())) return best;
    if (File found = directory.newest(warnings())) return found;
  } else if (fs::exists(path)) {
    return std::make_unique<CheckpointFile>(path);
  }
  throw CommonError(ExitCode::data,
                    fmt::format("init_from: {} is no checkpoint and no folder of a training", from));
}

std::unique_ptr<SharedCheckpoint> Start::initial_weights(const std::string& from) const {
  return SharedCheckpoint::share(session.communicator, session.leader() ? file_of_weights(from) : nullptr);
}

void Start::begin() const {
  Communicator& communicator = session.communicator;
  if (session.config.precision == Precision::fp16) state.counters.loss_scale = LossScale::begun();
  const auto source = initial_weights(session.config.init_from);
  if (source) {
    begin_with(*source);
  } else {
    session.data.compute_normalisation(communicator);
  }
  share_normalisation();
  if (source) {
    begin_parts();
    return;
  }
  const std::vector<std::string> begun = begin_parts();
  if (session.config.model.initial == InitialWeights::data) initialise_with_data(begun);
}

// Each rank needs all weights for it, once.
void Start::initialise_with_data(std::span<const std::string> begun) const {
  SharedState* shares = state.shared.get();
  if (state.shares_weights()) state.flat.fill_initial_values(initial_key(session.config));
  state.flat.set_on_use(nullptr);
  initialise_from_data(session.graph, session.data, session.communicator, state.flat, begun);
  state.flat.set_on_use(shares);
  if (state.shares_weights()) shares->keep_own_weights();
}

// The trainers of a tournament exchange models: all have the normalisation of the first one.
void Start::share_normalisation() const {
  Contest* contest = session.options.contest;
  if (contest == nullptr || contest->trainers() == 1 || contest->is_beginning()) return;
  if (contest->in_task()) {
    const auto found = initial_weights(contest->rules().before.at(0));
    session.data.set_normalisation(normalisation_from_json(found->header().at("normalisation")));
    return;
  }
  const std::vector<nlohmann::json> all =
      contest->meet("normalisation", {{"normalisation", to_json(session.data.normalisation())}});
  session.data.set_normalisation(normalisation_from_json(all.front().at("normalisation")));
}

// Returns the names of the parts that begin with weights of another training.
std::vector<std::string> Start::begin_parts() const {
  std::vector<std::string> begun;
  for (const PartConfig& part : session.config.parts) {
    if (part.init_from.empty()) continue;
    const auto source = initial_weights(part.init_from);
    if (source == nullptr) continue;
    try {
      restore_part(*source, part.name, state);
    } catch (const Error& error) {
      throw CommonError(ExitCode::data, fmt::format("the part '{}' can't begin with {}: {}", part.name,
                                                    source->name(), error.what()));
    }
    take_input_scales(part, *source);
    begun.push_back(part.name);
    std::string& from = state.counters.begun_from;
    from += fmt::format("{}{} of {} (epoch {})", from.empty() ? "" : ", ", part.name, source->name(),
                        source->header().value("epoch", std::int64_t{0}));
    report.announce(fmt::format("the part '{}' begins with {}", part.name, source->name()));
  }
  return begun;
}

// A part that reads fields was trained with the normalisation of its own training's data.
void Start::take_input_scales(const PartConfig& part, const CheckpointReader& checkpoint) const {
  const Normalisation theirs = normalisation_from_json(checkpoint.header().at("normalisation"));
  Normalisation ours = session.data.normalisation();
  for (const Layer& layer : session.graph.layers) {
    if (layer.part != part.name) continue;
    for (const std::size_t value : layer.inputs) {
      if (value >= session.graph.inputs.size()) continue;
      const std::string& name = session.graph.inputs[value].name;
      const auto scale = theirs.of_field(name);
      if (!scale || !ours.of_field(name)) continue;
      if (name == kField) {
        ours.x_mean = scale->mean;
        ours.x_std = scale->std;
      } else {
        ours.fields[name] = *scale;
      }
    }
  }
  session.data.set_normalisation(std::move(ours));
}

// The normalisation stays the one that the weights were trained with.
void Start::begin_with(const CheckpointReader& checkpoint) const {
  const nlohmann::json before =
      upgraded_fingerprint(checkpoint.header().value("fingerprint", nlohmann::json::object()));
  nlohmann::json theirs;
  nlohmann::json ours;
  for (const char* key : {"inputs", "targets", "transform", "normalise"}) {
    theirs[key] = before.value(key, nlohmann::json());
    ours[key] = session.fingerprint.value(key, nlohmann::json());
  }
  const std::string differences = fingerprint_differences(theirs, ours);
  if (!differences.empty())
    throw CommonError(ExitCode::data, fmt::format("init_from: {} is of another training: {}",
                                                  checkpoint.name(), differences));
  session.data.set_normalisation(restore_weights(checkpoint, state));
  state.counters.begun_from =
      fmt::format("{} (epoch {}, data {})", fs::path(checkpoint.name()).filename().string(),
                  checkpoint.header().value("epoch", std::int64_t{0}), before.value("data_hash", ""));
  report.announce("begins with the weights of " + state.counters.begun_from);
}

}  // namespace

void start_training(Session& session, TrainingState& state, const CheckpointDirectory& checkpoints,
                    RunReport& report) {
  const Start start = {session, state, checkpoints, report};
  auto newest = SharedCheckpoint::share(session.communicator, session.leader() ? start.newest() : nullptr);
  if (newest != nullptr && session.options.fresh_on_new_data && start.differs_in_data_only(*newest)) {
    start.forget(*newest);
    newest.reset();
    if (takes_over_part(session))
      newest =
          SharedCheckpoint::share(session.communicator, session.leader() ? start.of_part_before() : nullptr);
  }
  if (takes_over_part(session) && newest == nullptr)
    throw CommonError(ExitCode::data,
                      fmt::format("{} has no checkpoint of the trainer's part before: run that task again",
                                  session.options.contest->rules().before.at(0)));
  if (Contest* contest = session.options.contest; contest != nullptr) {
    if (contest->in_task()) {
      contest->start({}, RoundPlan(contest->rules(), session.plan).most_rounds());
    } else {
      newest = start.agreed(newest != nullptr);
    }
  }
  if (newest == nullptr) {
    start.begin();
  } else {
    start.go_on(*newest);
  }
  report.begin_tensorboard(state.counters.history);
  ++state.counters.segments;
}

void begin_training(Session& session, TrainingState& state, RunReport& report) {
  const CheckpointDirectory none({}, 1);
  Start{session, state, none, report}.begin();
}

Recovery::Recovery(Session& session, TrainingState& state, const CheckpointDirectory& checkpoints,
                   RunReport& report, Clock::time_point begin)
    : session_(session),
      state_(state),
      checkpoints_(checkpoints),
      report_(report),
      writer_(checkpoints),
      asked_step_(state.counters.step),
      last_(begin) {
  const bool keeps = session.config.guard.on;
  if (!session_.leader()) {
    if (keeps) send_shares();
  } else if (keeps) {
    checkpoints_.write_beginning(snapshot_now(), source());
  } else {
    checkpoints_.remove_beginning();
  }
}

Snapshot Recovery::snapshot_now() {
  return snapshot(state_, session_.data.normalisation(), session_.fingerprint);
}

// Where each rank has a share of the state, rank 0 collects it piece by piece.
PieceSource Recovery::source() {
  if (!state_.shards.active()) return {};
  return [this](const CheckpointView& array, std::size_t first, std::size_t count) {
    if (!array.shared) return array.values.subspan(first, count);
    piece_.resize(count);
    collect_part(session_.communicator, state_.shards, *array.shared, first, count, array.values, piece_);
    return std::span<const float>(piece_);
  };
}

// On the ranks that do not write.
void Recovery::send_shares() {
  if (!state_.shards.active()) return;
  const Snapshot snapshot = snapshot_now();
  for (const CheckpointView& array : snapshot.arrays)
    if (array.shared) for_pieces(array, source(), [](std::span<const float>) {});
}

bool Recovery::is_due() {
  const CheckpointConfig& when = session_.config.checkpoint;
  const std::int64_t before = std::exchange(asked_step_, state_.counters.step);
  if (when.every_steps > 0 && state_.counters.step / when.every_steps > before / when.every_steps)
    return true;
  if (when.every_seconds <= 0) return false;
  std::string is_time = seconds_since(last_) >= when.every_seconds ? "yes" : "";
  if (state_.shards.active()) session_.communicator.broadcast(is_time);  // all ranks take part in the writing
  return !is_time.empty();
}

void Recovery::write() {
  last_ = Clock::now();
  if (!session_.leader()) return send_shares();
  const Clock::time_point begin = Clock::now();
  const TrainingCounters& counters = state_.counters;
  if (++written_ == 2) checkpoints_.remove_beginning();
  writer_.write(
      counters.step, snapshot_now(), kept_steps(),
      [this, epoch = counters.epoch, step = counters.step](const CheckpointDirectory::Written& written) {
        report_.checkpoint_written(written, epoch, step);
      },
      source());
  seconds_ += seconds_since(begin);
}

// Trainers of a tournament may have to go back to the last round but one.
std::vector<std::int64_t> Recovery::kept_steps() const {
  const TrainingCounters& counters = state_.counters;
  std::vector<std::int64_t> steps =
      best_steps(counters.history, session_.config.checkpoint.keep_best, session_.config.metric);
  const std::vector<Bout>& bouts = counters.tournament.bouts;
  for (std::size_t i = bouts.size() < 2 ? 0 : bouts.size() - 2; i < bouts.size(); ++i)
    steps.push_back(bouts[i].step);
  return steps;
}

void Recovery::finish() {
  writer_.finish();
  if (session_.leader()) checkpoints_.remove_beginning();
}

void Recovery::write_best() {
  if (!session_.leader()) return send_shares();
  writer_.write_best(snapshot_now(), source());
}

void Recovery::go_back(CommonGuard& guard) {
  writer_.finish();
  TrainingCounters& counters = state_.counters;
  const std::int64_t from = counters.step;
  if (counters.rollbacks >= session_.config.guard.rollbacks) {
    throw GuardGaveUp(
        ExitCode::data,
        fmt::format(
            "{} at epoch {}, step {}; the training has gone back {} time{} already; lower "
            "the learning rate if it is high, else look at the memory of its nodes (docs/train.md, Guard)",
            guard.reason(), counters.epoch + 1, from + 1, counters.rollbacks,
            counters.rollbacks == 1 ? "" : "s"));
  }
  const auto earlier =
      SharedCheckpoint::share(session_.communicator, session_.leader() ? file_before(guard, from) : nullptr);
  if (earlier == nullptr) {
    throw GuardGaveUp(ExitCode::data,
                      fmt::format("{} at epoch {}, step {}, and there is no checkpoint to go back to",
                                  guard.reason(), counters.epoch + 1, from + 1));
  }
  if (rounds_in(*earlier) < counters.tournament.rounds) {
    throw GuardGaveUp(ExitCode::data,
                      fmt::format("{} at epoch {}, step {}, and the checkpoint of round {} can't be read",
                                  guard.reason(), counters.epoch + 1, from + 1, counters.tournament.rounds));
  }
  const std::int64_t rollbacks = counters.rollbacks + 1;
  const std::int64_t segments = counters.segments;
  const double seconds = counters.seconds;
  restore_checkpoint(*earlier, state_);
  counters.rollbacks = rollbacks;
  counters.segments = segments;
  counters.seconds = seconds;
  guard.begin_at(counters.step);
  asked_step_ = counters.step;
  if (!session_.leader()) return;
  checkpoints_.remove_from(counters.step + 1);
  report_.begin_tensorboard(counters.history);
  // A deviation that comes again is not the machine's fault; one that does not come again is worth a warning.
  const std::string sentence =
      fmt::format("{} at step {}: going back to step {}", guard.reason(), from + 1, counters.step);
  if (guard.may_come_again()) {
    report_.say(sentence + ", to see whether it comes again");
  } else {
    report_.warn(sentence);
  }
}

// A checkpoint from before the error that was found at step `from`. The checkpoint of this very step holds
// the weights that the loss was computed with; where ranks differ, every checkpoint since they last agreed
// may come from a wrong one.
std::unique_ptr<CheckpointFile> Recovery::file_before(const CommonGuard& guard, std::int64_t from) const {
  std::int64_t limit = guard.compares_ranks() ? std::min(from, guard.agreed_step() + 1) : from;
  // The other trainers will not hold a round again.
  if (const std::vector<Bout>& bouts = state_.counters.tournament.bouts; !bouts.empty())
    limit = std::max(limit, bouts.back().step + 1);
  const auto warn = [this](const std::string& sentence) { report_.warn(sentence); };
  if (auto found = checkpoints_.newest(warn, limit)) return found;
  if (auto found = checkpoints_.beginning(warn)) return found;
  return checkpoints_.newest(warn);
}

}  // namespace wflow::trainer
