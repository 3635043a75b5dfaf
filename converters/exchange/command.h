// SPDX-License-Identifier: Apache-2.0
// `wflow shards export | import | merge | reshard`.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace wflow::converters {

// Adds the subcommands to `wflow shards`; what the user chose is put into `chosen` and gives the exit code.
void add_exchange_commands(CLI::App& shards, std::function<int()>& chosen);

}  // namespace wflow::converters
