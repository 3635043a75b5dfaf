// SPDX-License-Identifier: Apache-2.0
// What the scheduler and its workers agree on: leases, and how executions end. Plain values, which
// engine/wire/messages.h carries and engine/store makes durable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "specs/plan/template.h"

namespace wflow::engine {

using specs::ArrayId;
using Element = specs::Element;
using specs::LeftOut;
using LeaseId = std::uint64_t;
using WorkerId = std::string;

// The right to run the range [first, first + count) of an array's elements, once each. Identifiers grow:
// those of a later coordinator (its epoch is in the upper 24 bits) and those granted later are larger. A
// message that names a lease which no longer holds the element is stale and changes nothing.
struct Lease {
  LeaseId id = 0;
  ArrayId array = 0;
  Element first = 0;
  std::uint64_t count = 0;
  std::uint32_t attempt = 0;  // 0: the first execution
  bool restart = false;       // run the step's restart command
  std::int32_t priority = 0;  // higher goes first in the worker's queue
  // To reserve for each process; 0: the step's demand. Set for an element that was killed for memory before.
  std::int64_t memory_bytes = 0;
  // Earlier executions that no budget counts, ordinary failures, and losses with a worker: for a coordinator
  // without a record of them. The others asked for another execution.
  std::uint32_t uncharged = 0;
  std::uint32_t failures = 0;
  std::uint32_t crashes = 0;
  // The node names of a task on several nodes, that of the worker which starts it first. Empty: on this
  // worker alone. In a revoked part of a lease it means that all of the task's processes on the node must be
  // killed.
  std::vector<std::string> nodes = {};
  // For a step with trust_markers: a MERLIN_FINISHED made under this lease or a later one means that the
  // element is done. 0: none has run since the element was first leased or opened again.
  LeaseId trust_from = 0;
  // For blocks of a conversion: in order and disjoint.
  std::vector<LeftOut> left_out = {};
};

// How one execution of one element ended, by evidence: docs/reliability.md has what counts as such.
enum class EndReason : std::uint8_t {
  exited,       // by itself; see exit_code
  signalled,    // by a signal that wflow did not send; exit_code is the signal's number
  timed_out,    // killed at its time limit
  not_started,  // the worker could not start it (detail has the reason)
  bad_output,   // ended with 0, but a declared output is missing or wrong
  worker_lost,  // its worker died; decided by the coordinator
  cancelled,
  out_of_memory,  // killed by the kernel or the scheduler for its memory
  walltime,       // ended with its allocation, whose walltime was over
  node,           // its node failed, according to the scheduler
  preempted,      // its allocation was preempted, requeued, or cancelled by another user or program
  launcher,       // the launcher of its processes (srun, mpirun) failed
  disk,           // it failed while its disk was full, over quota, read-only or broken
  stalled,        // killed after its stall_timeout: no output, no report, no CPU use
};
inline constexpr EndReason kLastEndReason = EndReason::stalled;

// True for a cause outside the task: the element runs again, without a limit.
constexpr bool is_neutral(EndReason reason) {
  return reason == EndReason::walltime || reason == EndReason::node || reason == EndReason::preempted ||
         reason == EndReason::disk;
}

// Why a worker was lost, as far as that is known.
struct Loss {
  EndReason reason = EndReason::worker_lost;
  std::string detail;   // empty: that it was lost
  bool charged = true;  // the executions that ran on it count against their crash limits
  // Its scheduler may still report the allocation as the cause: no task fails for good by this loss.
  bool settled = true;
};

struct Outcome {
  LeaseId lease = 0;
  ArrayId array = 0;
  Element element = 0;
  std::uint32_t attempt = 0;
  EndReason reason = EndReason::exited;
  std::int32_t exit_code = 0;
  double started_s = 0;  // Unix time
  double duration_s = 0;
  std::string detail;  // end of the task's output, or why it could not start
};

// Neighbouring elements of one lease that ended with exit code 0.
struct DoneRun {
  LeaseId lease = 0;
  ArrayId array = 0;
  Element first = 0;
  std::uint64_t count = 0;
  std::uint32_t attempt = 0;  // the lease's number
  double duration_sum_s = 0;
  double duration_square_sum = 0;
  double last_end_s = 0;  // Unix time
};

// When one execution ran and what its process, with all that it had waited for, used: of the elements
// [first, first + count) of a bundle together. The kernel's own count of an ended process (wait4(2), rusage).
struct TaskUsage {
  LeaseId lease = 0;
  ArrayId array = 0;
  Element first = 0;
  std::uint64_t count = 1;
  std::uint32_t attempt = 0;
  double started_s = 0;  // Unix time
  double duration_s = 0;
  double cpu_s = 0;  // user and system
  // Peak of the largest process of the tree, or of all together if they were sampled while they ran.
  std::uint64_t peak_bytes = 0;
  std::uint64_t read_bytes = 0;     // from storage, not from the page cache
  std::uint64_t written_bytes = 0;  // to be written to storage
  friend bool operator==(const TaskUsage&, const TaskUsage&) = default;
};

struct RunningElement {
  ArrayId array = 0;
  Element element = 0;
  double started_s = 0;
  // The most that it has held so far, as far as sampled; 0: not known, or no dashboard is open.
  std::uint64_t memory_bytes = 0;
};

}  // namespace wflow::engine
