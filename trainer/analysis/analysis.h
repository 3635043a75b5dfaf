// SPDX-License-Identifier: Apache-2.0
// The results of `wflow analyze`, and their forms: analysis.json, analysis.csv and the table on standard
// output (docs/analyze.md).
#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace wflow::trainer
