// SPDX-License-Identifier: Apache-2.0
// blocks/NNNNN.json: what the conversion of a block found. Written last of a block's files, so that a block
// with a record is a finished one; finish() makes the manifest of these alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "converters/convert/sketch.h"
#include "converters/convert/statistics.h"
#include "converters/input/arrange.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shard_reader.h"

namespace wflow::converters {

struct MissingSample {
  std::int64_t id = 0;
  std::string split;
  std::string reason;
  std::string file;
};

struct BlockShard {
  std::string split;
  ShardEntry entry;
};

struct BlockRecord {
  std::uint64_t block = 0;
  std::uint64_t shard_samples = 0;
  std::string config_hash;  // of what decides the bytes, see conversion_hash()
  std::string rows_hash;    // of the block's rows
  std::string inputs_hash;  // of the sizes and times of their files: one that changed is converted again
  std::vector<FieldForm> fields;  // none where no sample was usable
  std::vector<BlockShard> shards;
  std::vector<MissingSample> missing;
  std::vector<MissingSample> dropped;         // by a filter (drop_if)
  std::vector<std::vector<Moments>> moments;  // of the training samples: of each field, one a channel
  std::vector<std::vector<Sketch>> sketches;  // of the same values; none of fields of many channels
};

// "absent", or size and time of change.
std::string file_state(const std::filesystem::path& path);

std::filesystem::path block_record_path(const std::filesystem::path& output, std::uint64_t block);
std::string shard_name(std::string_view split, std::uint64_t block);  // "train/shard-00003.h5"

void write_block_record(const std::filesystem::path& output, const BlockRecord& record);
// Nothing where there is none; Error{data} where it is damaged.
std::optional<BlockRecord> read_block_record(const std::filesystem::path& output, std::uint64_t block);

// Adds the block's shards and what it left out to the data set's manifest.
void add_record(const BlockRecord& record, Manifest& manifest);

// Whether the record's shards are there with the recorded sizes; else the sentence that says what is not.
std::optional<std::string> shards_problem(const std::filesystem::path& output, const BlockRecord& record);

}  // namespace wflow::converters
