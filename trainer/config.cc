// SPDX-License-Identifier: Apache-2.0
#include "trainer/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "base/text.h"
#include "trainer/search_config.h"

namespace wflow::trainer {
namespace {

const std::array<std::string, 12> kModels = {"cosmoflow", "sc18",   "mlperf",    "mlp",
                                             "cnn",       "unet",   "decoder",   "autoencoder",
                                             "vae",       "layers", "automatic", "module"};
const std::array<std::string, 3> kTransforms = {"none", "log", "log1p"};
const std::array<std::string, 6> kLosses = {"mse", "mae", "huber", "gaussian", "cross_entropy", "dice"};
const std::array<std::string, 6> kOptimizers = {"adamw", "adam", "sgd", "lars", "larc", "lamb"};
const std::array<std::string, 6> kDecays = {"none", "cosine", "linear", "polynomial", "step", "one_cycle"};
const std::array<std::string, 2> kSelects = {"last", "best"};
const std::array<std::string, 3> kBackends = {"auto", "torch", "onednn"};
const std::array<std::string, 3> kStages = {"none", "local", "memory"};
const std::array<std::string, 3> kPrecisions = {"full", "bf16", "fp16"};
const std::array<std::string, 2> kWireFormats = {"full", "half"};
const std::array<std::string, 4> kInitialWeights = {"auto", "data", "he", "torch"};
const std::array<std::string, 2> kEarlierInitialWeights = {"random", "data"};
const std::array<std::string, 3> kNorms = {"none", "batch", "group"};
const std::array<std::string, 7> kActivations = {"leaky_relu", "relu",    "elu", "gelu",
                                                 "silu",       "sigmoid", "tanh"};
const std::array<std::string, 4> kAugmentations = {"shift", "flip", "permute", "noise"};

constexpr std::int64_t kMany = std::int64_t{1} << 40;

const yaml::Node& empty_map() {
  static const yaml::Node node = yaml::map({});
  return node;
}

// A block that may also be a single word: `model: sc18` is `model: {name: sc18}`.
yaml::Node named_block(const yaml::Node* node) {
  if (node == nullptr) return empty_map();
  if (!node->is_scalar()) return *node;
  yaml::Node block = yaml::map({{"name", *node}});
  block.mark = node->mark;
  return block;
}

// Earlier revisions wrote `batch_norm: true | false` for `norm: batch | none`.
Norm read_norm(yaml::MapReader& reader, Norm fallback) {
  if (reader.has("batch_norm")) {
    if (reader.has("norm")) {
      reader.diagnostics().error(reader.mark_of("batch_norm"),
                                 "'batch_norm' and 'norm' say the same thing; keep 'norm'");
    }
    fallback = reader.boolean("batch_norm", false) ? Norm::batch : Norm::none;
  }
  return static_cast<Norm>(reader.choice("norm", static_cast<std::size_t>(fallback), kNorms));
}

// Earlier revisions wrote `initial: random | data` for `init: auto | data`.
InitialWeights read_initial(yaml::MapReader& reader, InitialWeights fallback) {
  if (reader.has("initial")) {
    if (reader.has("init")) {
      reader.diagnostics().error(reader.mark_of("initial"),
                                 "'initial' and 'init' say the same thing; keep 'init'");
    }
    const std::size_t data = fallback == InitialWeights::data ? 1 : 0;
    fallback = reader.choice("initial", data, kEarlierInitialWeights) == 1 ? InitialWeights::data
                                                                           : InitialWeights::automatic;
  }
  return static_cast<InitialWeights>(
      reader.choice("init", static_cast<std::size_t>(fallback), kInitialWeights));
}

LayerKind read_activation(yaml::MapReader& reader, LayerKind fallback) {
  const auto first = static_cast<std::size_t>(LayerKind::leaky_relu);
  const std::size_t chosen =
      reader.choice("activation", static_cast<std::size_t>(fallback) - first, kActivations);
  return static_cast<LayerKind>(first + chosen);
}

void read_layer_list(yaml::MapReader& reader, std::span<const std::string> inputs, ModelConfig& model,
                     yaml::Diagnostics& diagnostics) {
  model = default_model(ModelName::layers);
  const yaml::Node* list = reader.find("layers");
  if (list == nullptr) {
    diagnostics.error(reader.mark_of("layers"), "the model: block needs 'layers', a list of layers");
    return;
  }
  std::vector<std::string> names(inputs.begin(), inputs.end());
  if (names.empty()) names.emplace_back(kField);
  model.layers = read_layers(*list, names, diagnostics);
  model.outputs = reader.strings("outputs");
  for (const LayerConfig& layer : model.layers) names.push_back(layer.name);
  for (const std::string& output : model.outputs) {
    if (std::find(names.begin(), names.end(), output) != names.end()) continue;
    diagnostics.error(reader.mark_of("outputs"), fmt::format("'outputs' names '{}', which is no layer{}",
                                                             output, text::suggestion(output, names)));
  }
}

bool is_module_file(const yaml::Node& node) {
  return node.is_scalar() && node.text.ends_with(".pt");
}

ModelConfig read_model(const yaml::Node* node, std::span<const std::string> inputs,
                       yaml::Diagnostics& diagnostics) {
  if (node == nullptr) return default_model(ModelName::automatic);
  const yaml::Node block = is_module_file(*node) ? yaml::map({{"file", *node}}) : named_block(node);
  yaml::MapReader reader(block, "the model: block", diagnostics);
  if (reader.has("file")) {
    ModelConfig model = default_model(ModelName::module);
    model.file = reader.string("file");
    if (model.file.empty())
      diagnostics.error(reader.mark_of("file"), "'file' needs the path of a TorchScript file");
    reader.finish();
    return model;
  }
  const auto by_name = std::span(kModels).first(kModels.size() - 1);  // a module has a file, no name
  const bool list = reader.has("layers");
  const ModelName usual = list ? ModelName::layers : ModelName::cosmoflow;
  const auto name = static_cast<ModelName>(reader.choice("name", static_cast<std::size_t>(usual), by_name));
  ModelConfig model = default_model(name);
  if (list || name == ModelName::layers) {
    read_layer_list(reader, inputs, model, diagnostics);
  } else {
    model.width = reader.integer("width", model.width, 1, 4096);
    model.dropout = reader.real("dropout", model.dropout, 0, 0.95);
    model.norm = read_norm(reader, model.norm);
    model.leaky_slope = reader.real("leaky_slope", model.leaky_slope, 0, 1);
    model.tanh_output = reader.boolean("tanh_output", model.tanh_output);
    if (reader.has("dense")) model.dense = reader.integers("dense", 1, 1 << 20);
    model.activation = read_activation(reader, model.activation);
    model.depth = reader.integer("depth", model.depth, 1, 12);
    model.latent = reader.integer("latent", model.latent, 1, 1 << 20);
    model.level_means = reader.boolean("level_means", model.level_means);
  }
  model.initial = read_initial(reader, model.initial);
  reader.finish();
  return model;
}

LossConfig read_loss(const yaml::Node* node, yaml::Diagnostics& diagnostics) {
  const yaml::Node block = named_block(node);
  yaml::MapReader reader(block, "the loss: block", diagnostics);
  LossConfig loss;
  loss.name = static_cast<LossName>(reader.choice("name", 0, kLosses));
  loss.delta = reader.real("delta", loss.delta, 1e-9, 1e9);
  loss.class_weights = reader.reals("class_weights");
  loss.classes = reader.integer("classes", loss.classes, 0, 1 << 20);
  loss.smooth = reader.real("smooth", loss.smooth, 0, 1e9);
  loss.kl_weight = reader.real("kl_weight", loss.kl_weight, 0, 1e9);
  const auto weights = static_cast<std::int64_t>(loss.class_weights.size());
  if (weights > 0 && loss.classes > 0 && weights != loss.classes) {
    diagnostics.error(
        reader.mark_of("class_weights"),
        fmt::format("'class_weights' has {} numbers and 'classes' is {}", weights, loss.classes));
  }
  for (const double weight : loss.class_weights) {
    if (weight < 0) diagnostics.error(reader.mark_of("class_weights"), "a class weight must not be negative");
  }
  if (weights > 0) loss.classes = weights;
  reader.finish();
  return loss;
}

TransformConfig read_transform(const yaml::Node* node, yaml::Diagnostics& diagnostics) {
  TransformConfig transform;
  if (node == nullptr) return transform;
  if (node->is_scalar()) {
    const yaml::Node block = named_block(node);
    yaml::MapReader reader(block, "transform:", diagnostics);
    const std::size_t at = [&]() -> std::size_t {
      for (std::size_t i = 0; i < kTransforms.size(); ++i) {
        if (kTransforms[i] == node->text) return i;
      }
      diagnostics.error(node->mark,
                        fmt::format("'transform' must be none, log1p or {{log: OFFSET}}, found {}{}",
                                    node->describe(), text::suggestion(node->text, kTransforms)));
      return 0;
    }();
    transform.name = static_cast<TransformName>(at);
    return transform;
  }
  yaml::MapReader reader(*node, "the transform: block", diagnostics);
  transform.name = TransformName::log;
  if (!reader.has("log")) {
    reader.required("log");
  } else {
    transform.offset = reader.real("log", transform.offset, 1e-30, 1e30);
  }
  reader.finish();
  return transform;
}

void read_augmentation(const yaml::Node& node, AugmentConfig& augment, yaml::Diagnostics& diagnostics) {
  if (node.is_map()) {
    yaml::MapReader reader(node, "the augment: block", diagnostics);
    if (!reader.has("noise")) reader.required("noise");
    augment.noise = reader.real("noise", 0, 0, 100);
    reader.finish();
  } else if (node.is_scalar() && node.text == "shift") {
    augment.shift = true;
  } else if (node.is_scalar() && node.text == "flip") {
    augment.flip = true;
  } else if (node.is_scalar() && node.text == "permute") {
    augment.permute = true;
  } else if (node.is_scalar() && node.text == "noise") {
    diagnostics.error(node.mark, "'noise' needs its strength, as in {noise: 0.01}");
  } else {
    diagnostics.error(node.mark,
                      fmt::format("'augment' is a list of shift, flip, permute, {{noise: NUMBER}}; "
                                  "found {}{}",
                                  node.describe(), text::suggestion(node.text, kAugmentations)));
  }
}

AugmentConfig read_augment(yaml::MapReader& reader, yaml::Diagnostics& diagnostics) {
  AugmentConfig augment;
  const yaml::Node* node = reader.find("augment");
  if (node == nullptr) return augment;
  if (node->is_scalar() && (node->text == "none" || node->text == "false")) return augment;
  if (!node->is_sequence()) {
    read_augmentation(*node, augment, diagnostics);
    return augment;
  }
  for (const yaml::Node& item : node->items) read_augmentation(item, augment, diagnostics);
  return augment;
}

void read_stage(yaml::MapReader& reader, TrainConfig& config, yaml::Diagnostics& diagnostics) {
  const yaml::Node* node = reader.find("stage");
  if (node == nullptr) return;
  if (node->is_map()) {
    yaml::MapReader block(*node, "the stage: block", diagnostics);
    config.stage = Stage::local;
    config.stage_folder = block.required_string("local");
    block.finish();
    return;
  }
  config.stage = static_cast<Stage>(reader.choice("stage", 0, kStages));
}

double default_rate(OptimizerName name) {
  switch (name) {
    case OptimizerName::sgd:
    case OptimizerName::larc:
      return 1e-2;
    case OptimizerName::lars:
      return 1;  // multiplies lars_trust and the norm of the weights
    default:
      return 2e-3;
  }
}

OptimizerConfig read_optimizer(const yaml::Node* node, yaml::Diagnostics& diagnostics) {
  const yaml::Node block = named_block(node);
  yaml::MapReader reader(block, "the optimizer: block", diagnostics);
  OptimizerConfig optimizer;
  optimizer.name = static_cast<OptimizerName>(reader.choice("name", 0, kOptimizers));
  optimizer.learning_rate = reader.real("learning_rate", default_rate(optimizer.name), 0, 1e3);
  optimizer.momentum = reader.real("momentum", optimizer.momentum, 0, 0.9999);
  optimizer.nesterov = reader.boolean("nesterov", optimizer.nesterov);
  optimizer.beta1 = reader.real("beta1", optimizer.beta1, 0, 0.999999);
  optimizer.beta2 = reader.real("beta2", optimizer.beta2, 0, 0.999999999);
  optimizer.epsilon = reader.real("epsilon", optimizer.epsilon, 1e-30, 1);
  const bool decoupled = optimizer.name == OptimizerName::adamw || optimizer.name == OptimizerName::lamb;
  const double decay = decoupled ? 1e-2 : 0.0;
  optimizer.weight_decay = reader.real("weight_decay", decay, 0, 10);
  optimizer.clip_norm = reader.real("clip_norm", optimizer.clip_norm, 0, 1e30);
  const double trust = optimizer.name == OptimizerName::larc ? 0.02 : 0.0;
  optimizer.larc_trust = reader.real("larc_trust", trust, 0, 1e3);
  optimizer.lag = reader.integer("lag", optimizer.lag, 0, 1);
  optimizer.lars_trust = reader.real("lars_trust", optimizer.lars_trust, 0, 1e3);
  optimizer.reference_batch = reader.integer("reference_batch", optimizer.reference_batch, 0, 1 << 24);
  reader.finish();
  return optimizer;
}

ScheduleConfig read_schedule(const yaml::Node* node, std::int64_t epochs, yaml::Diagnostics& diagnostics) {
  ScheduleConfig schedule;
  yaml::Node block = empty_map();
  if (node != nullptr) block = node->is_scalar() ? yaml::map({{"decay", *node}}) : *node;
  yaml::MapReader reader(block, "the schedule: block", diagnostics);
  schedule.warmup_epochs = reader.real("warmup_epochs", schedule.warmup_epochs, 0, 1e9);
  schedule.decay =
      static_cast<Decay>(reader.choice("decay", static_cast<std::size_t>(schedule.decay), kDecays));
  schedule.final_factor = reader.real("final_factor", schedule.final_factor, 0, 1);
  schedule.power = reader.real("power", schedule.power, 0.01, 100);
  schedule.step_epochs = reader.reals("step_epochs");
  schedule.step_factor = reader.real("step_factor", schedule.step_factor, 0, 1);
  schedule.rise = reader.real("rise", schedule.rise, 0, 1);
  if (schedule.decay == Decay::step && schedule.step_epochs.empty()) {
    diagnostics.error(reader.mark_of("step_epochs"),
                      "decay: step needs 'step_epochs', a list such as [10, 15]");
  }
  if (schedule.warmup_epochs >= static_cast<double>(epochs) && schedule.warmup_epochs > 0) {
    diagnostics.error(reader.mark_of("warmup_epochs"),
                      fmt::format("'warmup_epochs' must be less than epochs ({})", epochs));
  }
  reader.finish();
  return schedule;
}

CheckpointConfig read_checkpoint(const yaml::Node* node, yaml::Diagnostics& diagnostics) {
  CheckpointConfig checkpoint;
  yaml::MapReader reader(node == nullptr ? empty_map() : *node, "the checkpoint: block", diagnostics);
  checkpoint.every_epochs = reader.integer("every_epochs", checkpoint.every_epochs, 0, kMany);
  checkpoint.every_steps = reader.integer("every_steps", checkpoint.every_steps, 0, kMany);
  checkpoint.every_seconds = reader.seconds("every_seconds", checkpoint.every_seconds);
  // Earlier revisions wrote `keep` for `keep_last`.
  if (reader.has("keep")) {
    if (reader.has("keep_last")) {
      diagnostics.error(reader.mark_of("keep"),
                        "'keep' and 'keep_last' say the same thing; keep 'keep_last'");
    }
    checkpoint.keep_last = reader.integer("keep", checkpoint.keep_last, 1, 1000);
  }
  checkpoint.keep_last = reader.integer("keep_last", checkpoint.keep_last, 1, 1000);
  checkpoint.keep_best = reader.integer("keep_best", checkpoint.keep_best, 0, 1000);
  reader.finish();
  return checkpoint;
}

yaml::Node real(double value) {
  return yaml::scalar(text::from_real(value));
}
yaml::Node integer(std::int64_t value) {
  return yaml::scalar(std::to_string(value));
}
yaml::Node boolean(bool value) {
  return yaml::scalar(value ? "true" : "false");
}

}  // namespace

const char* name_of(ModelName name) {
  return kModels[static_cast<std::size_t>(name)].c_str();
}
const char* name_of(TransformName name) {
  return kTransforms[static_cast<std::size_t>(name)].c_str();
}
const char* name_of(LossName name) {
  return kLosses[static_cast<std::size_t>(name)].c_str();
}
const char* name_of(OptimizerName name) {
  return kOptimizers[static_cast<std::size_t>(name)].c_str();
}
const char* name_of(Decay decay) {
  return kDecays[static_cast<std::size_t>(decay)].c_str();
}
bool is_classification(LossName name) {
  return name == LossName::cross_entropy || name == LossName::dice;
}

const char* name_of(Backend backend) {
  return kBackends[static_cast<std::size_t>(backend)].c_str();
}
const char* name_of(WireFormat wire) {
  return kWireFormats[static_cast<std::size_t>(wire)].c_str();
}
const char* name_of(Precision precision) {
  return kPrecisions[static_cast<std::size_t>(precision)].c_str();
}

const char* name_of(Stage stage) {
  return kStages[static_cast<std::size_t>(stage)].c_str();
}

const char* name_of(Select select) {
  return kSelects[static_cast<std::size_t>(select)].c_str();
}
const char* name_of(InitialWeights initial) {
  return kInitialWeights[static_cast<std::size_t>(initial)].c_str();
}
const char* name_of(Norm norm) {
  return kNorms[static_cast<std::size_t>(norm)].c_str();
}

ModelConfig default_model(ModelName name) {
  ModelConfig model;
  model.name = name;
  switch (name) {
    case ModelName::cosmoflow:
    case ModelName::automatic:
      model.dense = {64, 32};
      model.leaky_slope = 0.3;
      model.initial = InitialWeights::data;
      model.level_means = true;
      break;
    case ModelName::sc18:
      model.width = 16;
      model.dense = {256, 128};
      break;
    case ModelName::mlperf:
      model.width = 32;
      model.dropout = 0.5;
      model.leaky_slope = 0.3;
      model.dense = {128, 64};
      break;
    case ModelName::mlp:
      model.dense = {256, 256, 256};
      model.activation = LayerKind::silu;
      break;
    case ModelName::cnn:
      model.width = 8;
      model.dense = {64};
      break;
    case ModelName::unet:
      model.width = 16;
      model.norm = Norm::batch;
      model.activation = LayerKind::relu;
      break;
    case ModelName::decoder:
      model.width = 8;
      model.dense = {64, 128};
      model.activation = LayerKind::silu;
      break;
    case ModelName::autoencoder:
    case ModelName::vae:
      model.width = 8;
      model.dense = {128};
      break;
    case ModelName::layers:
    case ModelName::module:
      break;
  }
  return model;
}

GradientConfig read_gradients(const yaml::Node* node, yaml::Diagnostics& diagnostics) {
  yaml::MapReader reader(node == nullptr ? empty_map() : *node, "the gradients: block", diagnostics);
  GradientConfig gradients;
  gradients.wire = static_cast<WireFormat>(reader.choice("wire", 0, kWireFormats));
  reader.finish();
  return gradients;
}

std::string module_file(const yaml::Node& train_block) {
  const yaml::Node* model = train_block.find("model");
  if (model == nullptr) return {};
  const yaml::Node* file = is_module_file(*model) ? model : model->is_map() ? model->find("file") : nullptr;
  return file != nullptr && file->is_scalar() && file->text.find("$(") == std::string::npos ? file->text : "";
}

yaml::Node with_module_file(yaml::Node train_block, const std::string& path) {
  for (auto& [key, value] : train_block.entries)
    if (key.text == "model") value = yaml::map({{"file", yaml::quoted(path)}});
  return train_block;
}

GuardConfig read_guard(const yaml::Node* node, yaml::Diagnostics& diagnostics) {
  GuardConfig guard;
  if (node != nullptr && node->is_scalar()) {
    guard.on = yaml::as_boolean(*node, "guard", diagnostics).value_or(true);
    return guard;
  }
  yaml::MapReader reader(node == nullptr ? empty_map() : *node, "the guard: block", diagnostics);
  guard.deviations = reader.real("deviations", guard.deviations, 1, 1e9);
  guard.agree_every = reader.integer("agree_every", guard.agree_every, 0, kMany);
  guard.rollbacks = reader.integer("rollbacks", guard.rollbacks, 0, 1'000'000);
  reader.finish();
  return guard;
}

namespace {

// A search uses the schedule of a full training, which ends with the last rung.
std::int64_t read_epochs(yaml::MapReader& reader) {
  const yaml::Node* block = reader.find("search");
  const SearchConfig search = block == nullptr ? SearchConfig() : read_search(*block, reader.diagnostics());
  const std::int64_t last = search.on() ? search.rungs.back() : TrainConfig().epochs;
  const std::int64_t epochs = reader.integer("epochs", last, 1, 100'000'000);
  if (search.on() && epochs != last) {
    reader.diagnostics().error(
        reader.mark_of("epochs"),
        fmt::format("'epochs' is {} and the last of the rungs {}; leave out 'epochs'", epochs, last));
  }
  return epochs;
}

}  // namespace

TrainConfig read_train_config(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  yaml::MapReader reader(block, "the train: block", diagnostics);
  TrainConfig config;
  config.data = reader.required_string("data");
  config.output = reader.string("output", "training");
  config.inputs = reader.strings("inputs");
  config.targets = reader.strings("targets");
  config.seed =
      static_cast<std::uint64_t>(reader.integer("seed", 1, 0, std::numeric_limits<std::int64_t>::max()));
  config.members = reader.integer("members", config.members, 1, 100);
  config.epochs = read_epochs(reader);
  config.batch = reader.integer("batch", config.batch, 1, 1 << 24);
  config.accumulate = reader.integer("accumulate", config.accumulate, 1, 1 << 20);
  config.ranks = reader.integer("ranks", config.ranks, 1, 1 << 20);
  reader.integer("nodes", 1, 1, 1 << 20);  // the campaign's launcher reads it
  reader.integer("min_nodes", 1, 1, 1 << 20);
  config.threads = reader.integer("threads", config.threads, 1, 4096);
  config.loader_threads = reader.integer("loader_threads", config.loader_threads, 1, 256);
  config.cache_bytes = reader.bytes("cache", config.cache_bytes);
  read_stage(reader, config, diagnostics);
  config.model = read_model(reader.find("model"), config.inputs, diagnostics);
  config.transform = read_transform(reader.find("transform"), diagnostics);
  config.normalise = reader.boolean("normalise", config.normalise);
  config.augment = read_augment(reader, diagnostics);
  config.loss = read_loss(reader.find("loss"), diagnostics);
  config.optimizer = read_optimizer(reader.find("optimizer"), diagnostics);
  config.gradients = read_gradients(reader.find("gradients"), diagnostics);
  config.schedule = read_schedule(reader.find("schedule"), config.epochs, diagnostics);
  config.checkpoint = read_checkpoint(reader.find("checkpoint"), diagnostics);
  config.guard = read_guard(reader.find("guard"), diagnostics);
  config.select = static_cast<Select>(reader.choice("select", 0, kSelects));
  config.ema = reader.real("ema", config.ema, 0, 0.999999);
  config.early_stop_epochs = reader.integer("early_stop", config.early_stop_epochs, 0, kMany);
  config.shuffle_labels = reader.boolean("shuffle_labels", config.shuffle_labels);
  config.deterministic = reader.boolean("deterministic", config.deterministic);
  config.backend = static_cast<Backend>(reader.choice("backend", 0, kBackends));
  config.precision = static_cast<Precision>(reader.choice("precision", 0, kPrecisions));
  config.init_from = reader.string("init_from");
  if (config.init_from == "none") config.init_from.clear();
  if (config.init_from == kInitFromLast && reader.find("search") != nullptr)
    diagnostics.error(reader.mark_of("init_from"), "'init_from: last' goes on with one model, and 'search' "
                                                   "begins several; leave out one of them");
  config.max_seconds = reader.seconds("max_seconds", config.max_seconds);
  reader.finish();
  if (config.augment.noise > 0 && !config.normalise) {
    diagnostics.error(
        reader.mark_of("augment"),
        "the noise of 'augment' is in deviations of normalised fields, and 'normalise' is false");
  }
  if (config.members > 1 && reader.has("search")) {
    diagnostics.error(
        reader.mark_of("members"),
        "'members' and 'search' do not go together: search with one member, then train the best "
        "settings with 'members'");
  }
  if (config.seed >
      static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() - config.members + 1)) {
    diagnostics.error(reader.mark_of("seed"),
                      "'seed' is too large: member K has the seed 'seed' + K - 1, which must be below 2^63");
  }
  if (config.ranks > config.batch) {
    diagnostics.error(
        reader.mark_of("ranks"),
        fmt::format("'ranks' ({}) must not be more than 'batch' ({}): a rank without samples would idle",
                    config.ranks, config.batch));
  }
  return config;
}

namespace {

yaml::Node names(const std::vector<std::string>& list) {
  std::vector<yaml::Node> nodes;
  for (const std::string& name : list) nodes.push_back(yaml::quoted(name));
  return yaml::sequence(std::move(nodes));
}
yaml::Node integers(const std::vector<std::int64_t>& list) {
  std::vector<yaml::Node> nodes;
  for (const std::int64_t value : list) nodes.push_back(integer(value));
  return yaml::sequence(std::move(nodes));
}
yaml::Node reals(const std::vector<double>& list) {
  std::vector<yaml::Node> nodes;
  for (const double value : list) nodes.push_back(real(value));
  return yaml::sequence(std::move(nodes));
}

yaml::Node to_yaml(const ModelConfig& model) {
  if (model.name == ModelName::module) return yaml::map({{"file", yaml::quoted(model.file)}});
  if (model.name == ModelName::layers) {
    std::vector<yaml::Node> layers;
    for (const LayerConfig& layer : model.layers) layers.push_back(to_yaml(layer));
    return yaml::map({{"layers", yaml::sequence(std::move(layers))},
                      {"outputs", names(model.outputs)},
                      {"init", yaml::scalar(name_of(model.initial))}});
  }
  return yaml::map({{"name", yaml::scalar(name_of(model.name))},
                    {"width", integer(model.width)},
                    {"dropout", real(model.dropout)},
                    {"norm", yaml::scalar(name_of(model.norm))},
                    {"leaky_slope", real(model.leaky_slope)},
                    {"tanh_output", boolean(model.tanh_output)},
                    {"dense", integers(model.dense)},
                    {"activation", yaml::scalar(name_of(model.activation))},
                    {"depth", integer(model.depth)},
                    {"latent", integer(model.latent)},
                    {"level_means", boolean(model.level_means)},
                    {"init", yaml::scalar(name_of(model.initial))}});
}

yaml::Node to_yaml(const LossConfig& loss) {
  return yaml::map({{"name", yaml::scalar(name_of(loss.name))},
                    {"delta", real(loss.delta)},
                    {"class_weights", reals(loss.class_weights)},
                    {"classes", integer(loss.classes)},
                    {"smooth", real(loss.smooth)},
                    {"kl_weight", real(loss.kl_weight)}});
}

}  // namespace

yaml::Node to_yaml(const TrainConfig& config) {
  std::vector<yaml::Node> augment;
  if (config.augment.shift) augment.push_back(yaml::scalar("shift"));
  if (config.augment.flip) augment.push_back(yaml::scalar("flip"));
  if (config.augment.permute) augment.push_back(yaml::scalar("permute"));
  if (config.augment.noise > 0) augment.push_back(yaml::map({{"noise", real(config.augment.noise)}}));
  const yaml::Node stage = config.stage_folder.empty()
                               ? yaml::scalar(name_of(config.stage))
                               : yaml::map({{"local", yaml::quoted(config.stage_folder)}});
  const yaml::Node transform = config.transform.name == TransformName::log
                                   ? yaml::map({{"log", real(config.transform.offset)}})
                                   : yaml::scalar(name_of(config.transform.name));
  const OptimizerConfig& optimizer = config.optimizer;
  const ScheduleConfig& schedule = config.schedule;
  std::vector<std::pair<std::string, yaml::Node>> entries = {
      {"data", yaml::quoted(config.data)},
      {"output", yaml::quoted(config.output)},
      {"inputs", names(config.inputs)},
      {"targets", names(config.targets)},
      {"seed", yaml::scalar(std::to_string(config.seed))},
      {"epochs", integer(config.epochs)},
      {"batch", integer(config.batch)},
      {"accumulate", integer(config.accumulate)},
      {"ranks", integer(config.ranks)},
      {"threads", integer(config.threads)},
      {"loader_threads", integer(config.loader_threads)},
      {"stage", stage},
      {"model", to_yaml(config.model)},
      {"transform", transform},
      {"normalise", boolean(config.normalise)},
      {"augment", yaml::sequence(std::move(augment))},
      {"loss", to_yaml(config.loss)},
      {"optimizer", yaml::map({{"name", yaml::scalar(name_of(optimizer.name))},
                               {"learning_rate", real(optimizer.learning_rate)},
                               {"momentum", real(optimizer.momentum)},
                               {"nesterov", boolean(optimizer.nesterov)},
                               {"beta1", real(optimizer.beta1)},
                               {"beta2", real(optimizer.beta2)},
                               {"epsilon", real(optimizer.epsilon)},
                               {"weight_decay", real(optimizer.weight_decay)},
                               {"clip_norm", real(optimizer.clip_norm)},
                               {"larc_trust", real(optimizer.larc_trust)},
                               {"lag", integer(optimizer.lag)},
                               {"lars_trust", real(optimizer.lars_trust)},
                               {"reference_batch", integer(optimizer.reference_batch)}})},
      {"gradients", yaml::map({{"wire", yaml::scalar(name_of(config.gradients.wire))}})},
      {"schedule", yaml::map({{"warmup_epochs", real(schedule.warmup_epochs)},
                              {"decay", yaml::scalar(name_of(schedule.decay))},
                              {"final_factor", real(schedule.final_factor)},
                              {"power", real(schedule.power)},
                              {"step_epochs", reals(schedule.step_epochs)},
                              {"step_factor", real(schedule.step_factor)},
                              {"rise", real(schedule.rise)}})},
      {"checkpoint", yaml::map({{"every_epochs", integer(config.checkpoint.every_epochs)},
                                {"every_steps", integer(config.checkpoint.every_steps)},
                                {"every_seconds", real(config.checkpoint.every_seconds)},
                                {"keep_last", integer(config.checkpoint.keep_last)},
                                {"keep_best", integer(config.checkpoint.keep_best)}})},
      {"guard", config.guard.on ? yaml::map({{"deviations", real(config.guard.deviations)},
                                             {"agree_every", integer(config.guard.agree_every)},
                                             {"rollbacks", integer(config.guard.rollbacks)}})
                                : boolean(false)},
      {"select", yaml::scalar(name_of(config.select))},
      {"ema", real(config.ema)},
      {"early_stop", integer(config.early_stop_epochs)},
      {"shuffle_labels", boolean(config.shuffle_labels)},
      {"deterministic", boolean(config.deterministic)},
      {"backend", yaml::scalar(name_of(config.backend))},
      {"precision", yaml::scalar(name_of(config.precision))},
      {"max_seconds", real(config.max_seconds)}};
  if (config.members > 1) entries.emplace_back("members", integer(config.members));
  if (!config.init_from.empty()) entries.emplace_back("init_from", yaml::quoted(config.init_from));
  if (config.cache_bytes >= 0) entries.emplace_back("cache", integer(config.cache_bytes));
  return yaml::map(std::move(entries));
}

}  // namespace wflow::trainer
