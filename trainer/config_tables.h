// SPDX-License-Identifier: Apache-2.0
// What the tables of the train: block give besides reading it: its JSON schema and the tables of
// docs/train.md.
#pragma once

#include <vector>

#include "base/config_table.h"

namespace wflow::trainer {

config::Json train_schema();
std::vector<config::Section> train_sections();

}  // namespace wflow::trainer
