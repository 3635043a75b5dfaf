// SPDX-License-Identifier: Apache-2.0
// A TorchScript file that runs: one that export_model() wrote, or from another program. Includes no header of
// libtorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace wflow::trainer {

struct ModelArray {
  std::vector<std::int64_t> shape;  // the first axis counts the samples
  std::vector<double> values;       // the last axis is contiguous
  bool wide = false;                // outputs: the model returns float64
};

class ExportedModel {
 public:
  // Error{data} if it is not a TorchScript file.
  explicit ExportedModel(const std::filesystem::path& file);
  ~ExportedModel();
  ExportedModel(const ExportedModel&) = delete;
  ExportedModel& operator=(const ExportedModel&) = delete;

  // Names as export_model() stores them; empty in files of other programs.
  const std::vector<std::string>& inputs() const;
  // Per input the names of its numbers. Empty for a field, for an input that is one number, and in files that
  // store none.
  const std::vector<std::vector<std::string>>& columns() const;
  const std::vector<std::string>& targets() const;
  // Loss of the training ("mse", "gaussian", ...), which defines the outputs; empty in files of other
  // programs.
  const std::string& loss() const;
  // With the loss quantile: the outputs are the first quantile of all targets, then the second.
  const std::vector<double>& quantiles() const;
  // Per input: [C, D, H, W], and for each channel the least and the greatest value of the training samples.
  // Empty in files that store none.
  const std::vector<std::vector<std::int64_t>>& shapes() const;
  const std::vector<std::vector<double>>& ranges() const;
  // For a predicted field: its stored axes without the channels, and whether it has an axis of channels.
  // Empty in files that store none.
  const std::vector<std::int64_t>& target_grid() const;
  bool target_has_channels() const;
  // "transformed" if the outputs are transformed targets (a gaussian loss on a field).
  const std::string& units() const;

  // One forward pass, without gradients. Files of other programs get float32, as torch's own modules expect.
  // Error{data} with libtorch's reason if the arrays do not fit the model, or if its result is not one tensor
  // with a row per sample.
  ModelArray run(std::span<const ModelArray> inputs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wflow::trainer
