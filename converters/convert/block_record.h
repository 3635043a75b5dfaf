// SPDX-License-Identifier: Apache-2.0
// blocks/NNNNN.json: the result of the conversion of a block. Written after the block's other files, so that
// a block with a record is finished; finish() makes the manifest only from these records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "converters/convert/statistics.h"
#include "converters/input/arrange.h"
#include "converters/shards/manifest.h"
#include "converters/shards/shard_reader.h"
#include "traces/address_table.h"

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
  std::string config_hash;  // hash of the settings that decide the bytes, see conversion_hash()
  std::string rows_hash;    // hash of the block's rows
  std::string
      inputs_hash;  // hash of the sizes and times of their files: after a change the block is converted again
  std::vector<FieldForm> fields;  // empty if no sample was usable
  std::vector<BlockShard> shards;
  std::vector<MissingSample> missing;
  std::vector<MissingSample> dropped;         // dropped by a filter (drop_if)
  std::vector<std::vector<Moments>> moments;  // for training samples: for each field, one for each channel
  std::vector<std::vector<Sketch>> sketches;  // for the same values; none for fields of many channels
  std::optional<traces::AddressTable> addresses;  // of traces
};

// "absent", or size and time of change.
std::string file_state(const std::filesystem::path& path);

std::filesystem::path block_record_path(const std::filesystem::path& output, std::uint64_t block);
std::string shard_name(std::string_view split, std::uint64_t block);  // "train/shard-00003.h5"

void write_block_record(const std::filesystem::path& output, const BlockRecord& record);
// Nothing if there is none; Error{data} if it is damaged.
std::optional<BlockRecord> read_block_record(const std::filesystem::path& output, std::uint64_t block);

// Adds the block's shards, missing and dropped samples to the data set's manifest.
void add_record(const BlockRecord& record, Manifest& manifest);

// Checks that the record's shards exist with the recorded sizes: nothing, or a sentence about the difference.
std::optional<std::string> shards_problem(const std::filesystem::path& output, const BlockRecord& record);

// The statistics of a field's training samples for the manifest: those of all blocks, merged in order of
// block.
struct MergedStatistics {
  std::vector<Moments> moments;  // one for each channel
  std::vector<Sketch> sketches;  // the same; none for fields of many channels

  void add(const BlockRecord& record, std::size_t field);
  // One for each channel, `channels` of them.
  std::vector<ChannelStatistics> summaries(const Normalisation& normalisation, std::size_t channels) const;
  // For the mask of a ragged field: of 1 where samples have values and 0 up to `cells`, the longest.
  std::vector<ChannelStatistics> of_mask(std::uint64_t samples, std::size_t cells) const;
};

// Gives a ragged field of the manifest the lengths that the form has.
void take_lengths(const FieldForm& form, FieldInfo& field);

// The distributions of each field's values, one a channel, merged over the records of all blocks: reads no
// sample. Empty if a data set has no block records (imported, merged).
std::vector<std::vector<Sketch>> merged_sketches(const std::filesystem::path& data, std::size_t fields);

}  // namespace wflow::converters
