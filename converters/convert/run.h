// SPDX-License-Identifier: Apache-2.0
// The work of wflow-convert, between its command line and the library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "converters/config.h"

namespace wflow::converters {

struct RunOptions {
  std::filesystem::path config;
  std::optional<std::uint64_t> block;
  std::filesystem::path rows;  // of the block; empty: those of the configuration's table
  bool finish = false;         // only that
  bool force = false;
  bool dry_run = false;
  unsigned threads = 1;
};

// The configuration file, its keys at top level or under `convert:`; relative paths are taken from its
// folder. Throws Error{spec} with every error in it.
ConvertConfig load_config(const std::filesystem::path& path);

void run_conversion(const RunOptions& options);

}  // namespace wflow::converters
