// SPDX-License-Identifier: Apache-2.0
// `wflow-convert shards ...`, which `wflow shards ...` starts.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace wflow::converters {

// Adds the subcommand; what the user chose is put into `chosen` and gives the exit code.
void add_shards_command(CLI::App& app, std::function<int()>& chosen);

// Prints the problems of a data set; Error{data} where there is one.
int verify_and_print(const char* directory);

}  // namespace wflow::converters
