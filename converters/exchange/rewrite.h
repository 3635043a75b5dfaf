// SPDX-License-Identifier: Apache-2.0
// Data sets written again in other shards: several into one (merge), or one with shards of another size
// (reshard). Every sample keeps its values, its split and, unless they are renumbered, its id.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace wflow::converters {

struct RewriteOptions {
  std::vector<std::filesystem::path> sources;
  std::filesystem::path out;                             // must not exist
  std::uint64_t shard_samples = 0;                       // 0: as many as make about shard_bytes
  std::uint64_t shard_bytes = std::uint64_t{512} << 20;  // of a block's shards, as stored
  bool renumber = false;  // the ids of each further data set begin behind those of the one before
  unsigned threads = 1;
};

// The folder takes its name when all of it is on the disk. The text says what was written. Error{usage} where
// the folder exists, the fields differ or two data sets have the same id; Error{data} where one is damaged.
std::string rewrite_data(const RewriteOptions& options);

}  // namespace wflow::converters
