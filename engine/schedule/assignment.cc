// SPDX-License-Identifier: Apache-2.0
// The scheduler's leases: which worker gets which elements, and how many at once. What goes first is in
// queue.cc, what is taken back in split.cc.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/schedule/scheduler.h"
#include "engine/schedule/sizing.h"

namespace wflow::engine {

namespace {

// What a task is taken to last before the first of its step has ended.
constexpr double kUnknown_s = 0.25;
constexpr double kShortest_s = 1e-6;
// Of one worker: a hundred thousand retries that are due at once are no message.
constexpr std::size_t kMaxLeases = 4096;

double processes_of(const ArraySpec& spec, std::uint64_t elements) {
  return 1.0 / static_cast<double>(std::min(std::max<std::uint64_t>(spec.bundle, 1), elements));
}

}  // namespace

void Scheduler::assign(double now_s) {
  if (!std::exchange(clock_runs_, true)) {
    for (ReadyQueue& queue : queues_) queue.waits_since_s = now_s;
  }
  now_s_ = now_s;
  move_due_retries(now_s);
  if (paused_ || stop_requested_) {
    next_split_s_.reset();
    return;
  }
  mark_overdue();
  while (!order_.empty() && !demand_.empty()) {
    Worker& worker = *demand_.begin()->second;
    if (!grant_next(worker)) unserved_.insert(demand_.extract(demand_.begin()));
  }
  split_back();
}

std::optional<double> Scheduler::next_due_s() const {
  std::optional<double> due = next_split_s_;
  if (!delayed_.empty()) due = std::min(due.value_or(delayed_.begin()->first), delayed_.begin()->first);
  return due;
}

// Gives the worker something of the first queue that has anything for it; false when none has.
bool Scheduler::grant_next(Worker& worker) {
  const auto next = std::find_if(order_.begin(), order_.end(), [&](const QueueKey& key) {
    return takes(worker, queues_[std::get<QueueId>(key)]);
  });
  if (next == order_.end()) return false;
  const ArrayId array_id = *queues_[std::get<QueueId>(*next)].waiting.begin();
  Array& array = arrays_[array_id];
  if (!array.retry_ready.empty()) {
    const Element element = *array.retry_ready.begin();
    array.retry_ready.erase(array.retry_ready.begin());
    grant(worker, array_id, {element, element}, array.attempts[element]);
  } else {
    const Range range = next_range(array, worker);
    array.ready.remove(range);
    grant(worker, array_id, range, {});
  }
  return true;
}

bool Scheduler::takes(const Worker& worker, const ReadyQueue& queue) const {
  if (!worker.serves[static_cast<std::size_t>(&queue - queues_.data())]) return false;
  if (room(worker, queue) >= 1) return true;
  const bool enough = worker.load.core_s >= 0.5 * kAhead_s * worker.capacity.cores;
  return !worker.untried && !enough && scarce_s(worker, queue) < 0.5 * kAhead_s;
}

// Seconds ahead of the worker in which this queue's tasks have all of what it has of GPUs or memory; 0 for a
// queue that asks for cores only.
double Scheduler::scarce_s(const Worker& worker, const ReadyQueue& queue) const {
  const auto at = worker.scarce_s.find(static_cast<QueueId>(&queue - queues_.data()));
  return at == worker.scarce_s.end() ? 0 : at->second;
}

// Of the worker's GPUs or memory that one process of the queue takes.
double Scheduler::scarce_share(const Worker& worker, const ReadyQueue& queue) {
  const auto memory =
      static_cast<double>(std::min(queue.resources.memory_bytes, worker.capacity.memory_bytes));
  double share = memory > 0 ? memory / static_cast<double>(worker.capacity.memory_bytes) : 0;
  if (queue.resources.gpus > 0 && worker.capacity.gpus > 0)
    share = std::max(share, static_cast<double>(queue.resources.gpus) / worker.capacity.gpus);
  return share;
}

// How many more of the queue's processes could start on the worker at once.
double Scheduler::room(const Worker& worker, const ReadyQueue& queue) const {
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

// What a bundled step's worker gets ends where a process ends, so that no process is cut in two.
Range Scheduler::next_range(const Array& array, const Worker& worker) const {
  const std::uint64_t size = range_size(array, worker);
  const std::uint64_t bundle = array.spec.bundle;
  if (bundle <= 1) return *array.ready.front(size);
  const Element first = array.ready.front(1)->first;
  return *array.ready.front((first + size + bundle - 1) / bundle * bundle - first);
}

std::uint64_t Scheduler::range_size(const Array& array, const Worker& worker) const {
  const ReadyQueue& queue = queues_[array.queue];
  const double cores = worker.capacity.cores;
  const double process = static_cast<double>(std::max<std::uint64_t>(array.spec.bundle, 1));
  const double seconds = std::max(seconds_of(array, worker), kShortest_s);
  double size = room(worker, queue) * process;
  if (!worker.untried) {
    double ahead = (kAhead_s * cores - worker.load.core_s) / (seconds * cores_of(queue, worker));
    const double share = scarce_share(worker, queue);
    if (share > 0) ahead = std::min(ahead, (kAhead_s - scarce_s(worker, queue)) / (seconds * share));
    size = std::max(size, std::ceil(ahead));
  }
  // Its turn is a small one.
  if (queue.overdue) size = std::min(size, std::max(kAhead_s / seconds, process));
  // Towards the end no worker takes more than half of its share, so that all end together.
  if (queue.workers > 1) {
    const double share = static_cast<double>(queue.ready) * cores / (2.0 * std::max(queue.cores, 1));
    size = std::min(size, std::ceil(share));
  }
  return static_cast<std::uint64_t>(std::clamp(size, 1.0, static_cast<double>(max_range_)));
}

// An element, on this worker.
double Scheduler::seconds_of(const Array& array, const Worker& worker) const {
  const ReadyQueue& queue = queues_[array.queue];
  const auto mean = [](std::uint64_t timed, double sum_s) { return sum_s / static_cast<double>(timed); };
  if (array.timed > 0) return mean(array.timed, array.duration_sum_s) * worker.slowness;
  return queue.timed > 0 ? mean(queue.timed, queue.duration_sum_s) * worker.slowness : kUnknown_s;
}

// A task that asks for more cores than its worker has runs there alone.
double Scheduler::cores_of(const ReadyQueue& queue, const Worker& worker) {
  const std::int64_t asked = std::int64_t{queue.resources.cores} * queue.resources.procs;
  return static_cast<double>(std::clamp<std::int64_t>(asked, 1, std::max(worker.capacity.cores, 1)));
}

Scheduler::LeaseState& Scheduler::add_lease(LeaseId lease_id, Worker& worker, ArrayId array_id) {
  LeaseState& lease = leases_[lease_id];
  lease.worker = &worker;
  lease.array = array_id;
  lease.seconds_each = seconds_of(arrays_[array_id], worker);
  lease.cores_each = cores_of(queues_[arrays_[array_id].queue], worker);
  worker.leases.insert(lease_id);
  return lease;
}

void Scheduler::add_to_lease(LeaseState& lease, Range range) {
  Array& array = arrays_[lease.array];
  if (lease.remaining.empty()) {
    lease.processes_each = processes_of(array.spec, range.size());
    // A long task fills its core and no more: what is ahead of the other cores does not depend on it.
    lease.seconds_each = std::clamp(lease.seconds_each, kShortest_s, kAhead_s * lease.processes_each);
  }
  lease.remaining.add(range);
  change_load(lease, static_cast<double>(range.size()));
  queues_[array.queue].leased += range.size();
  array.states.set(range, ElementState::leased);
  leased_ += range.size();
}

void Scheduler::change_load(const LeaseState& lease, double elements) {
  Worker& worker = *lease.worker;
  const specs::Resources& asked = arrays_[lease.array].spec.resources;
  const double processes = elements * lease.processes_each;
  worker.load.cores += processes * lease.cores_each;
  worker.load.core_s += elements * lease.cores_each * lease.seconds_each;
  worker.load.gpus += processes * asked.gpus;
  worker.load.memory_bytes +=
      processes * static_cast<double>(std::min(asked.memory_bytes, worker.capacity.memory_bytes));
  const QueueId queue = arrays_[lease.array].queue;
  if (const double share = scarce_share(worker, queues_[queue]); share > 0)
    worker.scarce_s[queue] += elements * lease.seconds_each * share;
  // Sums of many small numbers drift; an idle worker has exactly no load.
  if (worker.leases.empty()) {
    worker.load = {};
    worker.scarce_s.clear();
  }
  index(worker);
}

void Scheduler::grant(Worker& worker, ArrayId array_id, Range range, const Attempt& attempt) {
  const LeaseId lease_id = next_lease_++;
  LeaseState& lease = add_lease(lease_id, worker, array_id);
  const ReadyQueue& queue = queues_[arrays_[array_id].queue];
  // Served in its turn, it must not wait behind the others on the worker.
  const int priority = queue.overdue ? std::numeric_limits<int>::max() : queue.priority;
  const double core_s = static_cast<double>(range.size()) * lease.cores_each * lease.seconds_each;
  add_to_lease(lease, range);
  actions_.grants.push_back(
      {worker.id,
       {lease_id, array_id, range.first, range.size(), attempt.number, attempt.restart, priority}});
  update_queue(array_id);
  serve(arrays_[array_id].queue, core_s);
}

// A lease that another coordinator granted and its worker still holds. What can't be held any more is
// revoked.
void Scheduler::adopt_lease(Worker& worker, const wire::Lease& lease) {
  if (!valid(lease.array, lease.first, lease.count)) {
    actions_.revokes.push_back({worker.id, lease.id, true});
    return;
  }
  const Range range{lease.first, lease.first + lease.count - 1};
  const auto waits = [](ElementState s) { return s == ElementState::ready || s == ElementState::delayed; };
  if (leases_.contains(lease.id)) return;  // the same coordinator: the connection was lost, the lease was not
  const std::vector<Range> parts = parts_in(lease.array, range, waits);
  if (parts.empty()) {
    actions_.revokes.push_back({worker.id, lease.id, true});
    return;
  }
  Array& array = arrays_[lease.array];
  LeaseState& state = add_lease(lease.id, worker, lease.array);
  for (const Range& part : parts) {
    array.ready.remove(part);
    array.retry_ready.erase(array.retry_ready.lower_bound(part.first),
                            array.retry_ready.upper_bound(part.last));
    add_to_lease(state, part);
  }
  update_queue(lease.array);
}

bool Scheduler::release_from_lease(LeaseId lease_id, Range range) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return false;
  LeaseState& lease = found->second;
  const std::uint64_t before = lease.remaining.size();
  lease.remaining.remove(range);
  const std::uint64_t released = before - lease.remaining.size();
  queues_[arrays_[lease.array].queue].leased -= released;
  if (lease.remaining.empty()) lease.worker->leases.erase(lease_id);
  change_load(lease, -static_cast<double>(released));
  if (lease.remaining.empty()) leases_.erase(found);
  return true;
}

// Puts the worker where assign() looks for it.
void Scheduler::index(Worker& worker) {
  unindex(worker);
  const double cores = worker.capacity.cores;
  const bool has_free = worker.load.cores < cores - 1e-6;
  if (!has_free || worker.draining) worker.free_since_s.reset();
  if (worker.draining || worker.leases.size() >= kMaxLeases) return;
  if (has_free && !worker.free_since_s) {
    worker.free_since_s = now_s_;
    next_split_s_ = std::min(next_split_s_.value_or(now_s_ + kAhead_s), now_s_ + kAhead_s);
  }
  if (!has_free && (worker.untried || worker.load.core_s >= 0.5 * kAhead_s * cores)) return;
  worker.key = DemandKey(!has_free, worker.load.core_s / cores, worker.number);
  demand_.emplace(*worker.key, &worker);
}

void Scheduler::unindex(Worker& worker) {
  if (!worker.key) return;
  if (demand_.erase(*worker.key) == 0) unserved_.erase(*worker.key);
  worker.key.reset();
}

Actions Scheduler::take_actions() {
  return std::exchange(actions_, {});
}

}  // namespace wflow::engine
