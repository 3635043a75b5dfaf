// SPDX-License-Identifier: Apache-2.0
// The commands of wflow-convert, between its command line and the library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "converters/config.h"

namespace CLI {
class App;
}

namespace wflow::converters {

struct RunOptions {
  std::filesystem::path config;
  std::optional<std::uint64_t> block;
  std::filesystem::path rows;                 // rows of the block; empty: those of the configuration's table
  bool finish = false;                        // only finish
  std::optional<std::uint64_t> first_blocks;  // finish only those that are there of so many, into:
  std::filesystem::path into;
  bool force = false;
  bool dry_run = false;
  unsigned threads = 1;
};

// Reads the configuration file, whose keys are at top level or under `convert:`; relative paths begin at its
// folder. Throws Error{spec} with every error in it.
ConvertConfig load_config(const std::filesystem::path& path);

void run_conversion(const RunOptions& options);

// Adds the subcommand `wflow-convert shards ...`, which `wflow shards ...` starts. Parsing puts the chosen
// command into `chosen`, which returns the exit code.
void add_shards_command(CLI::App& app, std::function<int()>& chosen);

// Adds `export`, `import`, `merge` and `reshard` to `wflow shards` in the same way.
void add_exchange_commands(CLI::App& shards, std::function<int()>& chosen);

// Prints the problems of a data set; Error{data} if there are any.
int verify_and_print(const char* directory);

}  // namespace wflow::converters
