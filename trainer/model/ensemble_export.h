// SPDX-License-Identifier: Apache-2.0
// Several exported models as one TorchScript file.
#pragma once

#include <filesystem>
#include <vector>

#include "trainer/config.h"

namespace wflow::trainer {

// Of files that export_model() wrote, trained with `loss` on the same data. The module takes what they take.
// It gives the members' means and then their standard deviations, as a model with a gaussian loss does
// (attribute `loss`); of classes it gives the mean probabilities. Its method `members` gives what each member
// says, one behind the other along a first axis. `path` is published whole.
void export_ensemble(const std::vector<std::filesystem::path>& members, LossName loss,
                     const std::filesystem::path& path);

}  // namespace wflow::trainer
