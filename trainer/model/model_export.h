// SPDX-License-Identifier: Apache-2.0
// The trained network as a TorchScript file that Python's torch.jit.load opens without any of our code.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/transform.h"
#include "trainer/model/flat_state.h"

namespace wflow::trainer {

// What stands between raw data and the network, and between the network and physical units.
struct ExportedUnits {
  TransformConfig transform;  // of the fields whose scale says so
  Normalisation normalisation;
  LossName loss = LossName::mse;
  bool field_target = false;  // the targets are the field's channels
  std::vector<std::string> targets;
  bool target_transformed = true;  // of a field target: the transform is to be undone
  // Of a normalised value of a target (or of its channel); a gaussian loss of a transformed field keeps the
  // transformed units.
  double physical(double value, std::size_t target) const;
  // Whether that is more than a factor and an offset.
  bool undoes_transform() const {
    return field_target && target_transformed && loss != LossName::gaussian &&
           transform.name != TransformName::none;
  }
  std::vector<std::string> without_channels = {};  // inputs whose stored values have no axis of channels
  // Of each input the names of its numbers, which a table has in columns; of a field, or of one number, none.
  std::vector<std::vector<std::string>> columns = {};
  // Of each input the least and the greatest of the training samples, a channel; empty where they are not known.
  std::vector<std::vector<std::pair<double, double>>> ranges = {};
  std::vector<std::int64_t> target_grid = {};  // of a field target: its stored axes but that of channels
  bool target_has_channels = true;             // and whether it has one
  // Whether an input is normalised in float64: where float32 would lose what varies.
  bool input_needs_double(const std::string& name, std::size_t number) const;
  // Whether the outputs are float64, for the same reason. Not of classes.
  bool output_needs_double() const;
};

// The module's forward as TorchScript source: raw inputs in order of the graph's (fields [N, C, D, H, W]
// or as they are stored, numbers [N, C]) -> physical targets [N, L] or [N, C, D, H, W], with transform,
// normalisation and de-normalisation inside. gaussian: means, then standard deviations; classes:
// probabilities. Inputs may be of any number type; the outputs are float32, or float64 where float32 can't
// hold them (ExportedUnits::output_needs_double).
std::string torchscript_source(const ModelGraph& graph, const ExportedUnits& units);

// Writes the module; `path` is published whole. Its attributes `inputs`, `columns`, `targets`, `loss`,
// `units` and `wflow` name the inputs, their numbers, the outputs, what they were trained with, their units
// (physical or transformed) and the maker; `target_grid` and `target_has_channels` say what shape the data
// have of a field that is predicted; `shapes` ([C, D, H, W]) and `ranges` (least and greatest of each channel in the
// training samples) are of the inputs.
void export_model(const ModelGraph& graph, const FlatState& state, const ExportedUnits& units,
                  const std::string& path);

// Several exported models as one TorchScript file.
// Of files that export_model() wrote, trained with `loss` on the same data. The module takes what they take.
// It gives the members' means and then their standard deviations, as a model with a gaussian loss does
// (attribute `loss`); of classes it gives the mean probabilities. Its method `members` gives what each member
// says, one behind the other along a first axis. `path` is published whole.
void export_ensemble(const std::vector<std::filesystem::path>& members, LossName loss,
                     const std::filesystem::path& path);

// The trained network as an ONNX file, for runtimes without libtorch.
inline constexpr int kOnnxVersion = 8;  // IR version and operator set of Debian 12's libonnx (1.12)
inline constexpr int kOnnxOperators = 17;

// The file's bytes: the same function as model.pt, raw data -> physical units. Inputs are float32, by name:
// fields [N, C, D, H, W] of the training's size, numbers [N, 1]; the output is `prediction`. Metadata
// `targets` and `inputs` are JSON lists. Only of networks that fit.
std::string onnx_file(const ModelGraph& graph, const FlatState& state, const ExportedUnits& units);

// A protocol buffer has 2 GiB at most.
bool fits_onnx(const ModelGraph& graph);

}  // namespace wflow::trainer
