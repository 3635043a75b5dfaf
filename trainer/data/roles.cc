// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

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

std::int64_t count_classes(const LossConfig& loss, const LabelRange& range) {
  if (loss.classes > 0) return loss.classes;
  const double most = std::round(range.most);
  if (range.least < -0.5 || most > kMostClasses) {
    throw Error(
        ExitCode::spec,
        fmt::format(
            "the loss {} needs class numbers from 0 on, and the training data have values from {} to {}",
            name_of(loss.name), range.least, range.most));
  }
  return std::max<std::int64_t>(2, static_cast<std::int64_t>(most) + 1);
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
  const bool gives_field =
      roles.field_target() && info.fields[roles.parts[roles.field_targets.front()].field].shape.voxels() > 1;
  if (gives_field) return grids.empty() ? ModelName::decoder : ModelName::unet;
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

void add_target(DataRoles& roles, const std::string& name, const TrainConfig& config,
                const DatasetInfo& info) {
  const auto field = field_called(name, info);
  const auto label = name == kField ? std::nullopt : label_called(name, info);
  if (label) {
    roles.label_targets.push_back(*label);
  } else if (field && info.fields[*field].first_label) {
    for (std::int64_t k = 0; k < info.fields[*field].shape.channels; ++k)
      roles.label_targets.push_back(*info.fields[*field].first_label + static_cast<std::size_t>(k));
  } else if (field) {
    roles.field_targets.push_back(part_of(roles, name, *field));
  } else {
    throw unknown(name, "targets", config, info);
  }
}

void check_targets(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles) {
  if (roles.field_target() && !roles.label_targets.empty()) {
    throw Error(ExitCode::spec,
                fmt::format("'targets' names the field {} and labels; a network learns one or the other",
                            roles.parts[roles.field_targets.front()].name));
  }
  if (!roles.field_target() && roles.label_targets.empty()) {
    if (info.labels.empty())
      throw Error(ExitCode::data,
                  fmt::format("{}/manifest.json names no labels and no target fields; the network would have "
                              "nothing to learn: name 'targets' in the convert: block",
                              config.data));
    throw Error(ExitCode::spec,
                "every label of the data is an input, so that nothing is left to learn: name 'targets'");
  }
  for (const std::size_t part : roles.field_targets) {
    const DataField& first = info.fields[roles.parts[roles.field_targets.front()].field];
    const DataField& field = info.fields[roles.parts[part].field];
    if (field.shape.extent == first.shape.extent) continue;
    throw Error(ExitCode::spec,
                fmt::format("the targets {} ({}) and {} ({}) are on different grids; a network learns fields "
                            "of one grid: name one of them in 'targets'",
                            first.name, text_of(first.shape), field.name, text_of(field.shape)));
  }
}

// Only inputs have noise: on a target it would change the truth.
void check_noise(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles) {
  if (config.augment.noise == 0) return;
  bool any = false;
  for (const DataRoles::Input& input : roles.inputs) {
    if (input.label || info.fields[roles.parts[input.part].field].shape.voxels() == 1) continue;
    if (!roles.takes_noise(input.part))
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
  return std::find(masks.begin(), masks.end(), std::optional(part)) != masks.end();
}

bool DataRoles::takes_noise(std::size_t part) const {
  return std::find(field_targets.begin(), field_targets.end(), part) == field_targets.end();
}

std::vector<std::string> channel_names(const std::string& name, const DataField& field) {
  if (field.shape.channels == 1) return {name};
  std::vector<std::string> names;
  for (std::int64_t c = 0; c < field.shape.channels; ++c) names.push_back(fmt::format("{}{}", name, c));
  return names;
}

TrainConfig completed(const TrainConfig& config, const DatasetInfo& info) {
  TrainConfig full = config;
  const bool from_labels = full.model.name == ModelName::decoder && !info.labels.empty();
  const bool to_itself = full.model.name == ModelName::autoencoder || full.model.name == ModelName::vae;
  if (full.inputs.empty()) {
    if (from_labels) {
      full.inputs = info.labels;
    } else {
      full.inputs = to_itself ? std::vector<std::string>{kField} : all_inputs(info);
    }
  }
  if (full.targets.empty()) {
    if (from_labels || to_itself) {
      full.targets = {kField};
    } else if (info.labels.empty()) {
      full.targets = names_of(info, false);
    }
  }
  if (full.model.name == ModelName::automatic) full.model = default_model(automatic_model(full, info));
  return full;
}

DataRoles roles_of(const TrainConfig& config, const DatasetInfo& info) {
  DataRoles roles;
  for (const std::string& name : config.inputs) add_input(roles, name, config, info);
  for (const std::string& name : config.targets) add_target(roles, name, config, info);
  if (config.targets.empty()) {
    for (std::size_t i = 0; i < info.labels.size(); ++i) {
      // Compares indices: a label may have the field's name.
      const bool is_input = std::any_of(roles.inputs.begin(), roles.inputs.end(),
                                        [i](const DataRoles::Input& input) { return input.label == i; });
      if (!is_input) roles.label_targets.push_back(i);
    }
  }
  check_targets(config, info, roles);
  for (const std::size_t part : std::vector<std::size_t>(roles.field_targets)) {
    const auto mask = mask_of(roles.parts[part].field, info);
    roles.masks.push_back(mask ? std::optional(part_of(roles, info.fields[*mask].name, *mask))
                               : std::nullopt);
  }
  check_noise(config, info, roles);
  if (is_classification(config.loss.name)) {
    std::size_t targets = roles.label_targets.size();
    for (const std::size_t part : roles.field_targets)
      targets += static_cast<std::size_t>(info.fields[roles.parts[part].field].shape.channels);
    if (targets != 1) {
      throw Error(ExitCode::spec,
                  fmt::format("the loss {} learns the classes of one target, and there are {}: name one in "
                              "'targets'",
                              name_of(config.loss.name), targets));
    }
  }
  return roles;
}

TargetShape target_shape(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles) {
  TargetShape shape;
  for (const std::size_t part : roles.field_targets) {
    const DataField& field = info.fields[roles.parts[part].field];
    const std::vector<std::string> names = channel_names(roles.parts[part].name, field);
    shape.labels.insert(shape.labels.end(), names.begin(), names.end());
    shape.cells = field.shape.voxels();
  }
  for (const std::size_t label : roles.label_targets) shape.labels.push_back(info.labels[label]);
  if (is_classification(config.loss.name)) {
    const bool field = roles.field_target();
    shape.classes = count_classes(
        config.loss, field ? info.fields[roles.parts[roles.field_targets.front()].field].range.at(0)
                           : info.label_range[roles.label_targets.front()]);
  }
  return shape;
}

ModelTask task_of(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles) {
  ModelTask task;
  for (const DataRoles::Input& input : roles.inputs)
    task.inputs.push_back(
        {input.name, input.label ? TensorShape{} : info.fields[roles.parts[input.part].field].shape});
  task.output.channels = Objective(config.loss, target_shape(config, info, roles)).output_channels();
  if (roles.field_target())
    task.output.extent = info.fields[roles.parts[roles.field_targets.front()].field].shape.extent;
  return task;
}

Objective objective_of(const TrainConfig& config, TargetShape targets, const ModelGraph& graph) {
  if (graph.outputs.size() > 1) {
    const auto count = [&](std::size_t i) { return graph.shape_of(graph.outputs[i].value).count(); };
    if (graph.outputs.size() != 3 || count(1) != count(2)) {
      throw Error(
          ExitCode::spec,
          fmt::format(
              "a network has one output, or three: what is learned, and the mean and the logarithm of the "
              "variance of a latent vector; 'outputs' names {}",
              graph.outputs.size()));
    }
    targets.latent = count(1);
  }
  return {config.loss, std::move(targets)};
}

}  // namespace wflow::trainer
