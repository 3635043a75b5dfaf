// SPDX-License-Identifier: Apache-2.0
// <campaign>/.wflow/workers/<worker>.journal. The living worker holds an exclusive flock on the file: that is
// how a coordinator on this host knows it lives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/file.h"
#include "workers/agent/journal_file.h"

namespace wflow::workers {

class PosixJournalFile : public JournalFile {
 public:
  // Creates the file and takes the lock.
  PosixJournalFile(const std::filesystem::path& campaign, const std::string& worker);
  void append(std::string_view bytes) override;
  void truncate(std::uint64_t size) override;
  std::string read() override;
  void remove() override;
  void sync() override;
  void note_results(std::uint64_t count) override;
  std::optional<std::uint64_t> noted_results() override;

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
  FileDescriptor count_;  // opened with the first result
};

}  // namespace wflow::workers
