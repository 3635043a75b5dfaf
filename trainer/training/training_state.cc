// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/training_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
#include "base/random.h"
#include "trainer/model/network.h"

namespace wflow::trainer {
namespace {

constexpr const char* kLagged = "lagged";  // kind of the array of sums that are not applied yet
constexpr const char* kOuterMomentum = "outer_momentum";
constexpr const char* kAverage = "average";  // kind of the averaged weights' arrays

nlohmann::json json_of(const yaml::Node& node) {
  switch (node.kind) {
    case yaml::Kind::null:
      return nullptr;
    case yaml::Kind::scalar:
      return node.text;
    case yaml::Kind::sequence: {
      nlohmann::json list = nlohmann::json::array();
      for (const yaml::Node& item : node.items) list.push_back(json_of(item));
      return list;
    }
    case yaml::Kind::map: {
      nlohmann::json map = nlohmann::json::object();
      for (const auto& [key, value] : node.entries) map[key.text] = json_of(value);
      return map;
    }
  }
  return nullptr;
}

yaml::Node node_of(const nlohmann::json& json) {
  if (json.is_object()) {
    std::vector<std::pair<std::string, yaml::Node>> entries;
    for (const auto& [key, value] : json.items()) entries.emplace_back(key, node_of(value));
    return yaml::map(std::move(entries));
  }
  if (json.is_array()) {
    std::vector<yaml::Node> items;
    for (const nlohmann::json& item : json) items.push_back(node_of(item));
    return yaml::sequence(std::move(items));
  }
  if (json.is_null()) return {};
  return yaml::scalar(json.is_string() ? json.get<std::string>() : json.dump());
}

// Without the confusion matrix, which no table of epochs shows.
nlohmann::json metrics_json(const TargetErrors& errors) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, share] : errors.calibration) json["calibration"].push_back({name, share});
  for (const NamedMetric& metric : errors.more)
    json["more"].push_back({metric.name, metric.value ? nlohmann::json(*metric.value) : nlohmann::json()});
  if (!errors.classification) return json;
  for (const ClassMetrics& one : errors.classification->classes)
    json["classes"].push_back(
        {one.truth, one.predicted, one.right, one.auc ? nlohmann::json(*one.auc) : nlohmann::json()});
  return json;
}

void read_metrics(const nlohmann::json& json, TargetErrors& errors) {
  for (const nlohmann::json& pair : json.value("calibration", nlohmann::json::array()))
    errors.calibration.emplace_back(pair.at(0).get<std::string>(), pair.at(1).get<double>());
  for (const nlohmann::json& pair : json.value("more", nlohmann::json::array())) {
    NamedMetric& metric = errors.more.emplace_back(NamedMetric{pair.at(0).get<std::string>(), {}});
    if (!pair.at(1).is_null()) metric.value = pair.at(1).get<double>();
  }
  if (!json.contains("classes")) return;
  errors.classification.emplace();
  for (const nlohmann::json& one : json.at("classes")) {
    ClassMetrics& metrics = errors.classification->classes.emplace_back();
    metrics.truth = one.at(0).get<double>();
    metrics.predicted = one.at(1).get<double>();
    metrics.right = one.at(2).get<double>();
    if (!one.at(3).is_null()) metrics.auc = one.at(3).get<double>();
  }
}

nlohmann::json json_of(const EpochRow& row) {
  nlohmann::json targets = nlohmann::json::array();
  for (const TargetErrors& t : row.validation.targets)
    targets.push_back({t.label, t.mae, t.mse, t.mean_guess_mae, t.variance, metrics_json(t)});
  nlohmann::json heads = nlohmann::json::array();
  for (const Evaluation::Head& head : row.validation.heads)
    heads.push_back({head.name, head.loss, head.targets, head.classes});
  return {{"epoch", row.epoch},
          {"step", row.step},
          {"learning_rate", row.learning_rate},
          {"train_loss", row.train_loss},
          {"validation_loss", row.validation.loss},
          {"validation", targets},
          {"heads", heads},
          {"samples_per_second", row.samples_per_second},
          {"seconds", row.seconds},
          {"data_wait", row.data_wait},
          {"exposed_communication", row.exposed_communication},
          {"batch", row.batch},
          {"noise", row.noise.to_json()},
          {"ranks", row.ranks.to_json()}};
}

// NaN and both infinities rank last. A checkpoint stores all three as null: their order must be the same
// before and after a restart.
double badness(double value, bool larger_is_better) {
  if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
  return larger_is_better ? -value : value;
}

EpochRow row_of(const nlohmann::json& json) {
  EpochRow row;
  row.epoch = json.at("epoch").get<std::int64_t>();
  row.step = json.at("step").get<std::int64_t>();
  row.learning_rate = json.at("learning_rate").get<double>();
  row.train_loss = number_or_nan(json.at("train_loss"));
  row.validation.loss = number_or_nan(json.at("validation_loss"));
  for (const nlohmann::json& t : json.at("validation")) {
    row.validation.targets.push_back({t.at(0).get<std::string>(), number_or_nan(t.at(1)),
                                      number_or_nan(t.at(2)), number_or_nan(t.at(3)),
                                      t.size() > 4 ? number_or_nan(t.at(4)) : 0.0});
    if (t.size() > 5) read_metrics(t.at(5), row.validation.targets.back());
  }
  for (const nlohmann::json& head : json.value("heads", nlohmann::json::array()))
    row.validation.heads.push_back({head.at(0).get<std::string>(), number_or_nan(head.at(1)),
                                    head.at(2).get<std::size_t>(), head.at(3).get<bool>()});
  row.samples_per_second = json.at("samples_per_second").get<double>();
  row.seconds = json.at("seconds").get<double>();
  row.data_wait = json.value("data_wait", 0.0);
  row.exposed_communication = json.value("exposed_communication", 0.0);
  row.batch = json.value("batch", std::int64_t{0});
  if (json.contains("noise")) row.noise = NoiseSums::from_json(json.at("noise"));
  if (json.contains("ranks")) row.ranks = RankTimes::from_json(json.at("ranks"));
  return row;
}

void save(std::vector<CheckpointView>& arrays, const FlatLayout& layout, const std::string& kind,
          std::span<const float> values) {
  for (const FlatEntry& entry : layout.entries)
    arrays.push_back({kind, entry.spec.name, entry.spec.shape,
                      values_in(values, {entry.offset, entry.offset + entry.count})});
}

// `layout`: all arrays of the network, or some. `part`: this rank's part of one, by its number in the layout.
template <class Part>
void save_shares(std::vector<CheckpointView>& arrays, const FlatLayout& layout, const std::string& kind,
                 const FlatLayout& network, bool shared, const Part& part) {
  for (std::size_t array = 0; array < layout.entries.size(); ++array) {
    const ParameterSpec& spec = layout.entries[array].spec;
    arrays.push_back({kind, spec.name, spec.shape, part(array)});
    if (shared)
      arrays.back().shared = static_cast<std::size_t>(network.find(spec.name) - network.entries.data());
  }
}

const CheckpointReader::Entry& array_of(const CheckpointReader& checkpoint, const FlatEntry& entry,
                                        const std::string& kind) {
  const CheckpointReader::Entry* array = checkpoint.find(kind, entry.spec.name);
  if (array == nullptr || array->shape != entry.spec.shape) {
    throw Error(ExitCode::data,
                fmt::format("the checkpoint has no {} '{}' of the network's shape; it is of another "
                            "network: use --fresh to start anew",
                            kind, entry.spec.name));
  }
  return *array;
}

void load(const CheckpointReader& checkpoint, const FlatLayout& layout, const std::string& kind,
          std::span<float> values) {
  for (const FlatEntry& entry : layout.entries)
    checkpoint.read(array_of(checkpoint, entry, kind), 0,
                    values_in(values, {entry.offset, entry.offset + entry.count}));
}

// `part`: this rank's part of an array, by its number.
template <class Part>
void load_shares(const CheckpointReader& checkpoint, const FlatLayout& layout, const StateShards& shards,
                 const std::string& kind, const Part& part) {
  for (std::size_t array = 0; array < layout.entries.size(); ++array) {
    const FlatEntry& entry = layout.entries[array];
    checkpoint.read(array_of(checkpoint, entry, kind),
                    static_cast<std::size_t>(shards.own(array).begin - entry.offset), part(array));
  }
}

// The weights that this rank has: all, or its share.
void load_weights(const CheckpointReader& checkpoint, const FlatLayout& layout, const std::string& kind,
                  TrainingState& state) {
  if (!state.shares_weights()) return load(checkpoint, layout, kind, state.flat.values());
  const StateShards shards(layout, state.shards.ranks(), state.shards.rank());
  load_shares(checkpoint, layout, shards, kind,
              [&](std::size_t array) { return values_in(state.flat.values(), shards.own(array)); });
}

void flatten(const nlohmann::json& json, const std::string& prefix, std::map<std::string, std::string>& out) {
  if (!json.is_object()) {
    out[prefix] = json.is_string() ? json.get<std::string>() : json.dump();
    return;
  }
  for (const auto& [key, value] : json.items())
    flatten(value, prefix.empty() ? key : prefix + "." + key, out);
}

}  // namespace

nlohmann::json fingerprint(const TrainConfig& config, const DatasetInfo& data) {
  nlohmann::json json = json_of(to_yaml(config));
  for (const char* key : {"data", "output", "ranks", "grid", "memory", "threads", "loader_threads", "cache",
                          "stage", "members", "checkpoint", "guard", "max_seconds", "backend", "noise_scale",
                          "shard", "recompute", "exclude_slow"}) {
    json.erase(key);
  }
  if (config.stage_subset > 0) {  // the samples that are drawn
    json["stage"] = {{"subset", std::to_string(config.stage_subset)}};
    json["ranks"] = std::to_string(config.ranks);
  }
  if (config.tournament.on())
    for (const char* key : {"as", "part", "trainer", "before"}) json["tournament"].erase(key);
  if (config.init_from == kInitFromLast) json.erase("init_from");  // only matters at the beginning
  // A stage is what its samples, its epochs and its schedule make of it.
  if (!config.follow.folders.empty()) json.erase("init_from");
  for (const char* key : {"follow", "until"}) json.erase(key);
  json["data_hash"] = data.hash;
  return json;
}

nlohmann::json upgraded_fingerprint(const nlohmann::json& fingerprint) {
  if (!fingerprint.is_object()) return fingerprint;
  const nlohmann::json hash = fingerprint.value("data_hash", nlohmann::json());
  nlohmann::json words = fingerprint;
  // A network of a revision without this key, whose default has changed since.
  if (words.contains("model") && words["model"].is_object() && words["model"].contains("name")) {
    if (!words["model"].contains("level_means")) words["model"]["level_means"] = "false";
  }
  yaml::Node block = node_of(words);
  std::erase_if(block.entries, [](const auto& entry) { return entry.first.text == "data_hash"; });
  block.entries.emplace_back(yaml::scalar("data"), yaml::scalar("-"));
  // A fingerprint has no ranks, and trainers need some.
  if (words.contains("tournament") && words["tournament"].is_object() && !words.contains("ranks"))
    block.entries.emplace_back(yaml::scalar("ranks"),
                               node_of(words["tournament"].value("trainers", nlohmann::json())));
  yaml::Diagnostics diagnostics("checkpoint");
  TrainConfig config = read_train_config(block, diagnostics);
  if (diagnostics.has_errors()) return fingerprint;
  if (config.inputs.empty()) config.inputs = {kField};
  DatasetInfo data;
  if (hash.is_string()) data.hash = hash.get<std::string>();
  return trainer::fingerprint(config, data);
}

std::string fingerprint_differences(const nlohmann::json& before, const nlohmann::json& now) {
  std::map<std::string, std::string> a;
  std::map<std::string, std::string> b;
  flatten(before, "", a);
  flatten(now, "", b);
  std::string text;
  const auto add = [&](const std::string& key, const std::string& was, const std::string& is) {
    text += fmt::format("{}'{}' was {} and is {}", text.empty() ? "" : ", ", key, was, is);
  };
  for (const auto& [key, value] : a) {
    const auto other = b.find(key);
    if (other == b.end()) {
      add(key, value, "absent");
    } else if (other->second != value) {
      add(key, value, other->second);
    }
  }
  for (const auto& [key, value] : b) {
    if (!a.contains(key)) add(key, "absent", value);
  }
  return text;
}

std::uint64_t initial_key(const TrainConfig& config) {
  return hash64(config.seed, 0);
}

static AddUp adds_up(Communicator* communicator) {
  return [communicator](std::span<double> values) { communicator->add_up(values); };
}

TrainingState::TrainingState(const ModelGraph& graph, const OptimizerConfig& method, double average_decay,
                             Communicator* communicator, std::span<const PartConfig> parts,
                             std::span<const std::string> alternating, Shard shard)
    : flat(graph),
      shards(shard == Shard::none || communicator == nullptr
                 ? StateShards(flat.parameters())
                 : StateShards(flat.parameters(), communicator->size(), communicator->rank())),
      optimizer(method, parts, flat.parameters(), alternating, shards.ranks(), shards.rank(),
                adds_up(communicator)),
      average(average_decay, shards, flat.parameters()),
      lagged(communicator),
      communicator_(communicator) {
  if (shards.active()) shared = std::make_unique<SharedState>(*communicator, shards, flat, shard);
}

void TrainingState::fill_initial_values(const ModelGraph& graph, std::uint64_t seed) {
  if (!shares_weights() || graph.is_module()) {
    flat.fill_initial_values(seed);
    if (graph.is_module()) fill_from_module(graph, flat);
    if (shares_weights()) shared->keep_own_weights();
    return;
  }
  for (std::size_t array = 0; array < flat.parameters().entries.size(); ++array) {
    const FlatEntry& entry = flat.parameters().entries[array];
    const Range own = shards.own(array);
    fill_initial(entry.spec, seed, values_in(flat.values(), own), own.begin - entry.offset);
  }
  flat.fill_initial_buffers();
}

void TrainingState::weights_changed() {
  if (!shares_weights() && shards.active()) gather_shares(*communicator_, shards, flat.values());
}

std::vector<std::span<float>> TrainingState::applied_gradients() {
  if (!shared) return {flat.gradients()};
  std::vector<std::span<float>> own;
  for (std::size_t array = 0; array < flat.parameters().entries.size(); ++array)
    own.push_back(values_in(flat.gradients(), shards.own(array)));
  return own;
}

double TrainingState::square_of_gradients() {
  double sum = 0;
  for (const double square : squares_in(flat.gradients(), flat.parameters(), shards, adds_up(communicator_)))
    sum += square;
  return sum;
}

std::string TrainingState::hash() {
  std::vector<std::span<const float>> all = {flat.buffer_values()};
  if (!shares_weights()) all.push_back(flat.values());
  if (!shards.active()) {
    for (const PartOptimizers::Slot& slot : optimizer.slots()) all.push_back(slot.values);
    if (average.active()) all.push_back(average.values());
  }
  all.push_back(outer_momentum);
  std::string hashes;
  for (const std::span<const float> part : all)
    hashes += hash_bytes({reinterpret_cast<const char*>(part.data()), part.size_bytes()});
  return hash_bytes(hashes);
}

Snapshot snapshot(TrainingState& state, const Normalisation& normalisation,
                  const nlohmann::json& fingerprint) {
  const TrainingCounters& counters = state.counters;
  const FlatLayout& parameters = state.flat.parameters();
  const std::vector<std::int64_t> steps = state.optimizer.steps();
  nlohmann::json history = nlohmann::json::array();
  for (const EpochRow& row : counters.history) history.push_back(json_of(row));
  nlohmann::json header = {
      {"format", kCheckpointVersion},
      {"created_by", std::string("wflow ") + kVersion},
      {"fingerprint", fingerprint},
      {"normalisation", to_json(normalisation)},
      {"epoch", counters.epoch},
      {"step_of_epoch", counters.step_of_epoch},
      {"step", counters.step},
      {"optimizer_steps", steps.size() == 1 ? nlohmann::json(steps.front()) : nlohmann::json(steps)},
      {"epoch_loss", counters.epoch_loss},
      {"epoch_samples", counters.epoch_samples},
      {"epoch_seconds", counters.epoch_seconds},
      {"seconds", counters.seconds},
      {"best_value", counters.best_value},
      {"best_epoch", counters.best_epoch},
      {"stopped_early", counters.stopped_early},
      {"plateaus", counters.plateaus},
      {"epoch_noise", counters.epoch_noise.to_json()},
      {"segments", counters.segments},
      {"rollbacks", counters.rollbacks},
      {"history", history}};
  if (counters.tournament.has_begun()) header["tournament"] = counters.tournament.to_json();
  if (counters.outer.steps > 0) header["outer"] = counters.outer.to_json();
  if (!counters.begun_from.empty()) header["begun_from"] = counters.begun_from;
  if (counters.loss_scale.on)
    header["loss_scale"] = {counters.loss_scale.value, counters.loss_scale.good_steps};
  std::vector<CheckpointView> arrays;
  const StateShards& shards = state.shards;
  if (state.shares_weights()) {
    save_shares(arrays, parameters, "parameter", parameters, true,
                [&](std::size_t array) { return values_in(state.flat.values(), shards.own(array)); });
  } else {
    save(arrays, parameters, "parameter", state.flat.values());
  }
  save(arrays, state.flat.buffers(), "buffer", state.flat.buffer_values());
  for (const PartOptimizers::Slot& slot : state.optimizer.slots())
    save_shares(arrays, slot.layout, slot.name, parameters, slot.shards.active(),
                [&](std::size_t array) { return slot.shards.kept(array, slot.values); });
  if (state.average.active())
    save_shares(arrays, parameters, kAverage, parameters, shards.active(),
                [&](std::size_t array) { return shards.kept(array, state.average.values()); });
  if (!state.outer_momentum.empty()) save(arrays, parameters, kOuterMomentum, state.outer_momentum);
  if (const auto& step = state.lagged.step()) {
    header["lagged"] = {step->samples, step->loss_scale, step->rate};
    const std::span<float> sums = state.lagged.sums();
    arrays.push_back({kLagged, "exchange", {static_cast<std::int64_t>(sums.size())}, sums});
  }
  return {std::move(header), std::move(arrays)};
}

void Progress::add(double value) {
  ++epochs_;
  const bool larger = rule_.metric.larger_is_better();
  const double least = rule_.min_improvement * std::abs(best_);
  if (best_epoch_ > 0 && !is_better(value, larger ? best_ + least : best_ - least, larger)) return;
  best_ = value;
  best_epoch_ = epochs_;
}

std::int64_t plateaus_in(const std::vector<EpochRow>& history, const EarlyStop& rule) {
  Progress progress(rule);
  std::int64_t plateaus = 0;
  for (const EpochRow& row : history) {
    progress.add(value_of(row, rule.metric));
    if (!progress.has_stopped()) continue;
    ++plateaus;
    progress.wait_again();
  }
  return plateaus;
}

bool is_better(double value, double than, bool larger_is_better) {
  return badness(value, larger_is_better) < badness(than, larger_is_better);
}

double value_of(const EpochRow& row, const MetricName& metric) {
  if (metric.is_loss() && row.validation.targets.empty()) return row.train_loss;
  return metric_of(row.validation, metric).value_or(std::numeric_limits<double>::quiet_NaN());
}

std::vector<std::int64_t> best_steps(const std::vector<EpochRow>& history, std::int64_t count,
                                     const MetricName& metric) {
  std::vector<std::pair<double, std::int64_t>> values;
  for (const EpochRow& row : history)
    values.emplace_back(badness(value_of(row, metric), metric.larger_is_better()), row.step);
  std::sort(values.begin(), values.end());
  std::vector<std::int64_t> steps;
  for (std::size_t i = 0; i < std::min(values.size(), static_cast<std::size_t>(count)); ++i)
    steps.push_back(values[i].second);
  return steps;
}

void restore_network(const CheckpointReader& checkpoint, TrainingState& state) {
  load_weights(checkpoint, state.flat.parameters(), "parameter", state);
  load(checkpoint, state.flat.buffers(), "buffer", state.flat.buffer_values());
  if (!state.average.active()) return;
  load_shares(checkpoint, state.flat.parameters(), state.shards, kAverage,
              [&](std::size_t array) { return state.shards.kept(array, state.average.values()); });
}

// The kind of the arrays that a checkpoint's model was evaluated with.
static const char* evaluated_kind(const CheckpointReader& checkpoint) {
  const auto averaged = [](const CheckpointReader::Entry& array) { return array.kind == kAverage; };
  const std::vector<CheckpointReader::Entry>& arrays = checkpoint.entries();
  return std::any_of(arrays.begin(), arrays.end(), averaged) ? kAverage : "parameter";
}

void restore_part(const CheckpointReader& checkpoint, const std::string& part, TrainingState& state) {
  const auto is_of_part = [&](const FlatEntry& entry) { return entry.spec.part == part; };
  load_weights(checkpoint, state.flat.parameters().some(is_of_part), evaluated_kind(checkpoint), state);
  load(checkpoint, state.flat.buffers().some(is_of_part), "buffer", state.flat.buffer_values());
  state.average.begin_with(state.flat.values());
}

Normalisation restore_weights(const CheckpointReader& checkpoint, TrainingState& state) {
  load_weights(checkpoint, state.flat.parameters(), evaluated_kind(checkpoint), state);
  load(checkpoint, state.flat.buffers(), "buffer", state.flat.buffer_values());
  state.average.begin_with(state.flat.values());
  try {
    return normalisation_from_json(checkpoint.header().at("normalisation"));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ExitCode::data, fmt::format("the checkpoint's header lacks something: {}", error.what()));
  }
}

static void restore_lagged(const CheckpointReader& checkpoint, FlatState& state, LaggedSums& lagged) {
  lagged.discard();
  if (!checkpoint.header().contains("lagged")) return;
  const CheckpointReader::Entry* sums = checkpoint.find(kLagged, "exchange");
  if (sums == nullptr || sums->count != state.exchange().size())
    throw Error(ExitCode::data,
                "the checkpoint lacks the gradient of its last step; use --fresh to start anew");
  const nlohmann::json& step = checkpoint.header().at("lagged");
  std::vector<float> values(sums->count);
  checkpoint.read(*sums, 0, values);
  lagged.restore({step.at(0).get<std::int64_t>(), step.at(1).get<double>(), step.at(2).get<double>()},
                 values);
}

Normalisation restore_checkpoint(const CheckpointReader& checkpoint, TrainingState& state) {
  TrainingCounters& counters = state.counters;
  restore_network(checkpoint, state);
  for (const PartOptimizers::Slot& slot : state.optimizer.slots())
    load_shares(checkpoint, slot.layout, slot.shards, slot.name,
                [&](std::size_t array) { return slot.shards.kept(array, slot.values); });
  if (!state.outer_momentum.empty())
    load(checkpoint, state.flat.parameters(), kOuterMomentum, state.outer_momentum);
  try {
    const nlohmann::json& header = checkpoint.header();
    const nlohmann::json& steps = header.at("optimizer_steps");
    state.optimizer.set_steps(steps.is_array() ? steps.get<std::vector<std::int64_t>>()
                                               : std::vector{steps.get<std::int64_t>()});
    Normalisation normalisation = normalisation_from_json(header.at("normalisation"));
    counters.epoch = header.at("epoch").get<std::int64_t>();
    counters.step_of_epoch = header.at("step_of_epoch").get<std::int64_t>();
    counters.step = header.at("step").get<std::int64_t>();
    counters.epoch_loss = number_or_nan(header.at("epoch_loss"));
    counters.epoch_samples = header.at("epoch_samples").get<std::int64_t>();
    counters.epoch_seconds = header.at("epoch_seconds").get<double>();
    counters.seconds = header.at("seconds").get<double>();
    counters.best_value = number_or_nan(header.at("best_value"));
    counters.best_epoch = header.at("best_epoch").get<std::int64_t>();
    counters.stopped_early = header.at("stopped_early").get<bool>();
    counters.plateaus = header.value("plateaus", std::int64_t{0});
    counters.epoch_noise = {};
    if (header.contains("epoch_noise")) counters.epoch_noise = NoiseSums::from_json(header.at("epoch_noise"));
    counters.segments = header.at("segments").get<std::int64_t>();
    counters.rollbacks = header.value("rollbacks", std::int64_t{0});
    counters.begun_from = header.value("begun_from", "");
    counters.tournament = {};
    if (header.contains("tournament"))
      counters.tournament = TournamentRecord::from_json(header.at("tournament"));
    counters.outer = {};
    if (header.contains("outer")) counters.outer = OuterRecord::from_json(header.at("outer"));
    counters.loss_scale = {};
    if (header.contains("loss_scale")) {
      const nlohmann::json& scale = header.at("loss_scale");
      counters.loss_scale = {scale.at(0).get<double>(), scale.at(1).get<std::int64_t>(), true};
    }
    restore_lagged(checkpoint, state.flat, state.lagged);
    counters.history.clear();
    for (const nlohmann::json& row : header.at("history")) counters.history.push_back(row_of(row));
    return normalisation;
  } catch (const nlohmann::json::exception& error) {
    throw Error(
        ExitCode::data,
        fmt::format("the checkpoint's header lacks something: {}; use --fresh to start anew", error.what()));
  }
}

}  // namespace wflow::trainer
