// SPDX-License-Identifier: Apache-2.0
// The scheduler's events of workers, cancellations and questions; moves.cc moves elements between states,
// results.cc judges how executions ended, assignment.cc leases.
#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <utility>

namespace wflow::engine {

namespace {

// Leases of different coordinators of one campaign never share a number.
constexpr int kEpochShift = 40;

std::vector<TaskArray> task_arrays(std::vector<ArraySpec> specs) {
  std::vector<TaskArray> arrays;
  arrays.reserve(specs.size());
  for (ArraySpec& spec : specs) arrays.emplace_back(std::move(spec));
  return arrays;
}

}  // namespace

Scheduler::Scheduler(std::vector<ArraySpec> arrays, std::uint64_t epoch)
    : arrays_(task_arrays(std::move(arrays))),
      graph_(arrays_),
      ready_(arrays_),
      leases_(arrays_, ready_),
      disk_(arrays_),
      next_lease_((epoch << kEpochShift) + 1) {
  for (const TaskArray& array : arrays_) {
    open_ += array.spec.count;
    counts_successes_ = counts_successes_ || array.spec.after_record;
  }
}

bool Scheduler::valid(ArrayId array, Element first, std::uint64_t count) const {
  return array < arrays_.size() && arrays_[array].has(first, count);
}

// ---- before the start

void Scheduler::restore_end(ArrayId array, Range range, ElementState state) {
  WFLOW_CHECK(!started_ && has_ended(state));
  for (const Range& part : parts_in(array, range, [](ElementState s) { return !has_ended(s); })) {
    arrays_[array].states.set(part, state);
    arrays_[array].ended.add(part);
    open_ -= part.size();
  }
}

void Scheduler::restore_attempt(ArrayId array, Element element, const AttemptCounts& counts) {
  WFLOW_CHECK(!started_ && counts.not_asked() <= counts.number);
  if (!has_ended(arrays_[array].states.at(element))) arrays_[array].attempts[element] = {counts, 0};
}

void Scheduler::restore_cut(ArrayId array, Element element, double duration_s) {
  WFLOW_CHECK(!started_);
  const auto attempt = arrays_[array].attempts.find(element);
  if (attempt == arrays_[array].attempts.end() || arrays_[array].spec.goes_on) return;
  attempt->second.at_least_s = duration_s;
  ready_.count_cut(array, duration_s);
}

void Scheduler::restore_durations(ArrayId array, std::uint64_t timed, double sum_s, double square_sum) {
  count_durations(array, timed, sum_s, square_sum);
}

void Scheduler::restore_floor(ArrayId array, Range range, LeaseId lease) {
  WFLOW_CHECK(!started_);
  std::vector<std::pair<Range, LeaseId>> raised;
  arrays_[array].for_each_floor(range, [&](Range part, LeaseId floor) {
    if (floor < lease) raised.emplace_back(part, lease);
  });
  for (const auto& [part, floor] : raised) arrays_[array].floors.set(part, floor);
}

void Scheduler::start() {
  WFLOW_CHECK(!started_);
  started_ = true;
  disk_.start();
  for (ArrayId array = 0; array < arrays_.size(); ++array) {
    if (arrays_[array].spec.count > 0) resolve(array, {0, arrays_[array].spec.count - 1});
  }
  propagate();
}

// ---- workers

void Scheduler::worker_joined(const WorkerId& id, const WorkerCapacity& capacity,
                              const std::vector<Lease>& held) {
  Worker& worker = leases_.join(id, capacity);
  if (!capacity.allocation.empty()) look_for_allocations();
  leases_.note_missing(worker, held);
  forget_ending(id);  // `held` has what it still ends
  for (const Lease& lease : held) adopt(worker, lease);
}

// A part of a lease that another coordinator granted, or this one before a connection broke. What the worker
// can't keep is revoked.
void Scheduler::adopt(Worker& worker, const Lease& lease) {
  const LeaseState* known = leases_.find(lease.id);
  const bool ours = known == nullptr ? lease.id > 0 && lease.id < next_lease_
                                     : known->worker == &worker && known->array == lease.array;
  if (!ours || !valid(lease.array, lease.first, lease.count)) {
    actions_.revokes.push_back({worker.id, lease, true});
    return;
  }
  const Range range{lease.first, lease.first + lease.count - 1};
  IntervalSet refused;
  refused.add(range);
  for (const Range& part : leases_.parts(lease.id, lease.array, range)) refused.remove(part);
  std::vector<std::pair<Range, ElementState>> open;
  arrays_[lease.array].states.for_each_in(range, [&](Range part, ElementState state) {
    if (!has_ended(state) && state != ElementState::leased) open.emplace_back(part, state);
  });
  for (const auto& [part, state] : open) {
    if (state == ElementState::blocked) {
      // The ends of what it waits for were never committed: they come again, or it will run again after them.
      arrays_[lease.array].ahead.add(part);
      hold(worker, lease, part);
      if (!keeps_early_) continue;
    }
    for (const Range& one : above_floor(lease.id, lease.array, part)) {
      if (state != ElementState::blocked) adopt_part(worker, lease, one);
      refused.remove(one);
    }
  }
  // No other worker gets elements that this one must end before it has ended them.
  std::vector<Range> revoked;
  refused.for_each([&](Range part) { revoked.push_back(part); });
  for (const Range& part : revoked) {
    for (const Range& one : parts_in(lease.array, part, [](ElementState s) {
           return s == ElementState::ready || s == ElementState::delayed;
         })) {
      hold(worker, lease, one);
    }
    for (const Range& one : parts_in(lease.array, part, has_ended)) note_ending(worker.id, lease, one);
    actions_.revokes.push_back({worker.id, part_of(lease.id, lease.array, part), true});
  }
}

void Scheduler::note_ending(const WorkerId& worker, const Lease& lease, Range part) {
  ending_.try_emplace(lease.id, Ending{worker, lease, {}}).first->second.elements.add(part);
}

void Scheduler::forget_ending(LeaseId lease, ArrayId array, Range range) {
  const auto at = ending_.find(lease);
  if (at == ending_.end() || at->second.lease.array != array) return;
  at->second.elements.remove(range);
  if (at->second.elements.empty()) ending_.erase(at);
}

void Scheduler::forget_ending(const WorkerId& worker) {
  std::erase_if(ending_, [&](const auto& one) { return one.second.worker == worker; });
}

// Elements that were opened again while a worker still ends them.
void Scheduler::hold_ending() {
  for (auto& [id, ending] : ending_) {
    const ArrayId array = ending.lease.array;
    std::vector<Range> opened;
    ending.elements.for_each([&](Range part) {
      for (const Range& one :
           parts_in(array, part, [](ElementState s) { return s == ElementState::blocked; }))
        opened.push_back(one);
    });
    for (const Range& part : opened) {
      ending.elements.remove(part);
      hold(*leases_.find_worker(ending.worker), ending.lease, part);
    }
  }
  std::erase_if(ending_, [](const auto& one) { return one.second.elements.empty(); });
}

void Scheduler::hold(Worker& worker, const Lease& lease, Range part) {
  ready_.remove(lease.array, part);
  disk_.forget(lease.array, part);
  forget_unsaved(lease.array, part);
  has_begun(lease.array, part);
  arrays_[lease.array].states.set(part, ElementState::leased);
  leases_.hold(lease.id, worker, lease.array, part, lease.memory_bytes);
  if (!lease.nodes.empty()) leases_.set_gang(lease.id, lease.nodes);
  leases_.make_spare(lease.id);
}

// Back to what waits for its input.
void Scheduler::wait_again(ArrayId id, Range part) {
  TaskArray& array = arrays_[id];
  array.ahead.remove(part);
  array.states.set(part, ElementState::blocked);
  resolve(id, part);
}

void Scheduler::adopt_part(Worker& worker, const Lease& lease, Range part) {
  TaskArray& array = arrays_[lease.array];
  hold(worker, lease, part);
  const auto counted = array.attempts.find(part.first);
  if (!lease.nodes.empty() && counted != array.attempts.end() && counted->second.number > lease.attempt) {
    // It was lost with one of its nodes before its worker was taken for lost: it runs again, however it ends.
    leases_.set_broken(lease.id);
    revoke(lease.id, lease.array, part, true);
    return;
  }
  if (lease.attempt == 0 || part.size() > 1) return;
  // The executions before it may not have been recorded: the lease tells how they ended.
  Attempt& attempt = array.attempts[part.first];
  if (attempt.number >= lease.attempt) return;
  std::uint32_t missing = lease.attempt - attempt.number;
  const auto take = [&](std::uint32_t of_lease, std::uint32_t recorded) {
    const std::uint32_t taken = std::min(missing, of_lease - std::min(of_lease, recorded));
    missing -= taken;
    return taken;
  };
  const std::uint32_t uncharged = take(lease.uncharged, attempt.uncharged());
  (lease.memory_bytes > attempt.memory_bytes ? attempt.memory : attempt.neutral) += uncharged;
  attempt.failures += take(lease.failures, attempt.failures);
  attempt.crashes += take(lease.crashes, attempt.crashes);
  attempt.number = lease.attempt;
  attempt.restart = lease.restart;
  attempt.memory_bytes = lease.memory_bytes;
}

std::vector<Outcome> Scheduler::worker_lost(const WorkerId& id, const std::vector<RunningElement>& running,
                                            const Loss& loss) {
  std::vector<Outcome> unsettled;
  Worker* worker = leases_.find_worker(id);
  if (worker == nullptr) return unsettled;
  drop_reservation(worker->capacity.allocation);
  if (!worker->capacity.allocation.empty()) look_for_allocations();
  for (const RunningElement& execution : running) {
    if (auto charged = count_crash(id, execution, loss); charged && !loss.settled)
      unsettled.push_back(std::move(*charged));
  }
  Loss of_node = loss;
  of_node.detail = "its node " + worker->capacity.node + " was lost while this task ran";
  const std::set<LeaseId> gangs = worker->gangs;
  for (const LeaseId lease : gangs) {
    const LeaseState* state = leases_.find(lease);
    if (state == nullptr || state->worker == worker) continue;
    for (Outcome& charged : break_gang(lease, of_node)) {
      if (!loss.settled) unsettled.push_back(std::move(charged));
    }
  }
  give_back_all(*worker);
  forget_ending(id);
  leases_.leave(id);
  propagate();
  return unsettled;
}

void Scheduler::give_back_all(Worker& worker) {
  const std::set<LeaseId> held = worker.leases;
  for (const LeaseId lease : held) {
    const ArrayId array = leases_.find(lease)->array;
    for (const Range& part : leases_.parts(lease)) {
      end_ranks(lease, part);
      leases_.release(lease, part);
      give_back(lease, array, part);
    }
  }
}

void Scheduler::worker_draining(const WorkerId& id) {
  Worker* worker = leases_.find_worker(id);
  if (worker == nullptr) return;
  leases_.set_draining(*worker);
  if (worker->reserved_cores > 0) drop_reservation(worker->capacity.allocation);
}

void Scheduler::handed_over(const WorkerId& id) {
  Worker* worker = leases_.find_worker(id);
  if (worker == nullptr) return;
  for (const auto& [lease, parts] : leases_.take_missing(*worker)) {
    const ArrayId array = leases_.find(lease)->array;
    for (const Range& part : parts) {
      end_ranks(lease, part);
      leases_.release(lease, part);
      give_back(lease, array, part);
    }
  }
}

void Scheduler::returned(const std::vector<Lease>& leases) {
  for (const Lease& lease : leases) {
    if (!valid(lease.array, lease.first, lease.count)) continue;
    const Range range{lease.first, lease.first + lease.count - 1};
    forget_ending(lease.id, lease.array, range);
    for (const Range& part : leases_.parts(lease.id, lease.array, range)) {
      end_ranks(lease.id, part);
      leases_.release(lease.id, part, true);
      give_back(lease.id, lease.array, part);
    }
  }
}

// ---- cancellations

void Scheduler::set_paused(bool paused) {
  paused_ = paused;
  leases_.set_next_split(now_s_);
}

void Scheduler::cancel_waiting() {
  for (ArrayId array = 0; array < arrays_.size(); ++array) {
    if (arrays_[array].spec.count > 0) cancel_waiting_in(array, {0, arrays_[array].spec.count - 1});
  }
  newly_ended_.clear();  // whatever they would release has just been cancelled too
}

std::uint64_t Scheduler::cancel_waiting_in(ArrayId array, Range range) {
  std::uint64_t count = 0;
  for (const Range& part :
       parts_in(array, range, [](ElementState s) { return !has_ended(s) && s != ElementState::leased; })) {
    end(array, part, ElementState::cancelled);
    count += part.size();
  }
  return count;
}

Scheduler::Cancelled Scheduler::cancel(ArrayId array, Range range, bool kill) {
  Cancelled cancelled;
  if (kill) {
    cancelled.running = request_cancel(array, range);
  } else {
    // They come back, and are cancelled then.
    cancelled = take_spares(array, range, [&](Range part) { arrays_[array].cancel_requested.add(part); });
  }
  cancelled.waiting += cancel_waiting_in(array, range);
  propagate();
  return cancelled;
}

std::uint64_t Scheduler::skip_rest_for(ArrayId follower) {
  std::uint64_t skipped = 0;
  for (const ArrayId array : graph_.sources_of(follower)) {
    const Range all{0, arrays_[array].spec.count - 1};
    for (const Range& part : parts_in(array, all, [](ElementState state) {
           return state == ElementState::blocked || state == ElementState::ready;
         })) {
      skipped += part.size();
      end(array, part, ElementState::skipped);
    }
    arrays_[array].enough = true;
    // Samples queued behind running ones come back, too: short tasks may turn out to be long ones.
    leases_.holders(array).for_each_in(all, [&](Range part, LeaseId lease) {
      skipped += std::min(leases_.find(lease)->spare, part.size());
      revoke(lease, array, part, false);
    });
  }
  propagate();
  return skipped;
}

// Asks for the elements that have not started.
Scheduler::Cancelled Scheduler::take_spares(ArrayId array, Range range,
                                            const std::function<void(Range)>& asked) {
  Cancelled cancelled;
  leases_.holders(array).for_each_in(range, [&](Range part, LeaseId lease) {
    const std::uint64_t spare = std::min(leases_.find(lease)->spare, part.size());
    cancelled.waiting += spare;
    cancelled.running += part.size() - spare;
    if (spare == 0) return;
    revoke(lease, array, part, false);
    asked(part);
  });
  return cancelled;
}

std::uint64_t Scheduler::request_cancel(ArrayId array, Range range) {
  std::uint64_t count = 0;
  leases_.holders(array).for_each_in(range, [&](Range part, LeaseId lease) {
    revoke(lease, array, part, true);
    arrays_[array].cancel_requested.add(part);
    count += part.size();
    ++work_;
  });
  return count;
}

Lease Scheduler::part_of(LeaseId lease, ArrayId array, Range range) {
  return {lease, array, range.first, range.size(), 0, false, 0, {}};
}

void Scheduler::hold_step(std::uint32_t step, bool held) {
  ready_.hold(step, held);
  for (ArrayId array = 0; held && array < arrays_.size(); ++array) {
    if (arrays_[array].spec.step != step) continue;
    std::vector<std::pair<LeaseId, Range>> leased;
    leases_.holders(array).for_each([&](Range range, LeaseId lease) { leased.emplace_back(lease, range); });
    for (const auto& [lease, range] : leased) revoke(lease, array, range, false);
  }
}

bool Scheduler::only_held_left() const {
  if (leased() > 0 || ended()) return false;
  bool some = false;
  for (ArrayId id = 0; id < arrays_.size(); ++id) {
    const auto& states = arrays_[id].states;
    const std::uint64_t runnable =
        states.total(ElementState::ready) + states.total(ElementState::delayed) - disk_.held_back(id);
    if (runnable > 0 && !ready_.queue_of_array(id).held) return false;
    some = some || runnable > 0;
  }
  return some;
}

// Spare elements may have begun, or begin before the message arrives: they count as load until the worker
// returns them. returns them.
void Scheduler::revoke(LeaseId lease, ArrayId array, Range range, bool kill_running) {
  leases_.use_spare(lease, leases_.find(lease)->spare);
  actions_.revokes.push_back({leases_.worker_of(lease), part_of(lease, array, range), kill_running});
}

// ---- questions

ArrayProgress Scheduler::progress(ArrayId id) const {
  const TaskArray& array = arrays_[id];
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
  const auto lease = leases_.holder_of(array, element);
  return lease ? std::optional(leases_.worker_of(*lease)) : std::nullopt;
}

Scheduler::LeasePage Scheduler::leases(LeaseCursor from, std::size_t limit) const {
  LeasePage page;
  for (ArrayId array = from.array; array < arrays_.size() && !page.next; ++array) {
    const Element first = array == from.array ? from.element : 0;
    leases_.holders(array).for_each_in({first, ~Element{0}}, [&](Range range, LeaseId lease) {
      if (page.parts.size() < limit) {
        page.parts.push_back({lease, leases_.worker_of(lease), array, range});
        return true;
      }
      page.next = LeaseCursor{array, range.first};
      return false;
    });
  }
  return page;
}

std::optional<Scheduler::WorkerView> Scheduler::worker(const WorkerId& id) const {
  const auto at = leases_.workers().find(id);
  if (at == leases_.workers().end()) return std::nullopt;
  return WorkerView{at->second.capacity, at->second.elements, at->second.draining};
}

std::map<WorkerId, Scheduler::WorkerView> Scheduler::workers() const {
  std::map<WorkerId, WorkerView> views;
  for (const auto& [id, worker] : leases_.workers()) {
    views.emplace(id, WorkerView{worker.capacity, worker.elements, worker.draining});
  }
  return views;
}

}  // namespace wflow::engine
