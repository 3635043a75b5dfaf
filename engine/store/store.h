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
#include "engine/store/batch.h"
#include "engine/wire/messages.h"
#include "specs/plan/plan.h"

namespace wflow::engine::store {

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
