// SPDX-License-Identifier: Apache-2.0
// Converts one block of samples: up to three shards and a record, published together, or nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "converters/config.h"
#include "converters/convert/block_record.h"
#include "converters/input/sample_table.h"
#include "converters/split.h"

namespace wflow::converters {

// What all blocks of a conversion have in common. config.count and config.shard_samples are set.
struct Conversion {
  ConvertConfig config;
  std::filesystem::path output;
  std::vector<std::string> columns;  // names of the parameters of a row
  unsigned threads = 1;
  bool force = false;
  bool given_splits = false;  // the rows say their split
};

// Called on the thread that converts.
struct BlockObserver {
  std::function<void(std::uint64_t samples)> converted;  // usable or not, since the last call
  std::function<void(const MissingSample&)> missing;
  std::function<void(const std::filesystem::path&)> shard;  // a file that now has its name
};

// Hash of all that decides the bytes of a block but its rows: an existing block with another hash is stale.
std::string conversion_hash(const ConvertConfig& config);

// Gives the existing record where it is of the same configuration, rows and input files (or these were
// deleted after it was made), and its shards are there; otherwise (or with `force`) converts.
BlockRecord convert_block(const Conversion& conversion, std::uint64_t block, std::span<const SampleRow> rows,
                          const BlockObserver& observer);

}  // namespace wflow::converters
