// SPDX-License-Identifier: Apache-2.0
// The scheduler's input on the campaign's task arrays, and on a worker.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/types.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

// Slots on several nodes of one allocation, all at once: what a task with `nodes` takes where its workers run
// in allocations.
struct Gang {
  int nodes = 1;      // 1: a task of one worker
  int min_nodes = 1;  // so many are enough where no allocation has more
  int cores = 1;      // on each
  bool spans_nodes() const { return nodes > 1; }
};

struct ArraySpec {
  std::uint64_t count = 1;
  int priority = 0;  // higher first
  // Arrays of one step go in the order of their numbers; steps of equal priority take turns.
  std::uint32_t step = 0;
  std::uint32_t pool = 0;  // which workers serve it: WorkerCapacity::pools
  specs::Resources resources;
  Gang gang;
  std::uint64_t bundle = 0;         // samples of one process: leases end where processes do; 0: one each
  specs::BlockStarts block_starts;  // where bundles begin, too
  int max_retries = 0;              // executions requested by exit codes 100 (restart) and 104 (retry)
  int failure_retries = 0;          // executions after an ordinary failure
  double retry_delay_s = 0;
  double memory_factor =
      0;                  // an execution killed for memory is followed by one with so many times more; 0: not
  double walltime_s = 0;  // the study's limit for one task; 0: none
  // The walltime of the longest allocations that serve it; 0: not known, or some have none.
  double longest_allocation_s = 0;
  bool goes_on = false;  // an execution that was cut is continued by the next one: trainings, `restart:`
  bool trust_markers = false;  // Lease::trust_from is given
  bool own_program =
      false;  // a wflow program: after its exit codes 2 to 4 another try would end the same way
  // Conversions: a block that is done has deleted what its parent's elements left; and how many bytes of that
  // may be on the disk at the same time, over all arrays (disk_limit.h); 0: no limit.
  bool deletes_input = false;
  std::uint64_t max_disk_bytes = 0;
  // Conversions: a lease names the samples that its blocks leave out (Lease::left_out).
  bool leaves_out_failed = false;
  // Its elements are leased once the ends of their input are on disk: they may read Merlin's status files,
  // which are written with these (engine/monitor/merlin_status.h).
  bool after_record = false;
  specs::ContinueOn continue_on = specs::ContinueOn::soft_fail;
  std::vector<specs::Edge> edges;

  specs::ContinueOn policy_of(const specs::Edge& edge) const {
    return edge.continue_on.value_or(continue_on);
  }

  Blocks bundles() const { return specs::blocks_of(std::max<std::uint64_t>(bundle, 1), block_starts); }
};

struct WorkerCapacity {
  WorkerCapacity(int cores_ = 1, int gpus_ = 0, std::int64_t memory_bytes_ = 0, std::vector<bool> pools_ = {})
      : cores(cores_), gpus(gpus_), memory_bytes(memory_bytes_), pools(std::move(pools_)) {}
  int cores;
  int gpus;
  std::int64_t memory_bytes;  // 0: not known, taken as enough
  std::vector<bool> pools;    // which it serves, by ArraySpec::pool; empty: all
  // The allocation that it is of, and its node's name there. Only workers of one allocation form a gang.
  std::string allocation, node;
  // It goes on for so long when its coordinator does not answer (its fence): it keeps spare leases for that
  // time.
  double alone_s = 0;
};

}  // namespace wflow::engine
