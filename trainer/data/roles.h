// SPDX-License-Identifier: Apache-2.0
// Which fields and labels of a data set a network reads and which it is to give. The one place that knows how
// names in `inputs` and `targets` map to what a sample has.
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
  // A field of the data that is read, as input, as target or as both.
  struct Part {
    std::string name;  // as the configuration calls it first
    std::size_t field = 0;
  };
  struct Input {
    std::string name;
    std::optional<std::size_t> label;  // absent: a field
    std::size_t part = 0;              // of a field
  };
  std::vector<Part> parts;  // each field once
  std::vector<Input> inputs;
  std::vector<std::size_t> field_targets;  // parts; of the same cells
  std::vector<std::size_t> label_targets;  // where no field is learned
  // Of each field target the part that is its mask (`pad` of convert: makes one), where the data have one:
  // 0 where a cell is padding, which counts nowhere.
  std::vector<std::optional<std::size_t>> masks;
  bool is_mask(std::size_t part) const;

  // Whether noise on a part changes what is read and not what is learned.
  bool takes_noise(std::size_t part) const;
  bool field_target() const { return !field_targets.empty(); }
};

// By name; kField is the first input, whatever it is called.
std::optional<std::size_t> label_called(const std::string& name, const DatasetInfo& info);
std::optional<std::size_t> field_called(const std::string& name, const DatasetInfo& info);

// The mask of a padded field: NAME_mask of the same cells and role.
std::optional<std::size_t> mask_of(std::size_t field, const DatasetInfo& info);

// How the channels of a field are called among targets: by its name, with numbers where it has several.
std::vector<std::string> channel_names(const std::string& name, const DataField& field);

// Replaces what depends on the data: `model: automatic`, inputs and targets that were left out.
TrainConfig completed(const TrainConfig& config, const DatasetInfo& info);

// Of a completed configuration. Error{spec} with a suggestion for an unknown name.
DataRoles roles_of(const TrainConfig& config, const DatasetInfo& info);
TargetShape target_shape(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles);
ModelTask task_of(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles);

// The objective of a network with these outputs: three are a variational one (output, latent mean and
// logarithm of the variance). Error{spec} where there are two or more than three.
Objective objective_of(const TrainConfig& config, TargetShape targets, const ModelGraph& graph);

// What a training can't be meant to do with its data, found before the first step.
struct SplitSizes {
  std::size_t train = 0;
  std::size_t validation = 0;
  std::size_t test = 0;
};

// A sentence each: what is probably a mistake, and what to do. Error{spec} where it is one for certain. Of a
// completed configuration.
std::vector<std::string> check_data(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles,
                                    const SplitSizes& sizes);

}  // namespace wflow::trainer
