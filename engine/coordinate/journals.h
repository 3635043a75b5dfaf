// SPDX-License-Identifier: Apache-2.0
// The workers' journals (engine/wire/worker_journal.h) as the coordinator's edge finds, reads and removes
// them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/coordinate/machine.h"
#include "engine/store/store.h"

namespace wflow::engine {

// Workers of earlier coordinators: those with a row that has not ended, and journals without one. A worker
// that had a coordinator and of which the store knows nothing (commits were lost) counts as one with a row.
std::vector<KnownWorker> known_workers(const std::filesystem::path& campaign,
                                       const std::vector<store::WorkerRow>& rows, store::Store& store);

// Carries out action::ReadJournal.
event::JournalRead read_journal(const std::filesystem::path& campaign, const action::ReadJournal& request);

// The journal, unless somebody holds its lock, and the worker's directory. What stays is read again by the
// next coordinator, to no effect.
void remove_journal(const std::filesystem::path& campaign, const std::string& worker);

}  // namespace wflow::engine
