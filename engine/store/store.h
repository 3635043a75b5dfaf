// SPDX-License-Identifier: Apache-2.0
// The campaign's record in SQLite: <campaign>/.wflow/campaign.db. Only one connection exists, and it is
// exclusive: SQLite then makes no shared-memory index, which keeps the database safe on NFS, Lustre and GPFS
// (SQLite's documentation: "Use of WAL Without Shared-Memory").
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/monitor/missing_samples.h"
#include "engine/monitor/overview.h"
#include "engine/monitor/status.h"
#include "engine/schedule/intervals.h"
#include "engine/schedule/types.h"
#include "engine/store/batch.h"
#include "engine/store/campaign_lock.h"
#include "engine/usage/step_usage.h"
#include "engine/wire/messages.h"
#include "specs/plan/plan.h"

namespace wflow::engine::store {

// The last execution of an element that did not succeed at least once.
struct ExecutionRecord {
  Element element = 0;
  std::uint32_t executions = 0;  // number of executions without success
  std::uint32_t asked = 0;       // those of them that asked for another one (exit codes 100 and 104)
  int exit_code = 0;
  std::string reason;  // exited, signalled, timed_out, not_started, bad_output, worker_lost, out_of_memory
  std::string worker;
  double started_s = 0;
  double duration_s = 0;
  std::string message;  // the last line of what it printed (wire::kListedMessage)
};

// A sample that a conversion could not use; `element`: its block, or the closing task.
struct MissingRecord {
  Element sample = 0;
  Element element = 0;
  std::string reason;
};

struct WorkerRecord : WorkerRow {
  double ended_s = 0;  // 0: not known
  std::string reason;
  std::uint64_t failures = 0;  // executions that did not succeed on it
};

// An array of the new plan, for Takeover.
struct TakenArray {
  std::optional<ArrayId> from;  // its number in the old plan
  std::vector<Range>
      open;  // in order and disjoint: elements that do not keep their end, attempts and reports
  // Decide again on elements that were skipped, or cancelled with their parents.
  bool judge_skipped = false;
};

struct SourcesRow {
  std::int64_t id = 0;
  std::string step;
  double time_s = 0;
  std::uint64_t study = 0;
  std::string files;  // JSON, see engine/update/changes.h
};

// The changes of a campaign's record when its study changes, or when done tasks run again.
struct Takeover {
  std::vector<TakenArray> arrays;  // all of the plan
  std::uint64_t study = 0;         // its version
  std::vector<HistoryRow> history;
  // All done elements count as made with the newest sources of their step (Changes has opened the others).
  bool forget_made = false;
  std::vector<SourcesRow> sources;
  std::string aside;  // names the work that follows it (engine/update/aside.h)
};

struct MadeRow {
  ArrayId array = 0;
  Range range;
  std::int64_t sources = 0;
};

struct DatabaseOptions {
  // SQLite's name of the file system that keeps the database, for tests/simulation; empty: the real one.
  // It gets the path unchanged.
  std::string vfs;
  // Go on without commits that were acknowledged and are lost (CommitMark); the history then says so.
  bool accept_loss = false;
  // The coordinator's lock: it outlives the store, and every commit checks it. Without one the database opens
  // only if no coordinator holds the campaign.
  CommitGuard* lock = nullptr;
};

class Store {
 public:
  static constexpr std::size_t kAll = std::size_t{1} << 62;

  // Makes the database of a new campaign (temporary name, then rename).
  static void create(const std::filesystem::path& campaign, const specs::Plan& plan,
                     const DatabaseOptions& options = {});

  // Error{busy} when a coordinator holds it; Error{data} when there is none, when it is damaged, or lacks
  // commits that were acknowledged; Error{version} when it is of another format.
  explicit Store(const std::filesystem::path& campaign, const DatabaseOptions& options = {});
  ~Store();
  // Nothing may be called after it. Leaves the files as they are if another process has taken the campaign.
  void close();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Grows by one with every coordinator; durable before it is returned.
  std::uint64_t next_epoch();
  // Error{data} when its tables contradict each other.
  Restored restore();
  // All or nothing, on disk when it returns. Error{system} on a full disk: the transaction is rolled back.
  // Batch::Totals counts for durations only: the counts of states follow from `ends`.
  void commit(const Batch& batch);

  // Adds the part of the status that only the database has; see engine/monitor/status.h.
  void add_records(CampaignStatus& status);
  // For a campaign without a coordinator: counts too.
  CampaignStatus status_at_rest();
  std::vector<FailureView> failures(std::size_t limit, bool final_only);
  std::vector<FailureView> failures_of(ArrayId array, Element element);

  // reads.cc
  // In order of elements, the first `limit` of them. The next page begins behind the last one's element.
  std::vector<ExecutionRecord> executions(ArrayId array, Range range, std::size_t limit = kAll);
  std::vector<WorkerRecord> workers();                        // in the order in which they joined
  std::optional<WorkerRecord> worker(const std::string& id);  // without its failures
  // usage.cc
  // The first so many executions all have a record; later ones are sampled (docs/database.md).
  static constexpr std::uint64_t kAllRecords = 10'000'000;
  std::map<std::string, StepUsage> usage();  // by step
  // Executions that did not succeed, by step and reason. Reads all of them.
  std::vector<wire::LostTime> lost_times();
  // The executions of the elements in the range, in order of element and execution. The attempt's lease is
  // not known.
  std::vector<UsageRow> usage_of(ArrayId array, Range range, std::size_t limit = kAll);
  // missing.cc
  // For the data set that `array`, of a convert: step, makes; in order of samples, the first `limit` of them.
  std::vector<MissingRecord> missing(ArrayId array, Range samples, std::size_t limit = kAll);
  MissingSamples missing_samples();  // all of them
  // timeline.cc
  // The last checkpoint that each task has reported, in order of task; the tasks that reported last, at most
  // kListedCheckpoints.
  std::vector<wire::CheckpointView> checkpoints();
  // When tasks ended, in so many slices of the time from the campaign's begin to the last entry of its
  // history.
  Timeline timeline(std::size_t slices);
  // overview.cc
  Overview overview(const OverviewWish& wish);
  // allocations.cc: in order of creation
  std::vector<batch::Allocation> allocations();
  // followups.cc
  std::vector<Followup> followups();  // in order of id
  // Its directory, state, exit code and times, durably.
  void update_followup(const Followup& followup);
  // Records how the iterations ended, as shown to users; durably.
  void set_iterations(const std::string& text);
  // True if a task has written an event of this type.
  bool has_event(const std::string& type);

  // take.cc
  // The version of the study (specs/plan/versions.h) that the record follows.
  std::uint64_t study();
  // Takeover::aside of the last one; empty before any.
  std::string aside();
  // Makes the record follow a new plan, or opens parts of the same one again: all or nothing, durable. No
  // coordinator may live: results of earlier leases do not count for opened elements.
  void take(const specs::Plan& plan, const Takeover& takeover);
  // sources.cc: the sources of each step, the oldest first.
  std::vector<SourcesRow> sources();
  // Elements made with other sources than the first ones of their step in this version of the study.
  std::vector<MadeRow> made();
  // Adds sources that are new to their step; durable. Returns their id.
  std::int64_t add_sources(const SourcesRow& row);
  // Elements of the array that succeed from now on are made with these.
  void set_sources(ArrayId array, std::int64_t sources);

  // A consistent copy of the database as a new file. Error{usage} when the file exists, Error{system} when it
  // can't be written: of this call alone. May run beside other calls, of other threads: these wait for a
  // slice of the copy, and not for all of it. `between` is called after each slice.
  void snapshot(const std::filesystem::path& path, const std::function<void()>& between = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::filesystem::path database_path(const std::filesystem::path& campaign);

// Error{usage} if a snapshot would replace an existing file.
void refuse_existing(const std::filesystem::path& path);

// Error{usage} with a sentence if the directory has no record: no campaign was started there, or it is no
// campaign's directory. All commands use this sentence.
void require_record(const std::filesystem::path& campaign);

// Damage in the database of a campaign without a coordinator, and what can be repaired without losing data:
// for wflow doctor.
struct DatabaseReport {
  // Pages or tables that SQLite cannot read, and contradictions that no other table explains. Only an older
  // copy helps.
  std::vector<std::string> damage;
  std::vector<std::string> indexes;  // missing or extra entries of indexes: rebuilt from their tables
  std::vector<std::string> counts;   // counts of ended tasks that do not match the ends: counted again
  std::uint64_t lost_commits = 0;    // acknowledged, and not in it (CommitMark)
  bool sound() const { return damage.empty() && indexes.empty() && counts.empty() && lost_commits == 0; }
};

// Error{busy} if a coordinator runs the campaign, Error{usage} if there is no database. Reads all of
// it.
DatabaseReport examine_database(const std::filesystem::path& campaign);
// Repairs indexes and counts. Also moves the write-ahead log into the database.
void mend_database(const std::filesystem::path& campaign);

}  // namespace wflow::engine::store
