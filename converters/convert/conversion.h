// SPDX-License-Identifier: Apache-2.0
// Converts simulation output to a training data set: block by block, in any order and on any machine, then
// one call that makes a data set of the blocks. Describes and verifies the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "converters/config.h"
#include "converters/convert/block_record.h"
#include "converters/input/sample.h"
#include "converters/shards/shard_reader.h"
#include "converters/split.h"

namespace wflow::converters {

// The common settings of all blocks of a conversion. config.count and config.shard_samples are set.
struct Conversion {
  ConvertConfig config;
  std::filesystem::path output;
  std::vector<std::string> columns;  // names of the parameters of a row
  unsigned threads = 1;
  bool force = false;
  bool given_splits = false;  // the rows contain their split
};

// Callbacks, on the thread that converts.
struct BlockObserver {
  std::function<void(std::uint64_t samples)> converted;  // usable or not, since the previous call
  std::function<void(const MissingSample&)> missing;
  std::function<void(const std::filesystem::path&)> shard;  // a finished file, under its final name
};

// The hash of all settings that decide the bytes of a block, except its rows: an existing block with another
// hash is stale.
std::string conversion_hash(const ConvertConfig& config);

// Returns the existing record if it has the same configuration, rows and input files (or these were deleted
// later) and its shards exist; otherwise (or with `force`) converts.
BlockRecord convert_block(const Conversion& conversion, std::uint64_t block, std::span<const SampleRow> rows,
                          const BlockObserver& observer);

// Makes one data set of the converted blocks: checks them against each other and writes the manifest, which
// depends only on the records in order of block number. Error{data} if a block has not been converted, was
// converted with another configuration or lost a shard, or if more samples are missing than max_missing
// allows. Excludes a block whose samples have another form than most samples of the data set: `outvoted`, if
// given, receives these samples.
Manifest finish_conversion(const Conversion& conversion, std::vector<MissingSample>* outvoted = nullptr);

// Makes a data set of those of the first blocks that have been converted, while others still are: `folder`
// gets a manifest, and links to the shards. Error{data} if there is none, or a block is of another
// configuration or has lost a shard. A function of the blocks alone: the same blocks give the same manifest.
Manifest finish_first_blocks(const Conversion& conversion, std::uint64_t blocks,
                             const std::filesystem::path& folder);

// A line about a field: role, shape, type, and the meaning of the axes.
std::string describe_field(const FieldInfo& field);

// A summary for users: form, splits, statistics, missing samples and the reasons.
std::string describe_dataset(const std::filesystem::path& data_directory);

struct Verification {
  std::size_t shards = 0;
  std::vector<std::string> problems;  // one sentence each
};

// Reads every byte: compares checksums with the manifest, and finds the damaged samples if they differ.
Verification verify_dataset(const std::filesystem::path& data_directory);

}  // namespace wflow::converters
