// SPDX-License-Identifier: Apache-2.0
// The folder of a finished training, as the commands see it that ask a trained network.
#pragma once

#include <filesystem>
#include <string>

namespace wflow::trainer {

// Error{data} if the folder has no finished training; if it holds several, with their names.
void check_finished(const std::filesystem::path& folder);

// The data set `given`, or if empty that of the training. Error{data} if it is not there.
std::filesystem::path data_of_training(const std::filesystem::path& folder, const std::string& given);

}  // namespace wflow::trainer
