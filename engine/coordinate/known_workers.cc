// SPDX-License-Identifier: Apache-2.0
#include "engine/coordinate/known_workers.h"

#include <map>
#include <utility>

namespace wflow::engine {

namespace {

// A worker without a row that has not ended, from its journal.
KnownWorker worker_of(const FoundJournal& journal, bool has_ended_row) {
  KnownWorker worker;
  worker.id = journal.worker;
  worker.row = false;
  if (has_ended_row) return worker;                                   // only its results count
  if (!journal.header || journal.header->lost_s <= 0) return worker;  // it never held a lease
  worker.group = journal.header->group;
  worker.guardian = journal.header->guardian;
  worker.agent = journal.header->agent;
  worker.lost_s = journal.header->lost_s;
  worker.row = worker.guardian.known();
  return worker;
}

}  // namespace

std::vector<KnownWorker> known_workers(const std::vector<store::WorkerRow>& rows,
                                       const std::vector<FoundJournal>& journals,
                                       const std::function<bool(const std::string& worker)>& has_ended_row) {
  std::map<std::string, KnownWorker> known;
  for (const store::WorkerRow& row : rows)
    known[row.id] = {row.id, row.group, row.guardian, row.agent, row.lost_s, false, false, true};
  for (const FoundJournal& journal : journals) {
    if (!known.contains(journal.worker))
      known[journal.worker] = worker_of(journal, has_ended_row(journal.worker));
    KnownWorker& worker = known[journal.worker];
    worker.journal = true;
    worker.locked = journal.locked;
    worker.ended = journal.header && journal.header->ended;
  }
  std::vector<KnownWorker> list;
  for (auto& [id, worker] : known) list.push_back(std::move(worker));
  return list;
}

}  // namespace wflow::engine
