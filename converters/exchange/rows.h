// SPDX-License-Identifier: Apache-2.0
// The rows of a data set, one after the other, for what writes them in another form.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "converters/shards/shard_file.h"
#include "converters/shards/shard_reader.h"

namespace wflow::converters {

// A row of a shard: a sample, or one of its sub-cubes.
struct DataRow {
  std::int64_t id = 0;
  std::uint32_t piece = 0;                        // which sub-cube
  std::vector<std::vector<std::uint8_t>> fields;  // in the order and the types of the manifest
};

std::vector<std::string> field_names(const Manifest& manifest);

// Error{data} where the shard is not what the manifest says.
void check_shard(const ShardFile& shard, const ShardEntry& entry, const Manifest& manifest);

// Which of the rows of the same id each row is.
std::vector<std::uint32_t> piece_numbers(const std::vector<std::int64_t>& ids);

// All fields of a row. Error{data} where they are damaged.
DataRow read_row(const ShardFile& shard, std::size_t row, const Manifest& manifest, ReadScratch& scratch);

// Reads the rows of a shard on `threads` threads, `prepare`s each there, and hands them over in order on
// this one; 2 * threads of them are in memory at most.
void for_each_row(const ShardFile& shard, const Manifest& manifest, unsigned threads,
                  const std::function<void(DataRow&)>& prepare,
                  const std::function<void(const DataRow&)>& take);

}  // namespace wflow::converters
