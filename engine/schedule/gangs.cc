// SPDX-License-Identifier: Apache-2.0
// Tasks on several nodes: which allocation they wait for, what is left to them until its slots are free, and
// what becomes of them when a node is lost.
#include <algorithm>
#include <limits>

#include "engine/schedule/scheduler.h"
#include "engine/schedule/sizing.h"

namespace wflow::engine {

namespace {

// For so long a task waits for an allocation with all of its nodes before it takes fewer (min_nodes).
constexpr double kShrink_s = 30;
// Between two looks for an allocation, as long as no worker comes or goes.
constexpr double kLookForAllocation_s = 1;

}  // namespace

// ---- reservations

// The allocation's workers that may be of a gang of the array, one a node.
std::vector<Worker*> Scheduler::gang_candidates(ArrayId array, const LeaseTable::Members& members) const {
  const QueueId queue = ready_.queue_of(array);
  const auto excluded = excluded_nodes_.find(array);
  std::vector<Worker*> candidates;
  std::set<std::string> nodes;
  for (const auto& [number, worker] : members) {
    if (excluded != excluded_nodes_.end() && excluded->second.contains(worker->capacity.node)) continue;
    const bool usable =
        worker->serves[queue] && !worker->draining && fits_before_end(ready_.queue(queue), *worker, now_s_);
    if (usable && nodes.insert(worker->capacity.node).second) candidates.push_back(worker);
  }
  return candidates;
}

// How many nodes the queue's next task takes now; 0: it waits. `most`: of the largest allocation.
int Scheduler::gang_size(QueueId queue, int most) {
  const Gang& gang = ready_.queue(queue).gang;
  if (most >= gang.nodes) {
    too_few_since_s_.erase(queue);
    return gang.nodes;
  }
  if (most < gang.min_nodes) return 0;
  const auto [since, is_new] = too_few_since_s_.try_emplace(queue, now_s_);
  return now_s_ >= since->second + kShrink_s ? most : 0;
}

// Assigns the queue's next task to the allocation in which its slots are free first, at once or as soon as
// they are. True if it got them at once.
bool Scheduler::serve_gang(QueueId queue) {
  const auto waits = [&](const auto& entry) { return entry.second.queue == queue; };
  if (std::any_of(reservations_.begin(), reservations_.end(), waits)) return false;
  double& look_s = gang_look_s_[queue];
  if (now_s_ < look_s) return false;
  look_s = now_s_ + kLookForAllocation_s;
  const ArrayId array = *ready_.queue(queue).waiting.begin();
  std::map<std::string, std::vector<Worker*>> candidates;
  std::size_t most = 0;
  for (const auto& [allocation, members] : leases_.allocations()) {
    std::vector<Worker*> workers = gang_candidates(array, members);
    most = std::max(most, workers.size());
    candidates.emplace(allocation, std::move(workers));
  }
  const int size = gang_size(queue, static_cast<int>(std::min<std::size_t>(most, 1 << 20)));
  if (size == 0) return false;
  const std::string* best = nullptr;
  double best_s = std::numeric_limits<double>::infinity();
  for (const auto& [allocation, workers] : candidates) {
    if (static_cast<int>(workers.size()) < size || reservations_.contains(allocation)) continue;
    const double start_s = gang_start_s(queue, workers, size);
    if (best != nullptr && start_s >= best_s) continue;
    best = &allocation;
    best_s = start_s;
  }
  if (best == nullptr) return false;
  reserve(*best, queue, candidates.at(*best), size, best_s);
  return grant_reserved(*best);
}

// When so many of them have the slots free.
double Scheduler::gang_start_s(QueueId queue, const std::vector<Worker*>& workers, int size) const {
  std::vector<double> free_s;
  for (const Worker* worker : workers)
    free_s.push_back(leases_.free_at_s(*worker, cores_of(ready_.queue(queue), *worker)));
  std::nth_element(free_s.begin(), free_s.begin() + (size - 1), free_s.end());
  return free_s[static_cast<std::size_t>(size) - 1];
}

// Those that are free first. What they hold and can't start at once goes back.
void Scheduler::reserve(const std::string& allocation, QueueId queue, std::vector<Worker*> workers, int size,
                        double start_s) {
  std::vector<std::pair<double, Worker*>> by_time;
  for (Worker* worker : workers)
    by_time.emplace_back(leases_.free_at_s(*worker, cores_of(ready_.queue(queue), *worker)), worker);
  std::stable_sort(by_time.begin(), by_time.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  reservations_[allocation] = {queue, size, 0};
  for (int i = 0; i < size; ++i) {
    Worker& worker = *by_time[static_cast<std::size_t>(i)].second;
    leases_.reserve(worker, cores_of(ready_.queue(queue), worker), start_s);
    if (worker.load.cores + worker.spare_cores <= worker.capacity.cores + 1e-6) continue;
    for (const LeaseId id : worker.leases) {
      const LeaseState& lease = *leases_.find(id);
      if (!lease.gang) revoke(id, lease.array, lease.bounds, false);
    }
  }
}

void Scheduler::drop_reservation(const std::string& allocation) {
  if (reservations_.erase(allocation) == 0) return;
  const auto members = leases_.allocations().find(allocation);
  if (members != leases_.allocations().end()) {
    for (const auto& [number, worker] : members->second) leases_.reserve(*worker, 0, 0);
  }
  look_for_allocations();
}

// Workers have come or gone, or have become free for others.
void Scheduler::look_for_allocations() {
  gang_look_s_.clear();
  leases_.retry_unserved();
}

// Whichever of the allocation's workers have the slots: those that they were reserved on may not be the
// first.
bool Scheduler::grant_reserved(const std::string& allocation) {
  const Reservation reservation = reservations_.at(allocation);
  const ReadyQueue& queue = ready_.queue(reservation.queue);
  const auto members = leases_.allocations().find(allocation);
  if (!queue.key || members == leases_.allocations().end()) {
    drop_reservation(allocation);
    return false;
  }
  // A worker starts its spare leases by itself as soon as it has a free core.
  const auto has_room = [&](const Worker& worker) {
    return room(queue, worker) - worker.spare_cores / cores_of(queue, worker) >= 1;
  };
  const auto free = std::count_if(members->second.begin(), members->second.end(),
                                  [&](const auto& member) { return has_room(*member.second); });
  const bool all_there = static_cast<int>(members->second.size()) >= reservation.nodes;
  if (all_there && now_s_ < reservation.look_s && free < reservation.nodes) return false;
  reservations_.at(allocation).look_s = now_s_ + kLookForAllocation_s;
  std::vector<Worker*> workers = gang_candidates(*queue.waiting.begin(), members->second);
  if (static_cast<int>(workers.size()) < reservation.nodes) {
    drop_reservation(allocation);
    return false;
  }
  std::erase_if(workers, [&](const Worker* worker) { return !has_room(*worker); });
  if (static_cast<int>(workers.size()) < reservation.nodes) return false;
  std::stable_partition(workers.begin(), workers.end(),
                        [](const Worker* worker) { return worker->reserved_cores > 0; });
  workers.resize(static_cast<std::size_t>(reservation.nodes));
  drop_reservation(allocation);
  grant_gang(reservation.queue, workers);
  return true;
}

void Scheduler::grant_reservations() {
  std::vector<std::string> allocations;
  for (const auto& [allocation, reservation] : reservations_) allocations.push_back(allocation);
  for (const std::string& allocation : allocations) grant_reserved(allocation);
}

void Scheduler::grant_gang(QueueId queue, const std::vector<Worker*>& workers) {
  const ArrayId array = *ready_.queue(queue).waiting.begin();
  std::vector<std::string> nodes;
  for (const Worker* worker : workers) nodes.push_back(worker->capacity.node);
  if (const auto element = ready_.next_again(array)) {
    grant(*workers.front(), array, {*element, *element}, arrays_[array].attempts[*element], nodes);
  } else {
    grant(*workers.front(), array, ready_.next_range(array, 1), {}, nodes);
  }
}

// The time from which a task may use fewer nodes than its demand; in the past if it may already.
std::optional<double> Scheduler::next_shrink_s() const {
  std::optional<double> next;
  for (const auto& [queue, since_s] : too_few_since_s_) {
    if (!ready_.queue(queue).key) continue;
    const auto look = gang_look_s_.find(queue);
    const double due_s = std::max(since_s + kShrink_s, look == gang_look_s_.end() ? 0 : look->second);
    next = std::min(next.value_or(due_s), due_s);
  }
  return next;
}

// ---- ends

std::vector<WorkerId> Scheduler::gang_of(LeaseId id) const {
  std::vector<WorkerId> workers;
  const LeaseState* lease = leases_.find(id);
  if (lease == nullptr || !lease->gang) return workers;
  workers.push_back(lease->worker->id);
  for (const Worker* other : lease->others) workers.push_back(other->id);
  return workers;
}

bool Scheduler::gang_is_broken(LeaseId id) const {
  const LeaseState* lease = leases_.find(id);
  return lease == nullptr || lease->broken;
}

bool Scheduler::helps_gang(const WorkerId& id) const {
  const auto at = leases_.workers().find(id);
  return at != leases_.workers().end() &&
         std::any_of(at->second.gangs.begin(), at->second.gangs.end(),
                     [&](LeaseId lease) { return leases_.worker_of(lease) != id; });
}

std::size_t Scheduler::gangs_on(const WorkerId& id) const {
  const auto at = leases_.workers().find(id);
  return at == leases_.workers().end() ? 0 : at->second.gangs.size();
}

void Scheduler::node_lost(const WorkerId& id, const Loss& loss) {
  const Worker* worker = leases_.find_worker(id);
  if (worker == nullptr) return;
  const std::set<LeaseId> gangs = worker->gangs;
  for (const LeaseId lease : gangs) break_gang(lease, loss);
}

Scheduler::Exclusion Scheduler::exclude_node(ArrayId array, Element element, std::uint32_t attempt,
                                             const std::string& node, const std::string& why) {
  if (!valid(array, element, 1)) return Exclusion::stale;
  const std::optional<LeaseId> holder = leases_.holder_of(array, element);
  const LeaseState* lease = holder ? leases_.find(*holder) : nullptr;
  if (lease == nullptr || !lease->gang || lease->broken) return Exclusion::stale;
  const auto counts = arrays_[array].attempts.find(element);
  if ((counts == arrays_[array].attempts.end() ? 0 : counts->second.number) != attempt)
    return Exclusion::stale;
  const auto is_there = [&](const Worker* worker) { return worker->capacity.node == node; };
  if (!is_there(lease->worker) && std::ranges::none_of(lease->others, is_there)) return Exclusion::stale;
  std::set<std::string>& excluded = excluded_nodes_[array];
  if (excluded.size() >= kMostExcluded) return Exclusion::too_many;
  excluded.insert(node);
  std::size_t most = 0;
  for (const auto& [allocation, members] : leases_.allocations())
    most = std::max(most, gang_candidates(array, members).size());
  const QueueId queue = ready_.queue_of(array);
  const Gang& gang = ready_.queue(queue).gang;
  if (most < static_cast<std::size_t>(gang.min_nodes)) {
    excluded.erase(node);
    return Exclusion::too_few;
  }
  // It has had all of its nodes: it need not wait for more than are left.
  if (most < static_cast<std::size_t>(gang.nodes)) too_few_since_s_[queue] = now_s_ - kShrink_s;
  break_gang(*holder, {.detail = why, .charged = false});
  return Exclusion::done;
}

void Scheduler::break_incomplete_gangs() {
  const std::set<LeaseId> incomplete = leases_.incomplete_gangs();
  for (const LeaseId id : incomplete)
    break_gang(id,
               {.detail = "its node " + leases_.find(id)->missing.front() + " was lost while this task ran"});
}

// Its worker kills it and gives it back, or reports that it has ended by itself: then it runs again.
// Gives what was charged.
std::vector<Outcome> Scheduler::break_gang(LeaseId id, const Loss& loss) {
  std::vector<Outcome> charged;
  const LeaseState& lease = *leases_.find(id);
  if (lease.broken) return charged;
  leases_.set_broken(id);
  const std::vector<Range> parts = leases_.parts(id);
  for (const Range& part : parts) {
    for (Element element = part.first; element <= part.last; ++element) {
      if (auto counted = count_loss(id, {lease.array, element, 0}, loss))
        charged.push_back(std::move(*counted));
    }
  }
  if (leases_.find(id) == nullptr) return charged;  // lost for the last time
  for (const Range& part : leases_.parts(id)) {
    revoke(id, lease.array, part, true);
    end_ranks(id, part);
  }
  return charged;
}

// Ends the ranks that the task has left on any of its nodes.
void Scheduler::end_ranks(LeaseId id, Range range) {
  const LeaseState& lease = *leases_.find(id);
  if (!lease.gang) return;
  Lease part = part_of(id, lease.array, range);
  part.nodes = {lease.worker->capacity.node};
  actions_.revokes.push_back({lease.worker->id, part, true});
  for (const Worker* other : lease.others) {
    part.nodes = {other->capacity.node};
    actions_.revokes.push_back({other->id, part, true});
  }
}

}  // namespace wflow::engine
