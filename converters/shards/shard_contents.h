// SPDX-License-Identifier: Apache-2.0
// All that HDF5 has to tell about a shard of a data set, in one piece that processes can send to each other:
// who has it needs nothing but the shard's bytes.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "converters/shards/shard_bytes.h"
#include "converters/shards/shard_file.h"
#include "converters/shards/shard_reader.h"

namespace wflow::converters {

struct ShardContents {
  ShardLayout layout;
  std::vector<double> targets;  // those of a sample behind those of the one before, where all are numbers
};

// `path`: the shard, or a copy of it.
ShardContents read_shard_contents(const std::filesystem::path& path, const Manifest& manifest);

// For programs of the same build.
std::string encode_contents(const ShardContents& contents);
ShardContents decode_contents(std::string_view bytes);

// A shard as SplitReader takes it.
struct OpenedShard {
  ShardContents contents;
  std::unique_ptr<ShardBytes> bytes;
};
using ShardOpener = std::function<OpenedShard(const ShardEntry& shard)>;

}  // namespace wflow::converters
