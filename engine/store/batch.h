// SPDX-License-Identifier: Apache-2.0
// What the coordinator makes durable and reads back, as plain values: store.h writes and reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/plain_types.h"
#include "engine/batch/allocation.h"
#include "engine/schedule/scheduler.h"
#include "engine/wire/campaign_state.h"
#include "engine/wire/messages.h"

namespace wflow::engine::store {

struct WorkerRow {
  std::string id, group;
  ProcessIdentity guardian, agent;
  double lost_s = 0;  // its fence (wire::Welcome)
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
  std::string directory;  // the campaign's, absolute; empty until it is chosen
  FollowupState state = FollowupState::pending;
  std::string handed_to;  // the campaign whose list has it now
  int exit_code = 0;      // once it has ended
  std::string source;     // unique: what is recorded already is not recorded again
  double created_s = 0;
  double started_s = 0;  // 0: not yet
  double ended_s = 0;    // 0: not yet
};

// The resources that an execution used, with its worker.
struct UsageRow {
  TaskUsage usage;
  WorkerId worker;
};

// The content of one transaction. Leases are not in it: a worker reports its leases to the next coordinator,
// or its journal has its results (engine/wire/worker_journal.h).
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
  std::vector<Totals> totals;       // for arrays with new ends; not increments
  std::vector<Followup> followups;  // new ones
  std::vector<RecordFloor> floors;
  std::vector<RecordCause> causes;
  // Resources that executions on one worker used. Each execution once.
  struct Usage {
    WorkerId worker;
    std::vector<TaskUsage> executions;
  };
  std::vector<Usage> usage;
  std::vector<batch::Allocation> allocations;  // as they are now
  double time_s = 0;  // Unix time at which the writing coordinator works; 0: not given
  bool empty() const {
    return ends.empty() && failures.empty() && workers_joined.empty() && workers_ended.empty() &&
           events.empty() && history.empty() && totals.empty() && followups.empty() && floors.empty() &&
           causes.empty() && usage.empty() && allocations.empty();
  }
  // Successes, and what they took.
  bool only_ends() const {
    return failures.empty() && workers_joined.empty() && workers_ended.empty() && events.empty() &&
           history.empty() && followups.empty() && floors.empty() && causes.empty() && allocations.empty();
  }
};

struct RestoredEnd {
  ArrayId array;
  Range range;
  ElementState state;
};
struct RestoredAttempt {
  ArrayId array;
  Element element;
  AttemptCounts counts;
  double cut_s = 0;  // the longest execution that the end of its allocation has cut
};

struct Restored {
  std::vector<RestoredEnd> ends;
  std::vector<RestoredAttempt> attempts;
  std::vector<Batch::Totals> totals;  // durations only
  std::vector<WorkerRow> workers;     // that have not ended
  std::vector<RecordFloor> floors;
  std::vector<batch::Allocation> allocations;  // ended ones too, in the order in which they were wanted
};

}  // namespace wflow::engine::store
