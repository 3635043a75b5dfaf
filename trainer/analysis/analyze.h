// SPDX-License-Identifier: Apache-2.0
// `wflow analyze TRAINING`: which inputs of a trained network matter for its outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace wflow::trainer {

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

}  // namespace wflow::trainer
