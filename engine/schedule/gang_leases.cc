// SPDX-License-Identifier: Apache-2.0
// Leases of several workers at once: which workers take part, and when a worker has capacity for one.
#include <algorithm>
#include <cmath>

#include "engine/schedule/lease_table.h"
#include "engine/schedule/sizing.h"

namespace wflow::engine {

void LeaseTable::set_gang(LeaseId id, const std::vector<std::string>& nodes) {
  LeaseState& lease = leases_.at(id);
  if (lease.gang) return;  // adopted part by part
  lease.gang = true;
  lease.worker->gangs.insert(id);
  index(*lease.worker);
  for (const std::string& node : nodes) {
    if (node != lease.worker->capacity.node) lease.missing.push_back(node);
  }
  if (lease.missing.empty()) return;
  incomplete_.insert(id);
  const auto members = allocations_.find(lease.worker->capacity.allocation);
  if (members == allocations_.end()) return;
  for (const auto& [number, worker] : members->second) attach_missing(*worker);
}

// Where the worker is of a gang that was adopted before it joined.
void LeaseTable::attach_missing(Worker& worker) {
  const std::set<LeaseId> incomplete = incomplete_;
  for (const LeaseId id : incomplete) {
    LeaseState& lease = leases_.at(id);
    const bool together =
        &worker != lease.worker && worker.capacity.allocation == lease.worker->capacity.allocation;
    if (together && std::erase(lease.missing, worker.capacity.node) > 0) attach(id, lease, worker);
    if (lease.missing.empty()) incomplete_.erase(id);
  }
}

void LeaseTable::attach(LeaseId id, LeaseState& lease, Worker& worker) {
  lease.others.push_back(&worker);
  worker.gangs.insert(id);
  charge(worker, lease, static_cast<double>(lease.elements));
}

double LeaseTable::free_at_s(const Worker& worker, double cores) const {
  double free = worker.capacity.cores - worker.load.cores;
  if (free >= cores - 1e-6) return now_s_;
  std::set<LeaseId> all = worker.leases;
  all.insert(worker.gangs.begin(), worker.gangs.end());
  std::vector<std::pair<double, double>> ends;  // and what is free then
  for (const LeaseId id : all) {
    const LeaseState& lease = leases_.at(id);
    const double each =
        &worker == lease.worker ? lease.cores_each : cores_of(queues_.queue_of_array(lease.array), worker);
    ends.emplace_back(end_s(lease), static_cast<double>(lease.elements) * lease.processes_each * each);
  }
  std::sort(ends.begin(), ends.end());
  for (const auto& [end, freed] : ends) {
    free += freed;
    if (free >= cores - 1e-6) return end;
  }
  return ends.empty() ? now_s_ : ends.back().first;
}

// For tasks with unknown durations, now: nothing else is started in the meantime.
double LeaseTable::end_s(const LeaseState& lease) const {
  const auto longest = longest_s(queues_.queue_of_array(lease.array));
  if (!longest) return now_s_;
  const double cores = static_cast<double>(lease.elements) * lease.processes_each * lease.cores_each;
  const double rounds = std::ceil(cores / std::max(1, lease.worker->capacity.cores) - 1e-6);
  return std::max(now_s_, lease.granted_s + std::max(rounds, 1.0) * *longest * lease.worker->slowness);
}

void LeaseTable::reserve(Worker& worker, double cores, double from_s) {
  worker.reserved_cores = cores;
  worker.reserved_s = from_s;
  index(worker);
}

}  // namespace wflow::engine
