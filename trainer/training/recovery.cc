// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "trainer/training/search.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

// The steps of start_training().
struct Start {
  Session& session;
  TrainingState& state;
  const CheckpointDirectory& checkpoints;
  RunReport& report;

  // The bytes of a checkpoint and its name in messages; empty: none.
  struct Source {
    std::string bytes;
    std::string name;
  };

  fs::path kept_model() const { return fs::path(session.config.output) / "initial.wfck"; }
  std::function<void(const std::string&)> warnings() const {
    return [this](const std::string& sentence) { report.warn(sentence); };
  }
  Source newest() const;
  void forget(const std::string& newest) const;
  void keep_last_model(const std::string& newest) const;
  bool differs_in_data_only(const Checkpoint& checkpoint) const;
  void go_on(const Checkpoint& checkpoint) const;
  Source initial_weights(const std::string& from) const;
  void begin() const;
  void begin_with(const Source& source) const;
  std::vector<std::string> begin_parts() const;
  void take_input_scales(const PartConfig& part, const Checkpoint& checkpoint) const;
};

// On rank 0.
Start::Source Start::newest() const {
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
  auto found = checkpoints.newest(warnings());
  if (!found) return {};
  return {std::move(found->bytes), found->path.filename()};
}

bool Start::differs_in_data_only(const Checkpoint& checkpoint) const {
  const nlohmann::json& hash = session.fingerprint.at("data_hash");
  nlohmann::json before =
      upgraded_fingerprint(checkpoint.header.value("fingerprint", nlohmann::json::object()));
  if (before.value("data_hash", "") == hash) return false;
  before["data_hash"] = hash;
  return fingerprint_differences(before, session.fingerprint).empty();
}

// Removes the checkpoints of the data as they were.
void Start::forget(const std::string& newest) const {
  const bool with_weights = session.config.init_from == kInitFromLast;
  report.announce(fmt::format("the data have changed since the last checkpoint: training starts anew{}",
                              with_weights ? " with the weights of the last model" : ""));
  if (!session.leader()) return;
  if (with_weights) keep_last_model(newest);
  checkpoints.clear();
}

// Before the checkpoints are removed, so that a run that is killed before its first checkpoint begins with
// the same weights again.
void Start::keep_last_model(const std::string& newest) const {
  std::string best;
  if (session.config.select == Select::best) best = checkpoints.best_bytes(warnings());
  write_file_durably(kept_model(), best.empty() ? newest : best);
}

void Start::go_on(const Checkpoint& checkpoint) const {
  const TrainingCounters& counters = state.counters;
  const std::string differences = fingerprint_differences(
      upgraded_fingerprint(checkpoint.header.value("fingerprint", nlohmann::json())), session.fingerprint);
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

// On rank 0. Empty if the weights are random.
Start::Source Start::initial_weights(const std::string& from) const {
  if (from.empty()) return {};
  const fs::path path = from == kInitFromLast ? kept_model() : fs::path(from);
  if (from == kInitFromLast && !fs::exists(path)) return {};  // the first training
  if (fs::is_directory(path)) {
    const CheckpointDirectory directory(fs::exists(path / "checkpoints") ? path / "checkpoints" : path, 1);
    std::string best = directory.best_bytes(warnings());
    if (!best.empty()) return {std::move(best), (path / "best.wfck").string()};
    auto found = directory.newest(warnings());
    if (found) return {std::move(found->bytes), found->path.string()};
  } else if (fs::exists(path)) {
    return {read_file(path), path.string()};
  }
  throw CommonError(ExitCode::data,
                    fmt::format("init_from: {} is no checkpoint and no folder of a training", from));
}

void Start::begin() const {
  Communicator& communicator = session.communicator;
  if (session.config.precision == Precision::fp16) state.counters.loss_scale = LossScale::begun();
  Source source;
  if (session.leader()) source = initial_weights(session.config.init_from);
  communicator.broadcast(source.bytes);
  communicator.broadcast(source.name);
  if (!source.bytes.empty()) {
    begin_with(source);
    begin_parts();
    return;
  }
  session.data.compute_normalisation(communicator);
  const std::vector<std::string> begun = begin_parts();
  if (session.config.model.initial == InitialWeights::data)
    initialise_from_data(session.graph, session.data, communicator, state.flat, begun);
}

// Returns the names of the parts that begin with weights of another training.
std::vector<std::string> Start::begin_parts() const {
  std::vector<std::string> begun;
  for (const PartConfig& part : session.config.parts) {
    if (part.init_from.empty()) continue;
    Source source;
    if (session.leader()) source = initial_weights(part.init_from);
    session.communicator.broadcast(source.bytes);
    session.communicator.broadcast(source.name);
    const Checkpoint checkpoint = decode_checkpoint(source.bytes, source.name);
    try {
      restore_part(checkpoint, part.name, state.flat, state.average);
    } catch (const Error& error) {
      throw CommonError(ExitCode::data, fmt::format("the part '{}' can't begin with {}: {}", part.name,
                                                    source.name, error.what()));
    }
    take_input_scales(part, checkpoint);
    begun.push_back(part.name);
    std::string& from = state.counters.begun_from;
    from += fmt::format("{}{} of {} (epoch {})", from.empty() ? "" : ", ", part.name, source.name,
                        checkpoint.header.value("epoch", std::int64_t{0}));
    report.announce(fmt::format("the part '{}' begins with {}", part.name, source.name));
  }
  return begun;
}

// A part that reads fields was trained with the normalisation of its own training's data.
void Start::take_input_scales(const PartConfig& part, const Checkpoint& checkpoint) const {
  const Normalisation theirs = normalisation_from_json(checkpoint.header.at("normalisation"));
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
void Start::begin_with(const Source& source) const {
  const Checkpoint checkpoint = decode_checkpoint(source.bytes, source.name);
  const nlohmann::json before =
      upgraded_fingerprint(checkpoint.header.value("fingerprint", nlohmann::json::object()));
  nlohmann::json theirs;
  nlohmann::json ours;
  for (const char* key : {"inputs", "targets", "transform", "normalise"}) {
    theirs[key] = before.value(key, nlohmann::json());
    ours[key] = session.fingerprint.value(key, nlohmann::json());
  }
  const std::string differences = fingerprint_differences(theirs, ours);
  if (!differences.empty())
    throw CommonError(ExitCode::data,
                      fmt::format("init_from: {} is of another training: {}", source.name, differences));
  session.data.set_normalisation(restore_weights(checkpoint, state.flat, state.average));
  state.counters.begun_from =
      fmt::format("{} (epoch {}, data {})", fs::path(source.name).filename().string(),
                  checkpoint.header.value("epoch", std::int64_t{0}), before.value("data_hash", ""));
  report.announce("begins with the weights of " + state.counters.begun_from);
}

}  // namespace

void start_training(Session& session, TrainingState& state, const CheckpointDirectory& checkpoints,
                    RunReport& report) {
  const Start start = {session, state, checkpoints, report};
  Start::Source newest;
  if (session.leader()) newest = start.newest();
  session.communicator.broadcast(newest.bytes);
  if (!newest.bytes.empty() && session.options.fresh_on_new_data &&
      start.differs_in_data_only(decode_checkpoint(newest.bytes, newest.name))) {
    start.forget(newest.bytes);
    newest.bytes.clear();
  }
  if (newest.bytes.empty()) {
    start.begin();
  } else {
    start.go_on(decode_checkpoint(newest.bytes, newest.name));
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
      last_(begin) {
  if (session.config.guard.on && session.leader()) beginning_ = sealed(snapshot_now());
}

std::string Recovery::snapshot_now() {
  return snapshot(state_, session_.data.normalisation(), session_.fingerprint);
}

bool Recovery::is_due() const {
  const CheckpointConfig& when = session_.config.checkpoint;
  const bool by_steps = when.every_steps > 0 && state_.counters.step % when.every_steps == 0;
  const bool by_time = when.every_seconds > 0 && seconds_since(last_) >= when.every_seconds;
  return by_steps || by_time;
}

void Recovery::write() {
  last_ = Clock::now();
  if (!session_.leader()) return;
  const Clock::time_point begin = Clock::now();
  const TrainingCounters& counters = state_.counters;
  if (++written_ > 1) beginning_ = {};
  writer_.write(
      counters.step, snapshot_now(),
      best_steps(counters.history, session_.config.checkpoint.keep_best, session_.config.metric),
      [this, epoch = counters.epoch, step = counters.step](const CheckpointDirectory::Written& written) {
        report_.checkpoint_written(written, epoch, step);
      });
  seconds_ += seconds_since(begin);
}

void Recovery::write_best() {
  if (session_.leader()) writer_.write_best(snapshot_now());
}

void Recovery::go_back(CommonGuard& guard) {
  writer_.finish();
  TrainingCounters& counters = state_.counters;
  const std::int64_t from = counters.step;
  if (counters.rollbacks >= session_.config.guard.rollbacks) {
    throw CommonError(
        ExitCode::data,
        fmt::format(
            "{} at epoch {}, step {}; the training has gone back {} time{} already; lower "
            "the learning rate if it is high, else look at the memory of its nodes (docs/train.md, Guard)",
            guard.reason(), counters.epoch + 1, from + 1, counters.rollbacks,
            counters.rollbacks == 1 ? "" : "s"));
  }
  std::string bytes;
  if (session_.leader()) bytes = bytes_before(guard, from);
  session_.communicator.broadcast(bytes);
  if (bytes.empty()) {
    throw CommonError(ExitCode::data,
                      fmt::format("{} at epoch {}, step {}, and there is no checkpoint to go back to",
                                  guard.reason(), counters.epoch + 1, from + 1));
  }
  const std::int64_t rollbacks = counters.rollbacks + 1;
  const std::int64_t segments = counters.segments;
  const double seconds = counters.seconds;
  restore_checkpoint(decode_checkpoint(bytes, "the checkpoint"), state_);
  counters.rollbacks = rollbacks;
  counters.segments = segments;
  counters.seconds = seconds;
  guard.begin_at(counters.step);
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
std::string Recovery::bytes_before(const CommonGuard& guard, std::int64_t from) const {
  const std::int64_t limit = guard.compares_ranks() ? std::min(from, guard.agreed_step() + 1) : from;
  const auto warn = [this](const std::string& sentence) { report_.warn(sentence); };
  auto found = checkpoints_.newest(warn, limit);
  if (!found && beginning_.empty()) found = checkpoints_.newest(warn);
  return found ? found->bytes : beginning_;
}

}  // namespace wflow::trainer
