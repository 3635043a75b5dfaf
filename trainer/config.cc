// SPDX-License-Identifier: Apache-2.0
#include "trainer/config.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <span>

#include "base/text.h"

namespace wflow::trainer {
namespace {

const std::array<std::string, 3> kModels = {"cosmoflow", "sc18", "mlperf"};
const std::array<std::string, 3> kTransforms = {"none", "log", "log1p"};
const std::array<std::string, 3> kLosses = {"mse", "mae", "huber"};
const std::array<std::string, 3> kOptimizers = {"adamw", "adam", "sgd"};
const std::array<std::string, 5> kDecays = {"none", "cosine", "linear", "polynomial", "step"};
const std::array<std::string, 2> kSelects = {"last", "best"};
const std::array<std::string, 3> kAugmentations = {"shift", "flip", "permute"};

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

ModelConfig read_model(const yaml::Node* node, yaml::Diagnostics& diagnostics) {
  const yaml::Node block = named_block(node);
  yaml::MapReader reader(block, "the model: block", diagnostics);
  const auto name = static_cast<ModelName>(reader.choice("name", 0, kModels));
  ModelConfig model = default_model(name);
  model.width = reader.integer("width", model.width, 1, 4096);
  model.dropout = reader.real("dropout", model.dropout, 0, 0.95);
  model.batch_norm = reader.boolean("batch_norm", model.batch_norm);
  model.leaky_slope = reader.real("leaky_slope", model.leaky_slope, 0, 1);
  model.tanh_output = reader.boolean("tanh_output", model.tanh_output);
  if (reader.has("dense")) model.dense = reader.integers("dense", 1, 1 << 20);
  reader.finish();
  return model;
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

AugmentConfig read_augment(yaml::MapReader& reader, yaml::Diagnostics& diagnostics) {
  AugmentConfig augment;
  const yaml::Node* node = reader.find("augment");
  if (node == nullptr) return augment;
  if (node->is_scalar() && (node->text == "none" || node->text == "false")) return augment;
  for (const std::string& word : reader.strings("augment")) {
    if (word == "shift") {
      augment.shift = true;
    } else if (word == "flip") {
      augment.flip = true;
    } else if (word == "permute") {
      augment.permute = true;
    } else {
      diagnostics.error(node->mark, fmt::format("'augment' is a list of shift, flip, permute; found '{}'{}",
                                                word, text::suggestion(word, kAugmentations)));
    }
  }
  return augment;
}

OptimizerConfig read_optimizer(const yaml::Node* node, yaml::Diagnostics& diagnostics) {
  const yaml::Node block = named_block(node);
  yaml::MapReader reader(block, "the optimizer: block", diagnostics);
  OptimizerConfig optimizer;
  optimizer.name = static_cast<OptimizerName>(reader.choice("name", 0, kOptimizers));
  const bool sgd = optimizer.name == OptimizerName::sgd;
  optimizer.learning_rate = reader.real("learning_rate", sgd ? 1e-2 : optimizer.learning_rate, 0, 1e3);
  optimizer.momentum = reader.real("momentum", optimizer.momentum, 0, 0.9999);
  optimizer.nesterov = reader.boolean("nesterov", optimizer.nesterov);
  optimizer.beta1 = reader.real("beta1", optimizer.beta1, 0, 0.999999);
  optimizer.beta2 = reader.real("beta2", optimizer.beta2, 0, 0.999999999);
  optimizer.epsilon = reader.real("epsilon", optimizer.epsilon, 1e-30, 1);
  const double decay = optimizer.name == OptimizerName::adamw ? 1e-2 : 0.0;
  optimizer.weight_decay = reader.real("weight_decay", decay, 0, 10);
  optimizer.clip_norm = reader.real("clip_norm", optimizer.clip_norm, 0, 1e30);
  optimizer.larc_trust = reader.real("larc_trust", optimizer.larc_trust, 0, 1e3);
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
  checkpoint.keep = reader.integer("keep", checkpoint.keep, 1, 1000);
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
const char* name_of(Select select) {
  return kSelects[static_cast<std::size_t>(select)].c_str();
}

ModelConfig default_model(ModelName name) {
  switch (name) {
    case ModelName::cosmoflow:
      return {name, 4, 0.0, true, 0.01, false, {64, 32}};
    case ModelName::sc18:
      return {name, 16, 0.0, false, 0.01, false, {256, 128}};
    case ModelName::mlperf:
      return {name, 32, 0.5, false, 0.3, false, {128, 64}};
  }
  return {};
}

TrainConfig read_train_config(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  yaml::MapReader reader(block, "the train: block", diagnostics);
  TrainConfig config;
  config.data = reader.required_string("data");
  config.output = reader.string("output", "training");
  config.targets = reader.strings("targets");
  config.seed =
      static_cast<std::uint64_t>(reader.integer("seed", 1, 0, std::numeric_limits<std::int64_t>::max()));
  config.epochs = reader.integer("epochs", config.epochs, 1, 100'000'000);
  config.batch = reader.integer("batch", config.batch, 1, 1 << 24);
  config.ranks = reader.integer("ranks", config.ranks, 1, 1 << 20);
  reader.integer("nodes", 1, 1, 1 << 20);  // of the campaign's: what starts the ranks looks at it
  reader.integer("min_nodes", 1, 1, 1 << 20);
  config.threads = reader.integer("threads", config.threads, 1, 4096);
  config.loader_threads = reader.integer("loader_threads", config.loader_threads, 1, 256);
  config.cache_bytes = reader.bytes("cache", config.cache_bytes);
  config.model = read_model(reader.find("model"), diagnostics);
  config.transform = read_transform(reader.find("transform"), diagnostics);
  config.normalise = reader.boolean("normalise", config.normalise);
  config.augment = read_augment(reader, diagnostics);
  config.loss = static_cast<LossName>(reader.choice("loss", 0, kLosses));
  config.optimizer = read_optimizer(reader.find("optimizer"), diagnostics);
  config.schedule = read_schedule(reader.find("schedule"), config.epochs, diagnostics);
  config.checkpoint = read_checkpoint(reader.find("checkpoint"), diagnostics);
  config.select = static_cast<Select>(reader.choice("select", 0, kSelects));
  config.early_stop_epochs = reader.integer("early_stop", config.early_stop_epochs, 0, kMany);
  config.shuffle_labels = reader.boolean("shuffle_labels", config.shuffle_labels);
  config.deterministic = reader.boolean("deterministic", config.deterministic);
  config.max_seconds = reader.seconds("max_seconds", config.max_seconds);
  reader.finish();
  if (config.ranks > config.batch) {
    diagnostics.error(
        reader.mark_of("ranks"),
        fmt::format("'ranks' ({}) must not be more than 'batch' ({}): a rank without samples would idle",
                    config.ranks, config.batch));
  }
  return config;
}

yaml::Node to_yaml(const TrainConfig& config) {
  std::vector<yaml::Node> targets;
  for (const std::string& name : config.targets) targets.push_back(yaml::quoted(name));
  std::vector<yaml::Node> dense;
  for (const std::int64_t size : config.model.dense) dense.push_back(integer(size));
  std::vector<yaml::Node> step_epochs;
  for (const double epoch : config.schedule.step_epochs) step_epochs.push_back(real(epoch));
  std::vector<yaml::Node> augment;
  if (config.augment.shift) augment.push_back(yaml::scalar("shift"));
  if (config.augment.flip) augment.push_back(yaml::scalar("flip"));
  if (config.augment.permute) augment.push_back(yaml::scalar("permute"));
  const yaml::Node transform = config.transform.name == TransformName::log
                                   ? yaml::map({{"log", real(config.transform.offset)}})
                                   : yaml::scalar(name_of(config.transform.name));
  const OptimizerConfig& optimizer = config.optimizer;
  const ScheduleConfig& schedule = config.schedule;
  std::vector<std::pair<std::string, yaml::Node>> entries = {
      {"data", yaml::quoted(config.data)},
      {"output", yaml::quoted(config.output)},
      {"targets", yaml::sequence(std::move(targets))},
      {"seed", yaml::scalar(std::to_string(config.seed))},
      {"epochs", integer(config.epochs)},
      {"batch", integer(config.batch)},
      {"ranks", integer(config.ranks)},
      {"threads", integer(config.threads)},
      {"loader_threads", integer(config.loader_threads)},
      {"model", yaml::map({{"name", yaml::scalar(name_of(config.model.name))},
                           {"width", integer(config.model.width)},
                           {"dropout", real(config.model.dropout)},
                           {"batch_norm", boolean(config.model.batch_norm)},
                           {"leaky_slope", real(config.model.leaky_slope)},
                           {"tanh_output", boolean(config.model.tanh_output)},
                           {"dense", yaml::sequence(std::move(dense))}})},
      {"transform", transform},
      {"normalise", boolean(config.normalise)},
      {"augment", yaml::sequence(std::move(augment))},
      {"loss", yaml::scalar(name_of(config.loss))},
      {"optimizer", yaml::map({{"name", yaml::scalar(name_of(optimizer.name))},
                               {"learning_rate", real(optimizer.learning_rate)},
                               {"momentum", real(optimizer.momentum)},
                               {"nesterov", boolean(optimizer.nesterov)},
                               {"beta1", real(optimizer.beta1)},
                               {"beta2", real(optimizer.beta2)},
                               {"epsilon", real(optimizer.epsilon)},
                               {"weight_decay", real(optimizer.weight_decay)},
                               {"clip_norm", real(optimizer.clip_norm)},
                               {"larc_trust", real(optimizer.larc_trust)}})},
      {"schedule", yaml::map({{"warmup_epochs", real(schedule.warmup_epochs)},
                              {"decay", yaml::scalar(name_of(schedule.decay))},
                              {"final_factor", real(schedule.final_factor)},
                              {"power", real(schedule.power)},
                              {"step_epochs", yaml::sequence(std::move(step_epochs))},
                              {"step_factor", real(schedule.step_factor)}})},
      {"checkpoint", yaml::map({{"every_epochs", integer(config.checkpoint.every_epochs)},
                                {"every_steps", integer(config.checkpoint.every_steps)},
                                {"every_seconds", real(config.checkpoint.every_seconds)},
                                {"keep", integer(config.checkpoint.keep)}})},
      {"select", yaml::scalar(name_of(config.select))},
      {"early_stop", integer(config.early_stop_epochs)},
      {"shuffle_labels", boolean(config.shuffle_labels)},
      {"deterministic", boolean(config.deterministic)},
      {"max_seconds", real(config.max_seconds)}};
  if (config.cache_bytes >= 0) entries.emplace_back("cache", integer(config.cache_bytes));
  return yaml::map(std::move(entries));
}

}  // namespace wflow::trainer
