// SPDX-License-Identifier: Apache-2.0
#include "trainer/analysis/analyze.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "trainer/analysis/analysis.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBins = 20;  // of main effects
constexpr std::size_t kMostPoints = std::size_t{1} << 20;

// The folders of finished trainings in a step's folder.
std::vector<std::string> trainings_in(const fs::path& folder) {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (fs::exists(entry.path() / "result.json")) found.push_back(entry.path().string());
  std::ranges::sort(found);
  return found;
}

void check_training(const fs::path& folder) {
  if (!fs::is_directory(folder))
    throw Error(ExitCode::data, fmt::format("there is no folder {}: name the folder of a finished training, "
                                            "such as CAMPAIGN/train",
                                            folder.string()));
  if (fs::exists(folder / "model.pt") && fs::exists(folder / "result.json")) return;
  const std::vector<std::string> inside = trainings_in(folder);
  if (!inside.empty())
    throw Error(ExitCode::data, fmt::format("{} holds several trainings: name one of {}", folder.string(),
                                            text::join(inside, ", ")));
  throw Error(ExitCode::data,
              fmt::format("{} has no model.pt and result.json: the training has not finished, "
                          "or this is not its folder; let it finish (wflow resume) first",
                          folder.string()));
}

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

}  // namespace

void analyze(const AnalyzeOptions& options) {
  check_options(options);
  const fs::path folder = options.training;
  check_training(folder);
  const nlohmann::json result = nlohmann::json::parse(read_file(folder / "result.json"), nullptr, false);
  if (!result.is_object())
    throw Error(ExitCode::data,
                fmt::format("{} is damaged: run the training again", (folder / "result.json").string()));
  Surrogate network(folder / "model.pt");
  const SobolDesign design(network.inputs().size(), options.points, options.seed);
  const std::vector<std::vector<double>> values = values_at(design, network);
  Analysis analysis{(folder / "model.pt").string(),
                    options.points,
                    design.rows(),
                    options.seed,
                    options.resamples,
                    0,
                    network.has_fields(),
                    network.inputs(),
                    {}};
  const std::vector<std::string> names = network.outputs();
  for (std::size_t k = 0; k < names.size(); ++k) {
    ModelAnalysis model{"network",
                        sobol_indices(design, values[k], options.resamples, options.seed),
                        main_effects(design, values[k], kBins),
                        {},
                        test_errors(result, names[k])};
    analysis.outputs.push_back({names[k], {std::move(model)}});
  }
  write_file_durably(folder / "analysis.csv", csv_of(analysis));
  write_file_durably(folder / "analysis.json", to_json(analysis).dump(2) + "\n");
  std::fputs(visible(table_of(analysis)).c_str(), stdout);
  std::fputs(fmt::format("written: {}\n", visible((folder / "analysis.json").string())).c_str(), stdout);
}

}  // namespace wflow::trainer
