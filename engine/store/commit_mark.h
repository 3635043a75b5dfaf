// SPDX-License-Identifier: Apache-2.0
// Which commit was acknowledged last: a small file beside the database, <campaign>/.wflow/commits. SQLite
// drops a damaged end of its write-ahead log without a word, and an older copy of a database looks whole.
// The number of commits in the database is compared with this one at every opening.
//
// It costs one pwrite a commit, without fsync: it says what survives the end of processes. After a power cut
// the number may be older than the database, and what the disk lost in spite of fsync goes unnoticed then.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/file.h"

namespace wflow::engine::store {

class CommitMark {
 public:
  // Opens the file, or makes an empty one.
  explicit CommitMark(const std::filesystem::path& campaign);
  // Nothing when the file is new or damaged: then nothing is known.
  std::optional<std::uint64_t> read() const;
  // Failures are ignored: an older number only makes the comparison weaker.
  void write(std::uint64_t commits) noexcept;

 private:
  FileDescriptor file_;
};

}  // namespace wflow::engine::store
