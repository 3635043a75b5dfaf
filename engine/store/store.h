// SPDX-License-Identifier: Apache-2.0
// The campaign's record in SQLite: <campaign>/.wflow/campaign.db. One connection, exclusive, is its only
// door: no shared-memory index is made, which is what keeps it safe on NFS, Lustre and GPFS
// (research/cluster.md 6).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/monitor/status.h"
#include "engine/schedule/scheduler.h"
#include "engine/wire/messages.h"
#include "specs/plan/plan.h"

namespace wflow::engine::store {

struct WorkerRow {
  std::string id, host, group;
  std::int64_t pid = 0;
  int cores = 0;
  int gpus = 0;
  double joined_s = 0;
};

struct HistoryRow {
  double time_s = 0;
  std::string kind;  // started, resumed, worker, stop, end, error
  std::string text;
};

// A campaign that comes after this one (engine/followups/followups.h).
struct Followup {
  std::int64_t id = 0;    // in order; 0: not recorded yet
  std::string kind;       // submitted, restart, iteration
  int iteration = 0;      // its number
  std::string spec;       // the study; empty for restart
  std::string options;    // JSON: what the study is read with
  std::string directory;  // of the campaign, absolute; empty until it is chosen
  std::string state;      // pending, running, handed over, or how it ended
  int exit_code = 0;      // once it has ended
  std::string source;     // unique: what is recorded already is not recorded again
  double created_s = 0;
  double started_s = 0;  // 0: not yet
  double ended_s = 0;    // 0: not yet
};

// What one transaction makes durable. Leases are not in it: a worker knows what it holds and says so to the
// next coordinator, or its journal does (engine/wire/worker_journal.h).
struct Batch {
  std::vector<RecordEnd> ends;
  std::vector<RecordFailure> failures;
  std::vector<WorkerRow> workers_joined;
  struct WorkerEnd {
    std::string id;
    double time_s;
    std::string reason;
  };
  std::vector<WorkerEnd> workers_ended;
  std::vector<wire::TaskEvent> events;
  std::vector<HistoryRow> history;
  struct Totals {
    ArrayId array;
    ArrayProgress progress;
  };
  std::vector<Totals> totals;       // of arrays with new ends; not increments
  std::vector<Followup> followups;  // new ones
  bool empty() const;
};

struct RestoredEnd {
  ArrayId array;
  Range range;
  ElementState state;
};
struct RestoredAttempt {
  ArrayId array;
  Element element;
  std::uint32_t next_attempt;
  bool restart;
};

struct Restored {
  std::vector<RestoredEnd> ends;
  std::vector<RestoredAttempt> attempts;
  std::vector<Batch::Totals> totals;  // durations only
  std::vector<WorkerRow> workers;     // that have not ended
};

// The last execution of an element that did not succeed at least once.
struct ExecutionRecord {
  Element element = 0;
  std::uint32_t executions = 0;  // that did not succeed
  int exit_code = 0;
  std::string reason;  // exited, signalled, timed_out, not_started, bad_output, worker_lost
  std::string worker;
  double started_s = 0;
  double duration_s = 0;
};

struct WorkerRecord : WorkerRow {
  double ended_s = 0;  // 0: not that one knows
  std::string reason;
  std::uint64_t failures = 0;  // executions that did not succeed on it
};

class Store {
 public:
  // Makes the database of a new campaign (temporary name, then rename).
  static void create(const std::filesystem::path& campaign, const specs::Plan& plan);

  // Error{busy} when a coordinator holds it, Error{data} when it is damaged, Error{version} when it is newer.
  explicit Store(const std::filesystem::path& campaign);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Grows by one with every coordinator; durable before it is returned.
  std::uint64_t next_epoch();
  Restored restore();
  // All or nothing, on disk when it returns. Error{system} on a full disk: the transaction is rolled back.
  void commit(const Batch& batch);

  // The part of the status that only the database knows; see engine/monitor/status.h.
  void add_records(CampaignStatus& status);
  // For a campaign without a coordinator: counts too.
  CampaignStatus status_at_rest();
  std::vector<FailureView> failures(std::size_t limit, bool final_only);
  std::vector<FailureView> failures_of(ArrayId array, Element element);

  // reads.cc
  std::vector<ExecutionRecord> executions(ArrayId array, Range range);  // in order of elements
  std::vector<WorkerRecord> workers();                                  // in the order in which they joined
  std::optional<WorkerRecord> worker(const std::string& id);            // without its failures
  // followups.cc
  std::vector<Followup> followups();  // in order of id
  // Its directory, state, exit code and times, durably.
  void update_followup(const Followup& followup);
  // How the iterations came to an end, for people; durably.
  void set_iterations(const std::string& text);
  // Whether a task has written an event of this type.
  bool has_event(const std::string& type);

  // A consistent copy of the database as a new file.
  void snapshot(const std::filesystem::path& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::filesystem::path database_path(const std::filesystem::path& campaign);

}  // namespace wflow::engine::store
