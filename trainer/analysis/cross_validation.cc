// SPDX-License-Identifier: Apache-2.0
#include "trainer/analysis/analysis.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "base/yaml.h"
#include "trainer/config.h"
#include "trainer/training/report.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

// The settings of the training, for one process.
TrainConfig settings_of_folds(const fs::path& training, std::size_t folds, const std::string& data) {
  TrainConfig config = config_of_training(training);
  config.data = data_of_training(training, data).string();
  config.threads *= config.ranks;
  config.ranks = 1;
  config.grid = {};
  config.folds = static_cast<std::int64_t>(folds);
  config.checkpoint.every_epochs = 0;
  if (config.init_from.empty()) return config;
  // These weights may know the samples that are left out.
  fmt::print(stderr, "the networks of the folds begin with random weights, not with those of {}\n",
             visible(config.init_from));
  config.init_from.clear();
  return config;
}

nlohmann::json train_fold(TrainConfig config, const fs::path& folder, std::size_t fold) {
  config.fold = static_cast<std::int64_t>(fold);
  config.output = (folder / fmt::format("fold-{}", fold)).string();
  fmt::print(stderr, "fold {} of {}: {}\n", fold, config.folds, visible(config.output));
  const fs::path settings = folder / fmt::format("fold-{}.yaml", fold);
  write_file_durably(settings, yaml::emit(to_yaml(config)));
  SpawnRequest request;
  request.argv = {sibling_program("wflow-train"), settings.string()};
  const CommandResult done = run_command(request);
  if (done.status == 0) return finished_result(config.output);
  const std::string_view error = text::trim(done.err);
  throw Error(ExitCode::data, fmt::format("the training of fold {} ended with exit code {}: {}", fold,
                                          done.status, error.substr(error.rfind('\n') + 1)));
}

}  // namespace

std::map<std::string, FoldErrors> cross_validate(const fs::path& training, std::size_t folds,
                                                 const std::string& data) {
  const fs::path folder = training / fmt::format("folds-{}", folds);
  fs::create_directories(folder);
  const TrainConfig config = settings_of_folds(training, folds, data);
  struct Sums {
    double samples = 0;
    double squares = 0;   // of errors
    double variance = 0;  // of truths within the folds
  };
  std::map<std::string, Sums> sums;
  for (std::size_t fold = 1; fold <= folds; ++fold) {
    const nlohmann::json result = train_fold(config, folder, fold);
    const double samples = result.at("data").at("test");
    const nlohmann::json targets = result.at("test").value("targets", nlohmann::json::object());
    for (const auto& [name, errors] : targets.items()) {
      if (!errors.contains("rmse") || !errors.contains("r2") || !errors.at("r2").is_number()) continue;
      const double mse = errors.at("rmse").get<double>() * errors.at("rmse").get<double>();
      const double unexplained = 1 - errors.at("r2").get<double>();
      Sums& sum = sums[name];
      sum.samples += samples;
      sum.squares += samples * mse;
      sum.variance += unexplained > 0 ? samples * mse / unexplained : 0;
    }
  }
  std::map<std::string, FoldErrors> found;
  for (const auto& [name, sum] : sums)
    found[name] = {std::sqrt(sum.squares / sum.samples),
                   sum.variance > 0 ? 1 - sum.squares / sum.variance : 1};
  return found;
}

}  // namespace wflow::trainer
