// SPDX-License-Identifier: Apache-2.0
// What trainings can't be meant to do with their data, as far as the study itself says. The trainer looks
// again at the data (trainer/data/check_data.cc).
#pragma once

#include <string>
#include <vector>

#include "base/yaml.h"
#include "specs/study/study.h"

namespace wflow::specs {

// Reports as errors what the trainer refuses.
void check_trainings(const Study& study, yaml::Diagnostics& diagnostics);

// A sentence each, with the step and what to do.
std::vector<std::string> training_doubts(const Study& study);

}  // namespace wflow::specs
