// SPDX-License-Identifier: Apache-2.0
// A TorchScript file that runs: one that export_model() wrote, or from another program. Includes no header of
// libtorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
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
  virtual ~ExportedModel() = default;
  ExportedModel(const ExportedModel&) = delete;
  ExportedModel& operator=(const ExportedModel&) = delete;

  // Names as export_model() stores them; empty in files of other programs.
  const std::vector<std::string>& inputs() const { return about_.inputs; }
  // Those that the training drew from a normal distribution.
  const std::vector<std::string>& random_inputs() const { return about_.random_inputs; }
  // Per input the names of its numbers. Empty for a field, for an input that is one number, and in files that
  // store none.
  const std::vector<std::vector<std::string>>& columns() const { return about_.columns; }
  const std::vector<std::string>& targets() const { return about_.targets; }  // of all heads

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
  const std::vector<Head>& heads() const { return about_.heads; }  // at least one
  // Formulas of the user's metrics, for each head of numbers that has their targets.
  const std::vector<MetricConfig>& metrics() const { return about_.metrics; }
  // Per input: [C, D, H, W], and for each channel the least and the greatest value of the training samples.
  // Empty in files that store none.
  const std::vector<std::vector<std::int64_t>>& shapes() const { return about_.shapes; }
  const std::vector<std::vector<double>>& ranges() const { return about_.ranges; }

  // One forward pass, without gradients: one array for each head. Files of other programs get float32, as
  // torch's own modules expect. Error{data} with libtorch's reason if the arrays do not fit the model, or if
  // its result is not a tensor a head with a row per sample.
  virtual std::vector<ModelArray> run(std::span<const ModelArray> inputs) = 0;
  // For each row, the derivatives of the mean of `count` values of a head's output, from value `first` on, by
  // each number of the inputs. The arrays have the shapes of the inputs. Error{data} if autograd finds no
  // derivative.
  virtual std::vector<ModelArray> gradients(std::span<const ModelArray> inputs, std::size_t head,
                                            std::size_t first, std::size_t count) = 0;
  // The values of a layer, as the network computes them. Error{data} if the file has no such layer.
  virtual ModelArray run_layer(std::span<const ModelArray> inputs, const std::string& layer) = 0;

 protected:
  struct About {
    std::vector<std::string> inputs;
    std::vector<std::string> random_inputs;
    std::vector<std::vector<std::string>> columns;
    std::vector<std::string> targets;
    std::vector<Head> heads;
    std::vector<MetricConfig> metrics;
    std::vector<std::vector<std::int64_t>> shapes;
    std::vector<std::vector<double>> ranges;
  };
  explicit ExportedModel(About about) : about_(std::move(about)) {}

 private:
  About about_;
};

// Error{data} if it is not a TorchScript file.
std::unique_ptr<ExportedModel> open_exported_model(const std::filesystem::path& file);

// A TorchScript file of the user that compares predictions with targets: a loss or a metric.

// `forward(prediction, target)` gets [samples, targets], or for a field [samples, channels, height, width]
// with as many axes as the field has, and returns a number for each sample. It is called for one sample at a
// time, so that a step does not depend on how a batch is spread over the ranks.
class ModuleScore {
 public:
  virtual ~ModuleScore() = default;
  ModuleScore(const ModuleScore&) = delete;
  ModuleScore& operator=(const ModuleScore&) = delete;

  const std::string& hash() const { return hash_; }  // of the file

  // `shape`: of one sample. `slopes`, unless empty, receives the derivative by each prediction. Error{data}
  // if the module fails, does not give one number, or has no gradient.
  virtual double score(std::span<const float> predictions, std::span<const float> truths,
                       std::span<const std::int64_t> shape, std::span<float> slopes) const = 0;

 protected:
  explicit ModuleScore(std::string hash) : hash_(std::move(hash)) {}

 private:
  std::string hash_;
};

// `bytes`: contents of the file; `name`: its name in messages. Error{data} if they are no module.
std::unique_ptr<ModuleScore> open_module_score(const std::string& bytes, const std::string& name);

// By the path in the configuration.
using ModuleScores = std::map<std::string, std::shared_ptr<const ModuleScore>, std::less<>>;

}  // namespace wflow::trainer
