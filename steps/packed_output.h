// SPDX-License-Identifier: Apache-2.0
// The output of a step with `output: packed`: one log and one index for each worker instead of two files for
// each task (docs/formats/packed-output.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "specs/plan/template.h"

namespace wflow::steps {

inline constexpr std::uint64_t kPackedStreamBytes = 64 << 20;  // limit for each stream of an execution

// One execution that printed something: an entry of the index.
struct PackedEntry {
  specs::Element element = 0;  // the first of `count`; a bundle's process prints for all of its samples
  std::uint64_t lease = 0;     // (lease, element) names the execution
  std::uint64_t offset = 0;    // position of its stdout in the log, followed by its stderr
  double ended_s = 0;          // Unix time
  std::uint32_t out_bytes = 0;
  std::uint32_t err_bytes = 0;
  std::uint32_t attempt = 0;
  std::uint32_t count = 1;
  std::optional<std::uint32_t> text_check;  // checksum of stdout and stderr; older indexes have none
};

// Adds executions to one worker's files in one step's directory. One writer at a time: the agent, or the
// guardian after the agent's death.
class PackWriter {
 public:
  // `directory`: packed_directory() of the step's workspace; created if missing.
  PackWriter(std::filesystem::path directory, std::string worker);

  // Copies the contents of the files `out` and `err` to the log, then writes the entry to the index; fills in
  // `offset` and sizes of `entry`. `title` is a line before the text, for readers of the log. Writes nothing
  // if both files are empty.
  void append(PackedEntry entry, const std::string& title, int out, int err);

 private:
  void open(std::uint32_t number);
  void cut_index();

  std::filesystem::path directory_;
  std::string worker_;
  std::uint32_t number_ = 0;
  FileDescriptor log_;
  FileDescriptor index_;
  std::uint64_t end_ = 0;  // size of the log
};

std::filesystem::path packed_directory(const std::filesystem::path& workspace);

// An execution that was found, and the log with its text.
struct PackedExecution {
  PackedEntry entry;
  std::filesystem::path log;
};

// Returns every execution of an element that printed something, in the order of their ends, from the files of
// all workers. Reads all indexes of the directory once.
std::vector<PackedExecution> find_packed(const std::filesystem::path& directory, specs::Element element);

// Returns a sentence for each damage in a directory. Reads all indexes, and with `texts` all logs.
// While tasks run, the newest text may have no entry yet.
std::vector<std::string> packed_damage(const std::filesystem::path& directory, bool texts);

// Follows a directory while tasks print. news() returns the executions of all workers since the previous
// call, in the order of each file.
class PackReader {
 public:
  explicit PackReader(std::filesystem::path directory);
  std::vector<PackedExecution> news();

 private:
  void read_index(const std::filesystem::path& index, std::vector<PackedExecution>& executions);

  std::filesystem::path directory_;
  std::map<std::string, std::uint64_t> read_;  // a file name: bytes
};

// Throw Error{data} where the text is damaged.
std::string packed_out(const PackedExecution& execution);
std::string packed_err(const PackedExecution& execution);

}  // namespace wflow::steps
