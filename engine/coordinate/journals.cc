// SPDX-License-Identifier: Apache-2.0
#include "engine/coordinate/journals.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <map>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "engine/batch/orphans.h"
#include "engine/wire/worker_journal.h"

namespace wflow::engine {

namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& campaign) {
  return campaign / ".wflow" / "workers";
}

fs::path journal_of(const fs::path& campaign, const std::string& worker) {
  return folder_of(campaign) / (worker + ".journal");
}

// Whether somebody holds the lock. On file systems without locks nobody seems to.
bool is_locked(const fs::path& journal) {
  try {
    const FileDescriptor file = open_file(journal, O_RDONLY);
    return ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  } catch (const Error&) {
    return false;  // a worker that ends well removes its journal at any time
  }
}

// A worker without a row that is still to end, as its journal tells of it.
KnownWorker worker_of(const fs::path& journal, store::Store& store) {
  KnownWorker worker;
  worker.id = journal.stem().string();
  worker.row = false;
  if (store.worker(worker.id)) return worker;  // its end is recorded: only its results count
  try {
    const wire::Records records = wire::parse_records(read_file(journal));
    if (!records.header || records.header->lost_s <= 0) return worker;  // it never held a lease
    worker.group = records.header->group;
    worker.guardian = records.header->guardian;
    worker.agent = records.header->agent;
    worker.lost_s = records.header->lost_s;
    worker.row = worker.guardian.known();
  } catch (const Error&) {
    // It says what is wrong when it is read for its results.
  }
  return worker;
}

}  // namespace

std::vector<KnownWorker> known_workers(const fs::path& campaign, const std::vector<store::WorkerRow>& rows,
                                       store::Store& store) {
  std::map<std::string, KnownWorker> known;
  for (const store::WorkerRow& row : rows)
    known[row.id] = {row.id, row.group, row.guardian, row.agent, row.lost_s, false, false, true};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_of(campaign), error)) {
    if (entry.path().extension() != ".journal") continue;
    const std::string id = entry.path().stem().string();
    if (!known.contains(id)) known[id] = worker_of(entry.path(), store);
    known[id].journal = true;
    known[id].locked = is_locked(entry.path());
  }
  std::vector<KnownWorker> list;
  for (auto& [id, worker] : known) list.push_back(std::move(worker));
  return list;
}

event::JournalRead read_journal(const fs::path& campaign, const action::ReadJournal& request) {
  event::JournalRead read;
  read.worker = request.worker;
  // They must end before the tasks run again: two would write the same files.
  if (request.here) read.orphans = batch::end_orphans(request.worker);
  const fs::path file = journal_of(campaign, request.worker);
  std::error_code error;
  if (!fs::exists(file, error)) return read;
  try {
    wire::Records records = wire::parse_records(read_file(file));
    read.results = std::move(records.results);
    if (records.damaged) read.damaged = records.damaged.sentence();
  } catch (const Error& unreadable) {
    read.damaged = unreadable.what();
  }
  return read;
}

void remove_journal(const fs::path& campaign, const std::string& worker) {
  const fs::path file = journal_of(campaign, worker);
  if (is_locked(file)) return;
  std::error_code ignored;
  fs::remove(file, ignored);
  fs::remove_all(folder_of(campaign) / worker, ignored);
}

}  // namespace wflow::engine
