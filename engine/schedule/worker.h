// SPDX-License-Identifier: Apache-2.0
// A worker as the scheduler knows it.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "engine/schedule/array_spec.h"
#include "engine/schedule/intervals.h"
#include "engine/schedule/ready_queues.h"
#include "engine/schedule/types.h"

namespace wflow::engine {

// The total demand of the elements leased to a worker.
struct Load {
  double cores = 0, gpus = 0, memory_bytes = 0;
  double core_s = 0;      // estimated core seconds ahead, with what runs
  double long_cores = 0;  // part of tasks so long that none should wait behind them (kLongestAhead_s)

  // The part of core_s queued behind running tasks: a share, because it is not known which of them run.
  double queued_core_s(int capacity) const { return cores > capacity ? core_s * (1 - capacity / cores) : 0; }
};

// Workers with free cores first; then by work ahead; then in the order of joining.
using DemandKey = std::tuple<bool, double, std::uint64_t>;

struct Worker {
  WorkerId id;
  std::uint64_t number = 0;  // in order of joining
  WorkerCapacity capacity;
  std::vector<bool> serves;  // by queue
  std::set<LeaseId> leases;
  std::set<LeaseId> gangs;  // on several workers, of which this is one: the one that has the lease or another
  std::uint64_t elements = 0;  // in its leases
  Load load;
  // For queues that need GPUs or memory: seconds ahead in which their tasks use all that the worker has.
  std::map<QueueId, double> scarce_s;
  // Its allocation's end, on the scheduler's clock, and how long before it the worker joined.
  double ends_s = std::numeric_limits<double>::infinity();
  double whole_s = std::numeric_limits<double>::infinity();
  // Leases beyond its load: they are for the time in which no coordinator answers. In seconds of the whole
  // worker.
  std::set<LeaseId> spares;
  double spare_s = 0, spare_cores = 0;
  double slowness = 1;  // its tasks' durations over their arrays' means, lately
  // Leases were taken back from it, and it has reported nothing since: it gets no more than it can start.
  bool untried = false;
  bool draining = false;
  // A gang that waits is to have so many of its cores, expected at that moment. 0: none does.
  double reserved_cores = 0;
  double reserved_s = 0;
  std::optional<double> free_since_s;      // it has cores without work
  std::optional<DemandKey> key;            // its place among the workers that want more
  bool moves = false;                      // its place is to be found anew (LeaseTable)
  std::map<LeaseId, IntervalSet> missing;  // neither held nor reported when it joined again
};

}  // namespace wflow::engine
