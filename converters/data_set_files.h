// SPDX-License-Identifier: Apache-2.0
// The names of a data set's files below its directory (docs/formats/shards.md), for modules that move or
// check these files without HDF5.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "converters/split.h"

namespace wflow::converters {

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kBlocksFolder = "blocks";  // one record per block
inline constexpr const char* kBlockRecordEnding = ".json";
// The end of the reason why a data set lacks a sample that the campaign skipped: millions of them, where a
// training has reached its goal, so that they are counted and not listed.
inline constexpr std::string_view kSkippedEnding = " was skipped";
inline bool is_skipped(std::string_view reason) {
  return reason.ends_with(kSkippedEnding);
}

// The record of a converted block, which exists once its shards are on disk.
inline std::string block_record_file(std::uint64_t block) {
  return fmt::format("{}/{:05}{}", kBlocksFolder, block, kBlockRecordEnding);
}

// The shard of a block in one of kSplitNames; not every block has samples of each split.
inline std::string shard_file(std::string_view split, std::uint64_t block) {
  return fmt::format("{}/shard-{:05}.h5", split, block);
}

}  // namespace wflow::converters
