// SPDX-License-Identifier: Apache-2.0
// What the store knows of single elements and workers, and copies of it.
#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "engine/store/database.h"
#include "engine/store/impl.h"
#include "engine/store/store.h"

namespace wflow::engine::store {

namespace {

constexpr const char* kExecutions =
    "SELECT f.element, c.executions, f.exit_code, f.reason, f.worker, f.started, f.duration FROM failures f "
    "JOIN "
    "(SELECT max(id) AS id, count(*) AS executions FROM failures WHERE array = ? AND element BETWEEN ? AND ? "
    "GROUP BY element) c "
    "ON c.id = f.id ORDER BY f.element";

constexpr const char* kWorkers =
    "SELECT w.id, w.host, w.worker_group, w.pid, w.cores, w.gpus, w.joined, w.ended, w.reason, "
    "COALESCE(f.failures, 0) "
    "FROM workers w LEFT JOIN (SELECT worker, count(*) AS failures FROM failures GROUP BY worker) f ON "
    "f.worker = w.id "
    "ORDER BY w.joined";
constexpr const char* kWorker =
    "SELECT id, host, worker_group, pid, cores, gpus, joined, ended, reason, 0 FROM workers WHERE id = ?";

WorkerRecord worker_of_row(SQLite::Statement& row) {
  WorkerRecord worker;
  worker.id = row.getColumn(0).getString();
  worker.host = row.getColumn(1).getString();
  worker.group = row.getColumn(2).getString();
  worker.pid = row.getColumn(3).getInt64();
  worker.cores = row.getColumn(4).getInt();
  worker.gpus = row.getColumn(5).getInt();
  worker.joined_s = row.getColumn(6).getDouble();
  worker.ended_s = row.getColumn(7).getDouble();
  worker.reason = row.getColumn(8).getString();
  worker.failures = static_cast<std::uint64_t>(row.getColumn(9).getInt64());
  return worker;
}

}  // namespace

std::vector<ExecutionRecord> Store::executions(ArrayId array, Range range) {
  auto& select = impl_->statement(kExecutions);
  SQLite::bind(select, array, static_cast<std::int64_t>(range.first), static_cast<std::int64_t>(range.last));
  std::vector<ExecutionRecord> records;
  while (select.executeStep()) {
    records.push_back({static_cast<Element>(select.getColumn(0).getInt64()), select.getColumn(1).getUInt(),
                       select.getColumn(2).getInt(), select.getColumn(3).getString(),
                       select.getColumn(4).getString(), select.getColumn(5).getDouble(),
                       select.getColumn(6).getDouble()});
  }
  return records;
}

std::vector<WorkerRecord> Store::workers() {
  auto& select = impl_->statement(kWorkers);
  std::vector<WorkerRecord> workers;
  while (select.executeStep()) workers.push_back(worker_of_row(select));
  return workers;
}

std::optional<WorkerRecord> Store::worker(const std::string& id) {
  auto& select = impl_->statement(kWorker);
  select.bind(1, id);
  if (!select.executeStep()) return std::nullopt;
  return worker_of_row(select);
}

void Store::snapshot(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    throw Error(ExitCode::usage,
                fmt::format("{} exists already; a snapshot replaces nothing", path.string()));
  }
  DurableFile file(path);
  try {
    for (auto& [sql, statement] : impl_->statements) statement.tryReset();
    std::filesystem::remove(file.temporary(), ignored);  // VACUUM INTO makes its file itself
    SQLite::Statement vacuum(impl_->database, "VACUUM INTO ?");
    vacuum.bind(1, file.temporary().string());
    vacuum.exec();
  } catch (const SQLite::Exception& error) {
    throw_database_error(error, "write", path);
  }
  file.publish();
}

}  // namespace wflow::engine::store
