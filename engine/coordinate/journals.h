// SPDX-License-Identifier: Apache-2.0
// Finds, reads and removes the workers' journals (engine/wire/worker_journal.h), for the coordinator's edge.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/batch/orphans.h"
#include "engine/coordinate/machine.h"
#include "engine/store/store.h"

namespace wflow::engine {

// Workers of earlier coordinators (known_workers.h), from the journals in the directory. Removes journals
// without a result whose workers have ended long ago.
std::vector<KnownWorker> known_workers(const std::filesystem::path& campaign,
                                       const std::vector<store::WorkerRow>& rows, store::Store& store);

// Carries out action::ReadJournal. First ends the processes that the worker's tasks left on this machine; no
// call waits for that.
class JournalReading {
 public:
  JournalReading(std::filesystem::path campaign, action::ReadJournal request);
  // Empty while such a process runs, or while the disk cannot read the journal: call it again as
  // batch::OrphanEnd::step() describes.
  std::optional<event::JournalRead> take(double now_s);
  std::vector<int> descriptors() const { return orphans_.descriptors(); }

 private:
  std::filesystem::path campaign_;
  action::ReadJournal request_;
  batch::OrphanEnd orphans_;
  bool said_ = false;  // has logged that the journal cannot be read for now
};

// True if the worker's guardian has written that none of the worker's processes is left.
bool has_ended(const std::filesystem::path& campaign, const std::string& worker);

// Removes the journal, unless a process holds its lock, and the worker's directory. The next coordinator
// reads a remaining journal again, without effect.
void remove_journal(const std::filesystem::path& campaign, const std::string& worker);

}  // namespace wflow::engine
