// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "trainer/formula.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

std::optional<std::size_t> label_called(const std::string& name, const DatasetInfo& info) {
  const auto at = std::find(info.labels.begin(), info.labels.end(), name);
  if (at == info.labels.end()) return std::nullopt;
  return static_cast<std::size_t>(at - info.labels.begin());
}

std::optional<std::size_t> field_called(const std::string& name, const DatasetInfo& info) {
  if (name == kField) {
    const auto input = std::find_if(info.fields.begin(), info.fields.end(),
                                    [](const DataField& field) { return field.is_input; });
    if (input != info.fields.end()) return static_cast<std::size_t>(input - info.fields.begin());
  }
  for (std::size_t k = 0; k < info.fields.size(); ++k)
    if (info.fields[k].name == name) return k;
  return std::nullopt;
}

std::optional<std::size_t> mask_of(std::size_t field, const DatasetInfo& info) {
  const DataField& padded = info.fields[field];
  for (std::size_t k = 0; k < info.fields.size(); ++k) {
    const DataField& mask = info.fields[k];
    if (mask.name == padded.name + "_mask" && mask.is_input == padded.is_input && mask.shape.channels == 1 &&
        mask.shape.extent == padded.shape.extent)
      return k;
  }
  return std::nullopt;
}

namespace {

constexpr std::int64_t kSmallestField = 8;  // cells along an axis from which convolutions are worthwhile
constexpr double kMostClasses = 1e6;

// A mask is not a target.
std::vector<std::string> names_of(const DatasetInfo& info, bool inputs) {
  std::vector<std::size_t> masks;
  for (std::size_t k = 0; k < info.fields.size() && !inputs; ++k)
    if (const auto mask = mask_of(k, info)) masks.push_back(*mask);
  std::vector<std::string> names;
  for (std::size_t k = 0; k < info.fields.size(); ++k)
    if (info.fields[k].is_input == inputs && std::find(masks.begin(), masks.end(), k) == masks.end())
      names.push_back(info.fields[k].name);
  return names;
}

Error unknown(const std::string& name, const char* key, const TrainConfig& config, const DatasetInfo& info) {
  std::vector<std::string> known = info.labels;
  for (const DataField& field : info.fields)
    if (!field.first_label && field.name != kField) known.push_back(field.name);
  return Error(ExitCode::spec,
               fmt::format("the data in {} has no label '{}' for '{}'; it has {}and the field {}{}",
                           config.data, name, key, known.empty() ? "" : text::join(known, ", ") + " ", kField,
                           text::suggestion(name, known)));
}

// Index of the part for a field of the data; adds a part if the field is not read yet.
std::size_t part_of(DataRoles& roles, const std::string& name, std::size_t field) {
  for (std::size_t k = 0; k < roles.parts.size(); ++k)
    if (roles.parts[k].field == field) return k;
  roles.parts.push_back({name, field});
  return roles.parts.size() - 1;
}

ModelName model_for(const TensorShape& shape) {
  const auto long_axes = std::count_if(shape.extent.begin(), shape.extent.end(),
                                       [](std::int64_t n) { return n >= kSmallestField; });
  if (long_axes == 0) return ModelName::mlp;
  return long_axes == 3 ? ModelName::cosmoflow : ModelName::cnn;
}

// `least`: of the number of classes.
std::int64_t count_classes(const LossConfig& loss, const LabelRange& range, std::int64_t least) {
  if (loss.classes > 0) return loss.classes;
  const double most = std::round(range.most);
  if (range.least < -0.5 || most > kMostClasses) {
    throw Error(
        ExitCode::spec,
        fmt::format(
            "the loss {} needs class numbers from 0 on, and the training data have values from {} to {}",
            name_of(loss.name), range.least, range.most));
  }
  return std::max(least, static_cast<std::int64_t>(most) + 1);
}

// Names of all inputs; a single one is kField.
std::vector<std::string> all_inputs(const DatasetInfo& info) {
  const std::vector<std::string> names = names_of(info, true);
  return names.size() > 1 ? names : std::vector<std::string>{kField};
}

// The default model for the chosen fields and numbers.
ModelName automatic_model(const TrainConfig& config, const DatasetInfo& info) {
  const DataRoles roles = roles_of(config, info);
  std::vector<TensorShape> grids;
  bool numbers = false;
  for (const DataRoles::Input& input : roles.inputs) {
    const TensorShape shape = input.label ? TensorShape{} : info.fields[roles.parts[input.part].field].shape;
    if (shape.voxels() > 1) {
      grids.push_back(shape);
    } else {
      numbers = true;
    }
  }
  bool gives_field = false;
  bool on_input_grid = true;
  for (const DataRoles::Head& head : roles.heads) {
    if (!head.learns_fields()) continue;
    const TensorShape& shape = info.fields[roles.parts[head.fields.front()].field].shape;
    if (shape.voxels() == 1) continue;
    gives_field = true;
    on_input_grid = on_input_grid && !grids.empty() && shape.extent == grids.front().extent;
  }
  if (gives_field && grids.empty()) return ModelName::decoder;
  // One head on another grid is an error that the U-Net reports; several share an encoder.
  if (gives_field) return on_input_grid || roles.heads.size() == 1 ? ModelName::unet : ModelName::autoencoder;
  return grids.empty() || numbers ? ModelName::mlp : model_for(grids.front());
}

void add_input(DataRoles& roles, const std::string& name, const TrainConfig& config,
               const DatasetInfo& info) {
  const auto field = field_called(name, info);
  const auto label = name == kField ? std::nullopt : label_called(name, info);
  if (label) {
    roles.inputs.push_back({name, label, 0});
  } else if (field) {
    const std::size_t before = roles.parts.size();
    const std::size_t part = part_of(roles, name, *field);
    if (part < before)
      throw Error(ExitCode::spec, fmt::format("'inputs' names the field {} twice, as {} and as {}",
                                              info.fields[*field].name, roles.parts[part].name, name));
    roles.inputs.push_back({name, std::nullopt, part});
  } else {
    throw unknown(name, "inputs", config, info);
  }
}

void add_target(DataRoles& roles, DataRoles::Head& head, const std::string& name, const TrainConfig& config,
                const DatasetInfo& info) {
  const auto field = field_called(name, info);
  const auto label = name == kField ? std::nullopt : label_called(name, info);
  if (label) {
    head.labels.push_back(*label);
  } else if (field && info.fields[*field].first_label) {
    for (std::int64_t k = 0; k < info.fields[*field].shape.channels; ++k)
      head.labels.push_back(*info.fields[*field].first_label + static_cast<std::size_t>(k));
  } else if (field) {
    head.fields.push_back(part_of(roles, name, *field));
  } else {
    throw unknown(name, "targets", config, info);
  }
}

// "'targets'", or "'targets' of the head 'images'".
std::string targets_of(const DataRoles::Head& head) {
  return head.name.empty() ? "'targets'" : fmt::format("'targets' of the head '{}'", head.name);
}

void check_targets(const DataRoles::Head& head, const TrainConfig& config, const DatasetInfo& info,
                   const DataRoles& roles) {
  if (head.learns_fields() && !head.labels.empty()) {
    throw Error(ExitCode::spec,
                fmt::format("{} names the field {} and labels; give each a head of its own ('heads')",
                            targets_of(head), roles.parts[head.fields.front()].name));
  }
  if (!head.learns_fields() && head.labels.empty()) {
    if (info.labels.empty())
      throw Error(ExitCode::data,
                  fmt::format("{}/manifest.json names no labels and no target fields; the network would have "
                              "nothing to learn: name 'targets' in the convert: block",
                              config.data));
    throw Error(ExitCode::spec,
                "every label of the data is an input, so that nothing is left to learn: name 'targets'");
  }
  for (const std::size_t part : head.fields) {
    const DataField& first = info.fields[roles.parts[head.fields.front()].field];
    const DataField& field = info.fields[roles.parts[part].field];
    if (field.shape.extent == first.shape.extent) continue;
    throw Error(ExitCode::spec,
                fmt::format("the targets {} ({}) and {} ({}) are on different grids; give each a head of its "
                            "own ('heads')",
                            first.name, text_of(first.shape), field.name, text_of(field.shape)));
  }
}

void check_classes(const DataRoles::Head& head, const LossConfig& loss, const DatasetInfo& info,
                   const DataRoles& roles) {
  if (!is_classification(loss.name)) return;
  std::size_t targets = head.labels.size();
  for (const std::size_t part : head.fields)
    targets += static_cast<std::size_t>(info.fields[roles.parts[part].field].shape.channels);
  if (targets == 1) return;
  throw Error(ExitCode::spec,
              fmt::format("the loss {} learns the classes of one target, and {} has {}: name one",
                          name_of(loss.name), targets_of(head), targets));
}

void check_mixture(const DataRoles::Head& head, const LossConfig& loss, const DatasetInfo& info,
                   const DataRoles& roles) {
  if (loss.name != LossName::mixture) return;
  for (const std::size_t part : head.fields)
    if (info.fields[roles.parts[part].field].shape.voxels() > 1)
      throw Error(ExitCode::spec,
                  fmt::format("the loss mixture learns the joint density of numbers, and {} has "
                              "fields: use gaussian or quantile for them",
                              targets_of(head)));
}

void check_detection(const DataRoles::Head& head, const LossConfig& loss, const DatasetInfo& info,
                     const DataRoles& roles) {
  if (loss.name != LossName::detection) return;
  if (!head.learns_fields())
    throw Error(
        ExitCode::spec,
        fmt::format("the loss detection learns boxes in the cells of a grid, and {} has numbers: name a "
                    "target field",
                    targets_of(head)));
  for (const DataRoles::Input& input : roles.inputs)
    if (!input.label && std::ranges::find(head.fields, input.part) != head.fields.end())
      throw Error(
          ExitCode::spec,
          fmt::format("the field {} is an input and the target of a detection: leave it out of 'inputs'",
                      input.name));
  const DataField& first = info.fields[roles.parts[head.fields.front()].field];
  const std::size_t axes = first.grid.size();
  std::int64_t channels = 0;
  for (const std::size_t part : head.fields) channels += info.fields[roles.parts[part].field].shape.channels;
  if (first.shape.voxels() > 1 && channels == static_cast<std::int64_t>(2 + 2 * axes)) return;
  throw Error(
      ExitCode::spec,
      fmt::format("the loss detection needs {} channels on a grid of {} axes: 1 where an object has its "
                  "centre, its class, its centre and its lengths along each axis; {} has {}",
                  2 + 2 * axes, axes, targets_of(head), channels));
}

// Every label that is no input.
std::vector<std::size_t> remaining_labels(const DataRoles& roles, const DatasetInfo& info) {
  std::vector<std::size_t> labels;
  for (std::size_t i = 0; i < info.labels.size(); ++i) {
    // Compares indices: a label may have the field's name.
    const bool is_input = std::any_of(roles.inputs.begin(), roles.inputs.end(),
                                      [i](const DataRoles::Input& input) { return input.label == i; });
    if (!is_input) labels.push_back(i);
  }
  return labels;
}

// Only inputs have noise: on a target it would change the truth.
void check_noise(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles) {
  if (config.augment.noise == 0) return;
  bool any = false;
  for (const DataRoles::Input& input : roles.inputs) {
    if (input.label || info.fields[roles.parts[input.part].field].shape.voxels() == 1) continue;
    if (roles.is_target(input.part))
      throw Error(ExitCode::spec,
                  fmt::format("the noise of 'augment' would change the target too: {} is input "
                              "and target; leave the noise out",
                              roles.parts[input.part].name));
    any = true;
  }
  if (!any)
    throw Error(ExitCode::spec, "the noise of 'augment' is for fields, and no input is one; leave it out");
}

}  // namespace

bool DataRoles::is_mask(std::size_t part) const {
  return std::any_of(heads.begin(), heads.end(), [part](const Head& head) {
    return std::find(head.masks.begin(), head.masks.end(), std::optional(part)) != head.masks.end();
  });
}

bool DataRoles::is_target(std::size_t part) const {
  return std::any_of(heads.begin(), heads.end(), [part](const Head& head) {
    return head.has_truth && std::find(head.fields.begin(), head.fields.end(), part) != head.fields.end();
  });
}

std::vector<std::string> channel_names(const std::string& name, const DataField& field) {
  if (field.shape.channels == 1) return {name};
  if (field.shape.voxels() == 1 && std::ssize(field.channels) == field.shape.channels) return field.channels;
  std::vector<std::string> names;
  for (std::int64_t c = 0; c < field.shape.channels; ++c) names.push_back(fmt::format("{}{}", name, c));
  return names;
}

// Every target that is no input.
static std::vector<std::string> remaining_names(const TrainConfig& config, const DatasetInfo& info) {
  std::vector<std::string> names = names_of(info, false);
  if (names.empty()) names = info.labels;
  std::erase_if(names, [&](const std::string& name) {
    return std::find(config.inputs.begin(), config.inputs.end(), name) != config.inputs.end();
  });
  return names;
}

TrainConfig completed(const TrainConfig& config, const DatasetInfo& info) {
  TrainConfig full = config;
  const bool from_labels = full.model.name == ModelName::decoder && !info.labels.empty();
  const bool to_itself = full.model.name == ModelName::autoencoder || full.model.name == ModelName::vae ||
                         full.model.name == ModelName::gan || full.model.name == ModelName::wae;
  if (full.inputs.empty()) {
    if (from_labels) {
      full.inputs = info.labels;
    } else {
      full.inputs = to_itself ? std::vector<std::string>{kField} : all_inputs(info);
    }
  }
  if (full.targets.empty() && full.heads.empty()) {
    if (from_labels || to_itself) {
      full.targets = {kField};
    } else if (info.labels.empty()) {
      full.targets = names_of(info, false);
    }
  }
  if (full.model.name == ModelName::cycle && full.targets.empty()) full.targets = remaining_names(full, info);
  if (is_composed(full.model.name)) return expanded(full, info);
  if (full.model.name == ModelName::automatic) full.model = default_model(automatic_model(full, info));
  return full;
}

ModelName network_name(const TrainConfig& asked, const TrainConfig& completed) {
  return is_composed(asked.model.name) ? asked.model.name : completed.model.name;
}

DataRoles roles_of(const TrainConfig& config, const DatasetInfo& info) {
  DataRoles roles;
  for (const std::string& name : config.inputs) add_input(roles, name, config, info);
  for (const HeadConfig& asked : heads_of(config)) {
    DataRoles::Head head;
    head.name = asked.name;
    head.constant = asked.constant;
    if (asked.constant) {
      roles.heads.push_back(std::move(head));
      continue;
    }
    head.has_truth = asked.like.empty();
    const std::vector<std::string> targets = head.has_truth ? asked.targets : std::vector{asked.like};
    for (const std::string& name : targets) add_target(roles, head, name, config, info);
    if (targets.empty()) head.labels = remaining_labels(roles, info);
    check_targets(head, config, info, roles);
    check_classes(head, asked.loss, info, roles);
    check_detection(head, asked.loss, info, roles);
    check_mixture(head, asked.loss, info, roles);
    roles.heads.push_back(std::move(head));
  }
  for (DataRoles::Head& head : roles.heads) {
    if (!head.has_truth && !head.learns_fields())
      throw Error(ExitCode::spec,
                  fmt::format("'like' of the head '{}' names a label; it takes a field", head.name));
    for (const std::size_t part : head.fields) {
      const auto mask = mask_of(roles.parts[part].field, info);
      head.masks.push_back(mask ? std::optional(part_of(roles, info.fields[*mask].name, *mask))
                                : std::nullopt);
    }
  }
  check_noise(config, info, roles);
  return roles;
}

namespace {

// Counts the classes of a detection's objects, from the range of the second channel.
std::int64_t count_object_classes(const LossConfig& loss, const DataRoles::Head& head,
                                  const DatasetInfo& info, const DataRoles& roles) {
  if (loss.classes > 0) return loss.classes;
  std::size_t channel = 1;
  for (const std::size_t part : head.fields) {
    const DataField& field = info.fields[roles.parts[part].field];
    const auto channels = static_cast<std::size_t>(field.shape.channels);
    if (channel >= channels) {
      channel -= channels;
      continue;
    }
    if (field.range.size() == channels) return count_classes(loss, field.range[channel], 1);
    break;
  }
  throw Error(ExitCode::spec,
              fmt::format("the data have no range of the class in {}: say how many there are, loss: {{name: "
                          "detection, classes: 3}}",
                          targets_of(head)));
}

TargetShape target_shape(const DataRoles::Head& head, const LossConfig& loss, const DatasetInfo& info,
                         const DataRoles& roles) {
  TargetShape shape;
  if (head.constant) {
    shape.truth = Truth::constant;
    shape.labels = {head.name};
    return shape;
  }
  if (!head.has_truth) shape.truth = Truth::none;
  for (const std::size_t part : head.fields) {
    const DataField& field = info.fields[roles.parts[part].field];
    std::vector<std::string> names = channel_names(roles.parts[part].name, field);
    // Names of numbers that another field has, too.
    const auto is_taken = [&](const std::string& name) {
      return std::ranges::find(shape.labels, name) != shape.labels.end();
    };
    if (std::ranges::any_of(names, is_taken))
      for (std::string& name : names) name = field.name + "/" + name;
    shape.labels.insert(shape.labels.end(), names.begin(), names.end());
    shape.cells = field.shape.voxels();
  }
  for (const std::size_t label : head.labels) shape.labels.push_back(info.labels[label]);
  if (is_classification(loss.name)) {
    shape.classes =
        count_classes(loss,
                      head.learns_fields() ? info.fields[roles.parts[head.fields.front()].field].range.at(0)
                                           : info.label_range[head.labels.front()],
                      2);
  }
  if (head.learns_fields()) shape.grid = info.fields[roles.parts[head.fields.front()].field].grid;
  if (loss.name == LossName::detection) {
    shape.classes = count_object_classes(loss, head, info, roles);
  }
  return shape;
}

// The shape of a head's output.
TensorShape output_shape(const DataRoles::Head& head, const LossConfig& loss, const TargetShape& targets,
                         const DatasetInfo& info, const DataRoles& roles) {
  if (head.constant) return kAnyShape;
  TensorShape shape;
  shape.channels = Objective(loss, targets).output_channels();
  if (head.learns_fields()) shape.extent = info.fields[roles.parts[head.fields.front()].field].shape.extent;
  return shape;
}

}  // namespace

std::vector<TargetShape> target_shapes(const TrainConfig& config, const DatasetInfo& info,
                                       const DataRoles& roles) {
  const std::vector<HeadConfig> heads = heads_of(config);
  std::vector<TargetShape> shapes;
  std::map<std::string, int> uses;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    shapes.push_back(target_shape(roles.heads[h], heads[h].loss, info, roles));
    for (const std::string& label : shapes.back().labels) ++uses[label];
  }
  for (std::size_t h = 0; h < heads.size(); ++h)
    for (std::string& label : shapes[h].labels)
      if (uses[label] > 1 && heads.size() > 1) label = heads[h].name + "/" + label;
  return shapes;
}

ModelTask task_of(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles) {
  ModelTask task;
  task.addresses = info.addresses;
  for (const DataRoles::Input& input : roles.inputs)
    task.inputs.push_back(
        {input.name, input.label ? TensorShape{} : info.fields[roles.parts[input.part].field].shape});
  for (const RandomInput& input : config.random_inputs)
    task.inputs.push_back({input.name, {input.size, {1, 1, 1}}});
  const std::vector<HeadConfig> heads = heads_of(config);
  const std::vector<TargetShape> targets = target_shapes(config, info, roles);
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const TensorShape shape = output_shape(roles.heads[h], heads[h].loss, targets[h], info, roles);
    if (h == 0) {
      task.output = shape;
      task.name = heads[h].name;
    } else {
      task.further.push_back({heads[h].name, shape});
    }
    if (!heads[h].name.empty())
      task.layers.push_back(heads[h].output.empty() ? heads[h].name : heads[h].output);
  }
  return task;
}

void complete_constants(std::vector<TargetShape>& targets, const ModelGraph& graph) {
  for (std::size_t h = 0; h < targets.size(); ++h) {
    if (targets[h].truth != Truth::constant) continue;
    targets[h].cells = graph.shape_of(graph.outputs[graph.output_of_head(h, targets.size())].value).count();
  }
}

namespace {

// The user's metrics for each head: those of single values for all heads of numbers, the others for the head
// that has their targets.
std::vector<std::vector<MetricConfig>> metrics_of_heads(const TrainConfig& config,
                                                        std::span<const TargetShape> targets) {
  const std::vector<HeadConfig> configs = heads_of(config);
  std::vector<std::vector<MetricConfig>> metrics(configs.size());
  for (const MetricConfig& metric : config.metrics) {
    const auto formula =
        metric.file.empty() ? std::optional(target_formula(metric.formula, "metric")) : std::nullopt;
    std::vector<std::string> labels;
    bool fits = false;
    for (std::size_t h = 0; h < configs.size(); ++h) {
      if (kind_of(configs[h].loss.name) != TargetKind::numbers || targets[h].truth != Truth::data) continue;
      labels.insert(labels.end(), targets[h].labels.begin(), targets[h].labels.end());
      if (formula && !TargetFormula::fits(*formula, targets[h].labels)) continue;
      metrics[h].push_back(metric);
      fits = true;
    }
    if (!fits)
      throw CommonError(ExitCode::spec,
                        fmt::format("the metric '{}' is '{}', which needs targets that no head has; those of "
                                    "numbers are {}",
                                    metric.name, metric.formula, text::join(labels, ", ")));
  }
  return metrics;
}

}  // namespace

Heads network_heads(const TrainConfig& config, std::vector<TargetShape> targets, const ModelGraph& graph,
                    const ModuleScores& modules) {
  const std::vector<HeadConfig> configs = heads_of(config);
  const std::size_t further = graph.outputs.size() - configs.size();
  const auto count = [&](std::size_t i) { return graph.shape_of(graph.outputs[i].value).count(); };
  if (further != 0 && (further != 2 || count(1) != count(2))) {
    throw Error(ExitCode::spec,
                fmt::format("a network has one output for each head, and may have two more: the mean and the "
                            "logarithm of the variance of a latent vector; 'outputs' names {} for {} head{}",
                            graph.outputs.size(), configs.size(), configs.size() == 1 ? "" : "s"));
  }
  if (further == 2) targets.front().latent = count(1);
  complete_constants(targets, graph);
  const std::vector<std::vector<MetricConfig>> metrics = metrics_of_heads(config, targets);
  std::vector<Heads::Head> heads;
  for (std::size_t h = 0; h < configs.size(); ++h)
    heads.push_back({configs[h].name, Objective(configs[h].loss, std::move(targets[h]), metrics[h], modules),
                     configs[h].weight});
  return Heads(std::move(heads));
}

}  // namespace wflow::trainer
