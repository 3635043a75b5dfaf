// SPDX-License-Identifier: Apache-2.0
// Every time-out between coordinator and workers, in seconds of a steady clock. Tests set their own.
#pragma once

namespace wflow::engine {

struct Timing {
  double pulse_s = 1;      // between two Pulses to each worker, and two looks at who is silent
  double heartbeat_s = 1;  // between two heartbeats of a worker
  // The fence: see wire::Welcome::lost_s. A worker in the coordinator's own process table is watched by its
  // process, so that its fence matters only when the campaign is resumed on another host.
  double lost_s = 60;
  double lost_here_s = 600;
  // Beyond the fence, before the coordinator leases again. Covers: the worker's clock running slower than the
  // coordinator's (2 % of lost_s), the kill of its tasks, and a pause of the agent of up to 10 s.
  double margin_s = 15;
  double gang_silent_s =
      10;                // a worker that is silent for so long ends the tasks on several nodes that it is of
  double return_s = 20;  // a living worker of an earlier coordinator on this host has so long to say Hello
  double hand_over_s = 60;  // from that Hello to the heartbeat that ends its hand-over
  double unserved_s = 3;    // a step without any worker for so long is reported
  double dismiss_s = 15;    // workers have so long to end at the end of the campaign
  // Of a coordinator that moves on: before the end of its allocation, and for a successor and the last
  // results.
  double leave_home_s = 2;
  double succeed_s = 10;
  double cancel_s = 90;    // schedulers have so long to cancel allocations at the end of the campaign
  // Messages with results that all workers together should send in a second: a thousand workers gather theirs
  // for 0.2 s, and the coordinator its commits and acknowledgements.
  double results_per_s = 5000;
  double end_agent_s = 3;  // an agent has so long to end after its guardian; then it is killed
  // A longer gap between two events is a pause of the coordinator itself (SIGSTOP, a suspended machine): it
  // does not count as silence of workers, whose heartbeats may wait unread.
  double longest_gap_s = 3;
};

}  // namespace wflow::engine
