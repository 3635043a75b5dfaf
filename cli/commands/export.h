// SPDX-License-Identifier: Apache-2.0
// `wflow export`.
#pragma once

#include "cli/commands/commands.h"

namespace wflow::cli {

void add_export(CLI::App& app, Command& chosen);

}  // namespace wflow::cli
