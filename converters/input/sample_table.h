// SPDX-License-Identifier: Apache-2.0
// Which files are to be converted, and the targets that go with them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "converters/config.h"

namespace wflow::converters {

// A path that rows of one stacked file share: a million of them need not hold it a million times.
class SharedPath {
 public:
  SharedPath() = default;
  SharedPath(std::filesystem::path path)
      : path_(std::make_shared<const std::filesystem::path>(std::move(path))) {}
  operator const std::filesystem::path&() const { return get(); }
  const std::filesystem::path& get() const {
    static const std::filesystem::path kNone;
    return path_ ? *path_ : kNone;
  }
  const std::filesystem::path* operator->() const { return &get(); }
  bool empty() const { return get().empty(); }

 private:
  std::shared_ptr<const std::filesystem::path> path_;
};

struct SampleRow {
  std::uint64_t number = 0;  // 0..count-1: decides block and, by count, split
  std::int64_t id = 0;       // what /id of the shard says
  SharedPath file = {};      // the sample's own file; empty where no field needs it
  std::vector<double> parameters = {};
  std::optional<std::uint64_t> row = std::nullopt;      // of a stacked file
  SharedPath directory = {};                            // where the files that fields name lie
  std::uint64_t identity = 0;                           // decides the split by hash
  std::optional<std::uint64_t> stratum = std::nullopt;  // where the split is stratified
  std::optional<std::size_t> split = std::nullopt;      // where it is given: an index into kSplitNames
  std::string left_out = {};  // why the campaign has nothing to convert of it; empty: it has
};

struct SampleTable {
  std::vector<std::string> columns;  // names of the parameters
  std::vector<SampleRow> rows;       // ascending by id and by number
  bool has_ids = false;              // the table has a column `id`
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
