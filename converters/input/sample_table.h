// SPDX-License-Identifier: Apache-2.0
// Which files are to be converted, and the targets that go with them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace wflow::converters {

struct SampleRow {
  std::uint64_t number = 0;  // 0..count-1: decides block and split
  std::int64_t id = 0;       // what /id of the shard says
  std::filesystem::path file;
  std::vector<double> targets;
  std::optional<std::uint64_t> row = std::nullopt;  // of a stacked file
};

struct SampleTable {
  std::vector<std::string> labels;
  std::vector<SampleRow> rows;  // ascending by id and by number
};

// by_row: a table of all samples; they are numbered 0, 1, ... in order of their ids (which are the row
// numbers where there is no column `id`). by_id: a block's rows of a campaign; the id is the number.
enum class Numbering { by_row, by_id };

// `targets` empty: all columns but `file` and `id`, and `row` where the files are stacked. Relative files are
// relative to the table's folder. Throws Error{data} with file and line.
SampleTable read_sample_table(const std::filesystem::path& path, const std::vector<std::string>& targets,
                              Numbering numbering, bool stacked = false);

}  // namespace wflow::converters
