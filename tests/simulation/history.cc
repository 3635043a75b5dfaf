// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace wflow::simulation {

namespace {

using engine::kCrashLimit;
constexpr std::uint32_t kMemoryRetries = 8;
constexpr int kHardFail = 102;
constexpr std::size_t kSureMemoryRetries = 2;  // until a task has the memory of the simulation's workers

bool succeeds_without_marker(const wire::Outcome& outcome) {
  return outcome.reason == wire::EndReason::exited && outcome.exit_code == 105;
}

std::uint32_t crash_limit(const engine::ArraySpec& spec) {
  return kCrashLimit * static_cast<std::uint32_t>(spec.gang.nodes);
}

// With which a task asks for something.
bool is_merlin_code(int code) {
  constexpr int kFirst = 100, kLast = 105;
  return code >= kFirst && code <= kLast;
}

bool asks_again(wire::EndReason reason, int code) {
  return reason == wire::EndReason::exited && (code == 100 || code == 104);
}

}  // namespace

namespace {

// The budgets of what is opened again begin anew.
void forget_counts(ElementTruth& truth) {
  truth.ordinary = truth.asked_again = truth.crashes = truth.neutral_losses = 0;
  truth.memory = truth.memory_from = 0;
  truth.memory_bytes = 0;
}

bool ended_so(const ElementTruth& truth, const wire::Outcome& outcome) {
  return std::any_of(truth.ends.begin(), truth.ends.end(), [&](const auto& one) {
    return one.lease == outcome.lease && one.attempt == outcome.attempt && one.reason == outcome.reason &&
           one.code == outcome.exit_code;
  });
}

void count_memory(ElementTruth& truth, const engine::RecordFailure& failure) {
  if (failure.counts.memory > kMemoryRetries || failure.counts.memory_bytes <= truth.memory_bytes)
    throw Violation("memory",
                    fmt::format("the {}th execution after a kill for memory gets {} bytes, after {}",
                                failure.counts.memory, failure.counts.memory_bytes, truth.memory_bytes));
  truth.memory = failure.counts.memory;
  truth.memory_bytes = failure.counts.memory_bytes;
  truth.memory_from = failure.counts.number;
}

}  // namespace

History::History(const SimulatedStudy& study, std::function<bool(const Execution&)> excused)
    : study_(study), excused_(std::move(excused)) {
  std::size_t size = 0;
  for (const engine::ArraySpec& array : study_.arrays) {
    offsets_.push_back(size);
    size += array.count;
  }
  truths_.resize(size);
}

std::string History::name(ArrayId array, Element element) const {
  return fmt::format("{}/{}", study_.plan.array_name(array), element);
}

// ---- executions

ExecutionNumber History::start(const wire::Lease& lease, WorkerNumber worker, double now_s) {
  executions_.push_back({lease, worker, now_s});
  const auto number = static_cast<ExecutionNumber>(executions_.size() - 1);
  for (Element element = lease.first; element < lease.first + lease.count; ++element) {
    check_start(lease, element, executions_.back());
    ElementTruth& truth = at(lease.array, element);
    note_run(lease.array, element);
    truth.running.push_back(number);
    truth.untold.push_back(number);
    ++truth.executions;
    truth.in_job = truth.in_job || in_jobs_.contains(worker);
  }
  if (study_.gangs) check_slots(lease, executions_.back());
  if (!excused_(executions_.back())) leave_raw(lease);
  return number;
}

// ---- files that conversions delete

std::optional<std::uint64_t> History::raw_bytes(ArrayId array, Element element) const {
  const auto files = raw_.find(array);
  return files != raw_.end() && files->second.contains(element) ? std::optional(kRawBytes) : std::nullopt;
}

// From its start on.
void History::leave_raw(const wire::Lease& lease) {
  for (ArrayId deleter = 0; deleter < study_.arrays.size(); ++deleter) {
    if (study_.arrays[deleter].max_disk_bytes == 0) continue;
    for (const specs::Edge& edge : study_.arrays[deleter].edges) {
      if (edge.kind != specs::EdgeKind::block || edge.parent != lease.array) continue;
      for (Element element = lease.first; element < lease.first + lease.count; ++element)
        raw_[lease.array].insert(element);
      check_disk(deleter, edge);
    }
  }
}

void History::delete_raw(ArrayId deleter, Element block) {
  if (study_.arrays[deleter].max_disk_bytes == 0) return;
  for (const specs::Edge& edge : study_.arrays[deleter].edges) {
    if (edge.kind != specs::EdgeKind::block) continue;
    const auto [first, end] = edge.blocks().items(block, study_.arrays[edge.parent].count);
    std::set<Element>& files = raw_[edge.parent];
    files.erase(files.lower_bound(first), files.lower_bound(end));
  }
  unknown_blocks_.erase({deleter, block});
}

// The element, or what is below it, is a block of a conversion.
void History::forget_blocks(ArrayId array, Element element) {
  if (study_.arrays[array].max_disk_bytes > 0) unknown_blocks_.emplace(array, element);
  for (ArrayId child = 0; child < study_.arrays.size(); ++child) {
    for (const specs::Edge& edge : study_.arrays[child].edges) {
      if (edge.parent != array) continue;
      const bool all = edge.kind == specs::EdgeKind::all;
      const Element first = all                                   ? 0
                            : edge.kind == specs::EdgeKind::block ? edge.blocks().block_of(element)
                                                                  : element;
      for (Element one = first; one < (all ? study_.arrays[child].count : first + 1); ++one)
        forget_blocks(child, one);
    }
  }
}

// Its conversion has failed, or will be skipped: its files stay.
bool History::is_given_up(ArrayId deleter, Element block) const {
  const ElementTruth& truth = at(deleter, block);
  if (engine::has_ended(truth.state) || !truth.losses.empty()) return true;
  return std::any_of(truth.ends.begin(), truth.ends.end(), [](const auto& end) { return !end.success; });
}

// No more than the limit or what one block needs, and a block beyond.
void History::check_disk(ArrayId deleter, const specs::Edge& edge) const {
  const std::uint64_t limit = study_.arrays[deleter].max_disk_bytes;
  std::uint64_t bytes = 0;
  for (const auto& [array, files] : raw_) {
    for (const Element element : files) {
      for (ArrayId other = 0; other < study_.arrays.size(); ++other) {
        for (const specs::Edge& one : study_.arrays[other].edges) {
          if (one.kind != specs::EdgeKind::block || one.parent != array) continue;
          const Element of = one.blocks().block_of(element);
          if (!is_given_up(other, of) && !unknown_blocks_.contains({other, of})) bytes += kRawBytes;
        }
      }
    }
  }
  const std::uint64_t block =
      (edge.block + 2 * std::max<std::uint64_t>(study_.arrays[edge.parent].bundle, 1) - 2) * kRawBytes;
  if (bytes <= std::max(limit, block) + block) return;
  throw Violation("disk", fmt::format("simulations have left {} bytes, and max_disk is {}", bytes, limit));
}

void History::note_worker(WorkerNumber worker, int slots, bool in_job) {
  if (in_job) in_jobs_.insert(worker);
  if (slots_.size() <= worker) slots_.resize(worker + 1);
  slots_[worker] = slots;
}

// Slots of the worker's node that the execution takes, on whatever worker it was started.
double History::cores_on(WorkerNumber worker, const Execution& execution) const {
  const engine::ArraySpec& spec = study_.arrays[execution.lease.array];
  const int slots = slots_[worker];
  if (execution.lease.nodes.empty())
    return execution.worker == worker ? std::min(slots, spec.resources.cores * spec.resources.procs) : 0;
  const std::vector<std::string>& nodes = execution.lease.nodes;
  const bool here = std::find(nodes.begin(), nodes.end(), fmt::format("w{}", worker)) != nodes.end();
  if (!here || ranks_ended_.contains({execution.lease.id, worker})) return 0;
  return std::min(slots, spec.gang.cores);
}

// True for a loss in a job that the coordinator has given back: it explains the loss, as CoordinatorMachine
// counts it, though its reason is `worker_lost`.
bool History::is_uncharged(const engine::RecordFailure& failure) const {
  const wire::Outcome& outcome = failure.outcome;
  const ElementTruth& truth = at(outcome.array, outcome.element);
  const auto gave_back = [&](WorkerNumber worker) { return failure.worker == fmt::format("w{}", worker); };
  return static_cast<int>(failure.counts.crashes) <= truth.crashes &&
         std::ranges::any_of(in_cancelled_jobs_, gave_back);
}

// True for a cancelled task that is still being ended while its cores are leased again (docs/reliability.md):
// ranks of a task on several nodes begin beside it, because its worker does not wait for them; or all
// that is left of it are such ranks: a later coordinator found them, and only their lead knows where they
// are.
bool History::is_left_of_cancelled(const Execution& one, const Execution& started) const {
  if (!at(one.lease.array, one.lease.first).cancel_asked) return false;
  const auto epoch_of = [](const Execution& execution) { return execution.lease.id >> 40; };
  return one.lease.nodes.empty() ? !started.lease.nodes.empty() : epoch_of(one) < epoch_of(started);
}

void History::check_slots(const wire::Lease& lease, const Execution& started) const {
  for (WorkerNumber worker = 0; worker < slots_.size(); ++worker) {
    if (cores_on(worker, started) == 0 || excused_(started)) continue;
    double cores = 0;
    for (const Execution& one : executions_) {
      if (!one.ended && !one.orphan && !excused_(one) && !is_left_of_cancelled(one, started))
        cores += cores_on(worker, one);
    }
    if (cores <= slots_[worker] + 1e-9) continue;
    throw Violation("slots",
                    fmt::format("{} starts under lease {:x}, and {} of the {} slots of w{} are taken",
                                name(lease.array, lease.first), lease.id, cores, slots_[worker], worker));
  }
}

// Where it runs for the second time. One that could not be started has ended, too, and what waits for it may
// have run.
void History::note_run(ArrayId array, Element element) {
  const ElementTruth& truth = at(array, element);
  if (truth.result_lost && (truth.executions > 0 || truth.charges > 0)) make_again_below(array, element);
}

// Executions that used the earlier output of this element and are not committed may run again after it, if
// results have been lost in a documented way (a host crashes, agent and guardian are killed at once).
void History::make_again_below(ArrayId parent, Element element) {
  for (ArrayId array = 0; array < study_.arrays.size(); ++array) {
    for (const specs::Edge& edge : study_.arrays[array].edges) {
      if (edge.parent != parent) continue;
      const std::uint64_t count = study_.arrays[array].count;
      const bool all = edge.kind == specs::EdgeKind::all;
      const Element first = all                                   ? 0
                            : edge.kind == specs::EdgeKind::block ? edge.blocks().block_of(element)
                                                                  : element;
      for (Element child = first; child < (all ? count : std::min(first + 1, count)); ++child) {
        ElementTruth& truth = at(array, child);
        if (truth.committed) continue;
        if (truth.secured != 0) {
          truth.void_below = std::max(truth.void_below, truth.secured);
          truth.secured = 0;
          truth.losses.push_back(0);
          ++truth.charges;
        }
        make_again_below(array, child);
      }
    }
  }
}

// A success counts no more once the result of something that it needs is lost, also while that does not run
// again yet: its coordinator may end before.
bool History::has_lost_input(ArrayId array, Element element) const {
  return std::ranges::any_of(study_.arrays[array].edges, [&](const specs::Edge& edge) {
    const std::uint64_t count = study_.arrays[edge.parent].count;
    Element first = element;
    Element end = std::min(element + 1, count);
    if (edge.kind == specs::EdgeKind::all) {
      first = 0;
      end = count;
    } else if (edge.kind == specs::EdgeKind::block) {
      const BlockRange items = edge.blocks().items(element, count);
      first = items.first;
      end = items.end;
    }
    for (Element parent = first; parent < end; ++parent) {
      const ElementTruth& truth = at(edge.parent, parent);
      if ((truth.result_lost && !truth.committed) || has_lost_input(edge.parent, parent)) return true;
    }
    return false;
  });
}

void History::check_start(const wire::Lease& lease, Element element, const Execution& execution) const {
  const ElementTruth& truth = at(lease.array, element);
  const engine::ArraySpec& spec = study_.arrays[lease.array];
  const std::string what = fmt::format("{} attempt {} under lease {:x} on worker {}",
                                       name(lease.array, element), lease.attempt, lease.id, execution.worker);
  if (truth.secured != 0 && truth.secured >= truth.floor && truth.opened_for != lease.id) {
    throw Violation("success runs once",
                    fmt::format("{} starts, and has succeeded under lease {:x}", what, truth.secured));
  }
  for (const ExecutionNumber other : truth.running) {
    if (excused_(executions_[other])) continue;
    throw Violation("one execution at once",
                    fmt::format("{} starts beside that under lease {:x} on worker {}", what,
                                executions_[other].lease.id, executions_[other].worker));
  }
  if (lease.id >= truth.floor && lease.attempt >= truth.memory_from &&
      lease.memory_bytes < truth.memory_bytes) {
    throw Violation("memory", fmt::format("{} starts with {} bytes and was killed with less than {}", what,
                                          lease.memory_bytes, truth.memory_bytes));
  }
  const auto neutral = static_cast<std::uint32_t>(std::count_if(
      truth.ends.begin(), truth.ends.end(), [](const auto& end) { return is_neutral(end.reason); }));
  const std::uint32_t budget = static_cast<std::uint32_t>(spec.max_retries + spec.failure_retries) +
                               crash_limit(spec) + neutral + static_cast<std::uint32_t>(truth.losses.size()) +
                               (spec.memory_factor > 0 ? kMemoryRetries : 0);
  // The loss of a node counts when the coordinator sees it.
  const bool unknown = !spec.gang.spans_nodes() && lease.attempt > truth.charges + given_up(truth).size();
  if (unknown || lease.attempt > budget) {
    throw Violation("attempts",
                    fmt::format("{} starts after {} executions that ended badly or were lost; {} are allowed",
                                what, truth.charges, budget));
  }
}

// A coordinator may count these as lost before they are: their worker stands still, or does not look at their
// end.
std::vector<ExecutionNumber> History::given_up(const ElementTruth& truth) const {
  std::vector<ExecutionNumber> found;
  for (const ExecutionNumber one : truth.untold) {
    if (executions_[one].ended || excused_(executions_[one])) found.push_back(one);
  }
  return found;
}

void History::told(ExecutionNumber number) {
  const wire::Lease& lease = executions_[number].lease;
  for (Element element = lease.first; element < lease.first + lease.count; ++element)
    std::erase(at(lease.array, element).untold, number);
}

void History::stop(ExecutionNumber number) {
  Execution& execution = executions_[number];
  if (execution.ended) return;
  execution.ended = true;
  for (Element element = execution.lease.first; element < execution.lease.first + execution.lease.count;
       ++element)
    std::erase(at(execution.lease.array, element).running, number);
}

void History::element_ended(const wire::Outcome& outcome, bool success) {
  if (outcome.reason == wire::EndReason::not_started) note_run(outcome.array, outcome.element);
  ElementTruth& truth = at(outcome.array, outcome.element);
  truth.ends.push_back({outcome.lease, outcome.attempt, success, outcome.reason, outcome.exit_code});
  if (success) delete_raw(outcome.array, outcome.element);
  // Successors are skipped.
  if (outcome.reason == wire::EndReason::exited && outcome.exit_code == kHardFail)
    forget_blocks(outcome.array, outcome.element);
  if (!success) ++truth.charges;
}

void History::lost(ExecutionNumber number) {
  const wire::Lease& lease = executions_[number].lease;
  for (Element element = lease.first; element < lease.first + lease.count; ++element) {
    ElementTruth& truth = at(lease.array, element);
    if (std::erase(truth.untold, number) == 0) continue;  // it is counted
    ++truth.charges;
    truth.losses.push_back(lease.id);
  }
}

void History::secured(const wire::Results& record) {
  for (const wire::DoneRun& run : record.done) {
    for (Element element = run.first; element < run.first + run.count; ++element) {
      ElementTruth& truth = at(run.array, element);
      truth.secured = std::max(truth.secured, run.lease);
    }
  }
  for (const wire::Outcome& outcome : record.outcomes) {
    if (!succeeds_without_marker(outcome)) continue;
    ElementTruth& truth = at(outcome.array, outcome.element);
    truth.secured = std::max(truth.secured, outcome.lease);
  }
}

void History::unsecure(ArrayId array, Element element, LeaseId lease) {
  ElementTruth& truth = at(array, element);
  truth.result_lost = true;
  forget_blocks(array, element);
  if (truth.committed || truth.secured != lease) return;
  truth.secured = 0;
  truth.losses.push_back(lease);
  ++truth.charges;
}

void History::result_lost(ExecutionNumber execution) {
  const wire::Lease& lease = executions_[execution].lease;
  for (Element element = lease.first; element < lease.first + lease.count; ++element)
    result_lost({lease.array, element, lease.id});
}

void History::result_lost(const std::tuple<ArrayId, Element, LeaseId>& result) {
  const auto& [array, element, lease] = result;
  at(array, element).result_lost = true;
  forget_blocks(array, element);
}

void History::unseen(ArrayId array, Element element, LeaseId lease) {
  unsecure(array, element, lease);
  at(array, element).losses.push_back(lease);
  ++at(array, element).charges;
}

void History::for_each_uncommitted(const std::function<void(ArrayId, Element, LeaseId)>& visit) const {
  for (ArrayId array = 0; array < study_.arrays.size(); ++array) {
    for (Element element = 0; element < study_.arrays[array].count; ++element) {
      const ElementTruth& truth = at(array, element);
      if (truth.secured != 0 && !truth.committed) visit(array, element, truth.secured);
    }
  }
}

// ---- the coordinator

// True if a recorded loss has happened, or looks so from outside.
bool History::was_lost(const wire::Outcome& outcome) {
  ElementTruth& truth = at(outcome.array, outcome.element);
  if (truth.losses.size() > static_cast<std::size_t>(truth.crashes + truth.neutral_losses)) return true;
  const bool known = std::find(truth.losses.begin(), truth.losses.end(), outcome.lease) != truth.losses.end();
  if (study_.arrays[outcome.array].gang.spans_nodes() && !known) {
    truth.losses.push_back(outcome.lease);
    ++truth.charges;
    return true;
  }
  for (const ExecutionNumber one : given_up(truth)) {
    if (executions_[one].lease.id != outcome.lease) continue;
    std::erase(truth.untold, one);
    truth.losses.push_back(outcome.lease);
    ++truth.charges;
    return true;
  }
  return false;
}

// True if it has failed by itself in a job that its coordinator cancels: the signal may have been the cause,
// so that CoordinatorMachine records the failure as `preempted`, which charges no attempt.
bool History::ended_in_cancelled_job(const wire::Outcome& outcome) {
  if (outcome.reason != wire::EndReason::preempted) return false;
  ElementTruth& truth = at(outcome.array, outcome.element);
  const auto is_cause = [&](const ElementTruth::End& end) {
    const bool failed = end.reason == wire::EndReason::signalled ||
                        end.reason == wire::EndReason::bad_output ||
                        (end.reason == wire::EndReason::exited && end.code != 0 && !is_merlin_code(end.code));
    return failed && end.lease == outcome.lease && end.attempt == outcome.attempt &&
           end.code == outcome.exit_code;
  };
  const auto ran_there = [&](const Execution& one) {
    return one.lease.id == outcome.lease && one.lease.array == outcome.array &&
           outcome.element - one.lease.first < one.lease.count && in_cancelled_jobs_.contains(one.worker);
  };
  if (std::ranges::none_of(truth.ends, is_cause) || std::ranges::none_of(executions_, ran_there))
    return false;
  // The history then allows the same as after any end for a cause outside the task.
  truth.ends.push_back({outcome.lease, outcome.attempt, false, outcome.reason, outcome.exit_code});
  return true;
}

void History::leased(const wire::Lease& lease) {
  if (!floors_due_) return;
  for (Element element = lease.first; element < lease.first + lease.count; ++element) {
    ElementTruth& truth = at(lease.array, element);
    truth.opened_for = lease.id;
    if (truth.secured != 0 && truth.secured >= truth.floor)
      opened_.push_back({lease.array, element, truth.secured});
  }
}

void History::coordinator_ended() {
  floors_due_ = false;
  opened_.clear();
}

void History::check_floors_due() {
  floors_due_ = false;
  for (const Acknowledged& one : std::exchange(opened_, {})) {
    if (at(one.array, one.element).floor > one.lease) continue;
    throw Violation("success runs once",
                    fmt::format("{} was leased again without a floor, and has succeeded under lease {:x}",
                                name(one.array, one.element), one.lease));
  }
}

void History::committing(const engine::store::Batch& batch) {
  std::set<std::pair<ArrayId, Element>> opened;
  for (const engine::RecordEnd& end : batch.ends) {
    for (Element element = end.range.first; element <= end.range.last; ++element) {
      at(end.array, element).state = end.state;
      if (!engine::has_ended(end.state)) opened.emplace(end.array, element);
    }
  }
  for (const engine::RecordFloor& floor : batch.floors) {
    for (Element element = floor.range.first; element <= floor.range.last; ++element) {
      ElementTruth& truth = at(floor.array, element);
      forget_blocks(floor.array, element);
      truth.covered = std::max(truth.covered, floor.lease);
      // A floor may cover ended elements between those that were opened again: it is not meant for them yet.
      if (!engine::has_ended(truth.state)) opened.emplace(floor.array, element);
    }
  }
  raised_.clear();
  for (const auto& [array, element] : opened) {
    ElementTruth& truth = at(array, element);
    if (truth.floor >= truth.covered) continue;
    raised_.push_back(index(array, element));
    truth.floor_before = std::exchange(truth.floor, truth.covered);
    forget_counts(truth);
  }
  check_floors_due();
  for (const engine::RecordEnd& end : batch.ends) {
    if (end.state != engine::ElementState::done) continue;
    for (Element element = end.range.first; element <= end.range.last; ++element) {
      const ElementTruth& truth = at(end.array, element);
      const bool true_success =
          std::any_of(truth.ends.begin(), truth.ends.end(), [&](const auto& one) { return one.success; });
      if (!true_success)
        throw Violation("true results",
                        name(end.array, element) + " is recorded as done and never succeeded");
    }
  }
  for (const engine::RecordFailure& failure : batch.failures) {
    const wire::Outcome& outcome = failure.outcome;
    const ElementTruth& truth = at(outcome.array, outcome.element);
    const bool happened = ended_so(truth, outcome);
    const bool may_be_loss =
        outcome.reason == wire::EndReason::worker_lost || engine::is_neutral(outcome.reason);
    const bool is_true = happened || ended_in_cancelled_job(outcome) || (may_be_loss && was_lost(outcome));
    if (!is_true) {
      throw Violation(
          "true results",
          fmt::format(
              "{} is recorded as failed in attempt {} under lease {:x} (reason {}), which never happened",
              name(outcome.array, outcome.element), outcome.attempt, outcome.lease,
              static_cast<int>(outcome.reason)));
    }
  }
}

void History::committed(const engine::store::Batch& batch) {
  raised_.clear();
  for (const engine::RecordEnd& end : batch.ends) {
    for (Element element = end.range.first; element <= end.range.last; ++element) {
      ElementTruth& truth = at(end.array, element);
      truth.committed = end.state == engine::ElementState::done;
      // It will not run again; what used its result does, without it.
      if (end.state == engine::ElementState::skipped && truth.result_lost)
        make_again_below(end.array, element);
      if (engine::has_ended(end.state)) truth.result_lost = false;
      if (!engine::has_ended(end.state)) forget_counts(truth);
    }
  }
  for (const engine::RecordFailure& failure : batch.failures) {
    const wire::Outcome& outcome = failure.outcome;
    ElementTruth& truth = at(outcome.array, outcome.element);
    if (outcome.lease != 0 && outcome.lease < truth.floor)
      continue;                                      // recorded before the element was opened again
    if (succeeds_without_marker(outcome)) continue;  // recorded because it leaves no marker
    const engine::ArraySpec& spec = study_.arrays[outcome.array];
    if (outcome.reason == wire::EndReason::worker_lost) {
      ++(is_uncharged(failure) ? truth.neutral_losses : truth.crashes);
    } else if (engine::is_neutral(outcome.reason)) {
      if (!ended_so(truth, outcome)) ++truth.neutral_losses;
    } else if (failure.counts.memory > truth.memory && !failure.final) {
      count_memory(truth, failure);
    } else if (!failure.final) {
      ++(asks_again(outcome.reason, outcome.exit_code) ? truth.asked_again : truth.ordinary);
    }
    // A loss in a job waits for what the batch scheduler says of it: one more is recorded than the limit
    // allows.
    const int unexplained = truth.in_job ? 1 : 0;
    if (truth.asked_again > spec.max_retries || truth.ordinary > spec.failure_retries ||
        truth.crashes > static_cast<int>(crash_limit(spec)) + unexplained) {
      throw Violation("attempts",
                      fmt::format("{} runs again after {} ordinary failures, {} requests and {} lost workers",
                                  name(outcome.array, outcome.element), truth.ordinary, truth.asked_again,
                                  truth.crashes));
    }
  }
  for (const engine::RecordCause& cause : batch.causes) {
    if (cause.counts) at(cause.array, cause.element).crashes = static_cast<int>(cause.counts->crashes);
  }
}

void History::acknowledged(const wire::Results& results) {
  for (const wire::DoneRun& run : results.done) {
    for (Element element = run.first; element < run.first + run.count; ++element)
      acknowledged_.push_back({run.array, element, run.lease});
  }
  for (const wire::Outcome& outcome : results.outcomes) {
    if (succeeds_without_marker(outcome))
      acknowledged_.push_back({outcome.array, outcome.element, outcome.lease});
  }
}

void History::cancel_asked(ArrayId array, engine::Range range) {
  for (Element element = range.first; element <= range.last; ++element) {
    at(array, element).cancel_asked = true;
    forget_blocks(array, element);
  }
}

std::vector<engine::ElementState> History::states_of(const engine::store::Restored& restored) const {
  std::vector<engine::ElementState> states(truths_.size(), engine::ElementState::blocked);
  for (const engine::store::RestoredEnd& end : restored.ends) {
    for (Element element = end.range.first; element <= end.range.last; ++element)
      states[index(end.array, element)] = end.state;
  }
  return states;
}

void History::check_restored(const engine::store::Restored& restored) {
  const auto states = states_of(restored);
  std::vector<LeaseId> floors(truths_.size(), 0);
  for (const engine::RecordFloor& floor : restored.floors) {
    for (Element element = floor.range.first; element <= floor.range.last; ++element)
      floors[index(floor.array, element)] = floor.lease;
  }
  for (std::size_t i = 0; i < truths_.size(); ++i) {
    truths_[i].state = states[i];
    truths_[i].committed = states[i] == engine::ElementState::done;
  }
  // A batch may have reached the disk or not when its coordinator died. If an earlier floor covers an
  // element, its state shows whether it was opened again.
  for (const std::size_t i : std::exchange(raised_, {})) {
    if (truths_[i].floor > floors[i] || engine::has_ended(states[i]))
      truths_[i].floor = truths_[i].floor_before;
  }
  for (const Acknowledged& one : acknowledged_) {
    const ElementTruth& truth = at(one.array, one.element);
    if (one.lease < truth.floor || one.lease <= truth.void_below ||
        engine::has_ended(states[index(one.array, one.element)]) || has_lost_input(one.array, one.element))
      continue;
    throw Violation(
        "acknowledged results last",
        fmt::format("the success of {} under lease {:x} was acknowledged and is not in the database",
                    name(one.array, one.element), one.lease));
  }
}

// ---- the end

bool History::may_run(const std::vector<engine::ElementState>& states, ArrayId array, Element element) const {
  const engine::ArraySpec& spec = study_.arrays[array];
  bool gathers = false;
  bool something = false;  // an input of it has run
  for (const specs::Edge& edge : spec.edges) {
    const specs::ContinueOn policy = spec.policy_of(edge);
    const std::uint64_t parents = study_.arrays[edge.parent].count;
    Element first = 0;
    Element last = parents - 1;
    if (edge.kind == specs::EdgeKind::element) first = last = element;
    if (edge.kind == specs::EdgeKind::block) {
      const BlockRange items = edge.blocks().items(element, parents);
      first = items.first;
      last = items.end - 1;
    }
    for (Element parent = first; parent <= last; ++parent) {
      const engine::ElementState state = states[index(edge.parent, parent)];
      if (!engine::satisfies(state, policy)) return false;
      gathers |= policy == specs::ContinueOn::gathered;
      something |= policy == specs::ContinueOn::gathered &&
                   (state == engine::ElementState::done || state == engine::ElementState::failed);
    }
  }
  return !gathers || something;
}

// True if one of the true ends, or losses, lets the element count as failed.
bool History::used_up(const ElementTruth& truth, const engine::ArraySpec& spec) const {
  std::vector<std::uint32_t> ordinary;
  std::vector<std::uint32_t> asked;
  std::vector<std::uint32_t> killed;  // for memory
  for (const auto& end : truth.ends) {
    if (end.lease < truth.floor || end.success) continue;
    const bool own =
        spec.own_program && end.reason == wire::EndReason::exited && end.code >= 2 && end.code <= 4;
    if (truth.cancel_asked || own || (end.reason == wire::EndReason::exited && end.code == 101)) return true;
    if (engine::is_neutral(end.reason)) continue;
    const bool memory = spec.memory_factor > 0 && end.reason == wire::EndReason::out_of_memory;
    auto& attempts = memory ? killed : asks_again(end.reason, end.code) ? asked : ordinary;
    if (std::find(attempts.begin(), attempts.end(), end.attempt) == attempts.end())
      attempts.push_back(end.attempt);
  }
  const auto crashes = std::count_if(truth.losses.begin(), truth.losses.end(),
                                     [&](LeaseId lease) { return lease >= truth.floor; });
  const std::size_t beyond = killed.size() - std::min(killed.size(), kSureMemoryRetries);
  return ordinary.size() + beyond > static_cast<std::size_t>(spec.failure_retries) ||
         asked.size() > static_cast<std::size_t>(spec.max_retries) ||
         crashes >= static_cast<std::ptrdiff_t>(crash_limit(spec));
}

void History::check_end(engine::ElementState state, bool may_run, ArrayId array, Element element) const {
  using engine::ElementState;
  const ElementTruth& truth = at(array, element);
  const auto ended_so = [&](auto fits) {
    return std::any_of(truth.ends.begin(), truth.ends.end(),
                       [&](const auto& end) { return end.lease >= truth.floor && fits(end); });
  };
  bool right = false;
  switch (state) {
    case ElementState::done:
      right = may_run && ended_so([](const auto& end) { return end.success; });
      break;
    case ElementState::failed:
      right = may_run && used_up(truth, study_.arrays[array]);
      break;
    case ElementState::hard_failed:
      right = may_run && ended_so([](const auto& end) {
                return end.reason == wire::EndReason::exited && end.code == 102;
              });
      break;
    case ElementState::skipped:
      right = !may_run || may_be_skipped_.contains(array);
      break;
    case ElementState::cancelled:
      right = truth.cancel_asked;
      break;
    default:
      break;
  }
  if (right) return;
  throw Violation(
      "final states",
      fmt::format(
          "{} ended as {}; what it waits for lets it {}, it ran {} times and ended by itself {} times",
          name(array, element), engine::name_of(state), may_run ? "run" : "not run", truth.executions,
          truth.ends.size()));
}

void History::enough_samples(ArrayId stage) {
  const auto is_by_element = [](const specs::Edge& edge) { return edge.kind == specs::EdgeKind::element; };
  for (const specs::Edge& data : study_.arrays[stage].edges) {
    if (data.kind != specs::EdgeKind::block) continue;
    for (const specs::Edge& samples : study_.arrays[data.parent].edges) {
      if (samples.kind != specs::EdgeKind::block) continue;
      for (const ArrayId array : chain_of(samples))
        if (std::ranges::none_of(study_.arrays[array].edges, is_by_element)) may_be_skipped_.insert(array);
    }
  }
}

void History::check_final(const engine::store::Restored& restored) {
  check_restored(restored);
  const auto states = states_of(restored);
  for (ArrayId array = 0; array < study_.arrays.size(); ++array) {
    for (Element element = 0; element < study_.arrays[array].count; ++element)
      check_end(states[index(array, element)], may_run(states, array, element), array, element);
    check_left_out(states, array);
  }
}

// The tasks of a sample of a conversion with this edge: of its own array, and of those above it.
std::vector<ArrayId> History::chain_of(const specs::Edge& edge) const {
  std::vector<ArrayId> chain = {edge.parent};
  for (std::size_t next = 0; next < chain.size(); ++next) {
    for (const specs::Edge& above : study_.arrays[chain[next]].edges) {
      if (above.kind == specs::EdgeKind::element) chain.push_back(above.parent);
    }
  }
  return chain;
}

// Samples of the block, some task of which did not succeed.
std::set<Element> History::failed_in(const std::vector<engine::ElementState>& states, const specs::Edge& edge,
                                     Element block) const {
  std::set<Element> failed;
  const BlockRange items = edge.blocks().items(block, study_.arrays[edge.parent].count);
  for (const ArrayId array : chain_of(edge)) {
    for (Element sample = items.first; sample < items.end; ++sample) {
      if (states[index(array, sample)] != engine::ElementState::done) failed.insert(sample);
    }
  }
  return failed;
}

// True if all of its tasks have succeeded, and some were cancelled before their coordinator had read that in
// the journal of a worker.
bool History::is_cancelled_too_late(const std::vector<engine::ElementState>& states, const specs::Edge& edge,
                                    Element sample) const {
  using engine::ElementState;
  bool cancelled = false;
  for (const ArrayId array : chain_of(edge)) {
    const ElementTruth& truth = at(array, sample);
    const ElementState state = states[index(array, sample)];
    const bool succeeded = std::ranges::any_of(
        truth.ends, [&](const auto& end) { return end.success && end.lease >= truth.floor; });
    if (!succeeded || state == ElementState::failed || state == ElementState::hard_failed) return false;
    cancelled = cancelled || (state == ElementState::cancelled && truth.cancel_asked);
  }
  return cancelled;
}

void History::check_left_out(const std::vector<engine::ElementState>& states, ArrayId array) const {
  if (!study_.arrays[array].leaves_out_failed) return;
  for (Element block = 0; block < study_.arrays[array].count; ++block) {
    if (states[index(array, block)] != engine::ElementState::done) continue;
    std::set<Element> failed, cancelled_too_late;
    for (const specs::Edge& edge : study_.arrays[array].edges) {
      if (edge.kind != specs::EdgeKind::block) continue;
      failed = failed_in(states, edge, block);
      for (const Element sample : failed) {
        if (is_cancelled_too_late(states, edge, sample)) cancelled_too_late.insert(sample);
      }
    }
    const auto is_right = [&](std::set<Element> left_out) {
      left_out.insert(cancelled_too_late.begin(), cancelled_too_late.end());
      return left_out == failed;
    };
    const ElementTruth& truth = at(array, block);
    const bool right = std::any_of(truth.ends.begin(), truth.ends.end(), [&](const auto& end) {
      const auto left_out = left_out_by(end.lease, array, block);
      return end.success && end.lease >= truth.floor && left_out && is_right(*left_out);
    });
    if (!right)
      throw Violation("left out", fmt::format("no execution of {} left out the {} of its samples that failed",
                                              name(array, block), failed.size()));
  }
}

std::optional<std::set<Element>> History::left_out_by(LeaseId lease, ArrayId array, Element block) const {
  for (const Execution& one : executions_) {
    const wire::Lease& held = one.lease;
    if (held.id != lease || held.array != array || block < held.first || block - held.first >= held.count)
      continue;
    std::set<Element> samples;
    for (const specs::Edge& edge : study_.arrays[array].edges) {
      if (edge.kind != specs::EdgeKind::block) continue;
      const BlockRange items = edge.blocks().items(block, study_.arrays[edge.parent].count);
      for (const specs::LeftOut& out : held.left_out) {
        for (Element sample = out.first; sample < out.first + out.count; ++sample) {
          if (sample >= items.first && sample < items.end) samples.insert(sample);
        }
      }
    }
    return samples;
  }
  return std::nullopt;
}

}  // namespace wflow::simulation
