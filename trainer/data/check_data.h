// SPDX-License-Identifier: Apache-2.0
// What a training can't be meant to do with its data, found before the first step.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/data/roles.h"

namespace wflow::trainer {

struct SplitSizes {
  std::size_t train = 0;
  std::size_t validation = 0;
  std::size_t test = 0;
};

// A sentence each: what is probably a mistake, and what to do. Error{spec} where it is one for certain. Of a
// completed configuration.
std::vector<std::string> check_data(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles,
                                    const SplitSizes& sizes);

}  // namespace wflow::trainer
