// SPDX-License-Identifier: Apache-2.0
// The scheduler's moves between states; dependencies are in readiness.cc, leases in assignment.cc.
#include "engine/schedule/scheduler.h"

#include <utility>

namespace wflow::engine {

namespace {

// An element that was running on so many workers when they died is taken to be what kills them.
constexpr std::uint32_t kCrashLimit = 5;

// Leases of different coordinators of one campaign never share a number.
constexpr int kEpochShift = 40;

}  // namespace

Scheduler::Scheduler(std::vector<ArraySpec> arrays, std::uint64_t epoch)
    : next_lease_((epoch << kEpochShift) + 1) {
  arrays_.reserve(arrays.size());
  for (ArraySpec& spec : arrays) {
    open_ += spec.count;
    arrays_.emplace_back(std::move(spec));
  }
  make_queues();
  for (ArrayId child = 0; child < arrays_.size(); ++child) {
    for (const specs::Edge& edge : arrays_[child].spec.edges) {
      WFLOW_CHECK(edge.parent < arrays_.size());
      arrays_[edge.parent].children.push_back({child, edge.kind, edge.block});
    }
  }
}

void Scheduler::restore_end(ArrayId array, Range range, ElementState state) {
  WFLOW_CHECK(!started_ && has_ended(state));
  for (const Range& part : parts_in(array, range, [](ElementState s) { return !has_ended(s); })) {
    arrays_[array].states.set(part, state);
    arrays_[array].ended.add(part);
    open_ -= part.size();
  }
}

void Scheduler::restore_attempt(ArrayId array, Element element, std::uint32_t next_attempt, bool restart) {
  WFLOW_CHECK(!started_);
  // How its earlier executions ended is in the database; the budget goes on from their number.
  arrays_[array].attempts[element] = {next_attempt, next_attempt, 0, restart};
}

void Scheduler::restore_durations(ArrayId array, std::uint64_t timed, double sum_s, double square_sum) {
  arrays_[array].timed = timed;
  arrays_[array].duration_sum_s = sum_s;
  arrays_[array].duration_square_sum = square_sum;
  queues_[arrays_[array].queue].timed += timed;
  queues_[arrays_[array].queue].duration_sum_s += sum_s;
}

void Scheduler::start() {
  WFLOW_CHECK(!started_);
  started_ = true;
  for (ArrayId array = 0; array < arrays_.size(); ++array) {
    if (arrays_[array].spec.count > 0) resolve(array, {0, arrays_[array].spec.count - 1});
  }
  propagate();
}

void Scheduler::worker_joined(const WorkerId& id, const WorkerCapacity& capacity,
                              const std::vector<wire::Lease>& held) {
  Worker& worker = workers_[id];
  if (!worker.serves.empty()) {
    note_missing(worker, held);
    count_worker(worker, -1);
  } else {
    worker.id = id;
    worker.number = joined_++;
  }
  worker.capacity = capacity;
  worker.draining = false;
  worker.serves.assign(queues_.size(), false);
  for (QueueId queue = 0; queue < queues_.size(); ++queue) {
    const bool in_pool = capacity.pools.empty() ||
                         (queues_[queue].pool < capacity.pools.size() && capacity.pools[queues_[queue].pool]);
    worker.serves[queue] = in_pool && queues_[queue].resources.gpus <= capacity.gpus;
  }
  count_worker(worker, 1);
  index(worker);
  for (const wire::Lease& lease : held) adopt_lease(worker, lease);
}

void Scheduler::worker_lost(const WorkerId& id, const std::vector<wire::RunningElement>& running) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  for (const wire::RunningElement& execution : running) count_crash(id, execution);
  const std::set<LeaseId> leases = found->second.leases;
  for (const LeaseId lease_id : leases) {
    const auto lease = leases_.find(lease_id);
    if (lease == leases_.end()) continue;
    const ArrayId array = lease->second.array;
    std::vector<Range> rest;
    lease->second.remaining.for_each_in({0, arrays_[array].spec.count - 1},
                                        [&](Range r) { rest.push_back(r); });
    queues_[arrays_[array].queue].leased -= lease->second.remaining.size();
    leases_.erase(lease);
    for (const Range& range : rest) give_back(array, range);
  }
  unindex(found->second);
  count_worker(found->second, -1);
  workers_.erase(found);
  propagate();
}

void Scheduler::count_crash(const WorkerId& worker, const wire::RunningElement& execution) {
  if (execution.array >= arrays_.size()) return;
  Array& array = arrays_[execution.array];
  if (execution.element >= array.spec.count) return;
  if (array.states.at(execution.element) != ElementState::leased) return;
  Attempt& attempt = array.attempts[execution.element];
  wire::Outcome outcome;
  outcome.array = execution.array;
  outcome.element = execution.element;
  outcome.attempt = attempt.number;
  outcome.reason = wire::EndReason::worker_lost;
  outcome.started_s = execution.started_s;
  outcome.detail = "the worker " + worker + " was lost while this task ran";
  ++attempt.number;
  ++attempt.crashes;
  const bool final = attempt.crashes >= kCrashLimit;
  actions_.failures.push_back({outcome, worker, final, attempt.number, attempt.restart});
  if (final) end(execution.array, {execution.element, execution.element}, ElementState::failed);
}

void Scheduler::worker_draining(const WorkerId& id) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  found->second.draining = true;
  index(found->second);
}

void Scheduler::returned(const std::vector<wire::Lease>& leases) {
  for (const wire::Lease& lease : leases) {
    if (!valid(lease.array, lease.first, lease.count)) continue;
    const Range range{lease.first, lease.first + lease.count - 1};
    if (release_from_lease(lease.id, range)) give_back(lease.array, range);
  }
}

void Scheduler::done(const wire::DoneRun& run) {
  if (!valid(run.array, run.first, run.count)) return;
  const Range range{run.first, run.first + run.count - 1};
  learn_speed(run);
  release_from_lease(run.lease, range);
  const bool invalidated = rerun_invalidated(run.array, range);
  const auto counts = [&](ElementState s) { return invalidated ? s == ElementState::leased : !has_ended(s); };
  const std::vector<Range> fresh = parts_in(run.array, range, counts);
  if (fresh.empty()) return;  // told twice: after a reconnection, or by two coordinators' worth of journals
  Array& array = arrays_[run.array];
  array.timed += run.count;
  array.duration_sum_s += run.duration_sum_s;
  array.duration_square_sum += run.duration_square_sum;
  queues_[array.queue].timed += run.count;
  queues_[array.queue].duration_sum_s += run.duration_sum_s;
  for (const Range& part : fresh) end(run.array, part, ElementState::done);
  propagate();
}

void Scheduler::ended_badly(const wire::Outcome& outcome, const WorkerId& worker, double now_s) {
  if (!valid(outcome.array, outcome.element, 1)) return;
  const Range range{outcome.element, outcome.element};
  release_from_lease(outcome.lease, range);
  Array& array = arrays_[outcome.array];
  if (has_ended(array.states.at(outcome.element)) || rerun_invalidated(outcome.array, range)) return;
  if (outcome.reason == wire::EndReason::cancelled) {
    give_back(outcome.array, range);
    return;
  }
  Attempt attempt;
  if (const auto known = array.attempts.find(outcome.element); known != array.attempts.end())
    attempt = known->second;
  if (outcome.attempt < attempt.number) return;  // told twice
  ++attempt.number;
  decide(outcome, worker, attempt, now_s);
  propagate();
}

// Merlin's exit codes (research/merlin.md 1.7), and ordinary failures.
void Scheduler::decide(const wire::Outcome& outcome, const WorkerId& worker, Attempt attempt, double now_s) {
  enum : int {
    kRestart = 100,
    kSoftFail = 101,
    kHardFail = 102,
    kDry = 103,
    kRetry = 104,
    kStopWorkers = 105
  };
  const ArraySpec& spec = arrays_[outcome.array].spec;
  const int code = outcome.reason == wire::EndReason::exited ? outcome.exit_code : -1;
  const Range range{outcome.element, outcome.element};
  if (code == kDry || code == kStopWorkers) {
    stop_requested_ = stop_requested_ || code == kStopWorkers;
    end(outcome.array, range, ElementState::done);
    return;
  }
  // Usage, spec and data errors of our own programs: docs/exit-codes.md.
  const bool hopeless = spec.own_program && code >= 2 && code <= 4;
  const bool asked_again = code == kRestart || code == kRetry;
  if (!asked_again) ++attempt.failures;
  const bool cancel_requested = arrays_[outcome.array].cancel_requested.contains(range);
  const bool again =
      code != kSoftFail && code != kHardFail && !hopeless && !cancel_requested &&
      (asked_again ? attempt.number - attempt.failures <= static_cast<std::uint32_t>(spec.max_retries)
                   : attempt.failures <= static_cast<std::uint32_t>(spec.failure_retries));
  if (asked_again) attempt.restart = code == kRestart;
  actions_.failures.push_back({outcome, worker, !again, attempt.number, attempt.restart});
  if (again) {
    schedule_retry(outcome.array, outcome.element, attempt, now_s + spec.retry_delay_s);
    return;
  }
  stop_requested_ = stop_requested_ || (code == kHardFail && !keep_going_);
  end(outcome.array, range, code == kHardFail ? ElementState::hard_failed : ElementState::failed);
}

void Scheduler::cancel_waiting() {
  for (ArrayId array = 0; array < arrays_.size(); ++array) {
    if (arrays_[array].spec.count == 0) continue;
    const auto waits = [](ElementState s) { return !has_ended(s) && s != ElementState::leased; };
    for (const Range& part : parts_in(array, {0, arrays_[array].spec.count - 1}, waits)) {
      end(array, part, ElementState::cancelled);
    }
  }
  newly_ended_.clear();  // whatever they would release has just been cancelled too
}

std::uint64_t Scheduler::cancel(ArrayId array, Range range, bool kill) {
  std::uint64_t count = kill ? request_cancel(array, range) : 0;
  const auto waits = [](ElementState s) { return !has_ended(s) && s != ElementState::leased; };
  for (const Range& part : parts_in(array, range, waits)) {
    end(array, part, ElementState::cancelled);
    count += part.size();
  }
  propagate();
  return count;
}

// Revokes every lease that has a part in `range`; what else these leases hold is given back with it and runs
// again.
std::uint64_t Scheduler::request_cancel(ArrayId array, Range range) {
  std::uint64_t count = 0;
  for (auto& [id, lease] : leases_) {
    if (lease.array != array) continue;
    std::vector<Range> parts;
    lease.remaining.for_each_in(range, [&](Range part) { parts.push_back(part); });
    if (parts.empty()) continue;
    actions_.revokes.push_back({lease.worker->id, id, true});
    lease.revoked = true;
    for (const Range& part : parts) {
      arrays_[array].cancel_requested.add(part);
      count += part.size();
    }
  }
  return count;
}

std::uint64_t Scheduler::retry_failed(ArrayId array, Range range) {
  std::uint64_t count = 0;
  for (const Range& part : parts_in(array, range, can_retry)) {
    reopen(array, part);
    count += part.size();
  }
  resolve(array, range);
  propagate();
  return count;
}

// Back to blocked, and with it everything below that was skipped because of it or has run without it. A list
// and not recursion, as in propagate().
void Scheduler::reopen(ArrayId id, Range range) {
  std::vector<std::pair<ArrayId, Range>> list = {{id, range}};
  while (!list.empty()) {
    const auto [array, touched] = list.back();
    list.pop_back();
    std::vector<std::pair<Range, ElementState>> parts;
    arrays_[array].states.for_each_in(touched, [&](Range r, ElementState s) { parts.emplace_back(r, s); });
    for (const auto& [part, state] : parts) {
      reopen_one(array, part, state);
      if (!has_ended(state)) continue;  // what waits for it is blocked
      for (const Child& child : arrays_[array].children) {
        if (const auto below = children_of(child, part)) list.emplace_back(child.array, *below);
      }
    }
  }
}

void Scheduler::reopen_one(ArrayId id, Range range, ElementState state) {
  Array& array = arrays_[id];
  if (state == ElementState::blocked) return;
  if (state == ElementState::leased) {
    array.invalidated.add(range);
    return;
  }
  drop_waiting(id, range);
  array.states.set(range, ElementState::blocked);
  if (!has_ended(state)) return;
  array.ended.remove(range);
  open_ += range.size();
  actions_.ends.push_back({id, range, ElementState::blocked});
}

// Elements of `range` whose execution does not count wait for their input again. False when there are none.
bool Scheduler::rerun_invalidated(ArrayId id, Range range) {
  Array& array = arrays_[id];
  std::vector<Range> parts;
  array.invalidated.for_each_in(range, [&](Range r) { parts.push_back(r); });
  for (const Range& part : parts) {
    array.invalidated.remove(part);
    drop_waiting(id, part);
    array.states.set(part, ElementState::blocked);
    resolve(id, part);
  }
  if (!parts.empty()) propagate();
  return !parts.empty();
}

bool Scheduler::valid(ArrayId array, Element first, std::uint64_t count) const {
  if (array >= arrays_.size() || count == 0) return false;
  const std::uint64_t size = arrays_[array].spec.count;
  return first < size && count <= size - first;
}

void Scheduler::end(ArrayId id, Range range, ElementState state) {
  Array& array = arrays_[id];
  drop_waiting(id, range);
  array.states.set(range, state);
  array.ended.add(range);
  open_ -= range.size();
  // Neighbours that end one by one are one record.
  std::vector<RecordEnd>& ends = actions_.ends;
  const bool joins = !ends.empty() && ends.back().array == id && ends.back().state == state &&
                     ends.back().range.last + 1 == range.first;
  joins ? void(ends.back().range.last = range.last) : ends.push_back({id, range, state});
  newly_ended_.emplace_back(id, range);
}

// Takes the elements out of every waiting list they may be in; their state is set by the caller.
void Scheduler::drop_waiting(ArrayId id, Range range) {
  Array& array = arrays_[id];
  array.states.for_each_in(range, [&](Range r, ElementState s) {
    if (s == ElementState::leased) leased_ -= r.size();
  });
  array.ready.remove(range);
  array.cancel_requested.remove(range);
  array.attempts.erase(array.attempts.lower_bound(range.first), array.attempts.upper_bound(range.last));
  array.retry_ready.erase(array.retry_ready.lower_bound(range.first),
                          array.retry_ready.upper_bound(range.last));
  update_queue(id);
}

// From blocked or leased to what can be leased: elements that ran before keep their attempt.
void Scheduler::make_ready(ArrayId id, Range range) {
  Array& array = arrays_[id];
  const auto fresh = [&](Range r) {
    array.states.set(r, ElementState::ready);
    array.ready.add(r);
  };
  Element next = range.first;
  for (auto at = array.attempts.lower_bound(range.first);
       at != array.attempts.end() && at->first <= range.last; ++at) {
    if (at->first > next) fresh({next, at->first - 1});
    array.states.set({at->first, at->first}, ElementState::delayed);
    array.retry_ready.insert(at->first);
    next = at->first + 1;
  }
  if (next <= range.last) fresh({next, range.last});
  update_queue(id);
}

void Scheduler::give_back(ArrayId id, Range range) {
  rerun_invalidated(id, range);
  for (const Range& part : parts_in(id, range, [](ElementState s) { return s == ElementState::leased; })) {
    std::vector<Range> cancel_requested;
    arrays_[id].cancel_requested.for_each_in(part, [&](Range r) { cancel_requested.push_back(r); });
    for (const Range& one : cancel_requested) end(id, one, ElementState::cancelled);
  }
  if (!newly_ended_.empty()) propagate();
  for (const Range& part : parts_in(id, range, [](ElementState s) { return s == ElementState::leased; })) {
    leased_ -= part.size();
    make_ready(id, part);
  }
}

void Scheduler::schedule_retry(ArrayId id, Element element, const Attempt& attempt, double due_s) {
  const Range range{element, element};
  drop_waiting(id, range);
  Array& array = arrays_[id];
  array.attempts[element] = attempt;
  array.states.set(range, ElementState::delayed);
  delayed_.emplace(due_s, std::pair(id, element));
}

ArrayProgress Scheduler::progress(ArrayId id) const {
  const Array& array = arrays_[id];
  ArrayProgress progress;
  for (std::size_t state = 0; state < kElementStates; ++state) {
    progress.counts[state] = array.states.total(static_cast<ElementState>(state));
  }
  progress.timed = array.timed;
  progress.duration_sum_s = array.duration_sum_s;
  progress.duration_square_sum = array.duration_square_sum;
  return progress;
}

std::optional<WorkerId> Scheduler::worker_of(ArrayId array, Element element) const {
  for (const auto& [id, lease] : leases_) {
    if (lease.array == array && lease.remaining.contains({element, element})) return lease.worker->id;
  }
  return std::nullopt;
}

std::map<WorkerId, Scheduler::WorkerView> Scheduler::workers() const {
  std::map<WorkerId, WorkerView> views;
  for (const auto& [id, worker] : workers_) {
    WorkerView& view = views[id];
    view.capacity = worker.capacity;
    view.draining = worker.draining;
    for (const LeaseId lease : worker.leases) view.elements += leases_.at(lease).remaining.size();
  }
  return views;
}

}  // namespace wflow::engine
