// SPDX-License-Identifier: Apache-2.0
// How much a worker gets at once.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/schedule/ready_queues.h"
#include "engine/schedule/task_array.h"
#include "engine/schedule/worker.h"

namespace wflow::engine {

// Work that a worker should have ahead of it, behind the tasks that run, in seconds a core: long enough to
// hide a round trip, a group commit and the gathering of results, short enough to stay balanced. It is topped
// up when half of it is gone. A worker that has been idle for so long gets elements that others have not
// started.
inline constexpr double kAhead_s = 0.5;
// Longer tasks do not wait behind each other: for them a round trip is short, and the wait may be long.
inline constexpr double kLongestAhead_s = 2;
inline constexpr double kShortestTask_s = 1e-6;

// The cores of a task on one worker. A task that needs more cores than its worker has runs there alone.
double cores_of(const ReadyQueue& queue, const Worker& worker);
// The share of the worker's GPUs or memory that one process of the queue takes.
double scarce_share(const ReadyQueue& queue, const Worker& worker);
// How many more of the queue's processes could start on the worker at once.
double room(const ReadyQueue& queue, const Worker& worker);
// How many of the queue's processes the worker runs at once when it runs nothing else; at least one.
double processes_at_once(const ReadyQueue& queue, const Worker& worker);
// Seconds of the whole worker per element, if elements of `seconds` each fill it.
double alone_seconds(double seconds, const ReadyQueue& queue, const Worker& worker);
// The priority of a lease in its worker's queue. Spare leases come after others of the same priority.
int lease_priority(const ReadyQueue& queue, bool spare);
// The number of elements to lease to the worker beyond its load, so that it has work while no coordinator
// answers: for each process that it can run at once as many as it may start in that time, but no more than a
// quarter of its share of the ready elements, and none that its allocation's end may cut. Towards the end of
// a campaign it is 0.
double spare_size(const TaskArray& array, const ReadyQueues& queues, QueueId queue, const Worker& worker,
                  double now_s);
// True if the worker has enough work queued behind its running tasks.
bool has_enough(const Worker& worker);
// The mean duration of the queue's tasks, as estimated.
double mean_s(const ReadyQueue& queue);
// An element's duration on this worker, as estimated.
double seconds_of(const TaskArray& array, const ReadyQueue& queue, const Worker& worker);
// An upper bound for one of the queue's tasks: the study's limit, else the mean of ended ones plus two
// standard deviations (the 95th percentile of the usual distributions, or more). Empty if neither is known.
std::optional<double> longest_s(const ReadyQueue& queue);
// True if a task of the queue can end before the worker's allocation. On a worker that has just begun it may
// always start: no longer allocation will come.
bool fits_before_end(const ReadyQueue& queue, const Worker& worker, double now_s);
// The same for an element whose last execution was cut after `at_least_s` by the end of its allocation: where
// little more than that is left, it would only be cut again.
bool outlives(double at_least_s, const Worker& worker, double now_s);
// True if an execution that was cut had a whole allocation of its worker's kind.
bool had_whole_allocation(double duration_s, const Worker& worker);
// How many processes of the queue may start on the worker without a delay to the gang that waits for some of
// its cores: those that find place beside it, and all that end before it is expected to start.
double room_beside_gang(const ReadyQueue& queue, const Worker& worker, double now_s);
// True if the worker serves the queue, which is no gang queue, and wants more of it.
bool takes(const Worker& worker, const ReadyQueues& queues, QueueId queue, double now_s);
// Elements of the array's next lease.
std::uint64_t range_size(const TaskArray& array, const ReadyQueues& queues, QueueId queue,
                         const Worker& worker, std::uint64_t most, double now_s);

}  // namespace wflow::engine
