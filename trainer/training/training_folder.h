// SPDX-License-Identifier: Apache-2.0
// The folder of a finished training, as the commands see it that ask a trained network.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/config.h"

namespace wflow::trainer {

// result.json of the training in the folder. Error{data} if none has finished there; if the folder holds
// several, with their names.
nlohmann::json finished_result(const std::filesystem::path& folder);
// The checksum of model.pt in a result, by which a report sees that a file is of an earlier model.
nlohmann::json model_checksum(const nlohmann::json& result);

// The settings of the training in the folder: train.yaml.
TrainConfig config_of_training(const std::filesystem::path& folder);

// The data set `given`, or if empty that of the training. Error{data} if it is not there.
std::filesystem::path data_of_training(const std::filesystem::path& folder, const std::string& given);

}  // namespace wflow::trainer
