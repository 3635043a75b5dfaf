// SPDX-License-Identifier: Apache-2.0
// The samples of a conversion, with their files and targets, and all fields of one sample.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "converters/config.h"
#include "converters/input/arrange.h"

namespace wflow::converters {

// A path that the rows of a stacked file share, to save memory with a million rows.
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
  std::int64_t id = 0;       // the value in /id of the shard
  SharedPath file = {};      // the sample's own file; empty if no field needs it
  std::vector<double> parameters = {};
  std::optional<std::uint64_t> row = std::nullopt;      // row of a stacked file
  SharedPath directory = {};                            // folder of the files that fields name
  std::uint64_t identity = 0;                           // decides the split by hash
  std::optional<std::uint64_t> stratum = std::nullopt;  // if the split is stratified
  std::optional<std::size_t> split = std::nullopt;      // if given: an index into kSplitNames
  std::string left_out = {};  // reason why the campaign has no file to convert; else empty
};

struct SampleTable {
  std::vector<std::string> columns;  // names of the parameters
  std::vector<SampleRow> rows;       // ascending by id and by number
  bool has_ids = false;              // the table has a column `id`
};

// by_row: a table of all samples; they are numbered 0, 1, ... in order of their ids (the row numbers
// if there is no column `id`). by_id: a block's rows of a campaign; the id is the number.
enum class Numbering { by_row, by_id };

// Reads the columns that the configuration needs, or all if it needs all. A sample's identity is its
// group, else its id, else its file as written. Relative files are relative to the table's folder. Throws
// Error{data} with file and line.
SampleTable read_sample_table(const std::filesystem::path& path, const ConvertConfig& config,
                              Numbering numbering);

// Reads all fields of samples, from their files and parameters, one sample after the other, on one thread.
// The files of a stacked sample stay open for the next one of the same files. Keeps references to its
// arguments.
class SampleReader {
 public:
  // `columns`: names of the rows' parameters.
  SampleReader(const ConvertConfig& config, const std::vector<std::string>& columns);
  ~SampleReader();
  SampleReader(SampleReader&&) noexcept;

  // The fields in the order of the configuration, each followed by its mask if any. Throws Error{data} if the
  // sample is unusable. A file that several fields need is opened once.
  std::vector<FieldValue> read(const SampleRow& row);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The files of a sample, each once; without the files that the campaign did not pass on.
std::vector<std::filesystem::path> sample_files(const ConvertConfig& config, const SampleRow& row);

// Checks that a file of a simulation matches the declaration of its step (outputs: of a study).

struct OutputCheck {
  std::string file;
  std::string dataset;               // HDF5; empty: the only one of its root group
  std::vector<std::uint64_t> shape;  // slowest axis first; empty: any
  bool finite = false;               // neither NaN nor infinity
};

// [{"file": ..., "dataset": ..., "shape": [...], "finite": ...}, ...]; only `file` must be there. Throws
// Error{usage}.
std::vector<OutputCheck> checks_from_json(const std::string& text);

// Throws Error{data} with a sentence that names the file and the error.
void check(const OutputCheck& expected);

}  // namespace wflow::converters
