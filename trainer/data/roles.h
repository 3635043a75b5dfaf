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
#include "trainer/training/heads.h"

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
  // The targets of one head: fields of one grid, or labels.
  struct Head {
    std::string name;                 // empty where there is one head only
    std::vector<std::size_t> fields;  // parts, all with the same cells
    std::vector<std::size_t> labels;  // empty if fields are the targets
    // For each field the part with its mask, if the data have one (`pad` of `convert:` writes it). The mask
    // is 0 where a cell is padding, which loss and errors ignore.
    std::vector<std::optional<std::size_t>> masks;
    std::optional<double> constant = {};  // in place of targets
    bool has_truth = true;                // false: `fields` only give the output's units
    bool learns_fields() const { return !fields.empty(); }
  };
  std::vector<Part> parts;  // every field once
  std::vector<Input> inputs;
  std::vector<Head> heads;  // at least one
  bool is_mask(std::size_t part) const;
  bool is_target(std::size_t part) const;
};

// Finds a field by name; kField is the first input, whatever its name.
std::optional<std::size_t> label_called(const std::string& name, const DatasetInfo& info);
std::optional<std::size_t> field_called(const std::string& name, const DatasetInfo& info);

// Finds the mask of a padded field: NAME_mask, with the same cells and role.
std::optional<std::size_t> mask_of(std::size_t field, const DatasetInfo& info);

// Names of a field's channels as targets: the data's own names of numbers; else the field's name, with
// numbers if there are several.
std::vector<std::string> channel_names(const std::string& name, const DataField& field);

// Fills in the settings that depend on the data: `model: automatic`, inputs and targets that were left out.
TrainConfig completed(const TrainConfig& config, const DatasetInfo& info);
// The network's name for the user: that which they have written, or that which completed() has chosen.
ModelName network_name(const TrainConfig& asked, const TrainConfig& completed);

// `config` must be completed. Error{spec} with a suggestion for an unknown name.
DataRoles roles_of(const TrainConfig& config, const DatasetInfo& info);
// One for each head. A label that several heads learn has the name HEAD/LABEL.
std::vector<TargetShape> target_shapes(const TrainConfig& config, const DatasetInfo& info,
                                       const DataRoles& roles);
// Sets the shapes of heads that are compared with constants, which are those of the network's outputs.
void complete_constants(std::vector<TargetShape>& targets, const ModelGraph& graph);
ModelTask task_of(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles);

// The heads for the outputs of the network: one output a head, in their order; behind the first one may
// stand the mean and the logarithm of the variance of a latent vector (a variational network). Error{spec}
// for other numbers of outputs.
Heads network_heads(const TrainConfig& config, std::vector<TargetShape> targets, const ModelGraph& graph,
                    const ModuleScores& modules);

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

// Networks by name that are made of several parts with losses of their own: gan, wae, cycle,
// semi_supervised and inference. Each name stands for layers, heads and updates that a user may write too;
// train.yaml of a run has them.

// The layer of the network inference that has the embedding of an observation.
inline constexpr const char* kObservationLayer = "observation";

bool is_composed(ModelName name);

// The configuration with the lists in place of the name. Error{spec} if the data do not fit.
TrainConfig expanded(const TrainConfig& config, const DatasetInfo& info);

}  // namespace wflow::trainer
