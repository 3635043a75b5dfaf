// SPDX-License-Identifier: Apache-2.0
// Records of single elements and workers, and copies of the database.
#include <SQLiteCpp/Backup.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "engine/store/impl.h"
#include "engine/store/store.h"

namespace wflow::engine::store {

namespace {

constexpr const char* kExecutions =
    "SELECT f.element, c.executions, c.asked, f.exit_code, f.reason, f.worker, f.started, f.duration, "
    "substr(f.detail, -1000) FROM failures f "
    "JOIN "
    "(SELECT max(id) AS id, count(*) AS executions, sum(reason = 'exited' AND exit_code IN (100, 104)) AS "
    "asked FROM failures WHERE array = ? AND element BETWEEN ? AND ? GROUP BY element ORDER BY element "
    "LIMIT ?) c "
    "ON c.id = f.id ORDER BY f.element";

constexpr const char* kWorkers =
    "SELECT w.*, COALESCE(f.failures, 0) FROM workers w LEFT JOIN (SELECT worker, count(*) AS failures FROM "
    "failures GROUP BY worker) f ON f.worker = w.id ORDER BY w.joined";
constexpr const char* kWorker = "SELECT *, 0 FROM workers WHERE id = ?";
constexpr const char* kLivingWorkers = "SELECT *, 0 FROM workers WHERE ended IS NULL ORDER BY joined";

// The last line of a text whose beginning may be missing.
std::string last_line(const std::string& text) {
  std::string_view line = text::trim(text);
  if (const std::size_t at = line.rfind('\n'); at != std::string_view::npos) line.remove_prefix(at + 1);
  return printable(text::trim(line).substr(0, wire::kListedMessage));
}

ProcessIdentity identity_at(SQLite::Statement& row, int column) {
  return {row.getColumn(column).getString(), row.getColumn(column + 1).getString(),
          row.getColumn(column + 2).getString(), row.getColumn(column + 3).getInt64(),
          static_cast<std::uint64_t>(row.getColumn(column + 4).getInt64())};
}

// The columns of the table, then the number of failures.
WorkerRecord worker_of_row(SQLite::Statement& row) {
  WorkerRecord worker;
  worker.id = row.getColumn(0).getString();
  worker.group = row.getColumn(1).getString();
  worker.cores = row.getColumn(2).getInt();
  worker.gpus = row.getColumn(3).getInt();
  worker.guardian = identity_at(row, 4);
  worker.agent = identity_at(row, 9);
  worker.lost_s = row.getColumn(14).getDouble();
  worker.joined_s = row.getColumn(15).getDouble();
  worker.ended_s = row.getColumn(16).getDouble();
  worker.reason = row.getColumn(17).getString();
  worker.failures = static_cast<std::uint64_t>(row.getColumn(18).getInt64());
  return worker;
}

}  // namespace

std::vector<ExecutionRecord> Store::executions(ArrayId array, Range range, std::size_t limit) {
  return impl_->reading([&] {
    auto& select = impl_->statement(kExecutions);
    SQLite::bind(select, array, signed_of(range.first), signed_of(range.last), signed_of(limit));
    std::vector<ExecutionRecord> records;
    while (select.executeStep()) {
      records.push_back({static_cast<Element>(select.getColumn(0).getInt64()), select.getColumn(1).getUInt(),
                         select.getColumn(2).getUInt(), select.getColumn(3).getInt(),
                         select.getColumn(4).getString(), select.getColumn(5).getString(),
                         select.getColumn(6).getDouble(), select.getColumn(7).getDouble(),
                         last_line(select.getColumn(8).getString())});
    }
    return records;
  });
}

std::vector<WorkerRecord> Store::workers() {
  return impl_->reading([&] {
    auto& select = impl_->statement(kWorkers);
    std::vector<WorkerRecord> workers;
    while (select.executeStep()) workers.push_back(worker_of_row(select));
    return workers;
  });
}

std::optional<WorkerRecord> Store::worker(const std::string& id) {
  return impl_->reading([&]() -> std::optional<WorkerRecord> {
    auto& select = impl_->statement(kWorker);
    select.bind(1, id);
    if (!select.executeStep()) return std::nullopt;
    return worker_of_row(select);
  });
}

std::vector<WorkerRow> Store::Impl::read_living_workers() {
  auto& select = statement(kLivingWorkers);
  std::vector<WorkerRow> workers;
  while (select.executeStep()) workers.push_back(worker_of_row(select));
  return workers;
}

void refuse_existing(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  throw Error(ExitCode::usage, fmt::format("{} exists already; a snapshot replaces nothing", path.string()));
}

namespace {

// A slice holds the connection: commits and questions of other threads wait for one slice at most. What they
// write in between goes into the copy as well, as it is the same connection.
void copy_in_slices(SQLite::Database& from, SQLite::Database& to, const std::function<void()>& between) {
  constexpr int kPages = 256;
  constexpr std::chrono::milliseconds kPause{1};  // for those that wait for the connection
  SQLite::Backup copy(to, from);
  while (true) {
    const int result = copy.executeStep(kPages);
    if (result == SQLite::OK || result == SQLITE_BUSY || result == SQLITE_LOCKED) {
      if (between) between();
      std::this_thread::sleep_for(kPause);
    } else {
      return;  // all of it; a failure is thrown
    }
  }
}

}  // namespace

void Store::snapshot(const std::filesystem::path& path, const std::function<void()>& between) {
  refuse_existing(path);
  remove_left_files(path.parent_path(), path.filename().string());  // as large as the database
  DurableFile file(path);
  // This open() gives the reason if a path cannot be written.
  open_file(file.temporary(), O_WRONLY | O_CREAT | O_EXCL);
  try {
    SQLite::Database copy(file.temporary().string(), SQLite::OPEN_READWRITE);
    // The last slice must not wait for the disk while it holds the connection: publish() syncs the file.
    copy.exec("PRAGMA synchronous=OFF; PRAGMA journal_mode=OFF");
    copy_in_slices(impl_->database, copy, between);
    // It is read where no write-ahead log can be made.
    copy.exec("PRAGMA journal_mode=DELETE");
  } catch (const SQLite::Exception& error) {
    throw Error(ExitCode::system, fmt::format("cannot write {}: {}", path.string(), error.what()));
  }
  file.publish();
}

}  // namespace wflow::engine::store
