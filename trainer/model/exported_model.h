// SPDX-License-Identifier: Apache-2.0
// A TorchScript file as it is used: one that export_model() wrote, or anybody's. Nothing of libtorch shows
// here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace wflow::trainer {

struct ModelArray {
  std::vector<std::int64_t> shape;  // the first axis is that of the samples
  std::vector<double> values;       // the last axis is contiguous
  bool wide = false;                // of an output: the model gives float64
};

class ExportedModel {
 public:
  // Error{data} where it is no TorchScript file.
  explicit ExportedModel(const std::filesystem::path& file);
  ~ExportedModel();
  ExportedModel(const ExportedModel&) = delete;
  ExportedModel& operator=(const ExportedModel&) = delete;

  // Names, as export_model() notes them; none in a file of another maker.
  const std::vector<std::string>& inputs() const;
  // One an input: the names of its numbers. Empty for a field, for an input that is one number, and in all
  // files where none are noted.
  const std::vector<std::vector<std::string>>& columns() const;
  const std::vector<std::string>& targets() const;
  // Of the training ("mse", "gaussian", ...): what the outputs are; empty in a file of another maker.
  const std::string& loss() const;
  // One an input: [C, D, H, W], and pairs of the least and the greatest value of the training samples, a channel.
  // Empty in files where none are noted.
  const std::vector<std::vector<std::int64_t>>& shapes() const;
  const std::vector<std::vector<double>>& ranges() const;
  // Of a predicted field, as the data have it: its axes but that of channels, and whether it has one. Nothing
  // in a file where none is noted.
  const std::vector<std::int64_t>& target_grid() const;
  bool target_has_channels() const;
  // "transformed" where the outputs are those of the transformed targets (a gaussian loss of a field).
  const std::string& units() const;

  // One forward pass, without gradients. A file of another maker gets float32, as torch's own modules want it.
  // Error{data} with libtorch's reason where the arrays do not suit the
  // model, or where it gives something other than one tensor with a row a sample.
  ModelArray run(std::span<const ModelArray> inputs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wflow::trainer
