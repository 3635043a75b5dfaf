// SPDX-License-Identifier: Apache-2.0
// What a journal needs of a disk: the real one (posix_journal_file.h), or a simulated one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace wflow::workers {

// All throw Error{system}.
class JournalFile {
 public:
  virtual ~JournalFile() = default;
  virtual void append(std::string_view bytes) = 0;  // a part of it may stay where it fails
  virtual void truncate(std::uint64_t size) = 0;
  virtual std::string read() = 0;
  virtual void remove() = 0;
  virtual void sync() = 0;  // another host sees it, and it survives a crash of this one
  // How many results are in it, kept beside it: whoever finds less knows that some are lost.
  virtual void note_results(std::uint64_t count) = 0;
  virtual std::optional<std::uint64_t> noted_results() = 0;
};

}  // namespace wflow::workers
