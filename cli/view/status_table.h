// SPDX-License-Identifier: Apache-2.0
// A campaign's status as one table of plain text, for a mail: a row a step, then what failed, then trainings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/campaign/training_rows.h"
#include "cli/top/data.h"
#include "cli/view/terminal.h"

namespace wflow::cli {

// `data.status`, `data.workers` and `data.needs` count. Lines without colours where the terminal has none.
std::vector<std::string> status_table(const top::TopData& data, const TrainingRows& trainings,
                                      const Terminal& terminal);

}  // namespace wflow::cli
