// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/yaml.h"
#include "trainer/config.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

// The folders of finished trainings in a step's folder.
std::vector<std::string> trainings_in(const fs::path& folder) {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (fs::exists(entry.path() / "result.json")) found.push_back(entry.path().string());
  std::ranges::sort(found);
  return found;
}

void check_finished(const fs::path& folder) {
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

}  // namespace

nlohmann::json finished_result(const fs::path& folder) {
  check_finished(folder);
  nlohmann::json result = nlohmann::json::parse(read_file(folder / "result.json"), nullptr, false);
  if (result.is_object()) return result;
  throw Error(ExitCode::data,
              fmt::format("{} is damaged: run the training again", (folder / "result.json").string()));
}

nlohmann::json model_checksum(const nlohmann::json& result) {
  return result.value("checksums", nlohmann::json::object()).value("model.pt", nlohmann::json());
}

TrainConfig config_of_training(const fs::path& folder) {
  const fs::path file = folder / "train.yaml";
  yaml::Diagnostics diagnostics(file.string());
  TrainConfig config = read_train_config(yaml::parse(read_file(file), diagnostics), diagnostics);
  diagnostics.throw_if_errors();
  return config;
}

fs::path data_of_training(const fs::path& folder, const std::string& given) {
  if (!given.empty()) return given;
  const TrainConfig config = config_of_training(folder);
  if (!fs::exists(config.data))
    throw Error(ExitCode::data,
                fmt::format("the training's data set {} is not there: name it, --data FOLDER", config.data));
  return config.data;
}

}  // namespace wflow::trainer
