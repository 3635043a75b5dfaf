// SPDX-License-Identifier: Apache-2.0
// Taking a changed study into a campaign from the command line: for resume --update and extend.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "cli/campaign/update.h"
#include "cli/commands/run.h"

namespace wflow::cli {

struct UpdateFlags {
  bool yes = false;
  bool keep_old = false;
  std::string why;  // -m
};
void add_update_flags(CLI::App& command, UpdateFlags& flags);

// Ends what a coordinator that was killed left behind, and reads what its workers have recorded, so that no
// task of an old plan runs beside those of a new one. Error{busy} where a coordinator lives.
void settle(const specs::Plan& plan, const RunOptions& run);

// Shows what will be done, asks on a terminal, and does it. The plan to go on with; nothing: the answer was
// no.
std::optional<specs::Plan> take_over(Update update, const UpdateFlags& flags, UpdateOptions options,
                                     const RunOptions& run);

}  // namespace wflow::cli
