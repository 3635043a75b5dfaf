// SPDX-License-Identifier: Apache-2.0
// The kinds of faults, and how often each has happened. A run over all seeds in which one never happened
// fails: a fault that can't fire tests nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace wflow::simulation {

enum class Fault : std::uint8_t {
  // the coordinator
  coordinator_killed,
  coordinator_killed_in_commit,
  coordinator_frozen,
  coordinator_moved,
  second_coordinator_refused,
  coordinator_interrupted,
  coordinator_terminated,
  coordinator_hangup,
  // workers
  agent_killed,
  guardian_killed,
  worker_killed,
  everything_killed,
  agent_frozen,
  guardian_frozen,
  agent_ended_by_guardian,
  fence_passed,
  allocation_ended,
  worker_joined_late,
  task_killed,
  task_not_started,
  slow_launch,
  orphan_left,
  // hosts and clocks
  host_crashed,
  host_frozen,
  clock_drifted,
  clock_jumped,
  // the network
  connection_broken,
  message_lost,
  partitioned,
  partitioned_one_way,
  send_refused,
  slow_network,
  strange_message,
  // disks
  disk_full,
  slow_commit,
  commit_waited,
  write_lost,
  write_torn,
  journal_cut,
  journal_unseen,
  // users
  paused,
  retried,
  cancelled,
  cancelled_running,
  drained,
  queried,
  // what follows from a signal to a coordinator that lives in an allocation; not drawn
  coordinator_handed_over,
  // what tasks and the batch scheduler do; not drawn
  worker_killed_by_task,
  job_lost,
  node_taken_out,
  job_pending,
  job_at_walltime,
  job_preempted,
  job_requeued,
  job_left_out,
  submission_unanswered,
  cancel_failed,
  // calls of a disk that fail for a while, in a part of the schedules; not drawn
  sync_failed,
  page_dropped,
  truncation_failed,
  lock_failed,
  // the campaign's lock, where the file system keeps locks to one host; not drawn
  campaign_taken_over,
  campaign_lost,
};
inline constexpr std::size_t kFaults = static_cast<std::size_t>(Fault::campaign_lost) + 1;
inline constexpr std::size_t kDrawnFaults = static_cast<std::size_t>(Fault::coordinator_handed_over);

constexpr std::string_view name_of(Fault fault) {
  constexpr std::string_view kNames[kFaults] = {"coordinator killed",
                                                "coordinator killed in a commit",
                                                "coordinator frozen",
                                                "coordinator resumed on another host",
                                                "second coordinator refused",
                                                "coordinator interrupted",
                                                "coordinator terminated",
                                                "coordinator hung up",
                                                "agent killed",
                                                "guardian killed",
                                                "agent and guardian killed",
                                                "all processes killed",
                                                "agent frozen",
                                                "guardian frozen",
                                                "agent ended by its guardian",
                                                "fence passed",
                                                "allocation ended",
                                                "worker joined late",
                                                "task killed",
                                                "task not started",
                                                "slow launch",
                                                "orphan left",
                                                "host crashed",
                                                "host frozen",
                                                "clock drifted",
                                                "clock jumped",
                                                "connection broken",
                                                "message lost",
                                                "partitioned",
                                                "partitioned one way",
                                                "send refused",
                                                "slow network",
                                                "strange message",
                                                "disk full",
                                                "slow commit",
                                                "commit waited",
                                                "write lost",
                                                "write torn",
                                                "journal cut",
                                                "journal unseen",
                                                "paused",
                                                "retried",
                                                "cancelled",
                                                "cancelled while running",
                                                "drained",
                                                "queried",
                                                "coordinator handed over",
                                                "worker killed by its task",
                                                "job lost with a node",
                                                "node taken out of its job",
                                                "job pending for long",
                                                "job at its walltime",
                                                "job preempted",
                                                "job requeued",
                                                "job left out of a list",
                                                "submission unanswered",
                                                "cancellation failed",
                                                "fsync failed",
                                                "page dropped by a failed fsync",
                                                "truncation failed",
                                                "lock failed",
                                                "frozen coordinator succeeded",
                                                "campaign lost to another coordinator"};
  return kNames[static_cast<std::size_t>(fault)];
}

class FaultCounts {
 public:
  void count(Fault fault) { ++counts_[static_cast<std::size_t>(fault)]; }
  std::uint64_t of(Fault fault) const { return counts_[static_cast<std::size_t>(fault)]; }
  void add(const FaultCounts& other) {
    for (std::size_t i = 0; i < kFaults; ++i) counts_[i] += other.counts_[i];
  }

 private:
  std::array<std::uint64_t, kFaults> counts_{};
};

}  // namespace wflow::simulation
