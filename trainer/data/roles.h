// SPDX-License-Identifier: Apache-2.0
// Fields and labels of a data set as inputs and targets of a network. The one place that maps the names in
// `inputs` and `targets` to the contents of a sample.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/sample_source.h"
#include "trainer/model/model_graph.h"
#include "trainer/training/objective.h"

namespace wflow::trainer {

struct DataRoles {
  // A field that is read: as input, as target or as both.
  struct Part {
    std::string name;  // its first name in the configuration
    std::size_t field = 0;
  };
  struct Input {
    std::string name;
    std::optional<std::size_t> label;  // absent: a field
    std::size_t part = 0;              // for a field
  };
  std::vector<Part> parts;  // every field once
  std::vector<Input> inputs;
  std::vector<std::size_t> field_targets;  // parts, all with the same cells
  std::vector<std::size_t> label_targets;  // empty if a field is the target
  // For each field target the part with its mask, if the data have one (`pad` of `convert:` writes it). The
  // mask is 0 where a cell is padding, which loss and errors ignore.
  std::vector<std::optional<std::size_t>> masks;
  bool is_mask(std::size_t part) const;

  // True if noise on a part changes only inputs, not targets.
  bool takes_noise(std::size_t part) const;
  bool field_target() const { return !field_targets.empty(); }
};

// Finds a field by name; kField is the first input, whatever its name.
std::optional<std::size_t> label_called(const std::string& name, const DatasetInfo& info);
std::optional<std::size_t> field_called(const std::string& name, const DatasetInfo& info);

// Finds the mask of a padded field: NAME_mask, with the same cells and role.
std::optional<std::size_t> mask_of(std::size_t field, const DatasetInfo& info);

// Names of a field's channels as targets: its name, with numbers if there are several.
std::vector<std::string> channel_names(const std::string& name, const DataField& field);

// Fills in the settings that depend on the data: `model: automatic`, inputs and targets that were left out.
TrainConfig completed(const TrainConfig& config, const DatasetInfo& info);

// `config` must be completed. Error{spec} with a suggestion for an unknown name.
DataRoles roles_of(const TrainConfig& config, const DatasetInfo& info);
TargetShape target_shape(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles);
ModelTask task_of(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles);

// The objective for the outputs of the network: three outputs are a variational network (output, latent mean
// and logarithm of the variance). Error{spec} for two or more than three.
Objective objective_of(const TrainConfig& config, TargetShape targets, const ModelGraph& graph);

// Sizes of the splits, for check_data().
struct SplitSizes {
  std::size_t train = 0;
  std::size_t validation = 0;
  std::size_t test = 0;
};

// Checks a completed configuration against its data before the first step. Returns one sentence for each
// probable mistake, with the remedy. Error{spec} for a certain one.
std::vector<std::string> check_data(const TrainConfig& config, const DatasetInfo& info,
                                    const DataRoles& roles, const SplitSizes& sizes);

}  // namespace wflow::trainer
