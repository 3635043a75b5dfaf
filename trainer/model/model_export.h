// SPDX-License-Identifier: Apache-2.0
// The trained network as a file: TorchScript, which Python's torch.jit.load opens without wflow, and ONNX.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/transform.h"
#include "trainer/model/flat_state.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// The conversion of one head's output to physical units.
struct OutputUnits {
  std::string name = {};  // of the head; empty where there is one only
  LossName loss = LossName::mse;
  bool fields = false;  // the targets are the channels of fields
  std::vector<std::string> targets = {};
  std::vector<double> mean = {};  // of each target
  std::vector<double> deviation = {};
  TransformConfig transform = {};       // of the targets; the export undoes it
  std::vector<std::int64_t> grid = {};  // fields: the stored axes without the channels
  bool has_channels = true;             // and whether there is an axis of channels
  // quantile: the outputs are the first quantile of all targets, then the second. `mean` and `deviation` are
  // repeated for each.
  std::vector<double> quantiles = {};
  std::int64_t classes = 0;  // detection: of the objects

  // The physical value for a normalised value of a target (or of its channel). A gaussian loss on a
  // transformed field keeps the transformed units.
  double physical(double value, std::size_t target) const;
  // Repeats the targets' scales for each of the quantiles.
  void use_quantiles(const std::vector<double>& values);
  // mixture: adds the scales of the density's values, which are then those of the density in physical units
  // (MixtureDensity).
  void use_density(std::size_t components);
  // True if physical() is more than a factor and an offset.
  bool undoes_transform() const {
    return loss != LossName::gaussian && transform.name != TransformName::none;
  }
  bool keeps_transform() const { return loss == LossName::gaussian && transform.name != TransformName::none; }
  // True if the outputs are float64, because float32 would lose their variation. Never for classes.
  bool needs_double() const;
};

// The conversion from raw data to the network's inputs, and from its outputs to physical units.
struct ExportedUnits {
  TransformConfig transform;  // acts on fields with FieldScale::transformed
  Normalisation normalisation;
  std::vector<OutputUnits> outputs;                // one for each head
  std::vector<std::string> without_channels = {};  // inputs whose stored values have no axis of channels
  // Per input the names of its numbers, which are columns of a table; empty for a field and for one number.
  std::vector<std::vector<std::string>> columns = {};
  // Per input and channel the least and the greatest value of the training samples; empty if not known.
  std::vector<std::vector<std::pair<double, double>>> ranges = {};
  std::vector<std::string> random_inputs = {};  // those that the training draws
  std::vector<MetricConfig> metrics = {};       // the user's formulas; TorchScript files are left out
  // True if an input must be normalised in float64, because float32 would lose its variation.
  bool input_needs_double(const std::string& name, std::size_t number) const;
};

// TorchScript source of the module's forward(): raw inputs in the graph's order (fields [N, C, D, H, W] or as
// stored, numbers [N, C]) -> physical targets [N, L] or [N, C, D, H, W]. It includes transform, normalisation
// and de-normalisation. gaussian: means, then standard deviations; classes: probabilities; detection: the
// probability of an object, those of its classes, its centre and its lengths. Inputs may have any number
// type; the outputs are float32, or float64 if float32 can't hold them (OutputUnits::needs_double). With
// several heads forward() returns a tuple of them. A second method, layers(), returns the values of all
// layers by their names, as the network computes them.
std::string torchscript_source(const ModelGraph& graph, const ExportedUnits& units);

// Writes the module; `path` is published whole. The attributes `inputs`, `columns`, `targets`, `loss`,
// `units` and `wflow` are the inputs, the names of their numbers, the outputs, the loss of the training, the
// outputs' units (physical or transformed) and the version of wflow. `target_grid` and `target_has_channels`
// are the stored shape of a predicted field; `shapes` ([C, D, H, W]) and `ranges` (least and greatest value
// of each channel in the training samples) describe the inputs; `random_inputs` names those that a training
// draws from a normal distribution; `metric_names` and `metric_formulas` are the user's metrics, if there are
// any. With several heads, `heads` has their names,
// `targets` the outputs of all, and `head_targets`, `head_losses`, `head_units`, `head_grids` and
// `head_has_channels` describe each of them in place of `loss`, `units` and the stored shape.
void export_model(const ModelGraph& graph, const FlatState& state, const ExportedUnits& units,
                  const std::filesystem::path& path);

// export_model() of a network that is a TorchScript module of the user's: by libtorch.
void export_module(const ModelGraph& graph, const FlatState& state, const ExportedUnits& units,
                   const std::filesystem::path& path);

// Writes several exported models as one TorchScript file. `members` are files of export_model(), trained on
// the same data; `losses` are those of their heads. The module has the same inputs. It returns the members'
// means and then their standard deviations, as a model with a gaussian loss does (attribute `loss`); for
// classes, the mean probabilities; for mixture, the mean of the densities; with several heads, a tuple of
// these. Its method `members` returns the outputs of each member, stacked along a first axis. `path` is
// published whole.
void export_ensemble(const std::vector<std::filesystem::path>& members, std::span<const LossConfig> losses,
                     const std::filesystem::path& path);

// An ONNX file is for runtimes without libtorch.
inline constexpr int kOnnxVersion = 8;  // IR version and operator set of Debian 12's libonnx (1.12)
inline constexpr int kOnnxOperators = 17;

// Writes the same function as model.pt, raw data -> physical units; `path` is published whole. Inputs are
// float32, by name: fields [N, C, D, H, W] of the training's size, numbers [N, 1]; the output is
// `prediction`, or with several heads an output each, with its name. Metadata `targets` and `inputs` are JSON
// lists. The network must fit (fits_onnx).
void export_onnx(const ModelGraph& graph, const FlatState& state, const ExportedUnits& units,
                 const std::filesystem::path& path);

// False if the file would be larger than 2 GiB, the limit of protocol buffers, or for a module.
bool fits_onnx(const ModelGraph& graph);

// The members of an exported module besides its network, for export_model() and for export_module().

// Scale of an input or an output; kept in float64 where `wide`. `shape` broadcasts over samples and cells.
struct ModuleScale {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<double> values;
  bool wide = false;
};

using ModuleAttribute =
    std::variant<bool, std::string, std::vector<bool>, std::vector<std::int64_t>, std::vector<double>,
                 std::vector<std::string>, std::vector<std::vector<std::int64_t>>,
                 std::vector<std::vector<double>>, std::vector<std::vector<std::string>>>;

struct ModuleMembers {
  std::vector<ModuleScale> scales;
  std::vector<std::pair<std::string, ModuleAttribute>> attributes;
};

// The members that export_model() adds to the network: normalisation, and the description of inputs and
// outputs.
ModuleMembers members_of(const ModelGraph& graph, const ExportedUnits& units);

// The member of the module with a parameter, buffer or constant (torchscript_source.cc), and the expression
// for it: "p_dense1_weight", "self.p_dense1_weight".
std::string member_of(const std::string& name);
std::string attribute_of(const std::string& name);

// The lines that compute a recurrent, attention or spectral layer; the last one sets `value`. Empty for other
// kinds. `inputs`: the values that the layer reads.
std::vector<std::string> sequence_lines(const Layer& layer, const std::string& value,
                                        const std::vector<std::string>& inputs);

}  // namespace wflow::trainer
