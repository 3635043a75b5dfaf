// SPDX-License-Identifier: Apache-2.0
// The workers of earlier coordinators, from the database's rows and the journals in the campaign's directory.
// The edge and tests/simulation find the journals.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/coordinate/machine.h"
#include "engine/store/batch.h"
#include "engine/wire/worker_journal.h"

namespace wflow::engine {

struct FoundJournal {
  std::string worker;
  std::optional<wire::JournalHeader> header;  // empty: it cannot be read
  bool locked = false;                        // a process holds its lock
};

// Workers with a row that has not ended, and journals without one. A worker that had a coordinator and is
// missing in the database (commits were lost) counts as one with a row. `has_ended_row`: the database has a
// row of this worker's end.
std::vector<KnownWorker> known_workers(const std::vector<store::WorkerRow>& rows,
                                       const std::vector<FoundJournal>& journals,
                                       const std::function<bool(const std::string& worker)>& has_ended_row);

}  // namespace wflow::engine
