// SPDX-License-Identifier: Apache-2.0
// Errors of a network by cross-validation: it is trained once more without each part of its training samples,
// and tested on that part.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

namespace wflow::trainer {

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
