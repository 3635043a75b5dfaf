// SPDX-License-Identifier: Apache-2.0
// Shared by the sources of the store: opening the database, the mark of commits, the state of Store.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <SQLiteCpp/VariadicBind.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "engine/store/run_table.h"
#include "engine/store/store.h"
#include "engine/usage/step_usage.h"

namespace wflow::engine::store {

// Opens the database: exclusive, write-ahead log, full durability. Errors: as Store's constructor.
SQLite::Database open_database(const std::filesystem::path& campaign, const DatabaseOptions& options);

// Turns an error of the library into an Error: full disk, damage, locked. `doing` completes "cannot ...
// <path>". `system_error`: the errno of the failed call, if known, for is_disk_trouble().
[[noreturn]] void throw_database_error(const SQLite::Exception& error, const char* doing,
                                       const std::filesystem::path& path, int system_error = 0);
// The errno of the connection's last failure.
int system_error_of(const SQLite::Database& database);

std::string reason_name(wire::EndReason reason);
int reason_from_name(std::string_view name);

inline std::int64_t signed_of(std::uint64_t value) {
  return static_cast<std::int64_t>(value);
}

// Times and durations come from peers. SQLite takes NaN for NULL, which NOT NULL columns refuse.
double stored_time(double seconds);
double stored_duration(double seconds);

template <typename... Values>
void execute(SQLite::Statement& statement, const Values&... values) {
  SQLite::bind(statement, values...);
  statement.exec();
}

// The number of the last acknowledged commit: a small file beside the database, <campaign>/.wflow/commits.
// SQLite drops a damaged end of its write-ahead log silently, and an older copy of a database looks whole.
// Every opening compares the number of commits in the database with this one.
//
// It costs one pwrite per commit, without fsync: it shows what survives the end of processes. After a power
// failure the number may be older than the database, and then commits that the disk lost in spite of fsync
// stay unnoticed.
class CommitMark {
 public:
  // Opens the file, or makes an empty one.
  explicit CommitMark(const std::filesystem::path& campaign);
  // Empty if the file is new or damaged: then the number is not known.
  std::optional<std::uint64_t> read() const;
  // Failures are ignored: an older number only makes the comparison weaker.
  void write(std::uint64_t commits) noexcept;

 private:
  FileDescriptor file_;
};

struct Store::Impl {
  Impl(const std::filesystem::path& campaign, const DatabaseOptions& options);

  std::filesystem::path campaign;
  SQLite::Database database;
  std::map<std::string, SQLite::Statement, std::less<>> statements;  // prepared once
  RunTable runs, floors, made;
  // For arrays whose sources are not the first ones of this version of the study: the id of their sources.
  std::map<ArrayId, std::int64_t> sources_of;
  std::optional<CommitMark> mark;  // none if a VFS keeps the database
  CommitGuard* lock;               // may be null
  // usage.cc: read at the first write, then kept beside the tables.
  struct OpenBlock {
    std::int64_t number = 0;
    UsageBlock block;
  };
  struct Usage {
    std::map<ArrayId, std::string> step_of;
    std::map<std::string, StepUsage> steps;
    std::map<WorkerId, std::uint64_t> workers;  // their numbers
    std::map<ArrayId, OpenBlock> open;
    std::uint64_t seen = 0;  // executions, with or without a record
  };
  std::optional<Usage> usage;
  std::optional<std::set<ArrayId>> conversions;  // missing.cc: read at the first use
  // How the counts of ended elements change with the transaction.
  std::map<ArrayId, std::array<std::int64_t, kElementStates>> changes;

  SQLite::Statement& statement(const char* sql);
  // Calls `read`; errors of the library become Error.
  template <typename Read>
  auto reading(Read read) {
    try {
      return read();
    } catch (const SQLite::Exception& error) {
      throw_database_error(error, "read", database_path(campaign));
    }
  }
  // Calls `write` within one transaction, which is counted and durable on return.
  template <typename Write>
  void writing(Write write) {
    if (lock != nullptr) lock->check();
    try {
      SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
      changes.clear();
      write();
      const std::uint64_t number = count_commit();
      reset_statements();  // a pending read would block the commit
      transaction.commit();
      if (mark) mark->write(number);
    } catch (const SQLite::Exception& error) {
      reset_statements();
      usage.reset();  // the added rows are not in the tables
      throw_database_error(error, "write", database_path(campaign), system_error_of(database));
    }
  }
  void reset_statements();
  std::uint64_t count_commit();
  std::uint64_t commits();
  void check_mark(bool accept_loss);

  // writes.cc
  void write(const Batch& batch);
  void write_session(double time_s);
  void write_worker(const WorkerRow& worker);
  void write_ends(std::span<const RecordEnd> ends);
  void write_end(const RecordEnd& end);
  std::size_t write_reopened(std::span<const RecordEnd> ends);
  bool has_made();
  void count_replaced(ArrayId array, const std::vector<RunTable::Row>& replaced);
  void write_floor(const RecordFloor& floor);
  void write_counts();
  void write_failure(const RecordFailure& row);
  void write_attempt(ArrayId array, Element element, const AttemptCounts& counts);
  void write_cause(const RecordCause& cause);
  void write_history(const HistoryRow& row);
  // events.cc
  void write_event(const wire::TaskEvent& event);
  void write_metric(const wire::TaskEvent& of, const wire::Metric& metric);
  void write_progress(const wire::TaskEvent& of, const wire::Progress& progress);
  void write_other(const wire::TaskEvent& of);
  // missing.cc
  void write_missing(const wire::TaskEvent& of, const wire::MissingSample& missing);
  void write_converted(const wire::TaskEvent& of, const wire::Converted& converted);
  void add_skipped(MissingSamples& missing);
  void forget_missing(ArrayId array, const std::vector<Range>& reopened);
  // usage.cc
  void write_usage(const std::vector<Batch::Usage>& used);
  Usage read_usage();
  bool add_to_block(const TaskUsage& execution, const WorkerId& worker);
  void close_blocks();
  void write_block(ArrayId array);
  // followups.cc
  void write_followup(const Followup& followup);
  // allocations.cc
  void write_allocation(const batch::Allocation& row);
  std::vector<batch::Allocation> read_allocations();
  // take.cc
  void renumber(const Takeover& takeover, std::uint64_t count);
  void resize(const specs::Plan& plan, const Takeover& takeover, std::vector<std::uint64_t>& before);
  void open_again(ArrayId array, const std::vector<Range>& parts, std::uint64_t was, std::uint64_t is);
  void forget_opened();
  std::int64_t insert_sources(const SourcesRow& row);  // sources.cc
  void retire_beyond(ArrayId array, std::uint64_t was, std::uint64_t is);
  // overview.cc
  void add_activity(Overview& overview, const OverviewWish& wish, std::size_t slices,
                    const std::map<std::string, std::uint64_t>& elements);
  void add_states(Overview& overview);
  void mark_failed(std::vector<Overview::Run>& runs);
  void add_failures(Overview& overview, const OverviewWish& wish);
  // reads.cc
  std::vector<WorkerRow> read_living_workers();
  // records.cc
  void add_metrics(CampaignStatus& status);
  void add_artifacts(CampaignStatus& status);
  // The directories in which coordinators of this campaign have run.
  std::vector<std::string> places();
  std::string place_now(const std::string& path, const std::vector<std::string>& places) const;
  void add_records(CampaignStatus& status);
  std::vector<StepStatus> read_steps();
  double coordinated_s();
  std::vector<FailureView> read_failures(SQLite::Statement& select);
  // Each `of`-th one, at most `limit`, in order of time.
  std::vector<FailureView> some_failures(std::uint64_t of, std::size_t limit);
};

}  // namespace wflow::engine::store
