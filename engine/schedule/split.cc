// SPDX-License-Identifier: Apache-2.0
// What was leased to the wrong worker: taken back from one that has too much of it, learned from one that is
// slow, found again when a connection broke.
#include <algorithm>

#include "engine/schedule/scheduler.h"
#include "engine/schedule/sizing.h"

namespace wflow::engine {

namespace {

// Shorter tasks measure their own start more than the worker's speed.
constexpr double kTimed_s = 1e-3;
constexpr double kLearn = 0.2;

}  // namespace

// Only what has not started is taken back, and only for a worker that has had a free core for as long as a
// bundle lasts: where the estimates were right, there is nothing left to take then.
void Scheduler::split_back() {
  if (!next_split_s_ || now_s_ < *next_split_s_) return;
  next_split_s_.reset();
  std::vector<Worker*> idle;
  for (const auto* list : {&demand_, &unserved_}) {
    for (const auto& [key, worker] : *list) {
      if (worker->free_since_s) idle.push_back(worker);
    }
  }
  if (idle.empty() || leased_ == 0) return;
  next_split_s_ = now_s_ + kAhead_s;
  std::vector<std::pair<double, Worker*>> owners;  // of more than they can run, most first
  for (auto& [id, worker] : workers_) {
    const double cores = worker.capacity.cores;
    if (!worker.draining && worker.load.cores > cores + 1e-6)
      owners.emplace_back(worker.load.cores / cores, &worker);
  }
  std::sort(owners.begin(), owners.end(), [](const auto& a, const auto& b) {
    return std::pair(-a.first, a.second->number) < std::pair(-b.first, b.second->number);
  });
  for (Worker* worker : idle) {
    const double due_s = *worker->free_since_s + kAhead_s;
    if (now_s_ < due_s - 1e-9) {
      next_split_s_ = std::min(*next_split_s_, due_s);
      continue;
    }
    const bool taken = std::any_of(owners.begin(), owners.end(),
                                   [&](const auto& owner) { return revoke_from(*owner.second, *worker); });
    if (taken) worker->free_since_s = now_s_;  // it comes within a round trip
  }
}

// Asks for half of what the owner can't run at once, of what it would start last. False when it has nothing
// for the idle worker.
bool Scheduler::revoke_from(Worker& owner, const Worker& idle) {
  std::vector<std::pair<std::pair<int, LeaseId>, double>> leases;  // in reverse order of the worker's queue
  double excess = owner.load.cores - owner.capacity.cores;
  for (const LeaseId id : owner.leases) {
    const LeaseState& lease = leases_.at(id);
    const double cores =
        static_cast<double>(lease.remaining.size()) * lease.processes_each * lease.cores_each;
    const QueueId queue = arrays_[lease.array].queue;
    if (lease.revoked) {
      excess -= cores;
    } else if (idle.serves[queue] && room(idle, queues_[queue]) >= 1) {
      leases.push_back({{queues_[queue].priority, ~id}, cores});
    }
  }
  if (excess < 1e-6 || leases.empty()) return false;
  std::sort(leases.begin(), leases.end());
  double asked = 0;
  for (const auto& [key, cores] : leases) {
    if (asked >= excess / 2) break;
    asked += cores;
    leases_.at(~key.second).revoked = true;
    actions_.revokes.push_back({owner.id, ~key.second, false});
  }
  owner.untried = true;
  index(owner);
  return true;
}

// How long the worker's tasks take, measured by what their array's take elsewhere.
void Scheduler::learn_speed(const wire::DoneRun& run) {
  const auto lease = leases_.find(run.lease);
  if (lease == leases_.end()) return;
  Worker& worker = *lease->second.worker;
  worker.untried = false;
  const Array& array = arrays_[run.array];
  const double mean_s = array.timed == 0 ? 0 : array.duration_sum_s / static_cast<double>(array.timed);
  if (mean_s < kTimed_s) return;
  const double here = run.duration_sum_s / static_cast<double>(run.count) / mean_s;
  worker.slowness += kLearn * (std::clamp(here, 0.05, 20.0) - worker.slowness);
}

void Scheduler::note_missing(Worker& worker, const std::vector<wire::Lease>& held) {
  worker.missing.clear();
  for (const LeaseId id : worker.leases) worker.missing[id] = leases_.at(id).remaining;
  for (const wire::Lease& lease : held) {
    const auto at = worker.missing.find(lease.id);
    if (at != worker.missing.end() && valid(lease.array, lease.first, lease.count))
      at->second.remove({lease.first, lease.first + lease.count - 1});
  }
}

void Scheduler::handed_over(const WorkerId& id) {
  const auto found = workers_.find(id);
  if (found == workers_.end() || found->second.missing.empty()) return;
  for (const auto& [lease_id, missing] : std::exchange(found->second.missing, {})) {
    const auto lease = leases_.find(lease_id);
    if (lease == leases_.end()) continue;
    const ArrayId array = lease->second.array;
    std::vector<Range> lost;
    missing.for_each_in({0, arrays_[array].spec.count - 1}, [&](Range range) {
      lease->second.remaining.for_each_in(range, [&](Range part) { lost.push_back(part); });
    });
    for (const Range& part : lost) {
      release_from_lease(lease_id, part);
      give_back(array, part);
    }
  }
  propagate();
}

}  // namespace wflow::engine
