// SPDX-License-Identifier: Apache-2.0
#include "engine/store/impl.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/folders.h"
#include "base/text.h"
#include "engine/store/schema.h"
#include "engine/store/store.h"

namespace wflow::engine::store {

namespace {

// `wflow status` holds the database for some milliseconds: that must not look like another coordinator.
constexpr std::chrono::seconds kPatience{2};

// Writes what the write-ahead log holds once more, and syncs it. After an fsync that has failed, Linux keeps
// the pages in its cache and takes them for written. If the writer then dies, SQLite reads them here as
// commits, and appends to them: a crash of the machine would take these and all later commits.
void write_log_again(const SQLite::Database& database) {
  sqlite3_file* log = nullptr;
  const int found = ::sqlite3_file_control(database.getHandle(), "main", SQLITE_FCNTL_JOURNAL_POINTER,
                                           static_cast<void*>(&log));
  if (found != SQLITE_OK || log == nullptr || log->pMethods == nullptr) return;
  const auto check = [](int code) {
    if (code != SQLITE_OK) throw SQLite::Exception("cannot write the log again", code);
  };
  sqlite3_int64 size = 0;
  check(log->pMethods->xFileSize(log, &size));
  if (size == 0) return;
  constexpr sqlite3_int64 kPiece = 1 << 16;  // SQLite reads and writes less than 128 KiB in one call
  std::vector<char> piece(static_cast<std::size_t>(std::min(size, kPiece)));
  for (sqlite3_int64 at = 0; at < size; at += kPiece) {
    const int bytes = static_cast<int>(std::min(size - at, kPiece));
    check(log->pMethods->xRead(log, piece.data(), bytes, at));
    check(log->pMethods->xWrite(log, piece.data(), bytes, at));
  }
  check(log->pMethods->xSync(log, SQLITE_SYNC_NORMAL));
}

// Whose log it is. Where locks do not reach another host, a coordinator that stands still there goes on with
// the log later: a command that only looks must neither write it again nor remove it when it closes the
// database.
enum class Log : bool { ours, of_another };

SQLite::Database open_once(const std::filesystem::path& path, const std::string& vfs, Log log = Log::ours) {
  SQLite::Database database(path.string(), SQLite::OPEN_READWRITE, 0, vfs);
  // Exclusive first: the write-ahead log then needs no shared memory, which network file systems lack.
  database.exec("PRAGMA locking_mode=EXCLUSIVE");
  if (database.execAndGet("PRAGMA journal_mode=WAL").getString() != "wal")
    database.exec("PRAGMA journal_mode=TRUNCATE");
  database.exec(
      "PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY; PRAGMA wal_autocheckpoint=2000; BEGIN IMMEDIATE; "
      "COMMIT");
  if (log == Log::ours) {
    write_log_again(database);
  } else {
    ::sqlite3_db_config(database.getHandle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  }
  return database;
}

bool is_busy(const SQLite::Exception& error) {
  return error.getErrorCode() == SQLITE_BUSY || error.getErrorCode() == SQLITE_LOCKED;
}

// Closed before every other try: two that wait with a lock in hand would wait for each other.
SQLite::Database open_patiently(const std::filesystem::path& path, const std::string& vfs, Log log) {
  if (!vfs.empty()) return open_once(path, vfs);  // time does not pass there
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    try {
      return open_once(path, {}, log);
    } catch (const SQLite::Exception& error) {
      if (!is_busy(error) || std::chrono::steady_clock::now() > until) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + ::getpid() % 11));
  }
}

}  // namespace

// `wflow run` makes the study's copy first and the database last.
void require_record(const std::filesystem::path& campaign) {
  std::error_code error;
  if (std::filesystem::exists(database_path(campaign), error)) return;
  // Another user's: .wflow is for its owner alone.
  if (error == std::errc::permission_denied)
    throw system_error(error.value(), fmt::format("cannot read {}", database_path(campaign).string()));
  std::error_code ignored;
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

// For another user's campaign SQLite reports only "disk I/O error".
void require_access(const std::filesystem::path& campaign) {
  for (const std::filesystem::path& path : {database_path(campaign), campaign / ".wflow"}) {
    if (::access(path.c_str(), R_OK | W_OK) == 0) continue;
    const std::string why = std::error_code(errno, std::generic_category()).message();
    throw Error(ExitCode::system,
                fmt::format("cannot open {} for writing: {}; use wflow as the user who started the campaign",
                            path.string(), why));
  }
}

// True for an archive or a mounted snapshot: this user may read it, and no process writes to it.
bool is_read_only(const std::filesystem::path& campaign) {
  const std::filesystem::path database = database_path(campaign);
  if (::access(database.c_str(), R_OK) != 0) return false;
  for (const std::filesystem::path& path : {database, campaign / ".wflow"}) {
    if (::access(path.c_str(), W_OK) != 0 && (errno == EROFS || errno == EACCES)) return true;
  }
  return false;
}

bool has_bytes(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::file_size(path, none) > 0 && !none;
}

std::string file_uri(const std::filesystem::path& path) {
  std::string uri = "file:";
  for (const char c : path.string()) {
    if (c == '%' || c == '?' || c == '#') {
      uri += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    } else {
      uri += c;
    }
  }
  return uri;
}

// Where the last coordinator was killed, SQLite must apply the write-ahead log or the journal first: to a
// copy.
SQLite::Database open_copy(const std::filesystem::path& path) {
  const StagingFolder folder(std::filesystem::temp_directory_path(), "wflow-record");
  const std::filesystem::path copy = folder.path() / path.filename();
  for (const char* suffix : {"", "-wal", "-journal"}) {
    std::filesystem::path from = path;
    std::filesystem::path to = copy;
    std::error_code error;
    std::filesystem::copy_file(from += suffix, to += suffix, error);
    if (error && error != std::errc::no_such_file_or_directory)
      throw system_error(error.value(), fmt::format("cannot copy {} to {}", from.string(), to.string()));
    std::filesystem::permissions(to, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write,
                                 error);
  }
  return open_once(copy, {});  // it stays open when the folder goes
}

SQLite::Database open_read_only(const std::filesystem::path& path) {
  if (has_bytes(path.string() + "-wal") || has_bytes(path.string() + "-journal")) return open_copy(path);
  SQLite::Database database(file_uri(path) + "?immutable=1", SQLite::OPEN_READONLY | SQLite::OPEN_URI);
  database.exec("PRAGMA temp_store=MEMORY");
  return database;
}

// The programs of this machine that have locks on the database: for example sqlite3 or Python of a user; a
// campaign's database has one user at a time. "python3 (PID 4711)"; empty if none is known.
std::string lock_holders(const std::filesystem::path& path) {
  std::set<std::string> inodes;
  for (const char* suffix : {"", "-shm"}) {
    struct stat status {};
    if (::stat((path.string() + suffix).c_str(), &status) == 0)
      inodes.insert(
          fmt::format("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino));
  }
  std::vector<std::string> names;
  std::set<std::string> seen;
  std::ifstream locks("/proc/locks");  // "1: POSIX  ADVISORY  READ 4711 fe:00:1234 0 EOF"
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, mode, access, pid, inode;
    if (!(words >> number >> kind >> mode >> access >> pid >> inode)) continue;
    if (!inodes.contains(inode) || pid == std::to_string(::getpid()) || !seen.insert(pid).second) continue;
    std::string name;
    std::ifstream comm("/proc/" + pid + "/comm");
    std::getline(comm, name);
    names.push_back(fmt::format("{} (PID {})", name.empty() ? "a program" : name, pid));
  }
  return text::join(names, ", ");
}

bool files_are_limited() {
  struct rlimit limit {};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

std::filesystem::path database_path(const std::filesystem::path& campaign) {
  return campaign / ".wflow" / "campaign.db";
}

// The connection's own (sqlite3_system_errno) is that of whatever came last, such as the rollback.
int system_error_of(const SQLite::Database& database) {
  sqlite3* const handle = database.getHandle();
  int number = 0;
  sqlite3_file* log = nullptr;  // the write-ahead log
  const int found =
      ::sqlite3_file_control(handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, static_cast<void*>(&log));
  if (found == SQLITE_OK && log != nullptr && log->pMethods != nullptr)
    log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &number);
  if (number == 0) ::sqlite3_file_control(handle, "main", SQLITE_FCNTL_LAST_ERRNO, &number);
  return number;
}

void throw_database_error(const SQLite::Exception& error, const char* doing,
                          const std::filesystem::path& path, int system_error) {
  const std::string where = fmt::format("cannot {} {}", doing, path.string());
  const std::string resume = fmt::format("wflow resume {}", path.parent_path().parent_path().string());
  constexpr int kPrimary = 0xff;  // some calls return the extended code
  switch (error.getErrorCode() & kPrimary) {
    case SQLITE_FULL:
      throw Error(
          ExitCode::system,
          fmt::format("{}: the disk is full; free some space, or continue later with `{}`", where, resume),
          ENOSPC);
    case SQLITE_READONLY:
      throw Error(ExitCode::system,
                  fmt::format("{}: the file system is read-only; `{}` continues", where, resume), EROFS);
    case SQLITE_IOERR: {
      const bool known =
          system_error == ENOSPC || system_error == EDQUOT || system_error == EROFS || system_error == EFBIG;
      // A write that `ulimit -f` cuts short leaves no number.
      const int number = known ? system_error : files_are_limited() ? EFBIG : EIO;
      throw Error(
          ExitCode::system,
          fmt::format("{}: {}; {}, or continue later with `{}`", where,
                      std::error_code(number, std::generic_category()).message(),
                      number == EFBIG ? "raise the limit on the size of files (ulimit -f)" : "mend that",
                      resume),
          number);
    }
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      if (const std::string others = lock_holders(path); !others.empty())
        throw Error(ExitCode::busy,
                    fmt::format("{}: {} has it open; close it there, and try again", where, others));
      throw Error(ExitCode::busy, fmt::format("{}: another coordinator runs this campaign", where));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR:  // "no such column": its description of the tables is damaged
      throw Error(ExitCode::data, fmt::format("{}: the file is damaged ({})", where, error.what()));
    default:
      throw Error(ExitCode::system, fmt::format("{}: {}", where, error.what()));
  }
}

SQLite::Database open_database(const std::filesystem::path& campaign, const DatabaseOptions& options) {
  const std::filesystem::path path = database_path(campaign);
  bool read_only = false;
  Log log = Log::ours;
  if (options.vfs.empty()) {
    require_record(campaign);
    read_only = options.lock == nullptr && is_read_only(campaign);
    if (!read_only) require_access(campaign);
    if (options.lock == nullptr && may_go_on_elsewhere(refuse_if_held(campaign))) log = Log::of_another;
  }
  try {
    SQLite::Database database = read_only ? open_read_only(path) : open_patiently(path, options.vfs, log);
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
