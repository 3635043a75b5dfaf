// SPDX-License-Identifier: Apache-2.0
// Which worker gets what: the idlest worker takes from the first queue that has anything for it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/schedule/scheduler.h"
#include "engine/schedule/sizing.h"

namespace wflow::engine {

namespace {
constexpr double kLookAgain_s = 1;
// Limits how many elements that need more memory than their step's demand, and arrays with only such
// elements, are tried for one worker.
constexpr int kLooks = 64;
// A worker that has this part of its spare leases gets no more: one message for many.
constexpr double kEnoughSpares = 0.75;
// A worker with so many leases gets no spare ones.
constexpr std::size_t kMostLeases = 1024;
}  // namespace

void Scheduler::worker_ends(const WorkerId& id, double ends_s) {
  Worker* worker = leases_.find_worker(id);
  if (worker == nullptr) return;
  if (std::isinf(worker->whole_s)) worker->whole_s = ends_s - now_s_;
  worker->ends_s = ends_s;
  if (!std::isfinite(next_look_s_)) next_look_s_ = now_s_;
}

void Scheduler::assign(double now_s) {
  now_s_ = now_s;
  ready_.set_time(now_s);
  leases_.set_time(now_s);
  move_due_retries();
  if (paused_ || stop_requested_) {
    if (leases_.has_spares()) take_back_spares();
    leases_.set_next_split(std::nullopt);
    return;
  }
  for (const auto& [array, part] : disk_.release()) ready_.add(array, {&part, 1});
  for (const MeasureOutputs& wanted : disk_.take_measurements(now_s)) actions_.measurements.push_back(wanted);
  ready_.mark_overdue();
  // A task that did not fit before a worker's end may fit once more durations are known.
  const bool look = now_s >= next_look_s_ && std::isfinite(next_look_s_);
  if (look) next_look_s_ = now_s + kLookAgain_s;
  if (ready_.take_grown() || look) leases_.retry_unserved();
  if (const auto shrink_s = next_shrink_s(); shrink_s && now_s >= *shrink_s) leases_.retry_unserved();
  grant_reservations();
  std::set<std::pair<std::uint64_t, Worker*>> served;  // in the order of joining
  while (!ready_.order().empty() || leases_.has_spares()) {
    Worker* worker = leases_.first_demand();
    if (worker == nullptr) break;
    if (!grant_next(*worker)) {
      leases_.set_unserved(*worker);
    } else if (worker->capacity.alone_s > 0) {
      served.emplace(worker->number, worker);
    }
  }
  for (const auto& [number, worker] : served) add_spares(*worker);
  // Before that none could be given. Where thousands of workers began at once, each end of the first tasks
  // would be a message of its own, and its worker idle until the answer.
  if (ready_.take_measured()) {
    for (const auto& [id, worker] : leases_.workers()) {
      if (worker.capacity.alone_s > 0) add_spares(*leases_.find_worker(id));
    }
  }
  for (const LeaseId id : leases_.split_back()) {
    const LeaseState& lease = *leases_.find(id);
    revoke(id, lease.array, lease.bounds, false);
  }
}

void Scheduler::move_due_retries() {
  while (const auto due = retries_.take_due(now_s_)) {
    const TaskArray& array = arrays_[due->array];
    const auto attempt = array.attempts.find(due->element);
    const bool waits = attempt != array.attempts.end() && attempt->second.due_s == due->due_s &&
                       array.states.at(due->element) == ElementState::delayed;
    if (waits) queue_again(due->array, due->element);
  }
}

std::optional<double> Scheduler::next_due_s() const {
  std::optional<double> next = leases_.next_split_s();
  if (const auto retry_s = retries_.next_due_s()) next = std::min(next.value_or(*retry_s), *retry_s);
  // One that may already, and found no worker, waits for one.
  const auto shrink_s = next_shrink_s();
  if (shrink_s && *shrink_s > now_s_) next = std::min(next.value_or(*shrink_s), *shrink_s);
  return next;
}

// False if no queue has anything for the worker.
bool Scheduler::grant_next(Worker& worker) {
  std::optional<QueueId> next;
  std::optional<ArrayId> found;
  const std::optional<LeaseId> spare = leases_.next_spare(worker);
  const QueueId spare_queue = spare ? ready_.queue_of(leases_.find(*spare)->array) : 0;
  for (const QueueKey& key : ready_.order()) {
    next = std::get<QueueId>(key);
    // The worker starts its spare leases before these.
    const ReadyQueue& asked = ready_.queue(*next);
    if (spare && !asked.overdue && asked.priority < ready_.queue(spare_queue).priority) break;
    // It may reserve some of this worker's slots, and then the queues behind it find fewer.
    if (ready_.queue(*next).gang.spans_nodes()) {
      if (worker.serves[*next] && serve_gang(*next)) return true;
    } else if (takes(worker, ready_, *next, now_s_)) {
      found = array_for(worker, *next);
      if (found) break;
    }
  }
  if (!found) return spare && takes(worker, ready_, spare_queue, now_s_) && use_spare(worker, *spare, 1);
  const QueueId queue = *next;
  const ArrayId array = *found;
  if (const auto element = next_again(worker, array)) {
    grant(worker, array, {*element, *element}, arrays_[array].attempts[*element]);
  } else if (spare && spare_queue == queue && !ready_.queue(queue).overdue) {
    const TaskArray& held = arrays_[leases_.find(*spare)->array];
    use_spare(worker, *spare, range_size(held, ready_, queue, worker, max_range_, now_s_));
  } else {
    const std::uint64_t size = range_size(arrays_[array], ready_, queue, worker, max_range_, now_s_);
    grant(worker, array, ready_.next_range(array, size), {});
  }
  return true;
}

// The first array with something for the worker.
std::optional<ArrayId> Scheduler::array_for(const Worker& worker, QueueId queue) const {
  int looks = kLooks;
  for (const ArrayId array : ready_.queue(queue).waiting) {
    if (ready_.has_fresh(array) || next_again(worker, array)) return array;
    if (--looks == 0) break;
  }
  return std::nullopt;
}

// An element killed for memory goes to a worker that has its new amount, or the most available. A worker gets
// elements that the next loss puts into quarantine one at a time, so that a loss identifies one.
std::optional<Element> Scheduler::next_again(const Worker& worker, ArrayId id) const {
  const TaskArray& array = arrays_[id];
  const auto next = ready_.next_again(id);
  if (!next) return next;
  if (array.spec.memory_factor <= 0 && !is_suspect(array, *next) && may_outlive(worker, array, *next))
    return next;
  const std::int64_t has = worker.capacity.memory_bytes;
  const std::int64_t largest = leases_.largest_memory(ready_.queue_of(id));
  const bool has_suspect = holds_suspect(worker);
  return ready_.find_again(id, kLooks, [&](Element element) {
    if ((has_suspect && is_suspect(array, element)) || !may_outlive(worker, array, element)) return false;
    const auto attempt = array.attempts.find(element);
    const std::int64_t needs = attempt == array.attempts.end() ? 0 : attempt->second.memory_bytes;
    return array.spec.memory_factor <= 0 || has <= 0 || has >= std::min(needs, largest);
  });
}

bool Scheduler::may_outlive(const Worker& worker, const TaskArray& array, Element element) const {
  const auto attempt = array.attempts.find(element);
  return attempt == array.attempts.end() || attempt->second.at_least_s <= 0 ||
         outlives(attempt->second.at_least_s, worker, now_s_);
}

bool Scheduler::is_suspect(const TaskArray& array, Element element) {
  const auto attempt = array.attempts.find(element);
  return attempt != array.attempts.end() && attempt->second.crashes + 1 >= kCrashLimit;
}

bool Scheduler::holds_suspect(const Worker& worker) const {
  return std::any_of(worker.leases.begin(), worker.leases.end(), [this](LeaseId id) {
    const LeaseState& lease = *leases_.find(id);
    return lease.bounds.size() == 1 && is_suspect(arrays_[lease.array], lease.bounds.first);
  });
}

void Scheduler::grant(Worker& worker, ArrayId array, Range range, const Attempt& attempt,
                      const std::vector<std::string>& nodes, bool spare) {
  const LeaseId id = next_lease_++;
  const QueueId queue_id = ready_.queue_of(array);
  const ReadyQueue& queue = ready_.queue(queue_id);
  // On the worker, too, an overdue queue goes before the others.
  const int priority = queue.overdue ? std::numeric_limits<int>::max() : lease_priority(queue, spare);
  ready_.remove(array, range);
  has_begun(array, range);
  arrays_[array].states.set(range, ElementState::leased);
  const double workers = std::max(1.0, static_cast<double>(nodes.size()));
  const double core_s = static_cast<double>(range.size()) * cores_of(queue, worker) * workers *
                        seconds_of(arrays_[array], queue, worker);
  leases_.hold(id, worker, array, range, attempt.memory_bytes);
  if (spare) leases_.make_spare(id);
  if (!nodes.empty()) leases_.set_gang(id, nodes);
  LeaseId trust_from = 0;
  if (arrays_[array].spec.trust_markers)
    arrays_[array].for_each_floor(range, [&](Range, LeaseId floor) {
      trust_from = std::max({trust_from, floor, LeaseId{1}});
    });
  actions_.grants.push_back(
      {worker.id,
       {id, array, range.first, range.size(), attempt.number, attempt.restart, priority, attempt.memory_bytes,
        attempt.uncharged(), attempt.failures, attempt.crashes, nodes, trust_from}});
  if (!spare) ready_.serve(queue_id, core_s);
}

// ---- spare leases: for the time in which no coordinator answers

// The worker starts spare elements by itself when it has a free core: they count as its load from now on.
bool Scheduler::use_spare(Worker& worker, LeaseId id, std::uint64_t elements) {
  const ArrayId array = leases_.find(id)->array;
  const QueueId queue_id = ready_.queue_of(array);
  const ReadyQueue& queue = ready_.queue(queue_id);
  const std::uint64_t used = leases_.use_spare(id, elements);
  ready_.serve(queue_id, static_cast<double>(used) * cores_of(queue, worker) *
                             seconds_of(arrays_[array], queue, worker));
  return used > 0;
}

// They come from the first queue that has anything for the worker; there are none while tasks on several
// nodes wait.
void Scheduler::add_spares(Worker& worker) {
  if (worker.draining || worker.leases.size() >= kMostLeases) return;
  for (const QueueKey& key : ready_.order()) {
    const QueueId queue_id = std::get<QueueId>(key);
    const ReadyQueue& queue = ready_.queue(queue_id);
    if (!worker.serves[queue_id]) continue;
    if (queue.gang.spans_nodes()) return;
    const auto fresh = std::find_if(queue.waiting.begin(), queue.waiting.end(),
                                    [&](ArrayId array) { return ready_.has_fresh(array); });
    if (fresh == queue.waiting.end()) return;
    const TaskArray& array = arrays_[*fresh];
    const double size = spare_size(array, ready_, queue_id, worker, now_s_);
    const double has = worker.spare_s / alone_seconds(seconds_of(array, queue, worker), queue, worker);
    const double most = std::min(size - has, static_cast<double>(max_range_));
    if (most < 1 || has > kEnoughSpares * size) return;
    grant(worker, *fresh, ready_.next_range(*fresh, static_cast<std::uint64_t>(most)), {}, {}, true);
    return;
  }
}

void Scheduler::take_back_spares() {
  for (const LeaseId id : leases_.take_spares()) {
    const LeaseState& lease = *leases_.find(id);
    revoke(id, lease.array, lease.bounds, false);
  }
}

}  // namespace wflow::engine
