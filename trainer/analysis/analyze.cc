// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "trainer/analysis/analysis.h"
#include "trainer/analysis/surrogate.h"
#include "trainer/training/report.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBins = 20;  // of main effects
constexpr std::size_t kFolds = 10;
constexpr std::size_t kDraws = 20;  // functions from a Gaussian process
constexpr std::size_t kMostPoints = std::size_t{1} << 20;

void check_options(const AnalyzeOptions& options) {
  if (!std::has_single_bit(options.points) || options.points < 16 || options.points > kMostPoints)
    throw Error(ExitCode::usage, fmt::format("--points {}: give a power of two from 16 to {}, such as {}",
                                             options.points, kMostPoints,
                                             std::clamp(std::bit_ceil(std::min(options.points, kMostPoints)),
                                                        std::size_t{16}, kMostPoints)));
}

// The physical points of `rows` rows of the design from `first` on: [rows, inputs].
std::vector<double> physical(const SobolDesign& design, const std::vector<InputRange>& inputs,
                             std::size_t first, std::size_t rows) {
  std::vector<double> points;
  points.reserve(rows * inputs.size());
  for (std::size_t row = first; row < first + rows; ++row)
    for (std::size_t i = 0; i < inputs.size(); ++i)
      points.push_back(inputs[i].low + design.unit(row, i) * (inputs[i].high - inputs[i].low));
  return points;
}

// All outputs at all rows of the design, one set of points after the other: [outputs][rows].
std::vector<std::vector<double>> values_at(const SobolDesign& design, Surrogate& surrogate) {
  std::vector<std::vector<double>> values(surrogate.outputs().size());
  for (std::size_t first = 0; first < design.rows(); first += design.points()) {
    const auto part = surrogate.values(physical(design, surrogate.inputs(), first, design.points()));
    for (std::size_t k = 0; k < values.size(); ++k)
      values[k].insert(values[k].end(), part[k].begin(), part[k].end());
  }
  for (std::size_t k = 0; k < values.size(); ++k)
    if (!std::ranges::all_of(values[k], [](double value) { return std::isfinite(value); }))
      throw Error(ExitCode::data, fmt::format("the network gives no finite number of '{}' somewhere in the "
                                              "ranges of its training samples: train it again",
                                              surrogate.outputs()[k]));
  return values;
}

// The errors of a target on the test samples, as the training recorded them.
nlohmann::json test_errors(const nlohmann::json& result, const std::string& output) {
  const nlohmann::json none = nlohmann::json::object();
  const nlohmann::json targets = result.value("test", none).value("targets", none);
  nlohmann::json errors;
  if (!targets.contains(output)) return errors;
  for (const char* key : {"rmse", "r2"})
    if (targets[output].contains(key)) errors[fmt::format("test_{}", key)] = targets[output][key];
  return errors;
}

// The mean of |dy/dx| times the range, of each input, over the first set of the design.
std::vector<Estimate> gradients_of(const SobolDesign& design, Surrogate& surrogate, std::size_t output) {
  const std::vector<InputRange>& inputs = surrogate.inputs();
  const std::vector<double> slopes =
      surrogate.gradients(physical(design, inputs, design.first_a(), design.points()), output);
  const auto count = static_cast<double>(design.points());
  std::vector<Estimate> means;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto at = [&](std::size_t n) {
      return std::abs(slopes[n * inputs.size() + i]) * (inputs[i].high - inputs[i].low);
    };
    double mean = 0, squares = 0;
    for (std::size_t n = 0; n < design.points(); ++n) mean += at(n) / count;
    for (std::size_t n = 0; n < design.points(); ++n) squares += (at(n) - mean) * (at(n) - mean);
    means.push_back({mean, std::sqrt(squares / count / (count - 1))});
  }
  return means;
}

std::vector<ModelAnalysis> network_analyses(const SobolDesign& design, Surrogate& surrogate,
                                            const AnalyzeOptions& options, std::size_t resamples) {
  const std::vector<std::vector<double>> values = values_at(design, surrogate);
  std::vector<ModelAnalysis> found;
  for (std::size_t k = 0; k < values.size(); ++k)
    found.push_back({"network",
                     sobol_indices(design, values[k], resamples, options.seed),
                     main_effects(design, values[k], kBins),
                     gradients_of(design, surrogate, k),
                     {}});
  return found;
}

// Widens the intervals by the spread of the ensemble's members. Returns their number; 0: no ensemble.
std::size_t add_members(const fs::path& folder, const nlohmann::json& result, const SobolDesign& design,
                        const AnalyzeOptions& options, std::vector<ModelAnalysis>& of_mean) {
  const std::size_t members = result.value("members", nlohmann::json::array()).size();
  if (members < 2) return 0;
  std::vector<std::vector<SobolIndices>> indices(of_mean.size());
  std::vector<std::vector<std::vector<Estimate>>> gradients(of_mean.size());
  for (std::size_t member = 1; member <= members; ++member) {
    Surrogate surrogate(folder / fmt::format("member-{}", member) / "model.pt");
    const std::vector<ModelAnalysis> found = network_analyses(design, surrogate, options, 0);
    for (std::size_t k = 0; k < of_mean.size(); ++k) {
      indices[k].push_back(found.at(k).indices);
      gradients[k].push_back(found.at(k).gradients);
    }
  }
  for (std::size_t k = 0; k < of_mean.size(); ++k) {
    add_spread(of_mean[k].indices, indices[k]);
    add_spread(of_mean[k].gradients, gradients[k]);
  }
  return members;
}

void add_fold_errors(std::size_t folds, const FoldErrors& errors, nlohmann::json& to) {
  to[fmt::format("{}_fold_rmse", folds)] = errors.rmse;
  to[fmt::format("{}_fold_r2", folds)] = errors.r2;
}

// Root mean square and R2 of predictions.
nlohmann::json errors_of(std::span<const double> truths, std::span<const double> predictions) {
  const auto count = static_cast<double>(truths.size());
  double mean = 0, variance = 0, squares = 0;
  for (const double truth : truths) mean += truth / count;
  for (std::size_t n = 0; n < truths.size(); ++n) {
    variance += (truths[n] - mean) * (truths[n] - mean);
    squares += (truths[n] - predictions[n]) * (truths[n] - predictions[n]);
  }
  nlohmann::json errors;
  add_fold_errors(kFolds, {std::sqrt(squares / count), 1 - squares / variance}, errors);
  return errors;
}

// `points`: those of the design, [rows, inputs]; `units`: those of the samples, [samples, inputs].
ModelAnalysis process_analysis(const SobolDesign& design, std::span<const double> points,
                               const std::vector<double>& units, std::span<const double> truths,
                               const AnalyzeOptions& options) {
  const auto process = fit_gaussian_process(units, truths);
  const std::vector<double> mean = process->mean(points);
  ModelAnalysis found{"gaussian_process",
                      sobol_indices(design, mean, options.resamples, options.seed),
                      main_effects(design, mean, kBins),
                      {},
                      errors_of(truths, process->left_out(kFolds, options.seed))};
  std::vector<SobolIndices> drawn;
  for (const std::vector<double>& draw : process->draws(points, kDraws, options.seed))
    drawn.push_back(sobol_indices(design, draw, 0, options.seed));
  add_spread(found.indices, drawn);
  found.errors["noise"] = process->noise();
  return found;
}

// Fits a Gaussian process to the training samples of each output that is a number of the data.
void add_processes(const AnalyzeOptions& options, const Surrogate& network, const SobolDesign& design,
                   Analysis& analysis) {
  const Surrogate::Samples samples = network.samples(data_of_training(options.training, options.data));
  const std::vector<InputRange>& inputs = network.inputs();
  const std::size_t count = samples.points.size() / inputs.size();
  if (count > kMostGaussianSamples || count < 2 * kFolds)
    throw Error(ExitCode::data, fmt::format("--gaussian-process is for {} to {} training samples, and there "
                                            "are {}: leave it out",
                                            2 * kFolds, kMostGaussianSamples, count));
  std::vector<double> units;
  for (std::size_t k = 0; k < samples.points.size(); ++k) {
    const InputRange& input = inputs[k % inputs.size()];
    units.push_back(input.high > input.low ? (samples.points[k] - input.low) / (input.high - input.low) : 0);
  }
  std::vector<double> points;
  for (std::size_t row = 0; row < design.rows(); ++row)
    for (std::size_t i = 0; i < inputs.size(); ++i) points.push_back(design.unit(row, i));
  for (std::size_t k = 0; k < analysis.outputs.size(); ++k) {
    const std::vector<double>& truths = samples.outputs[k];
    if (truths.empty() || std::ranges::min(truths) == std::ranges::max(truths)) continue;
    analysis.outputs[k].models.push_back(process_analysis(design, points, units, truths, options));
  }
}

}  // namespace

void analyze(const AnalyzeOptions& options) {
  check_options(options);
  const fs::path folder = options.training;
  const nlohmann::json result = finished_result(folder);
  Surrogate network(folder / "model.pt");
  const SobolDesign design(network.inputs().size(), options.points, options.seed);
  std::vector<ModelAnalysis> found = network_analyses(design, network, options, options.resamples);
  const std::size_t members = add_members(folder, result, design, options, found);
  Analysis analysis;
  analysis.model = (folder / "model.pt").string();
  analysis.checksum = model_checksum(result);
  analysis.points = design.points();
  analysis.evaluations = design.rows();
  analysis.seed = options.seed;
  analysis.resamples = options.resamples;
  analysis.members = members;
  analysis.field_means = network.has_fields();
  analysis.inputs = network.inputs();
  const std::vector<std::string> names = network.outputs();
  std::map<std::string, FoldErrors> of_folds;
  if (options.folds > 1) of_folds = cross_validate(folder, options.folds, options.data);
  for (std::size_t k = 0; k < names.size(); ++k) {
    found[k].errors = test_errors(result, names[k]);
    if (const auto errors = of_folds.find(names[k]); errors != of_folds.end())
      add_fold_errors(options.folds, errors->second, found[k].errors);
    analysis.outputs.push_back({names[k], {std::move(found[k])}});
  }
  if (options.gaussian_process) add_processes(options, network, design, analysis);
  write_file_durably(folder / "analysis.csv", csv_of(analysis));
  write_file_durably(folder / "analysis.json", to_json(analysis).dump(2) + "\n");
  std::fputs(visible(table_of(analysis)).c_str(), stdout);
  std::fputs(fmt::format("written: {}\n", visible((folder / "analysis.json").string())).c_str(), stdout);
}

}  // namespace wflow::trainer
