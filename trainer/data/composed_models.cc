// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/yaml.h"
#include "trainer/data/roles.h"

namespace wflow::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kFewestCells = 3;  // along an axis of the coarsest grid

// A field, or several numbers.
struct Group {
  std::string name;                 // of its head
  std::vector<std::string> inputs;  // as the network reads them
  TensorShape shape;
  bool is_field() const { return shape.voxels() > 1; }
};

// Labels together, and each field by itself.
std::vector<Group> groups_of(const std::vector<std::string>& names, const std::string& of_labels,
                             const TrainConfig& config, const DatasetInfo& info) {
  std::vector<Group> groups;
  Group labels = {of_labels, {}, {0, {1, 1, 1}}};
  for (const std::string& name : names) {
    const auto field = field_called(name, info);
    if (name != kField && label_called(name, info)) {
      labels.inputs.push_back(name);
      ++labels.shape.channels;
    } else if (field) {
      groups.push_back({name, {name}, info.fields[*field].shape});
    } else {
      throw Error(ExitCode::spec, fmt::format("the data in {} have neither a field nor a label '{}'{}",
                                              config.data, name, text::suggestion(name, info.labels)));
    }
  }
  if (!labels.inputs.empty()) groups.insert(groups.begin(), labels);
  return groups;
}

// That of a block without one.
OptimizerConfig usual_optimizer() {
  yaml::Diagnostics none("train");
  return read_train_config(yaml::map({{"data", yaml::scalar("-")}}), none).optimizer;
}

// The lists that a name stands for.
class Composition {
 public:
  Composition(const TrainConfig& config, const DatasetInfo& info) : config_(config), info_(info) {}

  TrainConfig gan();
  TrainConfig wae();
  TrainConfig cycle();
  TrainConfig inference();

 private:
  const ModelConfig& model() const { return config_.model; }
  void layer(const std::string& kind, const Json& argument, Json keys = Json::object());
  // The next layer, and those after it, belong to a part and begin with a value.
  void begin(const std::string& part, const std::string& from);
  void head(const std::string& name, const std::string& output, Json keys);
  void score(const std::string& name, const std::string& output, int constant, double weight = 1);
  void update(const std::vector<std::string>& heads, const std::vector<std::string>& learn);

  std::int64_t halvings(const Group& group) const;
  std::int64_t levels(const Group& group) const;
  void normed(const char* activation, const Json& argument);
  void hidden(const std::vector<std::int64_t>& sizes, const char* activation, const Json& argument);
  void convolution(std::int64_t channels, Json keys);
  void doubled(std::int64_t channels, const Group& to, bool bias, const std::string& name);
  void generator(const std::string& part, const std::string& from, const Group& to, const std::string& name);
  void contract(const Group& group, const std::string& part, bool norm_first);
  void discriminator(const std::string& part, const std::string& from, const Group& of,
                     const std::string& name);
  std::string trace_input() const;
  std::string joined(const Group& group, const std::string& name);
  const Group& only_field(const std::vector<Group>& groups) const;
  TrainConfig finished() const;

  const TrainConfig& config_;
  const DatasetInfo& info_;
  std::string part_;
  std::string from_;
  Json inputs_ = Json::array();
  Json random_ = Json::object();
  Json layers_ = Json::array();
  Json heads_ = Json::array();
  Json updates_ = Json::array();
};

void Composition::layer(const std::string& kind, const Json& argument, Json keys) {
  Json entry = {{kind, argument}};
  if (!from_.empty()) entry["from"] = std::exchange(from_, {});
  if (!part_.empty()) entry["part"] = part_;
  entry.update(keys);
  layers_.push_back(std::move(entry));
}

void Composition::begin(const std::string& part, const std::string& from) {
  part_ = part;
  from_ = from;
}

void Composition::head(const std::string& name, const std::string& output, Json keys) {
  Json entry = {{"name", name}, {"output", output}};
  entry.update(keys);
  heads_.push_back(std::move(entry));
}

void Composition::score(const std::string& name, const std::string& output, int constant, double weight) {
  const bool wasserstein = config_.loss.name == LossName::wasserstein;
  head(name, output,
       {{"constant", constant}, {"loss", wasserstein ? "wasserstein" : "bce"}, {"weight", weight}});
}

void Composition::update(const std::vector<std::string>& heads, const std::vector<std::string>& learn) {
  updates_.push_back({{"heads", heads}, {"learn", learn}});
}

// How often a grid is halved; 0: it can't be.
std::int64_t Composition::halvings(const Group& group) const {
  std::int64_t levels = model().depth;
  for (const std::int64_t cells : group.shape.extent) {
    if (cells == 1) continue;
    std::int64_t fits = 0;
    while (cells % (2 << fits) == 0 && (cells >> (fits + 1)) >= kFewestCells) ++fits;
    levels = std::min(levels, fits);
  }
  return levels;
}

std::int64_t Composition::levels(const Group& group) const {
  if (const std::int64_t levels = halvings(group); levels > 0) return levels;
  throw Error(ExitCode::spec,
              fmt::format("the network {} halves the grid of '{}', which is {}: it needs an even "
                          "number of at least {} cells along each axis",
                          name_of(model().name), group.name, text_of(group.shape), 2 * kFewestCells));
}

void Composition::normed(const char* activation, const Json& argument) {
  if (model().norm != Norm::none) layer(model().norm == Norm::batch ? "batch_norm" : "group_norm", nullptr);
  layer(activation, argument);
}

void Composition::hidden(const std::vector<std::int64_t>& sizes, const char* activation,
                         const Json& argument) {
  for (const std::int64_t size : sizes) {
    layer("dense", size);
    layer(activation, argument);
  }
}

void Composition::convolution(std::int64_t channels, Json keys) {
  if (model().padding == Padding::periodic) keys["padding"] = "periodic";
  layer("convolution", channels, std::move(keys));
}

// A transposed convolution doubles the grid. One that reads the other end of the field is written as a
// convolution for each cell of a block and a shuffle of them (Shi et al. 2016), equal to a transposed one of
// 6 cells.
void Composition::doubled(std::int64_t channels, const Group& to, bool bias, const std::string& name) {
  const Json named = name.empty() ? Json::object() : Json{{"name", name}};
  if (model().padding != Padding::periodic) {
    Json keys = {{"kernel", 5}, {"stride", 2}, {"padding", "same"}, {"bias", bias}};
    keys.update(named);
    layer("transposed_convolution", channels, keys);
    return;
  }
  const auto axes = std::ranges::count_if(to.shape.extent, [](std::int64_t cells) { return cells > 1; });
  convolution(channels << axes, {{"kernel", 3}, {"bias", bias}});
  layer("pixel_shuffle", 2, named);
}

// CosmoGAN's (Mustafa et al. 2019, table 1): a dense layer on a coarse grid, then layers that double it.
void Composition::generator(const std::string& part, const std::string& from, const Group& to,
                            const std::string& name) {
  begin(part, from);
  if (!to.is_field()) {
    hidden(model().dense, "relu", nullptr);
    layer("dense", to.shape.channels, {{"name", name}});
    return;
  }
  const std::int64_t deepest = levels(to);
  std::int64_t channels = model().width << (deepest - 1);
  Json coarse = {channels};
  std::int64_t values = channels;
  for (const std::int64_t cells : to.shape.extent) {
    if (cells == 1 && coarse.size() == 1) continue;  // a leading flat axis
    coarse.push_back(cells == 1 ? 1 : cells >> deepest);
    values *= coarse.back().get<std::int64_t>();
  }
  layer("dense", values);
  layer("reshape", coarse);
  normed("relu", nullptr);
  for (std::int64_t level = deepest - 1; level > 0; --level) {
    channels /= 2;
    doubled(channels, to, model().norm == Norm::none, {});
    normed("relu", nullptr);
  }
  doubled(to.shape.channels, to, true, name);
}

// Convolutions of 4 cells with a stride of 2, then a vector; nothing for a group that is one.
void Composition::contract(const Group& group, const std::string& part, bool norm_first) {
  if (!group.is_field()) return;
  begin(part, group.inputs.front());
  for (std::int64_t level = 0; level < levels(group); ++level) {
    const bool norm = level > 0 || norm_first;
    convolution(model().width << level,
                {{"kernel", 4}, {"stride", 2}, {"bias", !norm || model().norm == Norm::none}});
    if (norm) {
      normed("leaky_relu", 0.2);
    } else {
      layer("leaky_relu", 0.2);
    }
  }
  layer("flatten", nullptr);
}

void Composition::discriminator(const std::string& part, const std::string& from, const Group& of,
                                const std::string& name) {
  begin(part, from);
  if (of.is_field()) {
    contract(of, part, false);
  } else {
    hidden(model().dense, "leaky_relu", 0.2);
  }
  layer("dense", 1, {{"name", name}});
}

// The value of a group that the network reads. To be called before the first part begins.
std::string Composition::joined(const Group& group, const std::string& name) {
  if (group.inputs.size() == 1) return group.inputs.front();
  layer("concatenate", group.inputs, {{"name", name}});
  return name;
}

const Group& Composition::only_field(const std::vector<Group>& groups) const {
  if (groups.size() == 1) return groups.front();
  throw Error(ExitCode::spec,
              fmt::format("the network {} learns one field, and 'inputs' names {}: {}", name_of(model().name),
                          groups.size(), text::join(config_.inputs, ", ")));
}

// Goodfellow et al. 2014, with the generator's loss that does not saturate (bce), or with scores
// (wasserstein).
TrainConfig Composition::gan() {
  const std::vector<Group> groups = groups_of(config_.inputs, "numbers", config_, info_);
  const Group& field = only_field(groups);
  inputs_ = field.inputs;
  random_ = {{"z", model().latent}};
  const std::string real = joined(field, "samples");
  generator("generator", "z", field, "generated");
  discriminator("discriminator", real, field, "score");
  begin("losses", "generated");
  layer("apply", "discriminator", {{"name", "score_generated"}});
  score("real", "score", 1);
  score("found", "score_generated", 0);
  score("fooled", "score_generated", 1);
  if (field_called(field.name, info_)) head("sample", "generated", {{"like", field.name}});
  update({"real", "found"}, {"discriminator"});
  update({"fooled"}, {"generator"});
  return finished();
}

// Tolstikhin et al. 2018, WAE-GAN: a discriminator tells codes from normally distributed numbers.
TrainConfig Composition::wae() {
  const std::vector<Group> groups = groups_of(config_.inputs, "numbers", config_, info_);
  const Group& field = only_field(groups);
  inputs_ = field.inputs;
  random_ = {{"z", model().latent}};
  const std::string truth = joined(field, "samples");
  begin("encoder", truth);
  contract(field, "encoder", true);
  hidden(model().dense, "leaky_relu", 0.2);
  layer("dense", model().latent, {{"name", "latent"}});
  generator("decoder", "latent", field, "reconstruction");
  const Group code = {"z", {"z"}, {model().latent, {1, 1, 1}}};
  discriminator("discriminator", "z", code, "score");
  begin("losses", "latent");
  layer("apply", "discriminator", {{"name", "score_code"}});
  head("reconstructed", "reconstruction", {{"targets", field.inputs}});
  score("normal", "score", 1);
  score("found", "score_code", 0);
  score("fooled", "score_code", 1, config_.loss.kl_weight);
  update({"normal", "found"}, {"discriminator"});
  update({"reconstructed", "fooled"}, {"encoder", "decoder"});
  return finished();
}

// Jacobs et al. 2019 and Anirudh et al. 2020 (MaCC): an autoencoder of the outputs, a network from parameters
// to its codes, one back, and the losses of the two cycles.
TrainConfig Composition::cycle() {
  const std::vector<Group> parameters = groups_of(config_.inputs, "parameters", config_, info_);
  const std::vector<Group> outputs = groups_of(config_.targets, "numbers", config_, info_);
  const Group& known = only_field(parameters);
  for (const Group& group : outputs)
    for (const std::string& name : group.inputs) inputs_.push_back(name);
  for (const std::string& name : known.inputs) inputs_.push_back(name);
  const std::string given = joined(known, "parameters");
  Json seen = Json::array();
  for (const Group& group : outputs)
    seen.push_back(group.is_field() ? "seen_" + group.name : joined(group, "seen_" + group.name));

  std::vector<std::string> parts = {"encoder"};
  for (const Group& group : outputs) {
    if (!group.is_field()) continue;
    contract(group, "encoder", true);
    layers_.back()["name"] = "seen_" + group.name;
  }
  begin("encoder", seen.size() == 1 ? seen.front().get<std::string>() : std::string());
  if (seen.size() > 1) layer("concatenate", seen);
  hidden(model().dense, "elu", nullptr);
  layer("dense", model().latent, {{"name", "latent"}});
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    parts.push_back("decoder_" + outputs[k].name);
    generator(parts.back(), "latent", outputs[k], "decoded_" + outputs[k].name);
  }
  begin("forward", given);
  hidden({32, 256, 1024}, "elu", nullptr);
  layer("dense", model().latent, {{"name", "forward_latent"}});
  begin("inverse", "latent");
  hidden({16, 128, 64}, "elu", nullptr);
  layer("dense", known.shape.channels, {{"name", "inverse_parameters"}});

  begin("losses", {});
  layer("subtract", {"forward_latent", "latent"}, {{"name", "latent_error"}});
  layer("apply", "inverse", {{"from", "forward_latent"}, {"name", "cycled_parameters"}});
  layer("apply", "forward", {{"from", "inverse_parameters"}, {"name", "cycled_latent"}});
  std::vector<std::string> coded;
  std::vector<std::string> predicted = {"latent_error", "parameters_cycle"};
  std::vector<std::string> inverted = {"parameters_inverse"};
  const double weight = model().auxiliary_weight;
  for (const Group& group : outputs) {
    const std::string decoder = "decoder_" + group.name;
    layer("apply", decoder, {{"from", "forward_latent"}, {"name", "predicted_" + group.name}});
    layer("apply", decoder, {{"from", "cycled_latent"}, {"name", "cycled_" + group.name}});
    coded.push_back(group.name + "_coded");
    predicted.push_back(group.name);
    inverted.push_back(group.name + "_cycle");
    const Json targets = {{"targets", group.inputs}};
    Json inner = targets;
    inner["export"] = false;
    head(group.name, "predicted_" + group.name, Json(targets));
    heads_.back()["weight"] = weight;
    head(coded.back(), "decoded_" + group.name, inner);
    head(inverted.back(), "cycled_" + group.name, inner);
    heads_.back()["weight"] = weight;
  }
  head("latent_error", "latent_error", {{"constant", 0}});
  head("parameters_inverse", "inverse_parameters", {{"targets", known.inputs}, {"export", false}});
  head("parameters_cycle", "cycled_parameters",
       {{"targets", known.inputs}, {"export", false}, {"weight", weight}});
  update(coded, parts);
  update(predicted, {"forward"});
  update(inverted, {"inverse"});
  return finished();
}

// The field of the data set's traces among the inputs.
std::string Composition::trace_input() const {
  std::vector<std::string> found;
  for (const std::string& name : config_.inputs) {
    const auto field = field_called(name, info_);
    if (field && holds_traces(info_.fields[*field])) found.push_back(name);
  }
  if (found.size() == 1 && info_.addresses != nullptr) return found.front();
  throw Error(
      ExitCode::spec,
      fmt::format("the network inference learns from the traces of a simulator and what it observed, and "
                  "'inputs' ({}) of {} has {}: docs/traces.md shows a study",
                  text::join(config_.inputs, ", "), config_.data,
                  info_.addresses == nullptr ? "no traces" : fmt::format("{} of them", found.size())));
}

// Le, Baydin and Wood 2017: an embedding of the observation, and the density of the trace's draws given it.
TrainConfig Composition::inference() {
  const std::string trace = trace_input();
  std::vector<std::string> observed;
  for (const std::string& name : config_.inputs)
    if (name != trace) observed.push_back(name);
  if (observed.empty())
    throw Error(ExitCode::spec,
                "the network inference needs what the simulator observed: name it in 'inputs'");
  const std::vector<Group> groups = groups_of(observed, "numbers", config_, info_);
  inputs_ = {trace};
  for (const Group& group : groups)
    for (const std::string& name : group.inputs) inputs_.push_back(name);
  std::vector<std::string> seen;
  for (const Group& group : groups)
    seen.push_back(group.is_field() ? "seen_" + group.name : joined(group, "seen_" + group.name));
  for (const Group& group : groups) {
    if (!group.is_field()) continue;
    if (halvings(group) > 0) {
      contract(group, "encoder", true);
    } else {
      begin("encoder", group.inputs.front());
      layer("flatten", nullptr);
    }
    layers_.back()["name"] = "seen_" + group.name;
  }
  begin("encoder", seen.size() == 1 ? seen.front() : std::string());
  if (seen.size() > 1) layer("concatenate", seen);
  hidden(model().dense, "silu", nullptr);
  layers_.back()["name"] = kObservationLayer;
  begin("proposals", {});
  layer("trace_density", model().latent,
        {{"from", {kObservationLayer, trace}}, {"components", model().components}});
  layers_.back()["name"] = "trace_density";
  head("density", "trace_density", {{"constant", 0}, {"loss", "wasserstein"}});
  head(kObservationLayer, kObservationLayer, {{"constant", 0}, {"weight", 0}, {"export", true}});
  return finished();
}

TrainConfig Composition::finished() const {
  yaml::Node block = to_yaml(config_);
  std::erase_if(block.entries, [](const auto& entry) {
    const std::string& key = entry.first.text;
    return key == "inputs" || key == "targets" || key == "loss" || key == "model";
  });
  const auto add = [&](const char* key, const Json& value) {
    yaml::Diagnostics none(key);
    block.entries.emplace_back(yaml::scalar(key), yaml::parse(value.dump(), none));
  };
  add("inputs", inputs_);
  if (!random_.empty()) add("random_inputs", random_);
  add("model", {{"layers", layers_}, {"init", name_of(model().initial)}});
  add("heads", heads_);
  if (!updates_.empty()) add("alternate", updates_);
  if (!random_.empty() && config_.optimizer == usual_optimizer()) {
    std::erase_if(block.entries, [](const auto& entry) { return entry.first.text == "optimizer"; });
    add("optimizer", {{"name", "adam"}, {"learning_rate", 2e-4}, {"beta1", 0.5}, {"beta2", 0.999}});
  }
  yaml::Diagnostics diagnostics(name_of(model().name));
  TrainConfig whole = read_train_config(block, diagnostics);
  if (diagnostics.has_errors())
    throw Error(ExitCode::spec,
                fmt::format("the network {}: {}", name_of(model().name), diagnostics.to_string()));
  return whole;
}

// A head for the labels and one for the fields that it reads (Kurth et al. 2017, section 3.2): a sample
// without labels counts in the second one only.
TrainConfig semi_supervised(const TrainConfig& config) {
  TrainConfig full = config;
  full.model.name = ModelName::autoencoder;
  HeadConfig labels;
  labels.name = "labels";
  labels.targets = config.targets;
  labels.loss = config.loss;
  HeadConfig fields;
  fields.name = "reconstruction";
  fields.targets = config.inputs;
  fields.weight = config.model.auxiliary_weight;
  full.heads = {labels, fields};
  full.targets.clear();
  return full;
}

}  // namespace

bool is_composed(ModelName name) {
  return name == ModelName::gan || name == ModelName::wae || name == ModelName::cycle ||
         name == ModelName::semi_supervised || name == ModelName::inference;
}

TrainConfig expanded(const TrainConfig& config, const DatasetInfo& info) {
  Composition composition(config, info);
  switch (config.model.name) {
    case ModelName::gan:
      return composition.gan();
    case ModelName::wae:
      return composition.wae();
    case ModelName::cycle:
      return composition.cycle();
    case ModelName::inference:
      return composition.inference();
    default:
      return semi_supervised(config);
  }
}

}  // namespace wflow::trainer
