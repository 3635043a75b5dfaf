// SPDX-License-Identifier: Apache-2.0
// The rows of a data set in order, for writers of other formats, and the folder that these write.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "converters/shards/shard_file.h"
#include "converters/shards/shard_reader.h"

namespace wflow::converters {

// A row of a shard: a sample, or one of its sub-cubes.
struct DataRow {
  std::int64_t id = 0;
  std::uint32_t piece = 0;                        // number of the sub-cube
  std::vector<std::vector<std::uint8_t>> fields;  // in the order and the types of the manifest
};

// Samples of ragged fields: padded to the longest, or as the shard has them, the ragged axis first (masks are
// then empty).
enum class RaggedRows { padded, stored };

std::vector<std::string> field_names(const Manifest& manifest);

// Error{data} if the shard does not match the manifest.
void check_shard(const ShardFile& shard, const ShardEntry& entry, const Manifest& manifest);

// For each row, its number among the rows with the same id.
std::vector<std::uint32_t> piece_numbers(const std::vector<std::int64_t>& ids);

// All fields of a row. Error{data} if they are damaged.
DataRow read_row(const ShardFile& shard, std::size_t row, const Manifest& manifest, ReadScratch& scratch,
                 RaggedRows ragged = RaggedRows::padded);

// Reads the rows of a shard on `threads` threads, calls `prepare` there, and passes them in order to `take`
// on this thread; at most 2 * threads rows are in memory.
void for_each_row(const ShardFile& shard, const Manifest& manifest, unsigned threads,
                  const std::function<void(DataRow&)>& prepare,
                  const std::function<void(const DataRow&)>& take);

// A folder that appears only when it is complete. Write below path(), then publish(). The destructor removes
// an unpublished folder; the next process that writes the same folder removes the files of a killed one.
class NewFolder {
 public:
  // Error{usage} if the target exists, or another process writes it.
  explicit NewFolder(std::filesystem::path target);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();
  const std::filesystem::path& path() const { return temporary_; }
  // Syncs all files to the disk, then renames the folder.
  void publish();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  FileDescriptor lock_;
  bool published_ = false;
};

// A file written from front to back. Error{system} if the disk refuses.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  void write(std::span<const std::uint8_t> bytes);
  void write(std::string_view bytes);
  // Writes the rest and closes the file; an unclosed file is incomplete.
  void close();

 private:
  void flush();
  std::filesystem::path path_;
  FileDescriptor fd_;
  std::string buffer_;
};

}  // namespace wflow::converters
