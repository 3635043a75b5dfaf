// SPDX-License-Identifier: Apache-2.0
// Measures the passes of one rank's part of a network and the wire between ranks, and adds up the seconds of
// a step from both.
#pragma once

#include <cstdint>

#include "trainer/parallel/communicator.h"
#include "trainer/training/pass_times.h"
#include "trainer/training/planner.h"

namespace wflow::trainer {

// Seconds of a step's passes over the part that a rank has of a grid's samples, without messages, of the
// update of the weights, and of the preparation of the samples: of the slowest rank, the medians of several
// steps. A collective call: all ranks begin a step at the same time, as in the training.
PassSeconds measure_passes(const PlanTask& task, const GridPlan& plan, Communicator& ranks);

struct WireSpeed {
  double latency = 0;           // seconds of a small message between two ranks, for the computing thread
  double bytes_per_second = 1;  // of large ones
  double sum_latency = 0;       // seconds of a sum of few numbers over all ranks
  double sum_seconds = 0;       // for each number of a large one
  // Cores that a rank has beside those of its threads, 1 at most: without one, the sums of gradients and the
  // loader take their time from the passes.
  double free_cores = 1;
};
// A collective call.
WireSpeed measure_wire(const PlanTask& task, Communicator& ranks);

// Sets the seconds of the plan.
void set_seconds(const PlanTask& task, const PassSeconds& pass, const WireSpeed& wire, GridPlan& plan);

}  // namespace wflow::trainer
