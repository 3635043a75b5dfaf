// SPDX-License-Identifier: Apache-2.0
#include "engine/coordinate/journals.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "engine/coordinate/known_workers.h"
#include "engine/wire/worker_journal.h"

namespace wflow::engine {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kForgotten{24};

fs::path folder_of(const fs::path& campaign) {
  return campaign / ".wflow" / "workers";
}

fs::path journal_of(const fs::path& campaign, const std::string& worker) {
  return folder_of(campaign) / (worker + ".journal");
}

// True if a process holds the lock. Always false on file systems without locks.
bool is_locked(const fs::path& journal) {
  try {
    const FileDescriptor file = open_file(journal, O_RDONLY);
    return ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  } catch (const Error&) {
    return false;  // a worker that ends well removes its journal at any time
  }
}

// It never had a coordinator, so that no task of it can be left, and both of its processes were here.
bool has_ended_here(const wire::JournalHeader& header) {
  if (header.lost_s > 0) return false;
  try {
    return ProcessHandle(header.guardian).ended() &&
           (!header.agent.known() || ProcessHandle(header.agent).ended());
  } catch (const Error&) {
    return false;
  }
}

// A remote worker that was lost leaves its journal, and so does one that was killed before it joined. No
// process writes to it any more once it is so old (a worker without a coordinator ends long before), or once
// its processes have ended.
bool is_forgotten(const fs::path& journal) {
  std::error_code error;
  const auto changed = fs::last_write_time(journal, error);
  if (error || is_locked(journal)) return false;
  const bool old = fs::file_time_type::clock::now() - changed >= kForgotten;
  try {
    const wire::Records records = wire::read_records(journal);
    const bool over = old || (records.header && has_ended_here(*records.header));
    return over && records.results.empty() && !records.damaged;
  } catch (const Error&) {
    return false;
  }
}

// Empty if it cannot be read: reading its results reports the error.
wire::Records records_of(const fs::path& journal) {
  try {
    return wire::parse_records(read_file(journal));
  } catch (const Error&) {
    return {};
  }
}

// A journal of a later version would count as damaged: its worker would be awaited, and its results would be
// lost.
void refuse_newer(const fs::path& journal, const wire::Records& records) {
  if (!records.damaged.newer) return;
  throw Error(
      ExitCode::version,
      fmt::format("{} was written by a newer wflow and holds results that this one cannot read; use that one",
                  journal.string()));
}

}  // namespace

std::vector<KnownWorker> known_workers(const fs::path& campaign, const std::vector<store::WorkerRow>& rows,
                                       store::Store& store) {
  std::set<std::string, std::less<>> with_row;
  for (const store::WorkerRow& row : rows) with_row.insert(row.id);
  std::vector<FoundJournal> journals;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_of(campaign), error)) {
    if (entry.path().extension() != ".journal") continue;
    const std::string id = entry.path().stem().string();
    if (!with_row.contains(id) && is_forgotten(entry.path())) {
      remove_journal(campaign, id);
      continue;
    }
    const wire::Records records = records_of(entry.path());
    refuse_newer(entry.path(), records);
    journals.push_back({id, records.header, is_locked(entry.path())});
  }
  return known_workers(rows, journals, [&](const std::string& id) { return store.worker(id).has_value(); });
}

JournalReading::JournalReading(fs::path campaign, action::ReadJournal request)
    : campaign_(std::move(campaign)), request_(std::move(request)), orphans_(campaign_, request_.worker) {}

std::optional<event::JournalRead> JournalReading::take(double now_s) {
  // They must end before the tasks run again: two would write the same files.
  if (request_.here && !orphans_.step(now_s)) return std::nullopt;
  event::JournalRead read;
  read.worker = request_.worker;
  read.orphans = orphans_.count();
  const fs::path file = journal_of(campaign_, request_.worker);
  std::error_code error;
  if (!fs::exists(file, error)) {
    const auto noted = error ? std::nullopt : wire::noted_results(file);
    if (noted.value_or(0) > 0) read.damaged = wire::missing_journal(*noted);
    return read;
  }
  try {
    wire::Records records = wire::read_records(file);
    read.results = std::move(records.results);
    if (records.header) read.running = std::move(records.header->running);
    if (records.damaged) read.damaged = records.damaged.sentence();
  } catch (const Error& unreadable) {
    // It may hold finished work: keep it if the disk fails only temporarily.
    if (is_disk_trouble(unreadable)) {
      if (!std::exchange(said_, true))
        log::write(LogLevel::warning,
                   std::string(unreadable.what()) + "; it is read again until that has changed");
      return std::nullopt;
    }
    read.damaged = unreadable.what();
  }
  return read;
}

bool has_ended(const fs::path& campaign, const std::string& worker) {
  const auto header = records_of(journal_of(campaign, worker)).header;
  return header && header->ended;
}

void remove_journal(const fs::path& campaign, const std::string& worker) {
  const fs::path file = journal_of(campaign, worker);
  if (is_locked(file)) return;
  std::error_code ignored;
  fs::remove(file, ignored);
  fs::remove(wire::count_file(file), ignored);
  fs::remove_all(folder_of(campaign) / worker, ignored);
}

}  // namespace wflow::engine
