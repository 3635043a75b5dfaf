// SPDX-License-Identifier: Apache-2.0
// Leases that went to the wrong worker: half of what a worker can't start yet is taken back for one that is
// idle.
#include <algorithm>

#include "engine/schedule/lease_table.h"
#include "engine/schedule/sizing.h"

namespace wflow::engine {

// Takes back only elements that have not started, and only for a worker that has had a free core for as long
// as a lease should last: if the estimates were right, nothing is left to take then.
std::vector<LeaseId> LeaseTable::split_back() {
  find_places();
  std::vector<LeaseId> taken;
  if (!next_split_s_ || now_s_ < *next_split_s_) return taken;
  next_split_s_.reset();
  const std::vector<Worker*> idle = idle_workers();
  if (idle.empty() || leased_ == 0) return taken;
  next_split_s_ = now_s_ + kAhead_s;
  std::vector<Owner> busy = owners();
  // Those before it have nothing left: 5,000 idle workers must not ask 5,000 others each.
  std::size_t first = 0;
  for (Worker* worker : idle) {
    const double due_s = *worker->free_since_s + kAhead_s;
    if (now_s_ < due_s - 1e-9) {
      next_split_s_ = std::min(*next_split_s_, due_s);
      continue;
    }
    while (first < busy.size() && busy[first].second == nullptr) ++first;
    for (std::size_t i = first; i < busy.size(); ++i) {
      if (busy[i].second == nullptr) continue;
      const Split split = split_from(*busy[i].second, *worker, taken);
      if (split == Split::nothing_left) busy[i].second = nullptr;
      if (split != Split::taken) continue;
      worker->free_since_s = now_s_;  // it comes within a round trip
      break;
    }
  }
  return taken;
}

std::vector<Worker*> LeaseTable::idle_workers() const {
  std::vector<Worker*> idle;
  for (const auto* list : {&demand_, &unserved_}) {
    for (const auto& [key, worker] : *list) {
      if (worker->free_since_s) idle.push_back(worker);
    }
  }
  return idle;
}

// Workers that hold more than they can run, most first.
std::vector<LeaseTable::Owner> LeaseTable::owners() {
  std::vector<Owner> owners;
  for (auto& [id, worker] : workers_) {
    const double cores = worker.capacity.cores;
    const double asked = worker.load.cores + worker.spare_cores;
    if (!worker.draining && asked > cores + 1e-6) owners.emplace_back(asked / cores, &worker);
  }
  std::sort(owners.begin(), owners.end(), [](const Owner& a, const Owner& b) {
    return std::pair(-a.first, a.second->number) < std::pair(-b.first, b.second->number);
  });
  return owners;
}

// Takes half of the elements that the owner cannot run at once, from those that it would start last.
LeaseTable::Split LeaseTable::split_from(Worker& owner, const Worker& idle, std::vector<LeaseId>& taken) {
  std::vector<std::pair<std::pair<int, LeaseId>, double>> leases;  // in reverse order of the worker's queue
  double excess = owner.load.cores + owner.spare_cores - owner.capacity.cores;
  for (const LeaseId id : owner.leases) {
    const LeaseState& lease = leases_.at(id);
    const double cores = static_cast<double>(lease.elements) * lease.processes_each * lease.cores_each;
    const QueueId queue_id = queues_.queue_of(lease.array);
    const ReadyQueue& queue = queues_.queue(queue_id);
    if (lease.revoked) {
      excess -= cores;
    } else if (!lease.gang && idle.serves[queue_id] && room_beside_gang(queue, idle, now_s_) >= 1 &&
               fits_before_end(queue, idle, now_s_)) {
      leases.push_back({{lease_priority(queue, lease.spare > 0), ~id}, cores});
    }
  }
  if (excess < 1e-6) return Split::nothing_left;
  if (leases.empty()) return Split::nothing_for_it;
  std::sort(leases.begin(), leases.end());
  double asked = 0;
  for (const auto& [key, cores] : leases) {
    if (asked >= excess / 2) break;
    asked += cores;
    LeaseState& lease = leases_.at(~key.second);
    lease.revoked = true;
    if (lease.spare > 0) --spares_;
    taken.push_back(~key.second);
  }
  owner.untried = true;
  index(owner);
  return Split::taken;
}

}  // namespace wflow::engine
