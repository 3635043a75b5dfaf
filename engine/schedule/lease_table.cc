// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/lease_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/schedule/sizing.h"

namespace wflow::engine {

namespace {

// Limits the leases of one worker: a mass failure may make 100,000 retries due at the same time.
constexpr std::size_t kMaxLeases = 4096;
// Shorter tasks measure their own start more than the worker's speed.
constexpr double kTimed_s = 1e-3;
constexpr double kLearn = 0.2;

double processes_of(const ArraySpec& spec, std::uint64_t elements) {
  return 1.0 / static_cast<double>(std::min(std::max<std::uint64_t>(spec.bundle, 1), elements));
}

}  // namespace

Worker* LeaseTable::find_worker(const WorkerId& id) {
  const auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : &found->second;
}

Worker& LeaseTable::join(const WorkerId& id, const WorkerCapacity& capacity) {
  largest_memory_.clear();
  const auto [at, added] = workers_.try_emplace(id);
  Worker& worker = at->second;
  if (added) {
    worker.id = id;
    worker.number = joined_++;
  } else {
    queues_.count_worker(worker.serves, worker.capacity.cores, -1);
  }
  worker.capacity = capacity;
  worker.draining = false;
  worker.serves.assign(queues_.count(), false);
  for (QueueId number = 0; number < queues_.count(); ++number) {
    const ReadyQueue& queue = queues_.queue(number);
    const bool in_pool =
        capacity.pools.empty() || (queue.pool < capacity.pools.size() && capacity.pools[queue.pool]);
    const bool in_gang = !queue.gang.spans_nodes() || !capacity.allocation.empty();
    worker.serves[number] = in_pool && in_gang && queue.resources.gpus <= capacity.gpus;
  }
  if (!capacity.allocation.empty()) allocations_[capacity.allocation][worker.number] = &worker;
  attach_missing(worker);
  queues_.count_worker(worker.serves, capacity.cores, 1);
  index(worker);
  return worker;
}

void LeaseTable::set_draining(Worker& worker) {
  largest_memory_.clear();
  worker.draining = true;
  index(worker);
}

void LeaseTable::leave(const WorkerId& id) {
  largest_memory_.clear();
  const auto found = workers_.find(id);
  WFLOW_CHECK(found != workers_.end() && found->second.leases.empty());
  Worker& worker = found->second;
  for (const LeaseId id : worker.gangs) std::erase(leases_.at(id).others, &worker);
  if (const auto members = allocations_.find(worker.capacity.allocation); members != allocations_.end()) {
    members->second.erase(worker.number);
    if (members->second.empty()) allocations_.erase(members);
  }
  unindex(found->second);
  if (found->second.moves) std::erase(moving_, &found->second);
  queues_.count_worker(found->second.serves, found->second.capacity.cores, -1);
  workers_.erase(found);
}

std::int64_t LeaseTable::largest_memory(QueueId queue) const {
  const auto [known, is_new] = largest_memory_.try_emplace(queue, 0);
  std::int64_t& largest = known->second;
  if (!is_new) return largest;
  for (const auto& [id, worker] : workers_) {
    if (!worker.draining && worker.serves[queue]) largest = std::max(largest, worker.capacity.memory_bytes);
  }
  return largest;
}

void LeaseTable::learn_speed(const DoneRun& run) {
  const auto lease = leases_.find(run.lease);
  if (lease == leases_.end()) return;
  Worker& worker = *lease->second.worker;
  worker.untried = false;
  const TaskArray& array = arrays_[run.array];
  const double mean_s = array.timed == 0 ? 0 : array.duration_sum_s / static_cast<double>(array.timed);
  if (mean_s < kTimed_s) return;
  const double here = run.duration_sum_s / static_cast<double>(run.count) / mean_s;
  worker.slowness += kLearn * (std::clamp(here, 0.05, 20.0) - worker.slowness);
}

void LeaseTable::note_missing(Worker& worker, const std::vector<Lease>& held) {
  worker.missing.clear();
  for (const LeaseId id : worker.leases) {
    IntervalSet& missing = worker.missing[id];
    for (const Range& part : parts(id)) missing.add(part);
  }
  for (const Lease& lease : held) {
    const auto at = worker.missing.find(lease.id);
    if (at != worker.missing.end() && arrays_[leases_.at(lease.id).array].has(lease.first, lease.count))
      at->second.remove({lease.first, lease.first + lease.count - 1});
  }
}

std::map<LeaseId, std::vector<Range>> LeaseTable::take_missing(Worker& worker) {
  std::map<LeaseId, std::vector<Range>> found;
  for (const auto& [id, missing] : std::exchange(worker.missing, {})) {
    const auto lease = leases_.find(id);
    if (lease == leases_.end()) continue;
    missing.for_each_in(lease->second.bounds, [&, id = id](Range range) {
      for (const Range& part : parts(id, lease->second.array, range)) found[id].push_back(part);
    });
  }
  return found;
}

const LeaseState* LeaseTable::find(LeaseId lease) const {
  const auto found = leases_.find(lease);
  return found == leases_.end() ? nullptr : &found->second;
}

std::optional<LeaseId> LeaseTable::holder_of(ArrayId array, Element element) const {
  const LeaseId* holder = holders_[array].find(element);
  return holder == nullptr ? std::nullopt : std::optional(*holder);
}

std::vector<Range> LeaseTable::parts(LeaseId lease, ArrayId array, Range range) const {
  std::vector<Range> parts;
  holders_[array].for_each_in(range, [&](Range part, LeaseId holder) {
    if (holder == lease) parts.push_back(part);
  });
  return parts;
}

std::vector<Range> LeaseTable::parts(LeaseId lease) const {
  const LeaseState& state = leases_.at(lease);
  return parts(lease, state.array, state.bounds);
}

LeaseState& LeaseTable::open(LeaseId id, Worker& worker, ArrayId array, Range first,
                             std::int64_t memory_bytes) {
  LeaseState& lease = leases_[id];
  const ReadyQueue& queue = queues_.queue_of_array(array);
  lease.worker = &worker;
  lease.array = array;
  lease.bounds = first;
  lease.granted_s = now_s_;
  lease.cores_each = cores_of(queue, worker);
  lease.processes_each = processes_of(arrays_[array].spec, first.size());
  const double seconds = seconds_of(arrays_[array], queue, worker);
  lease.is_long = seconds > kLongestAhead_s;
  // A long task fills its core and no more: what is ahead of the other cores does not depend on it.
  lease.seconds_each = std::clamp(seconds, kShortestTask_s, kAhead_s * lease.processes_each);
  if (memory_bytes <= 0) memory_bytes = arrays_[array].spec.resources.memory_bytes;
  lease.memory_each = static_cast<double>(std::min(memory_bytes, worker.capacity.memory_bytes));
  lease.alone_each = alone_seconds(seconds, queue, worker);
  worker.leases.insert(id);
  return lease;
}

LeaseState& LeaseTable::hold(LeaseId id, Worker& worker, ArrayId array, Range range,
                             std::int64_t memory_bytes) {
  const auto found = leases_.find(id);
  LeaseState& lease = found == leases_.end() ? open(id, worker, array, range, memory_bytes) : found->second;
  lease.bounds = {std::min(lease.bounds.first, range.first), std::max(lease.bounds.last, range.last)};
  lease.elements += range.size();
  holders_[array].set(range, id);
  leased_ += range.size();
  worker.elements += range.size();
  queues_.count_leased(array, static_cast<std::int64_t>(range.size()));
  change_load(lease, static_cast<double>(range.size()));
  return lease;
}

void LeaseTable::release(LeaseId id, Range range, bool unstarted) {
  const auto found = leases_.find(id);
  LeaseState& lease = found->second;
  const std::uint64_t charged = lease.elements - lease.spare;
  const std::uint64_t of_spare =
      unstarted ? std::min(lease.spare, range.size()) : range.size() - std::min(charged, range.size());
  remove_spare(id, lease, of_spare);
  lease.elements -= range.size();
  if (range.first == lease.bounds.first) lease.bounds.first = range.last + 1;
  if (range.last == lease.bounds.last) lease.bounds.last = range.first - 1;
  holders_[lease.array].erase(range);
  leased_ -= range.size();
  lease.worker->elements -= range.size();
  queues_.count_leased(lease.array, -static_cast<std::int64_t>(range.size()));
  if (lease.elements == 0) {
    lease.worker->leases.erase(id);
    lease.worker->gangs.erase(id);
    for (Worker* other : lease.others) other->gangs.erase(id);
    incomplete_.erase(id);
  }
  change_load(lease, -static_cast<double>(range.size() - of_spare));
  if (lease.elements == 0) leases_.erase(found);
}

// ---- spare leases

void LeaseTable::add_spare(LeaseId id, LeaseState& lease, std::uint64_t elements) {
  if (elements == 0) return;
  if (lease.spare == 0 && !lease.revoked) ++spares_;
  lease.spare += elements;
  const auto number = static_cast<double>(elements);
  lease.worker->spares.insert(id);
  lease.worker->spare_s += number * lease.alone_each;
  lease.worker->spare_cores += number * lease.processes_each * lease.cores_each;
  change_load(lease, -number);
}

// The caller charges the worker for what is still leased.
void LeaseTable::remove_spare(LeaseId id, LeaseState& lease, std::uint64_t elements) {
  if (elements == 0) return;
  lease.spare -= elements;
  const auto number = static_cast<double>(elements);
  Worker& worker = *lease.worker;
  worker.spare_s -= number * lease.alone_each;
  worker.spare_cores -= number * lease.processes_each * lease.cores_each;
  if (lease.spare > 0) return;
  if (!lease.revoked) --spares_;
  worker.spares.erase(id);
  if (worker.spares.empty()) worker.spare_s = worker.spare_cores = 0;
}

void LeaseTable::make_spare(LeaseId id) {
  LeaseState& lease = leases_.at(id);
  const Worker& worker = *lease.worker;
  if (worker.capacity.alone_s <= 0 || lease.gang || lease.revoked) return;
  const double beyond = std::floor(std::max(0.0, worker.load.cores - worker.capacity.cores + 1e-6) /
                                   (lease.processes_each * lease.cores_each));
  const std::uint64_t charged = lease.elements - lease.spare;
  add_spare(id, lease, std::min(charged, static_cast<std::uint64_t>(beyond)));
}

std::uint64_t LeaseTable::use_spare(LeaseId id, std::uint64_t most) {
  LeaseState& lease = leases_.at(id);
  const std::uint64_t used = std::min(most, lease.spare);
  remove_spare(id, lease, used);
  change_load(lease, static_cast<double>(used));
  return used;
}

// In the order of the worker's queue.
std::optional<LeaseId> LeaseTable::next_spare(const Worker& worker) const {
  std::optional<LeaseId> next;
  int priority = 0;
  for (const LeaseId id : worker.spares) {
    const LeaseState& lease = leases_.at(id);
    if (lease.revoked) continue;
    const int other = queues_.queue_of_array(lease.array).priority;
    if (next && other <= priority) continue;
    next = id;
    priority = other;
  }
  return next;
}

std::vector<LeaseId> LeaseTable::take_spares() {
  std::vector<LeaseId> taken;
  for (const auto& [id, worker] : workers_) {
    for (const LeaseId lease : worker.spares) {
      if (!std::exchange(leases_.at(lease).revoked, true)) taken.push_back(lease);
    }
  }
  spares_ = 0;
  return taken;
}

void LeaseTable::change_load(const LeaseState& lease, double elements) {
  charge(*lease.worker, lease, elements);
  for (Worker* other : lease.others) charge(*other, lease, elements);
}

void LeaseTable::charge(Worker& worker, const LeaseState& lease, double elements) {
  const specs::Resources& asked = arrays_[lease.array].spec.resources;
  const double processes = elements * lease.processes_each;
  const bool leads = &worker == lease.worker;
  const double cores = leads ? lease.cores_each : cores_of(queues_.queue_of_array(lease.array), worker);
  worker.load.cores += processes * cores;
  worker.load.core_s += elements * cores * lease.seconds_each;
  if (lease.is_long) worker.load.long_cores += processes * cores;
  worker.load.gpus += processes * asked.gpus;
  worker.load.memory_bytes += processes * lease.memory_each;
  const QueueId queue = queues_.queue_of(lease.array);
  if (const double share = scarce_share(queues_.queue(queue), worker); share > 0)
    worker.scarce_s[queue] += elements * lease.seconds_each * share;
  // Sums of many small numbers drift; an idle worker has exactly no load.
  if (worker.leases.empty() && worker.gangs.empty()) {
    worker.load = {};
    worker.scarce_s.clear();
    worker.spare_s = worker.spare_cores = 0;
  }
  index_later(worker);
}

// Its place among the workers that want more.
std::optional<DemandKey> LeaseTable::demand_key(Worker& worker) {
  const double cores = worker.capacity.cores;
  const bool has_free = worker.load.cores < cores - 1e-6;
  if (!has_free || worker.draining) worker.free_since_s.reset();
  if (worker.draining || worker.leases.size() >= kMaxLeases) return std::nullopt;
  if (has_free && !worker.free_since_s) {
    worker.free_since_s = now_s_;
    next_split_s_ = std::min(next_split_s_.value_or(now_s_ + kAhead_s), now_s_ + kAhead_s);
  }
  const bool exact = worker.untried || !worker.gangs.empty() || worker.reserved_cores > 0;
  if (!has_free && (exact || has_enough(worker))) return std::nullopt;
  return DemandKey(!has_free, worker.load.core_s / cores, worker.number);
}

void LeaseTable::index_later(Worker& worker) {
  if (!std::exchange(worker.moves, true)) moving_.push_back(&worker);
}

void LeaseTable::find_places() {
  for (Worker* worker : moving_) {
    worker->moves = false;
    index(*worker);
  }
  moving_.clear();
}

// Puts the worker where first_demand() looks for it; this happens with every message, so its node is used
// again.
void LeaseTable::index(Worker& worker) {
  const std::optional<DemandKey> key = demand_key(worker);
  if (!worker.key || !key) {
    unindex(worker);
    if (key) demand_.emplace(*key, &worker);
  } else {
    auto node = demand_.extract(*worker.key);
    if (node.empty()) node = unserved_.extract(*worker.key);
    node.key() = *key;
    demand_.insert(std::move(node));
  }
  worker.key = key;
}

void LeaseTable::unindex(Worker& worker) {
  if (!worker.key) return;
  if (demand_.erase(*worker.key) == 0) unserved_.erase(*worker.key);
  worker.key.reset();
}

}  // namespace wflow::engine
