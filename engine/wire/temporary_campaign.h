// SPDX-License-Identifier: Apache-2.0
// A campaign directory that goes when the test ends, and what workers left in it.
#pragma once

#include <fcntl.h>
#include <sys/file.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "engine/wire/worker_journal.h"

namespace wflow::engine::wire {

class TemporaryCampaign {
 public:
  TemporaryCampaign() {
    std::string name = (std::filesystem::temp_directory_path() / "wflow-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
    std::filesystem::create_directories(path_ / ".wflow" / "workers");
    std::filesystem::permissions(path_ / ".wflow", std::filesystem::perms::owner_all);
  }
  TemporaryCampaign(const TemporaryCampaign&) = delete;
  TemporaryCampaign& operator=(const TemporaryCampaign&) = delete;
  ~TemporaryCampaign() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct WorkerJournal {
  std::filesystem::path journal;
  bool alive = false;  // a process holds its lock: it may add and remove records
  Records records;
};

// Those of a campaign, by name.
inline std::vector<WorkerJournal> find_worker_journals(const std::filesystem::path& campaign) {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(campaign / ".wflow" / "workers")) {
    if (entry.path().extension() == ".journal") files.insert(entry.path());
  }
  std::vector<WorkerJournal> found;
  for (const auto& file : files) {
    const FileDescriptor fd = open_file(file, O_RDONLY | O_CLOEXEC);
    found.push_back({file, ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0, read_records(file)});
  }
  return found;
}

}  // namespace wflow::engine::wire
