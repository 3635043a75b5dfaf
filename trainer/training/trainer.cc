// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/events.h"
#include "base/file.h"
#include "base/process.h"
#include "base/random.h"
#include "base/text.h"
#include "base/version.h"
#include "trainer/data/run_data.h"
#include "trainer/model/model_export.h"
#include "trainer/model/network.h"
#include "trainer/parallel/gradient_exchange.h"
#include "trainer/training/report.h"
#include "trainer/training/schedule.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr double kProgressEverySeconds = 0.5;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool all_finite(std::span<const float> values) {
  float sum = 0;  // 0 * v stays 0 as long as v is finite
  for (const float v : values) sum += v * 0.0F;
  return sum == 0.0F;
}

class Run {
 public:
  Run(const TrainConfig& config, Communicator& communicator, const RunOptions& options);
  Outcome execute();

 private:
  enum class EpochEnd { complete, interrupted };

  void resume_or_begin();
  bool is_of_other_data(const Checkpoint& checkpoint) const;
  EpochEnd train_epoch(DataLoader& loader);
  void step(const Batch& batch, std::size_t global_batch);
  void finish_epoch();
  void report_epoch(const EpochRow& row);
  bool validate(EpochRow& row);
  void write_checkpoint();
  void write_best();
  void write_results();
  std::vector<float> predict(CachedSplit& split);
  void say(const std::string& line) const;
  void report_progress();
  bool leader() const { return communicator_.rank() == 0; }
  std::int64_t total_steps() const { return config_.epochs * steps_per_epoch_; }
  double rate() const;

  const TrainConfig& config_;
  Communicator& communicator_;
  const RunOptions& options_;
  RunData data_;
  ModelGraph graph_;
  FlatState state_;
  Optimizer optimizer_;
  std::unique_ptr<Network> network_;
  GradientExchange exchange_;
  TrainingOrder order_;
  std::int64_t steps_per_epoch_;
  TrainingCounters counters_;
  CheckpointDirectory checkpoints_;
  nlohmann::json fingerprint_;
  EventWriter events_;
  std::vector<float> outputs_;
  std::vector<float> truths_;
  std::vector<float> output_gradients_;
  bool stopping_ = false;
  Clock::time_point began_ = Clock::now();
  Clock::time_point last_checkpoint_ = Clock::now();
  Clock::time_point last_progress_ = Clock::now();
  double data_wait_seconds_ = 0;
  double validation_seconds_ = 0;
};

Run::Run(const TrainConfig& config, Communicator& communicator, const RunOptions& options)
    : config_(config),
      communicator_(communicator),
      options_(options),
      data_(config, communicator),
      graph_(build_model(config.model, data_.info().shape, static_cast<std::int64_t>(data_.labels().size()))),
      state_(graph_),
      optimizer_(config.optimizer, state_.parameters()),
      exchange_(communicator, state_.exchange()),
      order_{hash64(config.seed, 1), data_.train().size(), static_cast<std::size_t>(config.batch),
             static_cast<std::size_t>(communicator.rank()), static_cast<std::size_t>(communicator.size())},
      steps_per_epoch_(static_cast<std::int64_t>(order_.steps_per_epoch())),
      checkpoints_(fs::path(config.output) / "checkpoints", config.checkpoint.keep),
      fingerprint_(fingerprint(config, data_.info())),
      events_(leader() ? EventWriter::from_environment() : EventWriter("")) {
  state_.fill_initial_values(hash64(config.seed, 0));
}

void Run::say(const std::string& line) const {
  if (!leader()) return;
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

bool Run::is_of_other_data(const Checkpoint& checkpoint) const {
  nlohmann::json before = checkpoint.header.value("fingerprint", nlohmann::json::object());
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
    checkpoints_.remove_temporaries();
    if (options_.fresh) checkpoints_.clear();
    if (auto found = checkpoints_.newest([&](const std::string& sentence) {
          std::fprintf(stderr, "wflow-train: %s\n", sentence.c_str());
          events_.note(sentence);
        })) {
      bytes = std::move(found->bytes);
      source = found->path.filename();
    }
  }
  communicator_.broadcast(bytes);
  if (!bytes.empty() && options_.fresh_on_new_data && is_of_other_data(decode_checkpoint(bytes, source))) {
    bytes.clear();
    const std::string note = "the data have changed since the last checkpoint: training starts anew";
    say(note);
    events_.note(note);
    if (leader()) checkpoints_.clear();
  }
  if (bytes.empty()) {
    data_.compute_normalisation(communicator_);
  } else {
    const Checkpoint checkpoint = decode_checkpoint(bytes, source);
    const std::string differences =
        fingerprint_differences(checkpoint.header.value("fingerprint", nlohmann::json()), fingerprint_);
    if (!differences.empty()) {
      throw CommonError(ExitCode::data,
                        fmt::format("the checkpoints in {} are of another training: {}; use --fresh to start "
                                    "anew, or another output directory",
                                    config_.output, differences));
    }
    Normalisation normalisation;
    restore_checkpoint(checkpoint, state_, optimizer_, counters_, normalisation);
    data_.set_normalisation(normalisation);
    const std::string note = fmt::format("continued from epoch {}, step {}", counters_.epoch, counters_.step);
    say(note);
    events_.note(note);
    // Who was killed may have taken the last epochs' events along; told twice, they count once.
    for (const EpochRow& row : counters_.history) report_epoch(row);
  }
  ++counters_.segments;
  // After the restore: a back end on a GPU copies the values when it is made.
  network_ = make_torch_network(graph_, state_);
}

Outcome Run::execute() {
  resume_or_begin();
  const auto first = static_cast<std::uint64_t>(counters_.epoch * steps_per_epoch_ + counters_.step_of_epoch);
  const auto last = static_cast<std::uint64_t>(total_steps());
  const auto plan = [this, first, last](std::uint64_t n) -> std::optional<std::vector<BatchItem>> {
    if (first + n >= last) return std::nullopt;
    const std::uint64_t epoch = (first + n) / order_.steps_per_epoch();
    const std::uint64_t step = (first + n) % order_.steps_per_epoch();
    std::vector<BatchItem> items;
    for (const std::size_t index : order_.indices(epoch, step)) {
      items.push_back({index, draw_augmentation(config_.augment, graph_.input, hash64(config_.seed, 2), epoch,
                                                data_.train().source().id(index))});
    }
    return items;
  };
  if (counters_.epoch < config_.epochs && !counters_.stopped_early) {
    DataLoader loader(data_.train(), data_.normalisation(), order_.batch / order_.ranks + 1,
                      static_cast<int>(config_.loader_threads), plan);
    while (counters_.epoch < config_.epochs && !counters_.stopped_early) {
      if (train_epoch(loader) == EpochEnd::interrupted) {
        write_checkpoint();
        const std::string note = fmt::format("stopped at epoch {}, step {}; the same command continues",
                                             counters_.epoch, counters_.step);
        say(note);
        events_.note(note);
        return Outcome::interrupted;
      }
      finish_epoch();
      data_wait_seconds_ = loader.waited_seconds();
    }
  }
  write_results();
  return Outcome::finished;
}

Run::EpochEnd Run::train_epoch(DataLoader& loader) {
  while (counters_.step_of_epoch < steps_per_epoch_) {
    const Clock::time_point begin = Clock::now();
    const Batch* batch = loader.next();
    WFLOW_CHECK(batch != nullptr);
    step(*batch, order_.global_batch(static_cast<std::uint64_t>(counters_.step_of_epoch)));
    ++counters_.step;
    ++counters_.step_of_epoch;
    const double seconds = seconds_since(begin);
    counters_.epoch_seconds += seconds;
    counters_.seconds += seconds;
    if (stopping_) return EpochEnd::interrupted;
    report_progress();
    const CheckpointConfig& when = config_.checkpoint;
    const bool by_steps = when.every_steps > 0 && counters_.step % when.every_steps == 0;
    const bool by_time = when.every_seconds > 0 && seconds_since(last_checkpoint_) >= when.every_seconds;
    if (by_steps || by_time) write_checkpoint();
  }
  return EpochEnd::complete;
}

double Run::rate() const {
  return config_.optimizer.learning_rate *
         learning_rate_factor(config_.schedule, counters_.step, steps_per_epoch_, config_.epochs);
}

void Run::step(const Batch& batch, std::size_t global_batch) {
  const std::size_t samples = batch.items.size();
  const std::size_t targets = data_.labels().size();
  const auto share = order_.share(static_cast<std::uint64_t>(counters_.step_of_epoch));
  WFLOW_CHECK(samples == share.second - share.first);
  outputs_.resize(samples * targets);
  truths_.resize(samples * targets);
  output_gradients_.resize(samples * targets);
  for (std::size_t n = 0; n < samples; ++n) data_.copy_targets(batch.items[n].index, &truths_[n * targets]);
  double loss = 0;
  if (samples == 0) {
    // This rank has no part of the last batch: it adds zeros and takes part in every collective.
    std::fill(state_.exchange().begin(), state_.exchange().end(), 0.0F);
  } else {
    const StepKey key = {hash64(config_.seed, 3), static_cast<std::uint64_t>(counters_.step),
                         static_cast<std::int64_t>(share.first)};
    network_->forward(batch.values(graph_.input), static_cast<std::int64_t>(samples), key, outputs_);
    loss = loss_and_gradient(config_.loss, outputs_, truths_,
                             1.0 / static_cast<double>(global_batch * targets), output_gradients_);
  }
  const bool out_of_time =
      leader() && config_.max_seconds > 0 && seconds_since(began_) >= config_.max_seconds;
  state_.scalar(Scalar::loss) = static_cast<float>(loss);
  state_.scalar(Scalar::stop) = out_of_time || (options_.stop_asked && options_.stop_asked()) ? 1.0F : 0.0F;
  if (samples > 0)
    network_->backward(output_gradients_, [this](std::int64_t from) { exchange_.ready(from); });
  exchange_.finish();

  const double total = state_.scalar(Scalar::loss);
  const bool finite = std::isfinite(total);
  if (!finite || !all_finite(state_.gradients())) {
    throw CommonError(
        ExitCode::data,
        fmt::format("the {} is not finite at epoch {}, step {}; lower the learning rate (now "
                    "{:.3g}) or look at the data",
                    finite ? "gradient" : "loss", counters_.epoch + 1, counters_.step + 1, rate()));
  }
  stopping_ = state_.scalar(Scalar::stop) > 0;
  counters_.epoch_loss += total;
  counters_.epoch_samples += static_cast<std::int64_t>(global_batch);
  state_.update_running_statistics(static_cast<std::int64_t>(global_batch), kNormMomentum);
  optimizer_.step(state_.values(), state_.gradients(), rate());
  network_->values_changed();
}

void Run::report_progress() {
  if (!leader() || (seconds_since(last_progress_) < kProgressEverySeconds && counters_.step < total_steps()))
    return;
  last_progress_ = Clock::now();
  events_.progress(static_cast<std::uint64_t>(counters_.step), static_cast<std::uint64_t>(total_steps()),
                   "steps");
}

// Gives whether this is the best epoch so far.
bool Run::validate(EpochRow& row) {
  double value = row.train_loss;
  if (data_.validation().size() > 0) {
    const Clock::time_point begin = Clock::now();
    const std::vector<float> outputs = predict(data_.validation());
    row.validation = evaluate(config_.loss, data_.labels(), data_.normalisation(), outputs,
                              data_.truths(data_.validation().source()));
    value = row.validation.loss;
    validation_seconds_ += seconds_since(begin);
  }
  if (counters_.best_epoch > 0 && value >= counters_.best_value) return false;
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
  row.train_loss = counters_.epoch_loss / (samples * static_cast<double>(data_.labels().size()));
  row.seconds = counters_.epoch_seconds;
  row.samples_per_second = samples / counters_.epoch_seconds;
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
  const bool last = counters_.epoch == config_.epochs || counters_.stopped_early;
  const std::int64_t every = config_.checkpoint.every_epochs;
  if (last || (every > 0 && counters_.epoch % every == 0)) write_checkpoint();
  if (!leader()) return;
  say(epoch_line(row, config_.epochs));
  if (counters_.stopped_early)
    say(fmt::format("no better validation since epoch {}: stopped early", counters_.best_epoch));
  report_epoch(row);
  write_file_durably(fs::path(config_.output) / "metrics.csv",
                     metrics_csv(data_.labels(), counters_.history));
}

void Run::report_epoch(const EpochRow& row) {
  const auto epoch = static_cast<std::uint64_t>(row.epoch);
  const auto at = static_cast<std::uint64_t>(row.step);
  events_.metric("train_loss", row.train_loss, epoch, at);
  if (!row.validation.targets.empty()) events_.metric("validation_loss", row.validation.loss, epoch, at);
  for (const TargetErrors& t : row.validation.targets) {
    events_.metric("validation_mae_ratio/" + t.label, t.ratio(), epoch, at);
  }
  events_.metric("learning_rate", row.learning_rate, epoch, at);
  events_.metric("samples_per_second", row.samples_per_second, epoch, at);
}

void Run::write_checkpoint() {
  last_checkpoint_ = Clock::now();
  if (!leader()) return;
  const auto written = checkpoints_.write(
      counters_.step, make_checkpoint(state_, optimizer_, counters_, data_.normalisation(), fingerprint_));
  events_.checkpoint(written.path.string(), written.hash, static_cast<std::uint64_t>(counters_.epoch),
                     static_cast<std::uint64_t>(counters_.step));
}

void Run::write_best() {
  if (!leader()) return;
  checkpoints_.write_best(
      make_checkpoint(state_, optimizer_, counters_, data_.normalisation(), fingerprint_));
}

std::vector<float> Run::predict(CachedSplit& split) {
  const auto [first, end] = even_part(split.size(), order_.rank, order_.ranks);
  const std::size_t most = std::max<std::size_t>(1, order_.batch / order_.ranks);
  const std::size_t targets = data_.labels().size();
  std::vector<float> own((end - first) * targets);
  DataLoader loader(
      split, data_.normalisation(), most, static_cast<int>(config_.loader_threads),
      [first = first, end = end, most](std::uint64_t n) -> std::optional<std::vector<BatchItem>> {
        const std::size_t begin = first + static_cast<std::size_t>(n) * most;
        if (begin >= end) return std::nullopt;
        std::vector<BatchItem> items;
        for (std::size_t i = begin; i < std::min(end, begin + most); ++i) items.push_back({i, {}});
        return items;
      });
  std::size_t at = 0;
  while (const Batch* batch = loader.next()) {
    const std::size_t count = batch->items.size() * targets;
    network_->predict(batch->values(graph_.input), static_cast<std::int64_t>(batch->items.size()),
                      std::span(own).subspan(at, count));
    at += count;
  }
  std::string bytes(own.size() * sizeof(float), '\0');
  if (!own.empty()) std::memcpy(bytes.data(), own.data(), bytes.size());
  std::vector<float> all;
  for (const std::string& part : communicator_.all_gather(bytes)) {
    const std::size_t old = all.size();
    all.resize(old + part.size() / sizeof(float));
    if (!part.empty()) std::memcpy(all.data() + old, part.data(), part.size());
  }
  return all;
}

void Run::write_results() {
  if (config_.select == Select::best && data_.validation().size() > 0) {
    std::string bytes;
    if (leader()) {
      if (auto found = checkpoints_.best()) bytes = std::move(found->bytes);
    }
    communicator_.broadcast(bytes);
    if (!bytes.empty()) {
      restore_network(decode_checkpoint(bytes, "best.wfck"), state_);
      network_->values_changed();
      say(fmt::format("using the weights of epoch {}, the best in validation", counters_.best_epoch));
    }
  }
  const fs::path output = config_.output;
  CachedSplit& split = data_.test();
  const std::vector<float> outputs = predict(split);
  if (!leader()) return;
  const std::vector<double> truths = data_.truths(split.source());
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < split.size(); ++i) ids.push_back(split.source().id(i));
  const Evaluation test = evaluate(config_.loss, data_.labels(), data_.normalisation(), outputs, truths);
  write_file_durably(output / "predictions.csv",
                     predictions_csv(data_.labels(), data_.normalisation(), ids, truths, outputs));
  write_file_durably(output / "metrics.csv", metrics_csv(data_.labels(), counters_.history));
  write_file_durably(output / "train.yaml", yaml::emit(to_yaml(config_)));
  export_model(graph_, state_, config_.transform, data_.normalisation(), data_.labels(),
               (output / "model.pt").string());
  const EpochRow& last = counters_.history.back();
  nlohmann::json result = {
      {"wflow_format", 1},
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
      {"validation", to_json(last.validation)},
      {"train_loss", last.train_loss},
      {"seeds", {{"seed", config_.seed}, {"shuffle_labels", config_.shuffle_labels}}},
      {"epochs", counters_.epoch},
      {"steps", counters_.step},
      {"best_epoch", counters_.best_epoch},
      {"stopped_early", counters_.stopped_early},
      {"segments", counters_.segments},
      {"ranks", communicator_.size()},
      {"threads", config_.threads},
      {"host", host_name()},
      {"device", compute_device()},
      {"versions", {{"wflow", kVersion}, {"libtorch", torch_version()}, {"mpi", communicator_.library()}}},
      {"seconds",
       {{"training", counters_.seconds},
        {"this_segment", seconds_since(began_)},
        {"validation_this_segment", validation_seconds_},
        {"waited_for_data_this_segment", data_wait_seconds_},
        {"waited_for_ranks_this_segment", communicator_.exposed_seconds()},
        {"reductions_this_segment", communicator_.reduction_seconds()}}}};
  write_file_durably(output / "result.json", result.dump(2) + "\n");
  if (split.size() > 0) say("\n" + test_lines(test));
  say(fmt::format("results in {}: model.pt, predictions.csv, metrics.csv, result.json", output.string()));
  for (const TargetErrors& t : test.targets) {
    if (split.size() == 0) break;
    events_.metric("test_mae_ratio/" + t.label, t.ratio(), static_cast<std::uint64_t>(counters_.epoch),
                   static_cast<std::uint64_t>(counters_.step));
  }
  events_.artifact("model", (output / "model.pt").string());
  events_.artifact("predictions", (output / "predictions.csv").string());
}

}  // namespace

Outcome train(const TrainConfig& config, Communicator& communicator, const RunOptions& options) {
  return Run(config, communicator, options).execute();
}

std::string describe_run(const TrainConfig& config) {
  const Dataset dataset = open_dataset(config.data);
  const std::vector<std::size_t> chosen = choose_targets(config, dataset.info);
  const ModelGraph graph =
      build_model(config.model, dataset.info.shape, static_cast<std::int64_t>(chosen.size()));
  const auto ranks = static_cast<std::size_t>(config.ranks);
  const TrainingOrder order = {0, dataset.train->size(), static_cast<std::size_t>(config.batch), 0, ranks};
  const std::size_t on_rank = (order.batch + ranks - 1) / ranks;
  const auto parameters = static_cast<std::uint64_t>(graph.parameter_count());
  const std::uint64_t states = config.optimizer.name == OptimizerName::sgd ? 3 : 4;
  const std::uint64_t memory =
      parameters * sizeof(float) * states +
      on_rank * static_cast<std::uint64_t>(graph.activation_bytes() + 3 * graph.input.count() * 4);
  const auto sample_bytes = static_cast<std::uint64_t>(graph.input.count()) * sizeof(float);
  std::string out = fmt::format("network {}\n{}", name_of(config.model.name), graph.describe());
  out += fmt::format("parameters      {} ({})\n", text::format_count(parameters),
                     text::format_bytes(parameters * sizeof(float)));
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
  return out;
}

}  // namespace wflow::trainer
