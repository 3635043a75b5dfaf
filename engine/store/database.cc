// SPDX-License-Identifier: Apache-2.0
#include "engine/store/database.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "engine/store/schema.h"
#include "engine/store/store.h"

namespace wflow::engine::store {

namespace {

// `wflow status` holds the database for some milliseconds: that must not look like another coordinator.
constexpr std::chrono::seconds kPatience{2};

SQLite::Database open_once(const std::filesystem::path& path, const std::string& vfs) {
  SQLite::Database database(path.string(), SQLite::OPEN_READWRITE, 0, vfs);
  // Exclusive first: the write-ahead log then needs no shared memory, which network file systems lack.
  database.exec("PRAGMA locking_mode=EXCLUSIVE");
  if (database.execAndGet("PRAGMA journal_mode=WAL").getString() != "wal")
    database.exec("PRAGMA journal_mode=TRUNCATE");
  database.exec(
      "PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY; PRAGMA wal_autocheckpoint=2000; BEGIN IMMEDIATE; "
      "COMMIT");
  return database;
}

bool is_busy(const SQLite::Exception& error) {
  return error.getErrorCode() == SQLITE_BUSY || error.getErrorCode() == SQLITE_LOCKED;
}

// Closed before every other try: two that wait with a lock in hand would wait for each other.
SQLite::Database open_patiently(const std::filesystem::path& path, const std::string& vfs) {
  if (!vfs.empty()) return open_once(path, vfs);  // time does not pass there
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    try {
      return open_once(path, {});
    } catch (const SQLite::Exception& error) {
      if (!is_busy(error) || std::chrono::steady_clock::now() > until) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + ::getpid() % 11));
  }
}

}  // namespace

// `wflow run` makes the study's copy first and the database last.
void require_record(const std::filesystem::path& campaign) {
  std::error_code ignored;
  if (std::filesystem::exists(database_path(campaign), ignored)) return;
  if (std::filesystem::exists(campaign / ".wflow", ignored)) {
    throw Error(ExitCode::usage,
                fmt::format("{}: no campaign was started here yet (it has no .wflow/campaign.db); start it "
                            "with: wflow run STUDY.yaml",
                            campaign.string()));
  }
  throw Error(ExitCode::usage,
              fmt::format("{} is not a campaign directory: it has no .wflow/campaign.db", campaign.string()));
}

namespace {

// SQLite says no more than "disk I/O error" of another user's campaign.
void require_access(const std::filesystem::path& campaign) {
  for (const std::filesystem::path& path : {database_path(campaign), campaign / ".wflow"}) {
    if (::access(path.c_str(), R_OK | W_OK) == 0) continue;
    const std::string why = std::error_code(errno, std::generic_category()).message();
    throw Error(ExitCode::system,
                fmt::format("cannot open {} for writing: {}; use wflow as the user who started the campaign",
                            path.string(), why));
  }
}

}  // namespace

std::filesystem::path database_path(const std::filesystem::path& campaign) {
  return campaign / ".wflow" / "campaign.db";
}

void throw_database_error(const SQLite::Exception& error, const char* doing,
                          const std::filesystem::path& path) {
  const std::string where = fmt::format("cannot {} {}", doing, path.string());
  switch (error.getErrorCode()) {
    case SQLITE_FULL:
      throw Error(ExitCode::system,
                  fmt::format("{}: the disk is full; free some space, then continue with `wflow resume {}`",
                              where, path.parent_path().parent_path().string()));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw Error(ExitCode::busy, fmt::format("{}: another coordinator runs this campaign", where));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      throw Error(ExitCode::data, fmt::format("{}: the file is damaged ({})", where, error.what()));
    default:
      throw Error(ExitCode::system, fmt::format("{}: {}", where, error.what()));
  }
}

SQLite::Database open_database(const std::filesystem::path& campaign, const DatabaseOptions& options) {
  const std::filesystem::path path = database_path(campaign);
  if (options.vfs.empty()) {
    require_record(campaign);
    require_access(campaign);
    if (options.lock == nullptr) refuse_if_held(campaign);
  }
  try {
    SQLite::Database database = open_patiently(path, options.vfs);
    const int version = database.execAndGet("PRAGMA user_version").getInt();
    if (version != kSchemaVersion) {
      throw Error(
          ExitCode::version,
          fmt::format("{} was made by {} wflow (format {}, this one knows {}); use that one", path.string(),
                      version > kSchemaVersion ? "a newer" : "an older", version, kSchemaVersion));
    }
    return database;
  } catch (const SQLite::Exception& error) {
    throw_database_error(error, "open", path);
  }
}

}  // namespace wflow::engine::store
