// SPDX-License-Identifier: Apache-2.0
// How much a worker gets at once.
#pragma once

#include <cstdint>

#include "engine/schedule/ready_queues.h"
#include "engine/schedule/task_array.h"
#include "engine/schedule/worker.h"

namespace wflow::engine {

// Work that a worker should have ahead of it, in seconds a core: long enough to hide a round trip and a group
// commit, short enough to stay balanced. It is topped up when half of it is gone. A worker that has been idle
// for so long is given what others have not started.
inline constexpr double kAhead_s = 0.5;
inline constexpr double kShortestTask_s = 1e-6;

// A task that asks for more cores than its worker has runs there alone.
double cores_of(const ReadyQueue& queue, const Worker& worker);
// Of the worker's GPUs or memory that one process of the queue takes.
double scarce_share(const ReadyQueue& queue, const Worker& worker);
// How many more of the queue's processes could start on the worker at once.
double room(const ReadyQueue& queue, const Worker& worker);
// An element's duration on this worker, as estimated.
double seconds_of(const TaskArray& array, const ReadyQueue& queue, const Worker& worker);
// Whether the worker serves the queue and wants more of it.
bool takes(const Worker& worker, const ReadyQueues& queues, QueueId queue);
// Elements of the array's next lease.
std::uint64_t range_size(const TaskArray& array, const ReadyQueues& queues, QueueId queue,
                         const Worker& worker, std::uint64_t most);

}  // namespace wflow::engine
