// SPDX-License-Identifier: Apache-2.0
// Every time-out between coordinator and workers, in seconds of a steady clock. Tests set their own.
#pragma once

#include <algorithm>
#include <cstddef>

namespace wflow::engine {

struct Timing {
  double pulse_s = 1;      // between two Pulses to each worker, and two checks for silent workers
  double heartbeat_s = 1;  // between two heartbeats of a worker, where there are few
  // With many workers each sends them less often, so that all together send no more than about so many, but
  // no less often than this, and several times within its fence.
  double heartbeats_per_s = 500;
  double longest_heartbeat_s = 3;
  // The fence: see wire::Welcome::lost_s. A worker in the coordinator's own process table is watched by its
  // process, so that its fence matters only when the campaign is resumed on another host.
  double lost_s = 60;
  double lost_here_s = 600;
  // Beyond the fence, before the coordinator leases again. Covers: the worker's clock running slower than the
  // coordinator's (2 % of lost_s), the kill of its tasks, and a pause of the agent of up to 10 s.
  double margin_s = 15;
  double gang_silent_s = 10;  // a worker that is silent for so long ends its tasks on several nodes
  double return_s =
      20;  // time in which a living worker of an earlier coordinator on this host must send Hello
  double hand_over_s = 60;  // from that Hello to the heartbeat that ends its hand-over
  double unserved_s = 3;    // the machine reports a step without a worker after this time
  double dismiss_s = 15;    // time for workers to end at the end of the campaign
  // A coordinator in an allocation hands over so long before the allocation's end, and waits so long for a
  // successor and the last results.
  double leave_allocation_s = 2;
  double succeed_s = 10;
  double cancel_s = 90;  // time for schedulers to cancel allocations at the end of the campaign
  // Target number of messages with results per second, from all workers together: a thousand workers gather
  // results for 0.2 s, and the coordinator gathers commits and acknowledgements.
  double results_per_s = 5000;
  // The same for workers with work for many seconds (spare leases), which need no new lease meanwhile.
  double patient_results_per_s = 2000;
  // Commits are gathered no longer than this, however many workers there are.
  double longest_commit_s = 4;
  double end_agent_s = 3;  // time for an agent to end after its guardian; then it is killed
  // A longer gap between two events is a pause of the coordinator itself (SIGSTOP, a suspended machine): it
  // does not count as silence of workers, whose heartbeats may wait unread.
  double longest_gap_s = 3;

  // The time between two heartbeats of one of so many workers.
  double heartbeat_of(std::size_t workers) const {
    const double longest_s = std::min({longest_heartbeat_s, lost_s / 6, gang_silent_s / 3});
    return std::max(heartbeat_s, std::min(longest_s, static_cast<double>(workers) / heartbeats_per_s));
  }
};

}  // namespace wflow::engine
