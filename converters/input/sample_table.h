// SPDX-License-Identifier: Apache-2.0
// Which files are to be converted, and the targets that go with them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "converters/config.h"

namespace wflow::converters {

struct SampleRow {
  std::uint64_t number = 0;         // 0..count-1: decides block and, by count, split
  std::int64_t id = 0;              // what /id of the shard says
  std::filesystem::path file = {};  // the sample's own file; empty where no field needs it
  std::vector<double> parameters = {};
  std::optional<std::uint64_t> row = std::nullopt;      // of a stacked file
  std::filesystem::path directory = {};                 // where the files that fields name lie
  std::uint64_t identity = 0;                           // decides the split by hash
  std::optional<std::uint64_t> stratum = std::nullopt;  // where the split is stratified
  std::optional<std::size_t> split = std::nullopt;      // where it is given: an index into kSplitNames
};

struct SampleTable {
  std::vector<std::string> columns;  // names of the parameters
  std::vector<SampleRow> rows;       // ascending by id and by number
};

// by_row: a table of all samples; they are numbered 0, 1, ... in order of their ids (which are the row
// numbers where there is no column `id`). by_id: a block's rows of a campaign; the id is the number.
enum class Numbering { by_row, by_id };

// The columns that the configuration takes, or all others where it takes all. A sample's identity is its
// group, else its id, else its file as written. Relative files are relative to the table's folder. Throws
// Error{data} with file and line.
SampleTable read_sample_table(const std::filesystem::path& path, const ConvertConfig& config,
                              Numbering numbering);

}  // namespace wflow::converters
