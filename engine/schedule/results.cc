// SPDX-License-Identifier: Apache-2.0
// How executions end: successes, which always count once, and failures, which count unless they are stale.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "engine/schedule/attempt.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/sizing.h"

namespace wflow::engine {

namespace {

// The most losses without a record: they charge nothing and have no limit of their own.
constexpr std::uint32_t kUnheardLosses = 1000;
// Executions after launchers that failed, each later than the one before.
constexpr std::uint32_t kLaunchRetries = 5;
constexpr double kLaunchDelay_s = 5;
// Executions with more memory each: doublings of 1 GiB to 256 GiB.
constexpr std::uint32_t kMemoryRetries = 8;
constexpr double kMostMemory = 1LL << 60;
// Executions after a failure wait twice as long each, up to so long; those after the loss of a worker begin
// so.
constexpr double kLongestDelay_s = 60;
constexpr double kLossDelay_s = 1;
// Before an execution that failed for its disk runs again: so long, then longer each time.
constexpr double kDiskDelay_s = 2;

// Time for which a task that may go into quarantine waits for the batch scheduler's cause of its last loss.
constexpr double kExplained_s = 90;

std::string quarantine_text(std::uint32_t crashes, EndReason reason) {
  return fmt::format(
      "in quarantine: {} workers were lost while this task ran, and {}; wflow retry runs it again\n", crashes,
      reason == EndReason::out_of_memory ? "the last one for its memory" : "nothing else explains it");
}

double backed_off(double first_s, std::uint32_t number) {
  const int doublings = static_cast<int>(std::min<std::uint32_t>(number, 32)) - 1;
  return std::min(std::ldexp(first_s, std::max(doublings, 0)), std::max(first_s, kLongestDelay_s));
}

}  // namespace

// ---- successes

void Scheduler::done(const DoneRun& run) {
  if (!valid(run.array, run.first, run.count)) return;
  leases_.learn_speed(run);
  const Range range{run.first, run.first + run.count - 1};
  forget_ending(run.lease, run.array, range);
  const TaskArray& array = arrays_[run.array];
  if (array.floors.empty() && array.ahead.empty() &&
      leases_.holds(run.lease, run.array, range)) {  // nearly always
    leases_.release(run.lease, range);
    succeed(run, range);
    propagate();
    return;
  }
  std::vector<std::pair<Range, ElementState>> open;
  arrays_[run.array].states.for_each_in(range, [&](Range part, ElementState state) {
    if (!has_ended(state)) open.emplace_back(part, state);
    ++work_;
  });
  for (const auto& [part, state] : open) {
    if (state == ElementState::leased) {
      done_while_leased(run, part);
    } else {
      for (const Range& one : above_floor(run.lease, run.array, part)) {
        state == ElementState::blocked ? succeed_blocked(run, one) : succeed(run, one);
      }
    }
  }
  propagate();
}

std::vector<Range> Scheduler::above_floor(LeaseId lease, ArrayId array, Range range) const {
  std::vector<Range> parts;
  arrays_[array].for_each_floor(range, [&](Range part, LeaseId floor) {
    if (lease >= floor) parts.push_back(part);
  });
  return parts;
}

// Another lease that holds the element loses it. One that ran on old input ends without counting.
void Scheduler::done_while_leased(const DoneRun& run, Range range) {
  std::vector<std::pair<Range, LeaseId>> held;
  leases_.holders(run.array).for_each_in(range,
                                         [&](Range part, LeaseId lease) { held.emplace_back(part, lease); });
  for (const auto& [part, holder] : held) {
    for (const Range& one : above_floor(run.lease, run.array, part)) {
      if (holder != run.lease) {
        revoke(holder, run.array, one, true);
        end_ranks(holder, one);
        note_ending(leases_.worker_of(holder), part_of(holder, run.array, one), one);
      }
      leases_.release(holder, one);
      succeed_leased(run, one);
    }
    if (holder != run.lease) continue;
    for (const Range& invalidated : leases_.parts(holder, run.array, part)) {
      leases_.release(holder, invalidated);
      give_back(holder, run.array, invalidated);
    }
  }
}

// An element leased ahead of its input counts once that input exists.
void Scheduler::succeed_leased(const DoneRun& run, Range part) {
  std::vector<Range> ahead;
  arrays_[run.array].ahead.for_each_in(part, [&](Range one) { ahead.push_back(one); });
  for (const Range& one : ahead) {
    arrays_[run.array].ahead.remove(one);
    arrays_[run.array].states.set(one, ElementState::blocked);
    succeed_blocked(run, one);
    resolve(run.array, one);
  }
  IntervalSet rest;
  rest.add(part);
  for (const Range& one : ahead) rest.remove(one);
  std::vector<Range> parts;
  rest.for_each([&](Range one) { parts.push_back(one); });
  for (const Range& one : parts) succeed(run, one);
}

void Scheduler::succeed(const DoneRun& run, Range part) {
  const double share = static_cast<double>(part.size()) / static_cast<double>(run.count);
  count_durations(run.array, part.size(), run.duration_sum_s * share, run.duration_square_sum * share);
  end(run.array, part, ElementState::done);
}

// Elements with their input count at once, although others of their bundle may have to wait. The rest is kept
// while its input may still be reported.
void Scheduler::succeed_blocked(const DoneRun& run, Range part) {
  for (const Range& one : graph_.with_input(run.array, part)) succeed(run, one);
  if (!keeps_early_) return;
  const auto count = static_cast<double>(run.count);
  for (const Range& one :
       parts_in(run.array, part, [](ElementState s) { return s == ElementState::blocked; })) {
    arrays_[run.array].early.set(one,
                                 {run.lease, run.duration_sum_s / count, run.duration_square_sum / count});
  }
}

// Ends the elements of the range that have succeeded already; returns the rest.
std::vector<Range> Scheduler::apply_early(ArrayId id, Range range) {
  TaskArray& array = arrays_[id];
  std::vector<std::pair<Range, EarlyResult>> early;
  array.early.for_each_in(range, [&](Range part, const EarlyResult& result) {
    array.for_each_floor(part, [&](Range one, LeaseId floor) {
      if (result.lease >= floor) early.emplace_back(one, result);
    });
  });
  array.early.erase(range);
  IntervalSet rest;
  rest.add(range);
  for (const auto& [part, result] : early) {
    const auto count = static_cast<double>(part.size());
    count_durations(id, part.size(), result.duration_s * count, result.duration_square * count);
    end(id, part, ElementState::done);
    rest.remove(part);
  }
  std::vector<Range> parts;
  rest.for_each([&](Range part) { parts.push_back(part); });
  return parts;
}

void Scheduler::drop_early_results() {
  keeps_early_ = false;
  for (ArrayId array = 0; array < arrays_.size(); ++array) {
    std::vector<Range> early;
    arrays_[array].early.for_each([&](Range part, const EarlyResult&) { early.push_back(part); });
    for (const Range& part : early) {
      for (const Range& one : graph_.with_input(array, part)) apply_early(array, one);
    }
    arrays_[array].early.clear();
    drop_early_failures(array);
    if (!arrays_[array].ahead.empty()) settle_ahead(array);
  }
  propagate();
}

// In a bundle that others block, an element may have its input.
void Scheduler::drop_early_failures(ArrayId id) {
  std::vector<Element> elements;
  for (const auto& [place, failure] : arrays_[id].early_failures) elements.push_back(place.first);
  for (const Element element : elements) {
    if (has_input(id, {element, element})) take_early_failures(id, {element, element});
  }
  arrays_[id].early_failures.clear();
}

// Elements that run ahead of input that no worker has any more are ended, and run again after it.
void Scheduler::settle_ahead(ArrayId id) {
  TaskArray& array = arrays_[id];
  std::vector<Range> parts;
  array.ahead.for_each([&](Range part) { parts.push_back(part); });
  for (const Range& part : parts) {
    array.states.set(part, ElementState::blocked);
    for (const Range& one : graph_.with_input(id, part)) array.ahead.remove(one);
    array.states.set(part, ElementState::leased);
  }
  std::vector<std::pair<Range, LeaseId>> ended;
  array.ahead.for_each([&](Range part) {
    leases_.holders(id).for_each_in(part, [&](Range one, LeaseId lease) { ended.emplace_back(one, lease); });
  });
  for (const auto& [part, lease] : ended) revoke(lease, id, part, true);
}

void Scheduler::count_durations(ArrayId id, std::uint64_t timed, double sum_s, double square_sum) {
  TaskArray& array = arrays_[id];
  array.timed += timed;
  array.duration_sum_s += sum_s;
  array.duration_square_sum += square_sum;
  ready_.count_durations(id, timed, sum_s, square_sum);
}

// ---- failures

void Scheduler::ended_badly(const Outcome& outcome, const WorkerId& worker, double now_s) {
  if (!valid(outcome.array, outcome.element, 1)) return;
  forget_ending(outcome.lease, outcome.array, {outcome.element, outcome.element});
  if (is_success(outcome)) return done_so(outcome, worker);
  count_failure(outcome, worker, now_s);
  propagate();
}

void Scheduler::count_failure(const Outcome& outcome, const WorkerId& worker, double now_s) {
  const Range range{outcome.element, outcome.element};
  TaskArray& array = arrays_[outcome.array];
  const bool held = leases_.holder_of(outcome.array, outcome.element) == outcome.lease;
  const auto unheard = held ? std::optional<std::uint32_t>(0) : unheard_before(outcome);
  if (unheard.value_or(0) > 0) keep_early(outcome, worker, now_s);
  if (unheard != 0) return;
  const LeaseId floor = array.floor_of(outcome.element);
  const bool broken = held && leases_.find(outcome.lease)->broken;
  if (held) {
    end_ranks(outcome.lease, range);
    leases_.release(outcome.lease, range);
  }
  const bool to_cancel = is_neutral(outcome.reason) && array.cancel_requested.contains(range);
  if (held && (broken || outcome.reason == EndReason::cancelled || outcome.lease < floor || to_cancel)) {
    give_back(outcome.lease, outcome.array, range);
    return;
  }
  if (held && array.ahead.contains(range)) {
    wait_again(outcome.array, range);
    if (unheard_before(outcome) != 0) return;
  }
  Attempt attempt;
  if (const auto known = array.attempts.find(outcome.element); known != array.attempts.end())
    attempt = known->second;
  ++attempt.number;
  const bool counts = decide(outcome, worker, attempt, now_s);
  if (counts && !array.early_failures.empty()) take_early_failures(outcome.array, range);
}

void Scheduler::keep_early(const Outcome& outcome, const WorkerId& worker, double now_s) {
  if (!keeps_early_) return;
  arrays_[outcome.array].early_failures.try_emplace({outcome.element, outcome.attempt},
                                                    EarlyFailure{outcome, worker, now_s});
}

// Those of the executions which would run next.
void Scheduler::take_early_failures(ArrayId id, Range range) {
  TaskArray& array = arrays_[id];
  for (auto at = array.early_failures.lower_bound({range.first, 0});
       at != array.early_failures.end() && at->first.first <= range.last;) {
    const auto [element, number] = at->first;
    const auto attempt = array.attempts.find(element);
    const bool is_next = number == (attempt == array.attempts.end() ? 0 : attempt->second.number);
    const bool due = is_next && !has_ended(array.states.at(element));
    if (due) heard_.push_back(std::move(at->second));
    at = due ? array.early_failures.erase(at) : std::next(at);
  }
}

// True if all parents of the elements have ended and let them run.
bool Scheduler::has_input(ArrayId array, Range range) const {
  return arrays_[array].states.at(range.first) != ElementState::blocked ||
         !graph_.with_input(array, range).empty();
}

// A success with more detail than done(): it counts by the same rules.
void Scheduler::done_so(const Outcome& outcome, const WorkerId& worker) {
  const auto ended = [&] { return has_ended(arrays_[outcome.array].states.at(outcome.element)); };
  const bool open = !ended();
  const double duration_s = outcome.duration_s;
  done({outcome.lease, outcome.array, outcome.element, 1, outcome.attempt, duration_s,
        duration_s * duration_s, outcome.started_s + duration_s});
  if (!open || !ended()) return;
  stop_requested_ = stop_requested_ || outcome.exit_code == kStopWorkers;
  // It leaves no MERLIN_FINISHED: the record has the reason.
  actions_.failures.push_back({outcome, worker, false, {outcome.attempt + 1, 0, 0, false}});
}

bool Scheduler::awaits(LeaseId lease, ArrayId array, Element element, std::uint32_t attempt) const {
  if (!valid(array, element, 1)) return false;
  if (leases_.holder_of(array, element) == lease) return true;
  const TaskArray& of = arrays_[array];
  if (has_ended(of.states.at(element)) || lease < of.floor_of(element)) return false;
  const auto known = of.attempts.find(element);
  return attempt >= (known == of.attempts.end() ? 0 : known->second.number);
}

// For an outcome from a journal, after its worker's leases were forgotten: the number of unreported
// executions before it. 0: it is the execution that would run next. Empty if the outcome is stale.
std::optional<std::uint32_t> Scheduler::unheard_before(const Outcome& outcome) const {
  const TaskArray& array = arrays_[outcome.array];
  const ElementState state = array.states.at(outcome.element);
  if (outcome.reason == EndReason::cancelled || state == ElementState::leased || has_ended(state))
    return std::nullopt;
  if (outcome.lease < array.floor_of(outcome.element)) return std::nullopt;
  const auto known = array.attempts.find(outcome.element);
  const std::uint32_t number = known == array.attempts.end() ? 0 : known->second.number;
  const auto budget = static_cast<std::uint32_t>(std::max(array.spec.failure_retries, 0) +
                                                 std::max(array.spec.max_retries, 0));
  const bool possible = keeps_early_ && outcome.attempt <= budget + kCrashLimit + kUnheardLosses;
  if (outcome.attempt < number || (outcome.attempt > number && !possible)) return std::nullopt;
  return outcome.attempt - number;
}

// Handles requests for another execution, neutral causes and ordinary failures. False: the decision waits
// until the element's parents have ended.
bool Scheduler::decide(const Outcome& outcome, const WorkerId& worker, Attempt attempt, double now_s) {
  const ArraySpec& spec = arrays_[outcome.array].spec;
  const int code = outcome.reason == EndReason::exited ? outcome.exit_code : -1;
  const Range range{outcome.element, outcome.element};
  // Usage, spec and data errors of our own programs: docs/exit-codes.md.
  const bool hopeless = spec.own_program && code >= 2 && code <= 4;
  const bool asked_again = code == kRestart || code == kRetry;
  const bool cancel_requested = arrays_[outcome.array].cancel_requested.contains(range);
  double delay_s = spec.retry_delay_s;
  bool again = true;
  bool too_long = false;
  if (asked_again) {
    again = attempt.asked_again() <= static_cast<std::uint32_t>(spec.max_retries);
  } else if (is_neutral(outcome.reason)) {
    ++attempt.neutral;
    delay_s = outcome.reason == EndReason::disk ? backed_off(kDiskDelay_s, attempt.neutral) : 0;
    too_long = outcome.reason == EndReason::walltime && is_cut_for_good(outcome, worker, attempt);
    again = !too_long;
  } else if (outcome.reason == EndReason::launcher) {
    again = ++attempt.launches <= kLaunchRetries;
    delay_s = std::max(delay_s, kLaunchDelay_s * attempt.launches);
  } else if (outcome.reason != EndReason::out_of_memory || !give_memory(outcome.array, attempt)) {
    again = ++attempt.failures <= static_cast<std::uint32_t>(spec.failure_retries);
    delay_s = backed_off(delay_s, attempt.failures);
  }
  again = again && code != kSoftFail && code != kHardFail && !hopeless && !cancel_requested;
  if (!again && !has_input(outcome.array, range)) {
    keep_early(outcome, worker, now_s);
    return false;
  }
  if (asked_again) attempt.restart = code == kRestart;
  actions_.failures.push_back({outcome, worker, !again, static_cast<const AttemptCounts&>(attempt)});
  if (too_long) {
    Outcome& said = actions_.failures.back().outcome;
    said.detail = fmt::format(
        "it ran for {:.0f} s, as long as a whole allocation lets it, and had not ended: raise 'walltime' of "
        "batch: or "
        "of its pool above {:.0f} s, or shorten the task\n{}",
        outcome.duration_s, spec.longest_allocation_s, said.detail);
  }
  if (again) {
    schedule_retry(outcome.array, outcome.element, attempt, now_s + delay_s);
    return true;
  }
  stop_requested_ = stop_requested_ || (code == kHardFail && !keep_going_);
  end(outcome.array, range, code == kHardFail ? ElementState::hard_failed : ElementState::failed);
  return true;
}

// Its running time is a lower bound of its duration. A task that had all of the longest allocation would be
// cut again without an end. Trainings continue from their checkpoints.
bool Scheduler::is_cut_for_good(const Outcome& outcome, const WorkerId& worker, Attempt& attempt) {
  constexpr double kLongest = 0.7;  // share of the walltime: below it, the pool has shorter allocations
  const ArraySpec& spec = arrays_[outcome.array].spec;
  if (spec.goes_on || outcome.duration_s <= 0) return false;
  attempt.at_least_s = std::max(attempt.at_least_s, outcome.duration_s);
  ready_.count_cut(outcome.array, outcome.duration_s);
  const Worker* there = leases_.find_worker(worker);
  return there != nullptr && spec.longest_allocation_s > 0 &&
         there->whole_s >= kLongest * spec.longest_allocation_s &&
         had_whole_allocation(outcome.duration_s, *there);
}

// For the next execution of what was killed for memory; 0: there is no more to be had.
std::int64_t Scheduler::more_memory(ArrayId id, const Attempt& attempt) const {
  const ArraySpec& spec = arrays_[id].spec;
  if (spec.memory_factor <= 1 || attempt.memory >= kMemoryRetries) return 0;
  const std::int64_t had = attempt.memory_bytes > 0 ? attempt.memory_bytes : spec.resources.memory_bytes;
  const std::int64_t largest = leases_.largest_memory(ready_.queue_of(id));
  if (had <= 0 || (largest > 0 && had >= largest)) return 0;
  const double more = std::min(static_cast<double>(had) * spec.memory_factor, kMostMemory);
  return largest > 0 ? std::min(static_cast<std::int64_t>(more), largest) : static_cast<std::int64_t>(more);
}

bool Scheduler::give_memory(ArrayId id, Attempt& attempt) const {
  const std::int64_t more = more_memory(id, attempt);
  if (more == 0) return false;
  ++attempt.memory;
  attempt.memory_bytes = more;
  return true;
}

void Scheduler::schedule_retry(ArrayId id, Element element, Attempt attempt, double due_s) {
  TaskArray& array = arrays_[id];
  attempt.due_s = due_s;
  if (array.states.at(element) == ElementState::blocked) {  // reported before its parent's success
    array.attempts[element] = attempt;
    return;
  }
  drop_waiting(id, {element, element});
  array.attempts[element] = attempt;
  array.states.set({element, element}, ElementState::delayed);
  retries_.add({id, element, due_s});
}

// Its worker was lost while it ran. Gives what was charged against the crash limit.
std::optional<Outcome> Scheduler::count_crash(const WorkerId& worker, const RunningElement& execution,
                                              const Loss& loss) {
  if (!valid(execution.array, execution.element, 1)) return std::nullopt;
  TaskArray& array = arrays_[execution.array];
  const std::optional<LeaseId> holder = leases_.holder_of(execution.array, execution.element);
  if (!holder || leases_.worker_of(*holder) != worker || *holder < array.floor_of(execution.element))
    return std::nullopt;
  if (leases_.find(*holder)->broken) return std::nullopt;  // it was counted then
  return count_loss(*holder, execution, loss);
}

// The lease holds it. Gives what was charged.
std::optional<Outcome> Scheduler::count_loss(LeaseId holder, const RunningElement& execution,
                                             const Loss& loss) {
  TaskArray& array = arrays_[execution.array];
  const WorkerId worker = leases_.worker_of(holder);
  Attempt& attempt = array.attempts[execution.element];
  Outcome outcome;
  outcome.lease = holder;
  outcome.array = execution.array;
  outcome.element = execution.element;
  outcome.attempt = attempt.number;
  outcome.reason = loss.reason;
  outcome.started_s = execution.started_s;
  outcome.detail =
      loss.detail.empty() ? "the worker " + worker + " was lost while this task ran" : loss.detail;
  ++attempt.number;
  bool charged = false;
  if (is_neutral(loss.reason) || !loss.charged) {
    ++attempt.neutral;
  } else if (loss.reason != EndReason::out_of_memory || !give_memory(execution.array, attempt)) {
    ++attempt.crashes;
    attempt.due_s = now_s_ + backed_off(kLossDelay_s, attempt.crashes);
    charged = true;
  }
  const std::uint32_t limit = crash_limit(execution.array);
  const bool final = charged && attempt.crashes >= limit + (loss.settled ? 0 : 1);
  // It may be the last one, unless the batch scheduler reports another cause.
  if (charged && !loss.settled && attempt.crashes >= limit) attempt.due_s = now_s_ + kExplained_s;
  if (final) outcome.detail = quarantine_text(attempt.crashes, outcome.reason) + outcome.detail;
  actions_.failures.push_back({outcome, worker, final, static_cast<const AttemptCounts&>(attempt)});
  if (final) {
    const Range range{execution.element, execution.element};
    end_ranks(holder, range);
    leases_.release(holder, range);
    end(execution.array, range, ElementState::failed);
  }
  return charged ? std::optional(std::move(outcome)) : std::nullopt;
}

// A task on several nodes is lost as often as all of them together.
std::uint32_t Scheduler::crash_limit(ArrayId array) const {
  return kCrashLimit * static_cast<std::uint32_t>(arrays_[array].spec.gang.nodes);
}

// It waited for the cause of its last loss.
void Scheduler::end_in_quarantine(const Outcome& lost, const WorkerId& worker, const Attempt& attempt) {
  actions_.causes.push_back({lost.array, lost.element, lost.attempt, worker, lost.reason,
                             quarantine_text(attempt.crashes, lost.reason) + lost.detail, std::nullopt, true,
                             lost.started_s});
  end(lost.array, {lost.element, lost.element}, ElementState::failed);
  propagate();
}

// Counts of before a retry are gone with it; what has failed for good stays so.
void Scheduler::loss_explained(const Outcome& lost, const WorkerId& worker, const Loss& loss) {
  if (!valid(lost.array, lost.element, 1)) return;
  TaskArray& array = arrays_[lost.array];
  const EndReason reason = loss.reason;
  const bool innocent = is_neutral(reason) || !loss.charged;
  RecordCause cause{lost.array,  lost.element, lost.attempt, worker, reason,
                    loss.detail, std::nullopt, false,        0};
  const auto known = array.attempts.find(lost.element);
  if (known != array.attempts.end() && lost.lease >= array.floor_of(lost.element) &&
      known->second.crashes > 0 && known->second.number > lost.attempt) {
    Attempt& attempt = known->second;
    const bool waits = array.states.at(lost.element) == ElementState::delayed &&
                       attempt.crashes >= crash_limit(lost.array) && attempt.due_s > now_s_;
    bool charged = true;
    if (innocent) {
      --attempt.crashes;
      ++attempt.neutral;
      charged = false;
    } else if (reason == EndReason::out_of_memory && give_memory(lost.array, attempt)) {
      --attempt.crashes;
      charged = false;
    }
    cause.counts = attempt;
    if (waits && charged) {
      Outcome last = lost;
      last.reason = reason;
      last.detail = loss.detail;
      const Attempt counts = attempt;
      return end_in_quarantine(last, worker, counts);
    }
    if (waits) {
      attempt.due_s = now_s_;
      retries_.add({lost.array, lost.element, now_s_});
    }
  }
  actions_.causes.push_back(std::move(cause));
}

}  // namespace wflow::engine
