// SPDX-License-Identifier: Apache-2.0
// Which tasks that are done somebody means: for wflow redo.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "engine/query/client.h"
#include "engine/update/changes.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

struct TaskChoice {
  std::vector<std::string> words;  // [CAMPAIGN] [STEP[/RANGE]]
  std::string step;                // --step
  std::string where;               // --where
  bool missing = false;            // --missing
};

// `campaign` is set when the words are parsed.
void add_task_choice(CLI::App& command, TaskChoice& choice, std::string& campaign);

// Those that are done, in parts of neighbours. Error{usage} for a step, range or expression that is none.
engine::ArrayParts done_tasks(const specs::Plan& plan, engine::Client& client, const TaskChoice& choice);

// Of some arrays, which are neighbours or not, those of a range that are done.
engine::ArrayParts done_parts(engine::Client& client, const std::vector<specs::ArrayId>& arrays,
                              engine::Range range);

}  // namespace wflow::cli
