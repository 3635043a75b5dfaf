// SPDX-License-Identifier: Apache-2.0
// The results of `wflow analyze`, and their forms: analysis.json, analysis.csv and the table on standard
// output (docs/analyze.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/analysis/sobol_indices.h"
#include "trainer/analysis/surrogate.h"

namespace wflow::trainer {

inline constexpr int kAnalysisFormat = 1;
inline constexpr double kIntervalDeviations = 1.959963984540054;  // on each side of a value: 95 %

// One output as one model has it.
struct ModelAnalysis {
  std::string model;  // "network" or "gaussian_process"
  SobolIndices indices;
  std::vector<std::vector<double>> effects;  // main_effects()
  // By input: the mean of |dy/dx|, times the length of the input's range. Empty: the model has none.
  std::vector<Estimate> gradients;
  nlohmann::json errors;  // errors of the model on samples that it was not fitted to; null: none known
};

struct OutputAnalysis {
  std::string name;
  std::vector<ModelAnalysis> models;
};

struct Analysis {
  std::string model;        // the file
  nlohmann::json checksum;  // of the file, as result.json has it
  std::size_t points = 0;
  std::size_t evaluations = 0;
  std::uint64_t seed = 0;
  std::size_t resamples = 0;
  std::size_t members = 0;  // 0: no ensemble
  bool field_means = false;
  std::vector<InputRange> inputs;
  std::vector<OutputAnalysis> outputs;
};

nlohmann::json to_json(const Analysis& analysis);
std::string csv_of(const Analysis& analysis);
std::string table_of(const Analysis& analysis);

// `wflow analyze TRAINING`: which inputs of a trained network matter for its outputs.

struct AnalyzeOptions {
  std::string training;       // the folder of a finished training
  std::size_t points = 4096;  // of each of the two sets of the design; a power of two
  std::uint64_t seed = 1;
  std::size_t resamples = 200;    // of the bootstrap
  bool gaussian_process = false;  // fit one to the training samples, too
  std::string data;               // their data set; empty: the one that the training names
  std::size_t folds = 0;          // above 1: errors by cross-validation, which trains so many networks
};

// Writes analysis.json and analysis.csv into the folder and a table to standard output. Error{usage} or
// Error{data} if options and model do not fit.
void analyze(const AnalyzeOptions& options);

// Errors of a network by cross-validation: it is trained once more without each part of its training samples,
// and tested on that part.

struct FoldErrors {
  double rmse = 0;  // in the target's unit
  double r2 = 0;    // of the variance within the folds
};

// Trains `folds` networks with the settings of the finished training in the folder, one after the other, into
// its subfolders folds-FOLDS/fold-N; those that have finished there are not trained again. `data`: the data
// set; empty: that of the training. The errors over all folds, by target, of those that are numbers or
// fields. Error{data} or Error{system} with the last line of a training that failed.
std::map<std::string, FoldErrors> cross_validate(const std::filesystem::path& training, std::size_t folds,
                                                 const std::string& data);

}  // namespace wflow::trainer
