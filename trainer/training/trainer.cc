// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/events.h"
#include "base/file.h"
#include "base/process.h"
#include "base/random.h"
#include "base/resources.h"
#include "base/text.h"
#include "base/version.h"
#include "trainer/data/check_data.h"
#include "trainer/data/run_data.h"
#include "trainer/model/model_export.h"
#include "trainer/model/module_graph.h"
#include "trainer/model/network.h"
#include "trainer/model/onnx_file.h"
#include "trainer/parallel/gradient_exchange.h"
#include "trainer/training/accumulated.h"
#include "trainer/training/checkpoint_writer.h"
#include "trainer/training/data_initial.h"
#include "trainer/training/objective.h"
#include "trainer/training/prediction_file.h"
#include "trainer/training/report.h"
#include "trainer/training/schedule.h"
#include "trainer/training/search.h"
#include "trainer/training/tensorboard_log.h"
#include "trainer/training/training_state.h"
#include "trainer/training/weight_average.h"

namespace wflow::trainer {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr double kProgressEverySeconds = 0.5;
// Training samples that the norms' statistics are measured on before an evaluation: their means are then
// exact to a small part of what a batch's are.
constexpr std::size_t kNormSamples = 2048;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A loss or a gradient. A search goes on without such a training.
class NotFinite : public CommonError {
 public:
  using CommonError::CommonError;
};

void multiply(std::span<float> values, double factor) {
  for (float& value : values) value *= static_cast<float>(factor);
}

// With a communicator rank 0 alone reads the file of a module.
ModelGraph network_graph(const TrainConfig& config, const ModelTask& task, Communicator* communicator) {
  if (config.model.name != ModelName::module) return build_model(config.model, task);
  std::string bytes;
  if (communicator == nullptr || communicator->rank() == 0) bytes = read_file(config.model.file);
  if (communicator != nullptr) communicator->broadcast(bytes);
  return module_graph(std::move(bytes), fs::path(config.model.file).filename().string(), task);
}

class Run {
 public:
  // Of a completed configuration.
  Run(const TrainConfig& config, Communicator& communicator, const RunOptions& options);
  Outcome execute();

 private:
  enum class EpochEnd { complete, interrupted, doubtful };

  void resume_or_begin();
  void begin();
  void keep_last_model(const std::string& newest);
  std::pair<std::string, std::string> weights_to_begin_with();
  void begin_with(const std::string& bytes, const std::string& source);
  fs::path kept_model() const { return fs::path(config_.output) / "initial.wfck"; }
  bool is_of_other_data(const Checkpoint& checkpoint) const;
  EpochEnd train_epochs();
  EpochEnd train_epoch(DataLoader& loader);
  bool step(const Batch& batch, std::size_t global_batch);
  bool apply(const LaggedSums::Step& step);
  bool looks_sound(double loss, double largest_gradient);
  void check_finite(double loss, bool gradient_finite) const;
  bool ranks_agree();
  std::string state_hash();
  void go_back();
  std::string bytes_before(std::int64_t from);
  void inject(BitFlip::Where where, std::span<float> values);
  double forward(const std::pair<std::size_t, std::size_t>& part, std::size_t first_of_rank, double scale);
  void finish_epoch();
  void report_epoch(const EpochRow& row);
  void metric(const std::string& name, double value, std::int64_t epoch, std::int64_t at);
  void send_note(const std::string& sentence);
  // Counted from the first member's beginning.
  std::uint64_t epoch_of_all(std::int64_t epoch) const {
    return static_cast<std::uint64_t>(options_.member * config_.epochs + epoch);
  }
  std::uint64_t step_of_all(std::int64_t step) const {
    return static_cast<std::uint64_t>(options_.member * total_steps() + step);
  }
  // Of all ranks.
  double gflops_of(const EpochRow& row) const {
    return static_cast<double>(graph_.training_flops()) * row.samples_per_second * 1e-9;
  }
  void write_metrics() const;
  bool validate(EpochRow& row);
  void write_checkpoint();
  void write_best();
  void write_results();
  void write_onnx();
  struct Predictions {
    std::vector<double> records;  // of all ranks' samples
    std::vector<float> outputs;   // of targets that are labels
  };
  Predictions predict(CachedSplit& split, PredictionFile* file = nullptr);
  void write_predictions(PredictionFile* file, std::size_t first, std::size_t samples);
  ExportedUnits units() const;
  template <class Number>
  std::vector<Number> gather(const std::vector<Number>& own);
  Evaluation evaluation_of(const Predictions& predictions) const;
  void use_evaluation_weights();
  void use_training_weights();
  void measure_norms();
  void load_best();
  void check_search_metric();
  void check_the_data();
  void report_staging();
  nlohmann::json staging_result();
  void say(const std::string& line) const;
  void say_warning(const std::string& sentence);
  void report_progress();
  bool leader() const { return communicator_.rank() == 0; }
  // Of a search the rung's: the schedule is that of the full run all the same.
  std::int64_t end_epoch() const {
    const SearchConfig& search = options_.search;
    return search.on() ? search.rungs[static_cast<std::size_t>(search.rung - 1)] : config_.epochs;
  }
  std::int64_t total_steps() const { return end_epoch() * steps_per_epoch_; }
  double rate() const;
  Wire wire() const;

  const TrainConfig config_;
  Communicator& communicator_;
  const RunOptions& options_;
  RunData data_;
  ModelGraph graph_;
  Objective objective_;
  FlatState state_;
  Optimizer optimizer_;
  WeightAverage average_;
  std::unique_ptr<Network> network_;
  GradientExchange exchange_;
  LaggedSums lagged_;
  TrainingOrder order_;
  std::int64_t steps_per_epoch_;
  TrainingCounters counters_;
  CheckpointDirectory checkpoints_;
  nlohmann::json fingerprint_;
  EventWriter events_;
  TensorboardLog tensorboard_;  // rank 0's
  CheckpointWriter writer_;     // ends before what it uses
  Guard guard_;
  std::string own_doubt_;  // of the gradient of the step before, on this rank
  std::string doubt_;      // why the training must go back
  bool suspected_ = false;  // the doubt is of values that may be the training's own
  std::string beginning_;  // rank 0's: the state at the start, until there are two checkpoints
  std::int64_t checkpoints_written_ = 0;
  std::int64_t sound_step_ = 0;  // up to which steps the ranks have agreed, and checkpoints can be trusted
  std::vector<BitFlip> flips_;
  Feed feed_;
  std::vector<float> outputs_;
  std::vector<float> output_gradients_;
  Accumulated accumulated_;
  bool stopping_ = false;
  std::int64_t selected_epoch_ = 0;  // whose weights are tested and exported
  Clock::time_point began_ = Clock::now();
  Clock::time_point last_checkpoint_ = Clock::now();
  Clock::time_point last_progress_ = Clock::now();
  double data_wait_seconds_ = 0;
  double epoch_wait_seconds_ = 0;     // for data, in the epoch that has ended
  double epoch_exposed_seconds_ = 0;  // for sums over the ranks, in the epoch under way
  double validation_seconds_ = 0;
  double checkpoint_seconds_ = 0;  // in which the training stood still
};

Run::Run(const TrainConfig& config, Communicator& communicator, const RunOptions& options)
    : config_(config),
      communicator_(communicator),
      options_(options),
      data_(config, communicator),
      graph_(network_graph(config, task_of(config, data_.info(), data_.roles()), &communicator)),
      objective_(objective_of(config, data_.targets(), graph_)),
      state_(graph_),
      optimizer_(config.optimizer, state_.parameters()),
      average_(config.ema, state_.parameters()),
      exchange_(communicator, state_.exchange()),
      lagged_(&communicator),
      order_{hash64(config.seed, 1), data_.train().size(), static_cast<std::size_t>(config.batch),
             static_cast<std::size_t>(communicator.rank()), static_cast<std::size_t>(communicator.size())},
      steps_per_epoch_(static_cast<std::int64_t>(order_.steps_per_epoch())),
      checkpoints_(fs::path(config.output) / "checkpoints", config.checkpoint.keep_last),
      fingerprint_(fingerprint(config, data_.info())),
      events_(leader() ? EventWriter::from_environment() : EventWriter("")),
      tensorboard_(fs::path(config.output) / "tensorboard"),
      writer_(checkpoints_),
      guard_(config.guard),
      flips_(options.bit_flips) {
  check_the_data();
  state_.fill_initial_values(hash64(config.seed, 0));
  if (graph_.is_module()) {
    fill_from_module(graph_, state_);
    fingerprint_["model"]["file"] = hash_bytes(*graph_.layers.front().module);
  }
  for (const std::string& field : data_.normalised_otherwise()) {
    if (leader())
      say_warning(
          fmt::format("the field {} has a quantile normalisation, which a model can't hold: it is "
                      "normalised by mean and deviation",
                      field));
  }
}

// An error is the same on all ranks.
void Run::check_the_data() {
  const SplitSizes sizes = {data_.train().size(), data_.validation().size(), data_.test().size()};
  try {
    for (const std::string& doubt : check_data(config_, data_.info(), data_.roles(), sizes))
      if (leader()) say_warning(doubt);
  } catch (const Error& error) {
    throw CommonError(error.code(), error.what());
  }
}

void Run::report_staging() {
  if (data_.staging() == nullptr) return;
  const Staging::Report& report = data_.staging()->report();
  const std::string note = fmt::format("staged {} shards, {}, in {:.2f} s on {} node{} ({})", report.shards,
                                       text::format_bytes(report.bytes), report.seconds, report.groups,
                                       report.groups == 1 ? "" : "s", name_of(config_.stage));
  say(note);
  send_note(note);
}

// A collective call.
nlohmann::json Run::staging_result() {
  if (data_.staging() == nullptr) return {};
  const Staging::Report& report = data_.staging()->report();
  std::uint64_t fetched = 0;
  for (const std::uint64_t bytes : gather(std::vector<std::uint64_t>{data_.staging()->fetched_bytes()}))
    fetched += bytes;
  return {{"where", name_of(config_.stage)}, {"shards", report.shards}, {"bytes", report.bytes},
          {"seconds", report.seconds},       {"nodes", report.groups},  {"fetched_bytes", fetched}};
}

void Run::say(const std::string& line) const {
  if (!leader()) return;
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void Run::say_warning(const std::string& sentence) {
  std::fprintf(stderr, "wflow-train: warning: %s\n", sentence.c_str());
  send_note(sentence);
}

bool Run::is_of_other_data(const Checkpoint& checkpoint) const {
  nlohmann::json before =
      upgraded_fingerprint(checkpoint.header.value("fingerprint", nlohmann::json::object()));
  if (before.value("data_hash", "") == fingerprint_.at("data_hash")) return false;
  before["data_hash"] = fingerprint_.at("data_hash");
  return fingerprint_differences(before, fingerprint_).empty();
}

// Rank 0 reads, all restore from the same bytes: the other nodes need not see the file.
void Run::resume_or_begin() {
  std::string bytes;
  std::string source;
  if (leader()) {
    make_directories(config_.output);
    remove_temporaries(config_.output);
    remove_temporaries(checkpoints_.directory());
    if (options_.fresh) {
      checkpoints_.clear();
      std::error_code ignored;
      fs::remove(kept_model(), ignored);
    }
    if (options_.search.rung > 1) take_over_checkpoints(options_.search, checkpoints_.directory());
    if (auto found = checkpoints_.newest([&](const std::string& sentence) { say_warning(sentence); })) {
      bytes = std::move(found->bytes);
      source = found->path.filename();
    }
  }
  communicator_.broadcast(bytes);
  if (!bytes.empty() && options_.fresh_on_new_data && is_of_other_data(decode_checkpoint(bytes, source))) {
    const bool with_weights = config_.init_from == kInitFromLast;
    const std::string note =
        fmt::format("the data have changed since the last checkpoint: training starts anew{}",
                    with_weights ? " with the weights of the last model" : "");
    say(note);
    send_note(note);
    if (leader()) {
      if (with_weights) keep_last_model(bytes);
      checkpoints_.clear();
    }
    bytes.clear();
  }
  if (bytes.empty()) {
    begin();
  } else {
    const Checkpoint checkpoint = decode_checkpoint(bytes, source);
    const std::string differences = fingerprint_differences(
        upgraded_fingerprint(checkpoint.header.value("fingerprint", nlohmann::json())), fingerprint_);
    if (!differences.empty()) {
      throw CommonError(ExitCode::data,
                        fmt::format("the checkpoints in {} are of another training: {}; use --fresh to start "
                                    "anew, or another output directory",
                                    config_.output, differences));
    }
    Normalisation normalisation;
    restore_checkpoint(checkpoint, state_, optimizer_, average_, lagged_, counters_, normalisation);
    data_.set_normalisation(normalisation);
    const bool complete = counters_.epoch >= end_epoch() || counters_.stopped_early;
    const std::string note = fmt::format("continued from epoch {}, step {}{}", counters_.epoch, counters_.step,
                                         complete ? ": nothing is left to train, as the data are the same" : "");
    say(note);
    send_note(note);
    // Who was killed may have taken the last epochs' events along; told twice, they count once.
    for (const EpochRow& row : counters_.history) report_epoch(row);
  }
  if (leader()) tensorboard_.begin(counters_.history);
  ++counters_.segments;
  // After the restore: a back end on a GPU copies the values when it is made.
  network_ = make_network(config_.backend, config_.precision, graph_, state_);
}

// Before the checkpoints go: a run that is killed before its first one begins with the same weights again.
void Run::keep_last_model(const std::string& newest) {
  std::string best;
  if (config_.select == Select::best)
    best = checkpoints_.best_bytes([&](const std::string& sentence) { say_warning(sentence); });
  write_file_durably(kept_model(), best.empty() ? newest : best);
}

// Bytes of a checkpoint and what to call it; nothing where the weights are random. Rank 0 alone.
std::pair<std::string, std::string> Run::weights_to_begin_with() {
  if (config_.init_from.empty()) return {};
  fs::path path = config_.init_from == kInitFromLast ? kept_model() : fs::path(config_.init_from);
  if (config_.init_from == kInitFromLast && !fs::exists(path)) return {};  // the first training
  if (fs::is_directory(path)) {
    const CheckpointDirectory directory(fs::exists(path / "checkpoints") ? path / "checkpoints" : path, 1);
    const auto report = [&](const std::string& sentence) { say_warning(sentence); };
    std::string best = directory.best_bytes(report);
    if (!best.empty()) return {std::move(best), (path / "best.wfck").string()};
    auto found = directory.newest(report);
    if (found) return {std::move(found->bytes), found->path.string()};
  } else if (fs::exists(path)) {
    return {read_file(path), path.string()};
  }
  throw CommonError(ExitCode::data, fmt::format("init_from: {} is no checkpoint and no folder of a training",
                                                config_.init_from));
}

void Run::begin() {
  if (config_.precision == Precision::fp16) counters_.loss_scale = LossScale::begun();
  std::string bytes;
  std::string source;
  if (leader()) std::tie(bytes, source) = weights_to_begin_with();
  communicator_.broadcast(bytes);
  communicator_.broadcast(source);
  if (!bytes.empty()) {
    begin_with(bytes, source);
    return;
  }
  data_.compute_normalisation(communicator_);
  if (config_.model.initial == InitialWeights::data)
    initialise_from_data(graph_, data_, communicator_, state_);
}

// The normalisation stays that which the weights were trained with.
void Run::begin_with(const std::string& bytes, const std::string& source) {
  const Checkpoint checkpoint = decode_checkpoint(bytes, source);
  const nlohmann::json before =
      upgraded_fingerprint(checkpoint.header.value("fingerprint", nlohmann::json::object()));
  nlohmann::json theirs;
  nlohmann::json ours;
  for (const char* key : {"inputs", "targets", "transform", "normalise"}) {
    theirs[key] = before.value(key, nlohmann::json());
    ours[key] = fingerprint_.value(key, nlohmann::json());
  }
  const std::string differences = fingerprint_differences(theirs, ours);
  if (!differences.empty())
    throw CommonError(ExitCode::data,
                      fmt::format("init_from: {} is of another training: {}", source, differences));
  Normalisation normalisation;
  restore_weights(checkpoint, state_, average_, normalisation);
  data_.set_normalisation(normalisation);
  counters_.begun_from =
      fmt::format("{} (epoch {}, data {})", fs::path(source).filename().string(),
                  checkpoint.header.value("epoch", std::int64_t{0}), before.value("data_hash", ""));
  const std::string note = "begins with the weights of " + counters_.begun_from;
  say(note);
  send_note(note);
}

// In the first epoch and not when all have trained in vain.
void Run::check_search_metric() {
  if (!options_.search.on()) return;
  const std::string& metric = options_.search.metric;
  if (metric != "train_loss" && data_.validation().size() == 0)
    throw CommonError(ExitCode::spec,
                      fmt::format("the search ranks by '{}', and the data set has no validation samples; say "
                                  "'metric: train_loss', or split some off",
                                  metric));
  if (!metric.starts_with(kRatioMetric)) return;
  const std::vector<std::string> labels = data_.labels();
  const std::string target = metric.substr(kRatioMetric.size());
  if (std::ranges::find(labels, target) != labels.end()) return;
  throw CommonError(ExitCode::spec, fmt::format("the search ranks by '{}', and the targets are {}", metric,
                                                text::join(labels, ", ")));
}

Outcome Run::execute() {
  check_search_metric();
  report_staging();
  resume_or_begin();
  sound_step_ = counters_.step;
  if (config_.guard.on && leader())
    beginning_ = sealed(
        snapshot(state_, optimizer_, average_, lagged_, counters_, data_.normalisation(), fingerprint_));
  EpochEnd end = train_epochs();
  for (; end == EpochEnd::doubtful; end = train_epochs()) go_back();
  if (end == EpochEnd::interrupted) {
    write_checkpoint();
    writer_.finish();
    const std::string note = fmt::format("stopped at epoch {}, step {}; the same command continues",
                                         counters_.epoch, counters_.step);
    say(note);
    send_note(note);
    return Outcome::interrupted;
  }
  writer_.finish();
  if (options_.search.on() && !options_.search.is_last_rung()) {
    if (leader()) write_metrics();  // a kill may have come between the last checkpoint and them
    say(fmt::format("the search's rung {} ends at {} epochs", options_.search.rung, end_epoch()));
    return Outcome::finished;
  }
  write_results();
  if (options_.search.on() && leader()) write_search(options_.search, config_.early_stop_epochs);
  return Outcome::finished;
}

// From where the counters stand to the end, or until a signal or a doubt ends it.
Run::EpochEnd Run::train_epochs() {
  const auto first = static_cast<std::uint64_t>(counters_.epoch * steps_per_epoch_ + counters_.step_of_epoch);
  const auto last = static_cast<std::uint64_t>(total_steps());
  const auto plan = [this, first, last](std::uint64_t n) -> std::optional<std::vector<BatchItem>> {
    if (first + n >= last) return std::nullopt;
    const std::uint64_t epoch = (first + n) / order_.steps_per_epoch();
    const std::uint64_t step = (first + n) % order_.steps_per_epoch();
    std::vector<BatchItem> items;
    for (const std::size_t index : order_.indices(epoch, step)) {
      const std::int64_t id = data_.train().source().id(index);
      BatchItem& item = items.emplace_back(BatchItem{index});
      item.augmentation =
          draw_augmentation(config_.augment, data_.grid(), hash64(config_.seed, 2), epoch, id);
      if (config_.augment.noise > 0) item.noise = noise_key(hash64(config_.seed, 2), epoch, id);
    }
    return items;
  };
  DataLoader loader(data_.train(), data_.scales(), order_.batch / order_.ranks + 1,
                    static_cast<int>(config_.loader_threads), plan);
  EpochEnd end = EpochEnd::complete;
  double waited = 0;
  while (end == EpochEnd::complete && counters_.epoch < end_epoch() && !counters_.stopped_early) {
    end = train_epoch(loader);
    if (end != EpochEnd::doubtful && !ranks_agree()) end = EpochEnd::doubtful;
    epoch_wait_seconds_ = loader.waited_seconds() - waited;
    waited += epoch_wait_seconds_;
    if (end == EpochEnd::complete) finish_epoch();
  }
  data_wait_seconds_ += loader.waited_seconds();
  return end;
}

Run::EpochEnd Run::train_epoch(DataLoader& loader) {
  while (counters_.step_of_epoch < steps_per_epoch_) {
    const Clock::time_point begin = Clock::now();
    const Batch* batch = loader.next();
    WFLOW_CHECK(batch != nullptr);
    const double exposed = communicator_.exposed_seconds();
    if (!step(*batch, order_.global_batch(static_cast<std::uint64_t>(counters_.step_of_epoch))))
      return EpochEnd::doubtful;
    epoch_exposed_seconds_ += communicator_.exposed_seconds() - exposed;
    ++counters_.step;
    ++counters_.step_of_epoch;
    const double seconds = seconds_since(begin);
    counters_.epoch_seconds += seconds;
    counters_.seconds += seconds;
    if (stopping_) return EpochEnd::interrupted;
    report_progress();
    const std::int64_t agree_every = config_.guard.agree_every;
    if (agree_every > 0 && counters_.step % agree_every == 0 && !ranks_agree()) return EpochEnd::doubtful;
    const CheckpointConfig& when = config_.checkpoint;
    const bool by_steps = when.every_steps > 0 && counters_.step % when.every_steps == 0;
    const bool by_time = when.every_seconds > 0 && seconds_since(last_checkpoint_) >= when.every_seconds;
    if (by_steps || by_time) write_checkpoint();
  }
  // What is evaluated has all of its gradients.
  if (config_.optimizer.lag == 0) return EpochEnd::complete;
  if (const auto last = lagged_.take(state_.exchange()); last && !apply(*last)) return EpochEnd::doubtful;
  return stopping_ ? EpochEnd::interrupted : EpochEnd::complete;
}

double Run::rate() const {
  // Goyal et al. 2017: the rate in proportion to the batch.
  const auto reference = static_cast<double>(config_.optimizer.reference_batch);
  const double scaled = reference > 0 ? static_cast<double>(config_.batch) / reference : 1.0;
  return config_.optimizer.learning_rate * scaled *
         learning_rate_factor(config_.schedule, counters_.step, steps_per_epoch_, config_.epochs);
}

// Gradients alone may be rounded: scalars and batch norm's statistics are counted on.
Wire Run::wire() const {
  return {config_.gradients.wire == WireFormat::half,
          hash64(config_.seed, static_cast<std::uint64_t>(counters_.step)), 0,
          static_cast<std::size_t>(state_.gradients_begin())};
}

// Gives whether the step was taken: not if the guard doubts it.
bool Run::step(const Batch& batch, std::size_t global_batch) {
  inject(BitFlip::Where::weights, state_.values());
  const std::size_t samples = batch.items.size();
  const auto share = order_.share(static_cast<std::uint64_t>(counters_.step_of_epoch));
  WFLOW_CHECK(samples == share.second - share.first);
  data_.fill(feed_, batch, data_.train(), true);
  const double scale = 1.0 / static_cast<double>(global_batch * objective_.terms());
  const std::size_t passes = std::min(samples, static_cast<std::size_t>(config_.accumulate));
  double loss = 0;
  if (samples == 0) {
    // This rank has no part of the last batch: it adds zeros and takes part in every collective.
    std::fill(state_.exchange().begin(), state_.exchange().end(), 0.0F);
  }
  for (std::size_t pass = 0; pass + 1 < passes; ++pass) {
    loss += forward(even_part(samples, pass, passes), share.first, scale);
    network_->backward(output_gradients_, [](std::int64_t) {});
    accumulated_.add(state_.exchange());
  }
  if (samples > 0) loss += forward(even_part(samples, passes - 1, passes), share.first, scale);
  const bool out_of_time =
      leader() && config_.max_seconds > 0 && seconds_since(began_) >= config_.max_seconds;
  state_.scalar(Scalar::loss) = static_cast<float>(loss);
  state_.scalar(Scalar::doubt) = own_doubt_.empty() ? 0.0F : 1.0F;
  state_.scalar(Scalar::stop) = out_of_time || (options_.stop_asked && options_.stop_asked()) ? 1.0F : 0.0F;
  const bool lags = config_.optimizer.lag > 0;
  exchange_.set_wire(wire());
  if (samples > 0) {
    inject(BitFlip::Where::gradients, output_gradients_);
    network_->backward(output_gradients_, [this, lags](std::int64_t from) {
      accumulated_.add_to(state_.exchange(), from);
      if (!lags) exchange_.ready(from);
    });
  }
  accumulated_.add_to(state_.exchange(), kScalarSpace);
  const LaggedSums::Step now = {static_cast<std::int64_t>(global_batch), counters_.loss_scale.value, rate()};
  if (!lags) {
    exchange_.finish();
    return apply(now);
  }
  const auto before = lagged_.exchange(state_.exchange(), now, wire());
  return !before || apply(*before);
}

// What the ranks have found in a step, and which is summed in state_.exchange().
bool Run::apply(const LaggedSums::Step& step) {
  const auto global_batch = static_cast<std::size_t>(step.samples);
  if (counters_.loss_scale.on) multiply(state_.gradients(), 1 / step.loss_scale);
  const double total = state_.scalar(Scalar::loss);
  const double largest = largest_of(state_.gradients());
  const bool taken = counters_.loss_scale.takes(std::isfinite(largest));
  if (taken && config_.guard.on &&
      !looks_sound(total / static_cast<double>(global_batch * objective_.terms()), largest))
    return false;
  if (taken && own_doubt_.empty()) check_finite(total, std::isfinite(largest));
  stopping_ = state_.scalar(Scalar::stop) > 0;
  if (std::isfinite(total)) counters_.epoch_loss += total;  // a step that is left out may overflow
  counters_.epoch_samples += static_cast<std::int64_t>(global_batch);
  if (!taken) return true;
  if (graph_.is_module()) {
    state_.add_to_running_statistics(step.samples);
  } else {
    state_.update_running_statistics(step.samples, kNormMomentum);
  }
  if (!optimizer_.slots().empty()) inject(BitFlip::Where::optimizer, optimizer_.slots().back().values.span());
  optimizer_.step(state_.values(), state_.gradients(), step.rate);
  average_.update(state_.values(), counters_.step + 1);
  network_->values_changed();
  return true;
}

// The same answer on all ranks. A loss is a sum over them. A gradient too, but one that a rank alone has
// wrong, in its own memory, must not make it leave the others: it tells them with the next step, which the
// rollback undoes.
bool Run::looks_sound(double loss, double largest_gradient) {
  doubt_ = guard_.look_at_loss(counters_.step, loss);
  suspected_ = true;
  if (doubt_.empty() && state_.scalar(Scalar::doubt) > 0) {
    suspected_ = !own_doubt_.empty();
    doubt_ = suspected_ ? own_doubt_ : "the gradient of another rank is wrong";
  }
  own_doubt_ = guard_.look_at_gradient(counters_.step, largest_gradient);
  if (doubt_.empty() && communicator_.size() == 1) doubt_ = own_doubt_;
  if (const std::string note = guard_.take_note(); !note.empty()) {
    say(note);
    if (leader()) send_note(note);
  }
  if (const std::string warning = guard_.take_warning(); leader() && !warning.empty()) say_warning(warning);
  return doubt_.empty();
}

void Run::check_finite(double loss, bool gradient_finite) const {
  const bool finite = std::isfinite(loss);
  if (finite && gradient_finite) return;
  throw NotFinite(ExitCode::data,
                  fmt::format("the {} is not finite at epoch {}, step {}; lower the learning rate (now "
                              "{:.3g}) or look at the data",
                              finite ? "gradient" : "loss", counters_.epoch + 1, counters_.step + 1, rate()));
}

// All that the ranks must have in common.
std::string Run::state_hash() {
  std::vector<std::span<const float>> all = {state_.values(), state_.buffer_values()};
  for (Optimizer::Slot& slot : optimizer_.slots()) all.push_back(slot.values.span());
  if (average_.active()) all.push_back(average_.values());
  std::string hashes;
  for (const std::span<const float> part : all)
    hashes += hash_bytes({reinterpret_cast<const char*>(part.data()), part.size_bytes()});
  return hash_bytes(hashes);
}

// A collective call. One rank has nobody to compare with.
bool Run::ranks_agree() {
  if (!config_.guard.on || config_.guard.agree_every == 0 || communicator_.size() == 1) return true;
  const std::string sound = own_doubt_.empty() ? "+" : "-";
  const std::vector<std::string> answers = communicator_.all_gather(state_hash() + sound + host_name());
  std::vector<std::string> hashes;
  for (const std::string& answer : answers) hashes.push_back(answer.substr(0, kHashLength));
  const std::vector<int> others = disagreeing(hashes);
  const bool all_sound =
      std::ranges::all_of(answers, [](const std::string& answer) { return answer[kHashLength] == '+'; });
  if (others.empty() && all_sound) {
    sound_step_ = counters_.step;
    return true;
  }
  suspected_ = others.empty() && !own_doubt_.empty();
  if (others.empty()) {
    doubt_ = own_doubt_.empty() ? "the gradient of another rank is wrong" : own_doubt_;
    return false;
  }
  std::string names;
  for (const int rank : others) {
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", rank,
                         answers[static_cast<std::size_t>(rank)].substr(kHashLength + 1));
  }
  doubt_ =
      fmt::format("the weights of rank{} {} differ from the others'", others.size() == 1 ? "" : "s", names);
  return false;
}

// To the newest checkpoint that what is in doubt can't have touched.
void Run::go_back() {
  writer_.finish();
  const std::int64_t from = counters_.step;
  if (counters_.rollbacks >= config_.guard.rollbacks) {
    throw CommonError(
        ExitCode::data,
        fmt::format("{} at epoch {}, step {}; the training has gone back {} time{} already: look "
                    "at the memory of its nodes (docs/train.md, Guard)",
                    doubt_, counters_.epoch + 1, from + 1, counters_.rollbacks,
                    counters_.rollbacks == 1 ? "" : "s"));
  }
  std::string bytes;
  if (leader()) bytes = bytes_before(from);
  communicator_.broadcast(bytes);
  if (bytes.empty()) {
    throw CommonError(ExitCode::data,
                      fmt::format("{} at epoch {}, step {}, and there is no checkpoint to go back to", doubt_,
                                  counters_.epoch + 1, from + 1));
  }
  const std::int64_t rollbacks = counters_.rollbacks + 1;
  const std::int64_t segments = counters_.segments;
  const double seconds = counters_.seconds;
  Normalisation normalisation;
  restore_checkpoint(decode_checkpoint(bytes, "the checkpoint"), state_, optimizer_, average_, lagged_,
                     counters_, normalisation);
  counters_.rollbacks = rollbacks;
  counters_.segments = segments;
  counters_.seconds = seconds;
  sound_step_ = counters_.step;
  own_doubt_.clear();
  network_->values_changed();
  if (!leader()) return;
  checkpoints_.remove_from(counters_.step + 1);
  tensorboard_.begin(counters_.history);
  // What comes again is no fault of the machine: only what does not is worth a warning.
  const std::string sentence =
      fmt::format("{} at step {}: going back to step {}", doubt_, from + 1, counters_.step);
  if (suspected_) {
    say(sentence + ", to see whether it comes again");
  } else {
    say_warning(sentence);
  }
}

// A checkpoint that what came to light at step `from` has not touched. The one of this very step holds what
// the loss was computed with; where ranks differ, all since they last agreed may be of a wrong one.
std::string Run::bytes_before(std::int64_t from) {
  const bool compared = communicator_.size() > 1 && config_.guard.agree_every > 0;
  const std::int64_t limit = compared ? std::min(from, sound_step_ + 1) : from;
  const auto report = [this](const std::string& sentence) { say_warning(sentence); };
  auto found = checkpoints_.newest(report, limit);
  if (!found && beginning_.empty()) found = checkpoints_.newest(report);
  return found ? found->bytes : beginning_;
}

// Each flip once: what runs again after a rollback runs without it.
void Run::inject(BitFlip::Where where, std::span<float> values) {
  std::erase_if(flips_, [&](const BitFlip& what) {
    if (what.where != where || what.step != counters_.step) return false;
    if (what.rank != communicator_.rank()) return true;
    say_warning("injected " + flip(what, values));
    network_->values_changed();
    return true;
  });
}

// The samples [part) of the batch in feed_; gives the sum of their losses and leaves the gradient of the
// outputs.
double Run::forward(const std::pair<std::size_t, std::size_t>& part, std::size_t first_of_rank,
                    double scale) {
  const std::size_t samples = part.second - part.first;
  const auto slice = [&](std::span<const float> all, std::size_t values) {
    return all.subspan(part.first * values, samples * values);
  };
  std::vector<std::span<const float>> inputs;
  for (std::size_t i = 0; i < feed_.inputs.size(); ++i)
    inputs.push_back(slice(feed_.inputs[i], static_cast<std::size_t>(graph_.inputs[i].shape.count())));
  outputs_.resize(samples * objective_.all_output_count());
  output_gradients_.resize(outputs_.size());
  const StepKey key = {hash64(config_.seed, 3), static_cast<std::uint64_t>(counters_.step),
                       static_cast<std::int64_t>(first_of_rank + part.first)};
  network_->forward(inputs, static_cast<std::int64_t>(samples), key, outputs_);
  inject(BitFlip::Where::activations, outputs_);
  const double loss = objective_.loss_and_gradient(outputs_, slice(feed_.truths, objective_.truth_count()),
                                                   samples, scale, output_gradients_);
  if (counters_.loss_scale.on) multiply(output_gradients_, counters_.loss_scale.value);
  return loss;
}

void Run::report_progress() {
  if (!leader() || (seconds_since(last_progress_) < kProgressEverySeconds && counters_.step < total_steps()))
    return;
  last_progress_ = Clock::now();
  events_.progress(step_of_all(counters_.step), static_cast<std::uint64_t>(options_.members * total_steps()),
                   "steps");
}

// Gives whether this is the best epoch so far.
bool Run::validate(EpochRow& row) {
  double value = row.train_loss;
  if (data_.validation().size() > 0) {
    const Clock::time_point begin = Clock::now();
    use_evaluation_weights();
    row.validation = evaluation_of(predict(data_.validation()));
    use_training_weights();
    value = row.validation.loss;
    validation_seconds_ += seconds_since(begin);
  }
  if (counters_.best_epoch > 0 && !is_better(value, counters_.best_value)) return false;
  counters_.best_value = value;
  counters_.best_epoch = row.epoch;
  return true;
}

void Run::finish_epoch() {
  --counters_.step;  // the rate of the last step taken
  EpochRow row;
  row.learning_rate = rate();
  ++counters_.step;
  row.epoch = counters_.epoch + 1;
  row.step = counters_.step;
  const auto samples = static_cast<double>(counters_.epoch_samples);
  row.train_loss = counters_.epoch_loss / (samples * static_cast<double>(objective_.terms()));
  row.seconds = counters_.epoch_seconds;
  row.samples_per_second = samples / counters_.epoch_seconds;
  row.data_wait = std::min(1.0, epoch_wait_seconds_ / row.seconds);
  row.exposed_communication = std::min(1.0, epoch_exposed_seconds_ / row.seconds);
  epoch_exposed_seconds_ = 0;
  const bool best = validate(row);
  counters_.history.push_back(row);
  ++counters_.epoch;
  counters_.step_of_epoch = 0;
  counters_.epoch_loss = 0;
  counters_.epoch_samples = 0;
  counters_.epoch_seconds = 0;
  const std::int64_t patience = config_.early_stop_epochs;
  counters_.stopped_early = patience > 0 && counters_.epoch - counters_.best_epoch >= patience;
  if (best && config_.select == Select::best) write_best();
  const bool last = counters_.epoch == end_epoch() || counters_.stopped_early;
  const std::int64_t every = config_.checkpoint.every_epochs;
  if (last || (every > 0 && counters_.epoch % every == 0)) write_checkpoint();
  if (!leader()) return;
  const bool one = options_.members == 1;
  say((one ? "" : fmt::format("member {}/{} ", options_.member + 1, options_.members)) +
      epoch_line(row, config_.epochs));
  if (counters_.stopped_early)
    say(fmt::format("no better validation since epoch {}: stopped early", counters_.best_epoch));
  report_epoch(row);
  tensorboard_.add(row);
  write_metrics();
}

void Run::write_metrics() const {
  const fs::path output = config_.output;
  write_file_durably(output / "metrics.csv", metrics_csv(data_.labels(), counters_.history));
  write_file_durably(output / "metrics.jsonl", metrics_jsonl(counters_.history));
  if (options_.metrics_written) options_.metrics_written();
}

// Of an ensemble as if one member's training went on where the one before ended: so they are one curve.
void Run::metric(const std::string& name, double value, std::int64_t epoch, std::int64_t at) {
  events_.metric(name, value, epoch_of_all(epoch), step_of_all(at));
}

void Run::send_note(const std::string& sentence) {
  const bool one = options_.members == 1;
  events_.note(one ? sentence
                   : fmt::format("member {} of {}: {}", options_.member + 1, options_.members, sentence));
}

void Run::report_epoch(const EpochRow& row) {
  const std::int64_t epoch = row.epoch;
  const std::int64_t at = row.step;
  metric("train_loss", row.train_loss, epoch, at);
  if (!row.validation.targets.empty()) metric("validation_loss", row.validation.loss, epoch, at);
  for (const TargetErrors& t : row.validation.targets) {
    if (t.ratio()) metric("validation_mae_ratio/" + t.label, *t.ratio(), epoch, at);
  }
  metric("learning_rate", row.learning_rate, epoch, at);
  metric("samples_per_second", row.samples_per_second, epoch, at);
  if (!graph_.is_module()) metric("gflops", gflops_of(row), epoch, at);
  metric("data_wait", row.data_wait, epoch, at);
  metric("exposed_communication", row.exposed_communication, epoch, at);
}

void Run::write_checkpoint() {
  last_checkpoint_ = Clock::now();
  if (!leader()) return;
  const Clock::time_point begin = Clock::now();
  const std::uint64_t epoch = epoch_of_all(counters_.epoch);
  const std::uint64_t at = step_of_all(counters_.step);
  if (++checkpoints_written_ > 1) beginning_ = {};
  writer_.write(
      counters_.step,
      snapshot(state_, optimizer_, average_, lagged_, counters_, data_.normalisation(), fingerprint_),
      best_steps(counters_.history, config_.checkpoint.keep_best),
      [this, epoch, at](const CheckpointDirectory::Written& written) {
        events_.checkpoint(written.path.string(), written.hash, epoch, at);
      });
  checkpoint_seconds_ += seconds_since(begin);
}

void Run::write_best() {
  if (!leader()) return;
  writer_.write_best(
      snapshot(state_, optimizer_, average_, lagged_, counters_, data_.normalisation(), fingerprint_));
}

// What is evaluated and exported: the averaged weights where there is an average, and statistics of the norms
// that belong to these very weights. The running ones lag behind by some tens of batches, in which the
// weights have moved.
void Run::use_evaluation_weights() {
  average_.swap(state_.values());
  network_->values_changed();
  measure_norms();
}

void Run::use_training_weights() {
  if (!average_.active()) return;
  average_.swap(state_.values());
  network_->values_changed();
}

void Run::measure_norms() {
  if (state_.buffers().size == 0 || graph_.is_module()) return;
  const std::size_t count = std::min(kNormSamples, data_.train().size());
  const Permutation order(data_.train().size(), hash64(config_.seed, 6));
  const auto [first, end] = even_part(count, order_.rank, order_.ranks);
  const std::size_t most = std::max<std::size_t>(1, order_.batch / order_.ranks);
  DataLoader loader(
      data_.train(), data_.scales(), most, static_cast<int>(config_.loader_threads),
      [&order, first = first, end = end, most](std::uint64_t n) -> std::optional<std::vector<BatchItem>> {
        const std::size_t begin = first + static_cast<std::size_t>(n) * most;
        if (begin >= end) return std::nullopt;
        std::vector<BatchItem> items;
        for (std::size_t i = begin; i < std::min(end, begin + most); ++i)
          items.push_back({static_cast<std::size_t>(order(i)), {}});
        return items;
      });
  NormStatistics sums(state_.buffers());
  while (const Batch* batch = loader.next()) {
    const auto samples = static_cast<std::int64_t>(batch->items.size());
    data_.fill(feed_, *batch, data_.train(), true);
    outputs_.resize(batch->items.size() * objective_.all_output_count());
    network_->forward(feed_.inputs, samples, {}, outputs_);
    sums.add(state_.batch_statistics(), samples);
  }
  for (const std::string& part : communicator_.all_gather(sums.take())) sums.add(part);
  sums.write(state_.buffer_values());
  network_->values_changed();
}

template <class Number>
std::vector<Number> Run::gather(const std::vector<Number>& own) {
  std::string bytes(own.size() * sizeof(Number), '\0');
  if (!own.empty()) std::memcpy(bytes.data(), own.data(), bytes.size());
  std::vector<Number> all;
  for (const std::string& part : communicator_.all_gather(bytes)) {
    const std::size_t old = all.size();
    all.resize(old + part.size() / sizeof(Number));
    if (!part.empty()) std::memcpy(all.data() + old, part.data(), part.size());
  }
  return all;
}

// Writes into `file` (of rank 0 alone) where there are predictions to keep: a collective call then.
Run::Predictions Run::predict(CachedSplit& split, PredictionFile* file) {
  const bool keep = &split == &data_.test();
  const auto [first, end] = even_part(split.size(), order_.rank, order_.ranks);
  const std::size_t most = std::max<std::size_t>(1, order_.batch / order_.ranks);
  DataLoader loader(
      split, data_.scales(), most, static_cast<int>(config_.loader_threads),
      [first = first, end = end, most](std::uint64_t n) -> std::optional<std::vector<BatchItem>> {
        const std::size_t begin = first + static_cast<std::size_t>(n) * most;
        if (begin >= end) return std::nullopt;
        std::vector<BatchItem> items;
        for (std::size_t i = begin; i < std::min(end, begin + most); ++i) items.push_back({i, {}});
        return items;
      });
  Predictions own;
  const ExportedUnits units = this->units();
  const Objective::Physical physical =
      units.undoes_transform()
          ? [&units](double value, std::size_t target) { return units.physical(value, target); }
          : Objective::Physical();
  // As many rounds as the rank with most samples has (the last one): all take part in each gathering.
  const auto [last_begin, last_end] = even_part(split.size(), order_.ranks - 1, order_.ranks);
  const std::size_t rounds = (last_end - last_begin + most - 1) / most;
  for (std::size_t round = 0; round < rounds; ++round) {
    const Batch* batch = loader.next();
    const std::size_t samples = batch == nullptr ? 0 : batch->items.size();
    if (samples > 0) {
      data_.fill(feed_, *batch, split, false);
      outputs_.resize(samples * objective_.all_output_count());
      network_->predict(feed_.inputs, static_cast<std::int64_t>(samples), outputs_);
      objective_.record(outputs_, feed_.truths, samples, own.records, physical);
    }
    if (keep) write_predictions(file, first + round * most, samples);
    if (data_.roles().field_target()) continue;
    own.outputs.insert(own.outputs.end(), outputs_.begin(),
                       outputs_.begin() + static_cast<std::ptrdiff_t>(samples * objective_.output_count()));
  }
  return {gather(own.records), gather(own.outputs)};
}

// Sends this rank's predictions of rows [first, first + samples) to rank 0, which writes those of all ranks.
void Run::write_predictions(PredictionFile* file, std::size_t first, std::size_t samples) {
  const std::size_t truths = samples * objective_.truth_count();
  const std::size_t outputs = samples * objective_.output_count();
  const std::uint64_t place = first;
  std::string bytes(sizeof place + (truths + outputs) * sizeof(float), '\0');
  std::memcpy(bytes.data(), &place, sizeof place);
  if (samples > 0) {
    std::memcpy(bytes.data() + sizeof place, feed_.truths.data(), truths * sizeof(float));
    std::memcpy(bytes.data() + sizeof place + truths * sizeof(float), outputs_.data(),
                outputs * sizeof(float));
  }
  for (const std::string& part : communicator_.all_gather(bytes)) {
    if (file == nullptr) continue;
    std::uint64_t row = 0;
    std::memcpy(&row, part.data(), sizeof row);
    const std::size_t count = (part.size() - sizeof row) / sizeof(float);
    std::vector<float> values(count);
    if (count > 0) std::memcpy(values.data(), part.data() + sizeof row, count * sizeof(float));
    const std::size_t split = count / (objective_.truth_count() + objective_.output_count());
    const std::span<const float> all = values;
    file->write(static_cast<std::size_t>(row), all.first(split * objective_.truth_count()),
                all.subspan(split * objective_.truth_count()));
  }
}

ExportedUnits Run::units() const {
  ExportedUnits units = {config_.transform, data_.normalisation(),
                         config_.loss.name, data_.roles().field_target(),
                         data_.labels(),    data_.target_is_transformed()};
  for (const DataRoles::Part& part : data_.roles().parts)
    if (!data_.info().fields[part.field].has_channels) units.without_channels.push_back(part.name);
  units.target_grid = data_.target_grid();
  units.target_has_channels = !data_.target_is_without_channels();
  for (const DataRoles::Input& input : data_.roles().inputs) {
    std::vector<std::string>& columns = units.columns.emplace_back();
    std::vector<std::pair<double, double>>& ranges = units.ranges.emplace_back();
    if (input.label) {
      const LabelRange& range = data_.info().label_range[*input.label];
      ranges.emplace_back(range.least, range.most);
      continue;
    }
    const DataField& field = data_.info().fields[data_.roles().parts[input.part].field];
    for (const LabelRange& range : field.range) ranges.emplace_back(range.least, range.most);
    if (field.shape.voxels() == 1) columns = field.channels;
  }
  return units;
}

Evaluation Run::evaluation_of(const Predictions& predictions) const {
  const std::vector<double>& deviations = data_.normalisation().y_std;
  if (units().undoes_transform())
    return evaluate(objective_, std::vector<double>(deviations.size(), 1), predictions.records);
  return evaluate(objective_, deviations, predictions.records);
}

// With `select: best`: the best weights in place of the last ones.
void Run::load_best() {
  if (config_.select != Select::best || data_.validation().size() == 0) return;
  std::string bytes;
  if (leader()) {
    bytes = checkpoints_.best_bytes([&](const std::string& sentence) { say_warning(sentence); });
  }
  communicator_.broadcast(bytes);
  if (bytes.empty()) {
    const std::string note = fmt::format(
        "the weights of epoch {}, the best in validation, are not there ({}/checkpoints/best.wfck): "
        "test and model are of epoch {}, the last one; --fresh trains anew",
        counters_.best_epoch, config_.output, counters_.epoch);
    if (leader()) say_warning(note);
    return;
  }
  restore_network(decode_checkpoint(bytes, "best.wfck"), state_, average_);
  selected_epoch_ = counters_.best_epoch;
  say(fmt::format("using the weights of epoch {}, the best in validation", selected_epoch_));
}

void Run::write_onnx() {
  const fs::path path = fs::path(config_.output) / "model.onnx";
  if (fits_onnx(graph_)) {
    write_file_durably(path, onnx_file(graph_, state_, units()));
    return;
  }
  fs::remove(path);  // of an earlier run
  if (graph_.is_module()) {
    say("model.onnx is not written: what is inside a TorchScript module is not known");
    return;
  }
  say_warning(
      fmt::format("the network has {} parameters, and an ONNX file holds 2 GiB: only model.pt is written",
                  graph_.parameter_count()));
}

void Run::write_results() {
  selected_epoch_ = counters_.epoch;
  load_best();
  use_evaluation_weights();
  const fs::path output = config_.output;
  CachedSplit& split = data_.test();
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < split.size(); ++i) ids.push_back(split.source().id(i));
  std::unique_ptr<PredictionFile> file;
  if (leader()) {
    PredictionFileDescription description;
    description.grid = data_.target_grid();
    description.without_channels = data_.target_is_without_channels();
    if (!data_.roles().field_target()) description.truths = data_.truths(split.source());
    description.data_hash = data_.info().hash;
    description.epoch = selected_epoch_;
    file = std::make_unique<PredictionFile>(output / "predictions.h5", objective_, units(), description, ids);
  }
  const Predictions predictions = predict(split, file.get());
  const nlohmann::json staging = staging_result();
  Performance performance = performance_of(counters_.history, graph_.training_flops());
  performance.peak_memory = gather(std::vector<std::uint64_t>{static_cast<std::uint64_t>(peak_memory())});
  if (!leader()) return;
  file->publish();
  const Evaluation test = evaluation_of(predictions);
  const bool table = !data_.roles().field_target();
  write_file_durably(output / "predictions.csv",
                     table ? predictions_csv(objective_, data_.normalisation(), ids,
                                             data_.truths(split.source()), predictions.outputs)
                           : file->table());
  write_metrics();
  write_file_durably(output / "train.yaml", yaml::emit(to_yaml(config_)));
  export_model(graph_, state_, units(), (output / "model.pt").string());
  write_onnx();
  const EpochRow& selected = counters_.history.at(static_cast<std::size_t>(selected_epoch_ - 1));
  nlohmann::json result = {{"wflow_format", 1},
                           {"data",
                            {{"directory", config_.data},
                             {"name", data_.info().name},
                             {"hash", data_.info().hash},
                             {"train", data_.train().size()},
                             {"validation", data_.validation().size()},
                             {"test", split.size()},
                             {"missing", data_.info().missing}}},
                           {"model",
                            {{"name", name_of(config_.model.name)},
                             {"parameters", graph_.parameter_count()},
                             {"training_flops_per_sample", graph_.training_flops()}}},
                           {"test", to_json(test)},
                           {"validation", to_json(selected.validation)},
                           {"train_loss", selected.train_loss},
                           {"seeds", {{"seed", config_.seed}, {"shuffle_labels", config_.shuffle_labels}}},
                           {"epochs", counters_.epoch},
                           {"steps", counters_.step},
                           {"best_epoch", counters_.best_epoch},
                           {"selected_epoch", selected_epoch_},
                           {"stopped_early", counters_.stopped_early},
                           {"begun_from", counters_.begun_from},
                           {"segments", counters_.segments},
                           {"rollbacks", counters_.rollbacks},
                           {"ranks", communicator_.size()},
                           {"threads", config_.threads},
                           {"host", host_name()},
                           {"device", compute_device()},
                           {"precision", name_of(config_.precision)},
                           {"kernels", network_->describe()},
                           {"versions",
                            {{"wflow", kVersion},
                             {"libtorch", torch_version()},
                             {"onednn", onednn_version()},
                             {"mpi", communicator_.library()}}},
                           {"performance", to_json(performance)},
                           {"seconds",
                            {{"training", counters_.seconds},
                             {"this_segment", seconds_since(began_)},
                             {"validation_this_segment", validation_seconds_},
                             {"waited_for_data_this_segment", data_wait_seconds_},
                             {"waited_for_checkpoints_this_segment", checkpoint_seconds_},
                             {"waited_for_ranks_this_segment", communicator_.exposed_seconds()},
                             {"reductions_this_segment", communicator_.reduction_seconds()}}}};
  if (!staging.is_null()) result["staging"] = staging;
  write_result(output, std::move(result));
  if (split.size() > 0) say("\n" + test_lines(test));
  say(performance_line(performance));
  say(fmt::format("results in {}: model.pt, model.onnx, predictions.h5, predictions.csv, metrics.csv, result.json",
                  output.string()));
  if (options_.members > 1) return;  // the ensemble's errors and files are the task's
  for (const TargetErrors& t : test.targets) {
    if (t.ratio()) metric("test_mae_ratio/" + t.label, *t.ratio(), counters_.epoch, counters_.step);
  }
  events_.artifact("model", (output / "model.pt").string());
  events_.artifact("predictions", (output / (table ? "predictions.csv" : "predictions.h5")).string());
}

}  // namespace

namespace {

// A training of a search that is not among those that go on says so and has nothing more to do.
bool is_stopped_by_search(const SearchConfig& search, std::int64_t patience, Communicator& communicator) {
  if (search.rung < 2) return false;
  std::string stopped;  // rank 0's: the others may not see the files yet
  if (communicator.rank() == 0) {
    const auto own = static_cast<std::size_t>(search.training);
    const auto rung = static_cast<std::size_t>(search.rung);
    const auto standings = search_standings(search, rung - 1, read_search_curves(search, rung - 1, patience));
    const std::size_t most = trainings_in_rung(search, standings.size(), rung);
    const SearchStanding& first = standings.front();
    if (!std::isfinite(first.value))
      throw Error(
          ExitCode::data,
          fmt::format("no training of the search in {} has come to {} epochs with a {}",
                      search.folders.at(first.rung - 1), search.rungs[first.rung - 1], search.metric));
    const auto at = std::ranges::find(standings, own, &SearchStanding::training);
    const bool goes_on =
        at - standings.begin() < static_cast<std::ptrdiff_t>(most) && std::isfinite(at->value);
    EventWriter events = EventWriter::from_environment();
    const std::string standing = describe(search, *at);
    const std::string line = (goes_on ? "the search goes on: " : "stopped by the search: ") + standing;
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    events.metric(kSearchStoppedMetric, goes_on ? 0 : static_cast<double>(at->place), 0, 0);
    if (!goes_on) {
      stopped = line;
      if (at->rung + 1 == rung) events.note(line);  // once, not in every rung that follows
    }
  }
  communicator.broadcast(stopped);
  return !stopped.empty();
}

}  // namespace

Outcome train(const TrainConfig& config, Communicator& communicator, const RunOptions& options) {
  const SearchConfig& search = options.search;
  if (is_stopped_by_search(search, config.early_stop_epochs, communicator)) return Outcome::finished;
  try {
    return Run(completed(config, read_dataset_info(config.data)), communicator, options).execute();
  } catch (const NotFinite& error) {
    if (!search.on() || search.is_last_rung()) throw;
    if (communicator.rank() == 0) {
      std::printf("%s\n", error.what());
      EventWriter::from_environment().note(fmt::format("out of the search: {}", error.what()));
    }
    return Outcome::finished;
  }
}

std::string describe_run(const TrainConfig& asked) {
  const Dataset dataset = open_dataset(asked.data);
  const TrainConfig config = completed(asked, dataset.info);
  const DataRoles roles = roles_of(config, dataset.info);
  const ModelGraph graph = network_graph(config, task_of(config, dataset.info, roles), nullptr);
  const Objective objective = objective_of(config, target_shape(config, dataset.info, roles), graph);
  const auto ranks = static_cast<std::size_t>(config.ranks);
  const TrainingOrder order = {0, dataset.train->size(), static_cast<std::size_t>(config.batch), 0, ranks};
  const std::size_t on_rank = (order.batch + ranks - 1) / ranks;
  const auto parameters = static_cast<std::uint64_t>(graph.parameter_count());
  const bool adam = config.optimizer.name == OptimizerName::adam ||
                    config.optimizer.name == OptimizerName::adamw ||
                    config.optimizer.name == OptimizerName::lamb;
  std::uint64_t sample_bytes = 0;
  for (const DataRoles::Part& part : roles.parts)
    sample_bytes += static_cast<std::uint64_t>(dataset.info.fields[part.field].shape.count()) * sizeof(float);
  const std::uint64_t states = (adam ? 4 : 3) + (config.ema > 0 ? 1 : 0);
  const std::uint64_t memory = parameters * sizeof(float) * states +
                               (on_rank + static_cast<std::size_t>(config.accumulate) - 1) /
                                   static_cast<std::size_t>(config.accumulate) *
                                   static_cast<std::uint64_t>(graph.activation_bytes()) +
                               on_rank * 3 * sample_bytes;
  std::string out = fmt::format("network {}\n{}", name_of(config.model.name), graph.describe());
  std::string inputs;
  for (const NamedShape& input : graph.inputs)
    inputs += fmt::format("{}{} ({})", inputs.empty() ? "" : ", ", input.name, text_of(input.shape));
  out += fmt::format("learns          {} from {}, loss {}\n", text::join(objective.shape().labels, ", "),
                     inputs, name_of(config.loss.name));
  out += fmt::format("parameters      {} ({})\n", text::format_count(parameters),
                     text::format_bytes(parameters * sizeof(float)));
  if (!graph.is_module())
    out += fmt::format("a sample        {:.3f} Gflop a training step, {:.3f} Gflop a prediction\n",
                       static_cast<double>(graph.training_flops()) * 1e-9,
                       static_cast<double>(graph.forward_flops()) * 1e-9);
  out += fmt::format("memory a rank   {} with {} samples at once, and up to {} for decoded samples\n",
                     text::format_bytes(memory), on_rank,
                     text::format_bytes(sample_bytes * (dataset.train->size() + dataset.validation->size())));
  out += fmt::format("samples         {} training, {} validation, {} test\n", dataset.train->size(),
                     dataset.validation->size(), dataset.test->size());
  out += fmt::format(
      "steps           {} an epoch, {} in all; {} ranks of {} threads\n", order.steps_per_epoch(),
      order.steps_per_epoch() * static_cast<std::size_t>(config.epochs), config.ranks, config.threads);
  if (config.members > 1) {
    const auto members = static_cast<std::uint64_t>(config.members);
    out += fmt::format(
        "members         {}, seeds {} to {}, one after the other: {} steps and {} parameters in all\n",
        members, config.seed, config.seed + members - 1,
        members * order.steps_per_epoch() * static_cast<std::uint64_t>(config.epochs),
        text::format_count(members * parameters));
  }
  const SplitSizes sizes = {dataset.train->size(), dataset.validation->size(), dataset.test->size()};
  for (const std::string& doubt : check_data(config, dataset.info, roles, sizes))
    out += "warning         " + doubt + "\n";
  return out;
}

}  // namespace wflow::trainer
