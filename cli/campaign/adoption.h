// SPDX-License-Identifier: Apache-2.0
// A workspace that Merlin or Maestro made becomes a campaign where it lies. Only .wflow is added to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/yaml.h"
#include "specs/study/study.h"

namespace wflow::cli {

// Whose workspace a directory is.
enum class Maker { merlin, maestro };
std::string name_of(Maker maker);

// Nothing where neither made it, or where wflow did.
std::optional<Maker> maker_of(const std::filesystem::path& directory);

struct AdoptOptions {
  std::string study;  // a file to use in place of the workspace's own copy; empty: that copy
  specs::ReadOptions read;
};

struct Adopted {
  std::filesystem::path campaign;
  std::string name;
  Maker maker = Maker::merlin;
  std::uint64_t done = 0, failed = 0, skipped = 0, left = 0;
  std::uint64_t running = 0;     // of those left: recorded as running
  std::uint64_t unreadable = 0;  // status files
  std::vector<yaml::Diagnostic> warnings;
};

// Whole or not at all: .wflow appears by a rename. Error{usage} where the directory can't be adopted,
// Error{spec} where its study does not read, Error{data} where what Merlin or Maestro recorded does not.
Adopted adopt(const std::filesystem::path& directory, const AdoptOptions& options);

}  // namespace wflow::cli
