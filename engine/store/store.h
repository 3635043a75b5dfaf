// SPDX-License-Identifier: Apache-2.0
// The campaign's record in SQLite: <campaign>/.wflow/campaign.db. One connection, exclusive, is its only
// door: no shared-memory index is made, which is what keeps it safe on NFS, Lustre and GPFS
// (research/cluster.md 6).
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
  std::uint32_t executions = 0;  // that did not succeed
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
  double ended_s = 0;  // 0: not that one knows
  std::string reason;
  std::uint64_t failures = 0;  // executions that did not succeed on it
};

// An array of the plan from now on.
struct TakenArray {
  std::optional<ArrayId> from;  // its number until now
  std::vector<Range> open;      // in order and disjoint: what does not keep how it ended, its attempts and reports
  // Elements that were skipped, or cancelled with what they waited for, are judged anew.
  bool judge_skipped = false;
};

struct SourcesRow {
  std::int64_t id = 0;
  std::string step;
  double time_s = 0;
  std::uint64_t study = 0;
  std::string files;  // JSON, see engine/update/sources.h
};

struct Takeover {
  std::vector<TakenArray> arrays;  // all of the plan
  std::uint64_t study = 0;         // its version
  std::vector<HistoryRow> history;
  // All that is done is made with the newest sources of its step now (Changes made the rest open).
  bool forget_made = false;
  std::vector<SourcesRow> sources;
  std::string aside;  // names the work that follows on it (engine/update/aside.h)
};

struct MadeRow {
  ArrayId array = 0;
  Range range;
  std::int64_t sources = 0;
};

struct DatabaseOptions {
  // SQLite's name of the file system that keeps the database, for tests/simulation; empty: the real one.
  // The path is handed to it as it is.
  std::string vfs;
  // Go on without commits that were acknowledged and are gone (commit_mark.h); the history then says so.
  bool accept_loss = false;
  // The coordinator's: it outlives the store, and every commit asks it. Without one the database is opened
  // only where no coordinator holds the campaign.
  CampaignLock* lock = nullptr;
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
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Grows by one with every coordinator; durable before it is returned.
  std::uint64_t next_epoch();
  // Error{data} when its tables contradict each other.
  Restored restore();
  // All or nothing, on disk when it returns. Error{system} on a full disk: the transaction is rolled back.
  // Batch::Totals counts for durations only: the counts of states follow from `ends`.
  void commit(const Batch& batch);

  // The part of the status that only the database knows; see engine/monitor/status.h.
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
  // Of so many executions all have a record; of later ones a sample (docs/database.md).
  static constexpr std::uint64_t kAllRecords = 10'000'000;
  std::map<std::string, StepUsage> usage();  // by step
  // Executions that did not succeed, by step and reason. Reads all of them.
  std::vector<wire::LostTime> lost_times();
  // Of elements in the range, in their order, each one's executions in theirs. The attempt's lease is not
  // known.
  std::vector<UsageRow> usage_of(ArrayId array, Range range, std::size_t limit = kAll);
  // missing.cc
  // Of the data set that `array`, of a convert: step, makes; in order of samples, the first `limit` of them.
  std::vector<MissingRecord> missing(ArrayId array, Range samples, std::size_t limit = kAll);
  MissingSamples missing_samples();  // of all
  // timeline.cc
  // The last checkpoint that each task has reported, in order of task; the tasks that reported last, at most
  // kListedCheckpoints.
  std::vector<wire::CheckpointView> checkpoints();
  // When what ended, in so many slices of the time from the campaign's begin to the last word of its history.
  Timeline timeline(std::size_t slices);
  // overview.cc
  Overview overview(const OverviewWish& wish);
  // allocations.cc: in the order in which they were wanted
  std::vector<batch::Allocation> allocations();
  // followups.cc
  std::vector<Followup> followups();  // in order of id
  // Its directory, state, exit code and times, durably.
  void update_followup(const Followup& followup);
  // How the iterations came to an end, for people; durably.
  void set_iterations(const std::string& text);
  // Whether a task has written an event of this type.
  bool has_event(const std::string& type);

  // take.cc
  // The version of the study (specs/plan/versions.h) that the record follows.
  std::uint64_t study();
  // Takeover::aside of the last one; empty before any.
  std::string aside();
  // The record follows a new plan from now on, or parts of the same one are open again: all or nothing,
  // durable. No coordinator may live: results of leases that were given before do not count for what is open.
  void take(const specs::Plan& plan, const Takeover& takeover);
  // sources.cc: of each step, the oldest first.
  std::vector<SourcesRow> sources();
  // Of elements made with other sources than the first ones of their step in this version of the study.
  std::vector<MadeRow> made();
  // These sources are new to their step; durable. Gives their id.
  std::int64_t add_sources(const SourcesRow& row);
  // What ends well in the array from now on is made with these.
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

// Error{usage} where there is a file already that a snapshot would replace.
void refuse_existing(const std::filesystem::path& path);

// Error{usage} with a sentence where the directory has no record: no campaign was started there, or it is no
// campaign's directory. Every command says so in the same way.
void require_record(const std::filesystem::path& campaign);

struct DatabaseReport {
  // Pages or tables that can't be read, as SQLite says; and what contradicts itself in a way that no other
  // table explains. Only an older copy helps.
  std::vector<std::string> damage;
  std::vector<std::string>
      indexes;                      // entries that indexes lack or have too many: made anew from their tables
  std::vector<std::string> counts;  // of ended tasks, that do not match the ends themselves: counted anew
  std::uint64_t lost_commits = 0;   // acknowledged, and not in it (commit_mark.h)
  bool sound() const { return damage.empty() && indexes.empty() && counts.empty() && lost_commits == 0; }
};

// Error{busy} where a coordinator runs the campaign, Error{usage} where there is no database. Reads all of
// it.
DatabaseReport examine_database(const std::filesystem::path& campaign);
// Indexes and counts. The write-ahead log is taken into the database on the way.
void mend_database(const std::filesystem::path& campaign);

}  // namespace wflow::engine::store
