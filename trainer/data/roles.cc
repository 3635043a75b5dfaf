// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kSmallestField = 8;  // cells along an axis that convolutions are worth
constexpr double kMostClasses = 1e6;

std::size_t find_label(const std::string& name, const char* key, const TrainConfig& config,
                       const DatasetInfo& info) {
  const auto at = std::find(info.labels.begin(), info.labels.end(), name);
  if (at == info.labels.end()) {
    throw Error(
        ExitCode::spec,
        fmt::format("the data in {} has no label '{}' for '{}'; it has {} and the field {}{}", config.data,
                    name, key, text::join(info.labels, ", "), kField, text::suggestion(name, info.labels)));
  }
  return static_cast<std::size_t>(at - info.labels.begin());
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

}  // namespace

bool DataRoles::reads_field() const {
  return field_target ||
         std::any_of(inputs.begin(), inputs.end(), [](const Input& input) { return !input.label; });
}

TrainConfig completed(const TrainConfig& config, const DatasetInfo& info) {
  TrainConfig full = config;
  const bool from_labels = full.model.name == ModelName::decoder;
  const bool to_itself = full.model.name == ModelName::autoencoder || full.model.name == ModelName::vae;
  if (full.inputs.empty()) full.inputs = from_labels ? info.labels : std::vector<std::string>{kField};
  if (full.targets.empty() && (from_labels || to_itself)) full.targets = {kField};
  if (full.model.name == ModelName::automatic) {
    const bool field = std::find(full.inputs.begin(), full.inputs.end(), kField) != full.inputs.end();
    full.model = default_model(field && full.inputs.size() == 1 ? model_for(info.shape) : ModelName::mlp);
  }
  return full;
}

DataRoles roles_of(const TrainConfig& config, const DatasetInfo& info) {
  DataRoles roles;
  for (const std::string& name : config.inputs) {
    if (name == kField) {
      roles.inputs.push_back({name, std::nullopt});
    } else {
      roles.inputs.push_back({name, find_label(name, "inputs", config, info)});
    }
  }
  for (const std::string& name : config.targets) {
    if (name == kField) {
      roles.field_target = true;
    } else {
      roles.label_targets.push_back(find_label(name, "targets", config, info));
    }
  }
  if (roles.field_target && !roles.label_targets.empty()) {
    throw Error(
        ExitCode::spec,
        fmt::format("'targets' names the field {} and labels; a network learns one or the other", kField));
  }
  if (config.targets.empty()) {
    for (std::size_t i = 0; i < info.labels.size(); ++i) {
      // By number: a label may have the field's name.
      const bool is_input = std::any_of(roles.inputs.begin(), roles.inputs.end(),
                                        [i](const DataRoles::Input& input) { return input.label == i; });
      if (!is_input) roles.label_targets.push_back(i);
    }
  }
  if (!roles.field_target && roles.label_targets.empty()) {
    throw Error(ExitCode::spec,
                "every label of the data is an input, so that nothing is left to learn: name 'targets'");
  }
  if (is_classification(config.loss.name)) {
    const std::size_t targets =
        roles.field_target ? static_cast<std::size_t>(info.shape.channels) : roles.label_targets.size();
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
  if (roles.field_target) {
    for (std::int64_t c = 0; c < info.shape.channels; ++c)
      shape.labels.push_back(info.shape.channels == 1 ? kField : fmt::format("{}{}", kField, c));
    shape.cells = info.shape.voxels();
  } else {
    for (const std::size_t label : roles.label_targets) shape.labels.push_back(info.labels[label]);
  }
  if (is_classification(config.loss.name)) {
    shape.classes =
        count_classes(config.loss, roles.field_target ? info.field_range.at(0)
                                                      : info.label_range[roles.label_targets.front()]);
  }
  return shape;
}

ModelTask task_of(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles) {
  ModelTask task;
  for (const DataRoles::Input& input : roles.inputs)
    task.inputs.push_back({input.name, input.label ? TensorShape{} : info.shape});
  task.output.channels = Objective(config.loss, target_shape(config, info, roles)).output_channels();
  if (roles.field_target) task.output.extent = info.shape.extent;
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
