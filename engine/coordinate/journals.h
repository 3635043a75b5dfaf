// SPDX-License-Identifier: Apache-2.0
// The workers' journals (engine/wire/worker_journal.h) as the coordinator's edge finds, reads and removes
// them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/batch/orphans.h"
#include "engine/coordinate/machine.h"
#include "engine/store/store.h"

namespace wflow::engine {

// Workers of earlier coordinators: those with a row that has not ended, and journals without one. A worker
// that had a coordinator and of which the store knows nothing (commits were lost) counts as one with a row.
// Removes journals without a result whose workers have ended long ago.
std::vector<KnownWorker> known_workers(const std::filesystem::path& campaign,
                                       const std::vector<store::WorkerRow>& rows, store::Store& store);

// Carries out action::ReadJournal. What the worker's tasks left behind on this machine ends first: no call
// waits for that.
class JournalReading {
 public:
  JournalReading(std::filesystem::path campaign, action::ReadJournal request);
  // Nothing while such a process has not ended, or the disk does not give the journal: call it again as
  // batch::OrphanEnd::step() says.
  std::optional<event::JournalRead> take(double now_s);
  std::vector<int> descriptors() const { return orphans_.descriptors(); }

 private:
  std::filesystem::path campaign_;
  action::ReadJournal request_;
  batch::OrphanEnd orphans_;
  bool said_ = false;  // that the journal can't be read for the moment
};

// Whether the worker's guardian has written that none of its processes is left.
bool has_ended(const std::filesystem::path& campaign, const std::string& worker);

// The journal, unless somebody holds its lock, and the worker's directory. What stays is read again by the
// next coordinator, to no effect.
void remove_journal(const std::filesystem::path& campaign, const std::string& worker);

}  // namespace wflow::engine
