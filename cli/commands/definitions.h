// SPDX-License-Identifier: Apache-2.0
// The command line's definitions as data: help, completion, manual pages and docs/commands.md are all made
// from these.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace wflow::cli {

// The commands that --help lists, in its order.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
// "-j, --slots", "study"
std::string title_of(const CLI::Option& option);
// "N", "FILE", ...: what follows the option; empty for a flag.
std::string value_of(const CLI::Option& option);
std::vector<const CLI::Option*> positionals_of(const CLI::App& command);
std::vector<const CLI::Option*> options_of(const CLI::App& command);
// A command's footer up to "Examples:", and the lines after it without their indent.
std::string remarks_of(const CLI::App& command);
std::vector<std::string> examples_of(const CLI::App& command);

}  // namespace wflow::cli
