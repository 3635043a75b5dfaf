// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/sizing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace wflow::engine {

namespace {

// The assumed duration of a task before the first of its step has ended.
constexpr double kUnknown_s = 0.5;
// A worker that has this part of its time left has just begun.
constexpr double kWhole = 0.9;
// An execution that was cut after this part of it had all of it, but for its start.
constexpr double kNearlyWhole = 0.95;
// After a cut, the next execution needs so many times the time that was too short: few executions are cut
// before one has a whole allocation.
constexpr double kMoreAfterCut = 1.5;
// A worker keeps so much of its share of what is ready for the time that it may have to work alone.
constexpr double kSpareShare = 0.25;

double scarce_ahead_s(const Worker& worker, QueueId queue) {
  const auto at = worker.scarce_s.find(queue);
  return at == worker.scarce_s.end() ? 0 : at->second;
}

}  // namespace

double cores_of(const ReadyQueue& queue, const Worker& worker) {
  const std::int64_t asked = queue.gang.spans_nodes()
                                 ? queue.gang.cores
                                 : std::int64_t{queue.resources.cores} * queue.resources.procs;
  return static_cast<double>(std::clamp<std::int64_t>(asked, 1, std::max(worker.capacity.cores, 1)));
}

double scarce_share(const ReadyQueue& queue, const Worker& worker) {
  const auto memory =
      static_cast<double>(std::min(queue.resources.memory_bytes, worker.capacity.memory_bytes));
  double share = memory > 0 ? memory / static_cast<double>(worker.capacity.memory_bytes) : 0;
  if (queue.resources.gpus > 0 && worker.capacity.gpus > 0)
    share = std::max(share, static_cast<double>(queue.resources.gpus) / worker.capacity.gpus);
  return share;
}

double room(const ReadyQueue& queue, const Worker& worker) {
  const WorkerCapacity& capacity = worker.capacity;
  const Load& load = worker.load;
  double room = (capacity.cores - load.cores) / cores_of(queue, worker);
  if (queue.resources.gpus > 0 && capacity.gpus > 0)
    room = std::min(room, (capacity.gpus - load.gpus) / queue.resources.gpus);
  const auto memory = static_cast<double>(std::min(queue.resources.memory_bytes, capacity.memory_bytes));
  if (memory > 0)
    room = std::min(room, (static_cast<double>(capacity.memory_bytes) - load.memory_bytes) / memory);
  return std::max(0.0, std::floor(room + 1e-6));
}

double processes_at_once(const ReadyQueue& queue, const Worker& worker) {
  double processes = worker.capacity.cores / cores_of(queue, worker);
  if (const double share = scarce_share(queue, worker); share > 0) processes = std::min(processes, 1 / share);
  return std::max(1.0, std::floor(processes + 1e-6));
}

double alone_seconds(double seconds, const ReadyQueue& queue, const Worker& worker) {
  return std::max(seconds, kShortestTask_s) / processes_at_once(queue, worker);
}

int lease_priority(const ReadyQueue& queue, bool spare) {
  if (!spare) return queue.priority;
  return std::max(queue.priority, std::numeric_limits<int>::min() + 1) - 1;
}

double mean_s(const ReadyQueue& queue) {
  return queue.timed > 0 ? queue.duration_sum_s / static_cast<double>(queue.timed) : kUnknown_s;
}

double seconds_of(const TaskArray& array, const ReadyQueue& queue, const Worker& worker) {
  if (array.timed == 0 && queue.timed == 0) return kUnknown_s;
  return worker.slowness *
         (array.timed > 0 ? array.duration_sum_s / static_cast<double>(array.timed) : mean_s(queue));
}

std::optional<double> longest_s(const ReadyQueue& queue) {
  if (queue.walltime_s > 0) return queue.walltime_s;
  if (queue.timed == 0) return queue.cut_s > 0 ? std::optional(queue.cut_s) : std::nullopt;
  const auto timed = static_cast<double>(queue.timed);
  const double mean_s = queue.duration_sum_s / timed;
  return mean_s + 2 * std::sqrt(std::max(0.0, queue.duration_square_sum / timed - mean_s * mean_s));
}

bool fits_before_end(const ReadyQueue& queue, const Worker& worker, double now_s) {
  const double left_s = worker.ends_s - now_s;
  if (left_s <= 0) return false;
  const auto needed_s = longest_s(queue);
  return !needed_s || left_s >= std::min(*needed_s * worker.slowness, kWhole * worker.whole_s);
}

bool outlives(double at_least_s, const Worker& worker, double now_s) {
  const double left_s = worker.ends_s - now_s;
  return left_s > std::max(at_least_s, std::min(kMoreAfterCut * at_least_s, kWhole * worker.whole_s));
}

bool had_whole_allocation(double duration_s, const Worker& worker) {
  return std::isfinite(worker.whole_s) && duration_s >= kNearlyWhole * worker.whole_s;
}

double room_beside_gang(const ReadyQueue& queue, const Worker& worker, double now_s) {
  const double all = room(queue, worker);
  if (worker.reserved_cores <= 0) return all;
  const auto needed_s = longest_s(queue);
  if (needed_s && now_s + *needed_s * worker.slowness <= worker.reserved_s) return all;
  const double beside = worker.capacity.cores - worker.reserved_cores - worker.load.cores;
  return std::clamp(std::floor(beside / cores_of(queue, worker) + 1e-6), 0.0, all);
}

namespace {

// Workers do not know the load of a gang's ranks: they start leased tasks at once.
bool gets_ahead(const Worker& worker) {
  return !worker.untried && worker.gangs.empty() && worker.reserved_cores <= 0;
}

// A long task, too, has its turn among short ones; behind others like it it would wait for one of them.
bool may_wait(const Worker& worker, double seconds) {
  return seconds <= kLongestAhead_s || worker.load.long_cores < worker.capacity.cores;
}

}  // namespace

bool has_enough(const Worker& worker) {
  const int cores = worker.capacity.cores;
  return worker.load.queued_core_s(cores) >= 0.5 * kAhead_s * cores;
}

bool takes(const Worker& worker, const ReadyQueues& queues, QueueId queue, double now_s) {
  const ReadyQueue& asked = queues.queue(queue);
  if (asked.gang.spans_nodes() || !worker.serves[queue] || !fits_before_end(asked, worker, now_s))
    return false;
  if (room_beside_gang(asked, worker, now_s) >= 1) return true;
  return gets_ahead(worker) && !has_enough(worker) && may_wait(worker, mean_s(asked) * worker.slowness) &&
         scarce_ahead_s(worker, queue) < 0.5 * kAhead_s;
}

double spare_size(const TaskArray& array, const ReadyQueues& queues, QueueId id, const Worker& worker,
                  double now_s) {
  const ReadyQueue& queue = queues.queue(id);
  if (queue.timed == 0 || queue.overdue || !gets_ahead(worker)) return 0;
  const double process = static_cast<double>(std::max<std::uint64_t>(array.spec.bundle, 1));
  const double each_s = std::max(seconds_of(array, queue, worker), kShortestTask_s) * process;
  double rounds = std::ceil(worker.capacity.alone_s / each_s - 1e-6);
  if (std::isfinite(worker.ends_s)) {
    const double needed_s = longest_s(queue).value_or(0) * worker.slowness * process;
    const double loaded =
        worker.load.cores / worker.capacity.cores;  // rounds that come before the spare ones
    rounds = std::min(rounds, std::floor((worker.ends_s - now_s - needed_s) / each_s - loaded));
  }
  const double share = static_cast<double>(queue.ready) * worker.capacity.cores / std::max(queue.cores, 1);
  return std::max(0.0, std::min(rounds * processes_at_once(queue, worker) * process, kSpareShare * share));
}

std::uint64_t range_size(const TaskArray& array, const ReadyQueues& queues, QueueId id, const Worker& worker,
                         std::uint64_t most, double now_s) {
  const ReadyQueue& queue = queues.queue(id);
  const double cores = worker.capacity.cores;
  const double process = static_cast<double>(std::max<std::uint64_t>(array.spec.bundle, 1));
  const double seconds = std::max(seconds_of(array, queue, worker), kShortestTask_s);
  const double at_once = room_beside_gang(queue, worker, now_s) * process;
  double size = at_once;
  if (gets_ahead(worker) && (seconds <= kLongestAhead_s || (at_once < 1 && may_wait(worker, seconds)))) {
    const double queued_s = worker.load.queued_core_s(worker.capacity.cores);
    double ahead = (kAhead_s * cores - queued_s) / (seconds * cores_of(queue, worker));
    const double share = scarce_share(queue, worker);
    if (share > 0)
      ahead = std::min(ahead, (kAhead_s - scarce_ahead_s(worker, id)) / (seconds * share) - at_once);
    size += std::ceil(std::max(0.0, ahead));
  }
  // The lease of an overdue queue is a small one.
  if (queue.overdue) size = std::min(size, std::max(kAhead_s / seconds, process));
  // Towards the end no worker takes more than half of its share, so that all end together.
  if (queue.workers > 1) {
    const double share = static_cast<double>(queue.ready) * cores / (2.0 * std::max(queue.cores, 1));
    size = std::min(size, std::ceil(share));
  }
  return static_cast<std::uint64_t>(std::clamp(size, 1.0, static_cast<double>(most)));
}

}  // namespace wflow::engine
