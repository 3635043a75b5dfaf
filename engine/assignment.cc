// SPDX-License-Identifier: Apache-2.0
// The scheduler's leases: which worker gets which elements, and how many at once.
#include <algorithm>
#include <cmath>

#include "engine/scheduler.h"

namespace wflow::engine {

namespace {

// Work that a worker should have ahead of it, in seconds a core: long enough to hide a round trip and a group
// commit, short enough to stay balanced. It is topped up when half of it is gone.
constexpr double kAheadSeconds = 0.5;
// What a task is taken to last before the first of its array has ended.
constexpr double kUnknownSeconds = 0.25;
constexpr std::uint64_t kMaxBundle = 1 << 16;

}  // namespace

void Scheduler::assign(double now_s) {
  move_due_retries(now_s);
  if (paused_ || stop_requested_) return;
  for (auto& [id, worker] : workers_) {
    if (queue_.empty()) return;
    fill_worker(id, worker);
  }
}

void Scheduler::move_due_retries(double now_s) {
  while (!delayed_.empty() && delayed_.begin()->first <= now_s) {
    const auto [array, element] = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    if (arrays_[array].states.at(element) != ElementState::delayed) continue;  // cancelled meanwhile
    arrays_[array].retry_ready.insert(element);
    update_queue(array);
  }
}

std::optional<double> Scheduler::next_due_s() const {
  if (delayed_.empty()) return std::nullopt;
  return delayed_.begin()->first;
}

bool Scheduler::wants_more(const Worker& worker) const {
  if (worker.draining) return false;
  const double cores = worker.capacity.cores;
  return worker.load_cores < cores || worker.load_core_s < 0.5 * kAheadSeconds * cores;
}

void Scheduler::fill_worker(const WorkerId& id, Worker& worker) {
  auto next = queue_.begin();
  while (next != queue_.end() && wants_more(worker)) {
    const ArrayId array_id = next->second;
    Array& array = arrays_[array_id];
    if (array.spec.resources.gpus > worker.capacity.gpus) {
      ++next;
      continue;
    }
    if (!array.retry_ready.empty()) {
      const Element element = *array.retry_ready.begin();
      array.retry_ready.erase(array.retry_ready.begin());
      grant(id, worker, array_id, {element, element}, array.attempts[element]);
    } else {
      const Range range = next_range(array, worker);
      array.ready.remove(range);
      grant(id, worker, array_id, range, {});
    }
    update_queue(array_id);
    next = queue_.begin();
  }
}

// What a bundled step's worker gets ends where a process ends, so that no process is cut in two.
Range Scheduler::next_range(const Array& array, const Worker& worker) const {
  const std::uint64_t size = bundle_size(array, worker);
  const std::uint64_t bundle = array.spec.bundle;
  if (bundle <= 1) return *array.ready.front(size);
  const Element first = array.ready.front(1)->first;
  return *array.ready.front((first + size + bundle - 1) / bundle * bundle - first);
}

std::uint64_t Scheduler::bundle_size(const Array& array, const Worker& worker) const {
  const double cores = worker.capacity.cores;
  const double cores_each = cores_of(array, worker);
  const double seconds = std::max(mean_duration_s(array).value_or(kUnknownSeconds), 1e-7);
  const double process = static_cast<double>(std::max<std::uint64_t>(array.spec.bundle, 1));
  const double to_fill = std::ceil((cores - worker.load_cores) / cores_each) * process;
  const double ahead = std::ceil((kAheadSeconds * cores - worker.load_core_s) / (seconds * cores_each));
  double size = std::max({to_fill, ahead, 1.0});
  // Towards the end no worker takes more than half of its share, so that all end together.
  if (workers_.size() > 1) {
    const double share = static_cast<double>(array.ready.size()) * cores / (2.0 * std::max(total_cores_, 1));
    size = std::min(size, std::max(std::ceil(share), 1.0));
  }
  return static_cast<std::uint64_t>(std::min(size, static_cast<double>(kMaxBundle)));
}

std::optional<double> Scheduler::mean_duration_s(const Array& array) const {
  if (array.timed == 0) return std::nullopt;
  return array.duration_sum_s / static_cast<double>(array.timed);
}

// A task that asks for more cores than its worker has runs there alone.
int Scheduler::cores_of(const Array& array, const Worker& worker) const {
  const specs::Resources& asked = array.spec.resources;
  return std::clamp(asked.cores * asked.procs, 1, std::max(worker.capacity.cores, 1));
}

Scheduler::LeaseState& Scheduler::add_lease(LeaseId lease_id, const WorkerId& id, Worker& worker,
                                            ArrayId array_id) {
  const Array& array = arrays_[array_id];
  LeaseState& lease = leases_[lease_id];
  lease.worker = id;
  lease.array = array_id;
  lease.seconds_each = mean_duration_s(array).value_or(kUnknownSeconds);
  lease.cores_each = cores_of(array, worker);
  worker.leases.insert(lease_id);
  return lease;
}

void Scheduler::add_to_lease(LeaseState& lease, Worker& worker, Range range) {
  const std::uint64_t bundle = std::max<std::uint64_t>(arrays_[lease.array].spec.bundle, 1);
  if (lease.remaining.empty())
    lease.processes_each = 1.0 / static_cast<double>(std::min(bundle, range.size()));
  lease.remaining.add(range);
  const double cores = static_cast<double>(range.size()) * lease.cores_each;
  worker.load_cores += cores * lease.processes_each;
  worker.load_core_s += cores * lease.seconds_each;
  arrays_[lease.array].states.set(range, ElementState::leased);
  leased_ += range.size();
}

void Scheduler::grant(const WorkerId& id, Worker& worker, ArrayId array_id, Range range,
                      const Attempt& attempt) {
  const LeaseId lease_id = next_lease_++;
  add_to_lease(add_lease(lease_id, id, worker, array_id), worker, range);
  actions_.grants.push_back({id,
                             {lease_id, array_id, range.first, range.size(), attempt.number, attempt.restart,
                              arrays_[array_id].spec.priority}});
}

// A lease that another coordinator granted and its worker still holds. What can't be held any more is
// revoked.
void Scheduler::adopt_lease(const WorkerId& id, Worker& worker, const wire::Lease& lease) {
  if (!valid(lease.array, lease.first, lease.count)) {
    actions_.revokes.push_back({id, lease.id});
    return;
  }
  const Range range{lease.first, lease.first + lease.count - 1};
  const auto waits = [](ElementState s) { return s == ElementState::ready || s == ElementState::delayed; };
  if (leases_.contains(lease.id)) return;  // the same coordinator: the connection was lost, the lease was not
  const std::vector<Range> parts = parts_in(lease.array, range, waits);
  if (parts.empty()) {
    actions_.revokes.push_back({id, lease.id});
    return;
  }
  Array& array = arrays_[lease.array];
  LeaseState& state = add_lease(lease.id, id, worker, lease.array);
  for (const Range& part : parts) {
    array.ready.remove(part);
    array.retry_ready.erase(array.retry_ready.lower_bound(part.first),
                            array.retry_ready.upper_bound(part.last));
    add_to_lease(state, worker, part);
  }
  update_queue(lease.array);
}

bool Scheduler::release_from_lease(LeaseId lease_id, Range range) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return false;
  LeaseState& lease = found->second;
  const std::uint64_t before = lease.remaining.size();
  lease.remaining.remove(range);
  const double cores = static_cast<double>(before - lease.remaining.size()) * lease.cores_each;
  const auto worker = workers_.find(lease.worker);
  if (worker != workers_.end()) {
    worker->second.load_cores -= cores * lease.processes_each;
    worker->second.load_core_s -= cores * lease.seconds_each;
    if (lease.remaining.empty()) worker->second.leases.erase(lease_id);
    // Sums of many small numbers drift; an idle worker has exactly no load.
    if (worker->second.leases.empty()) worker->second.load_cores = worker->second.load_core_s = 0;
  }
  if (lease.remaining.empty()) leases_.erase(found);
  return true;
}

void Scheduler::update_queue(ArrayId id) {
  const Array& array = arrays_[id];
  const std::pair<int, ArrayId> key(-array.spec.priority, id);
  if (array.ready.empty() && array.retry_ready.empty()) {
    queue_.erase(key);
  } else {
    queue_.insert(key);
  }
}

Actions Scheduler::take_actions() {
  return std::exchange(actions_, {});
}

}  // namespace wflow::engine
