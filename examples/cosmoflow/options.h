// SPDX-License-Identifier: Apache-2.0
// The command line of wflow-cola.
#pragma once

#include <optional>
#include <vector>

#include "universe.h"

namespace cola {

// The universes to make, checked; nothing where the command line asked only for help or the version, which
// are printed then. Throws Error.
std::optional<std::vector<UniverseSpec>> parse_command_line(int argc, char** argv);

}  // namespace cola
