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

#include "trainer/config.h"

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
  // Those that the training drew from a normal distribution.
  const std::vector<std::string>& random_inputs() const;
  // Per input the names of its numbers. Empty for a field, for an input that is one number, and in files that
  // store none.
  const std::vector<std::vector<std::string>>& columns() const;
  const std::vector<std::string>& targets() const;  // of all heads

  // One output of the model.
  struct Head {
    std::string name;  // empty where there is one only
    std::vector<std::string> targets;
    // Loss of the training ("mse", "gaussian", ...), which defines the output; empty in files of other
    // programs.
    std::string loss;
    // "transformed" if the outputs are transformed targets (a gaussian loss on a field).
    std::string units;
    // For a predicted field: its stored axes without the channels, and whether it has an axis of channels.
    // Empty in files that store none.
    std::vector<std::int64_t> grid;
    bool has_channels = true;
    // With the loss quantile: the outputs are the first quantile of all targets, then the second.
    std::vector<double> quantiles = {};
  };
  const std::vector<Head>& heads() const;  // at least one
  // Formulas of the user's metrics, for each head of numbers that has their targets.
  const std::vector<MetricConfig>& metrics() const;
  // Per input: [C, D, H, W], and for each channel the least and the greatest value of the training samples.
  // Empty in files that store none.
  const std::vector<std::vector<std::int64_t>>& shapes() const;
  const std::vector<std::vector<double>>& ranges() const;

  // One forward pass, without gradients: one array for each head. Files of other programs get float32, as
  // torch's own modules expect. Error{data} with libtorch's reason if the arrays do not fit the model, or if
  // its result is not a tensor a head with a row per sample.
  std::vector<ModelArray> run(std::span<const ModelArray> inputs);
  // For each row, the derivatives of the mean of `count` values of a head's output, from value `first` on, by
  // each number of the inputs. The arrays have the shapes of the inputs. Error{data} if autograd finds no
  // derivative.
  std::vector<ModelArray> gradients(std::span<const ModelArray> inputs, std::size_t head, std::size_t first,
                                    std::size_t count);
  // The values of a layer, as the network computes them. Error{data} if the file has no such layer.
  ModelArray run_layer(std::span<const ModelArray> inputs, const std::string& layer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wflow::trainer
