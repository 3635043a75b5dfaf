// SPDX-License-Identifier: Apache-2.0
// The end of the worker's allocation: what still runs then is ended in time and given back, so that the
// scheduler finds nothing to kill, and no attempt of a task is charged.
#include <algorithm>
#include <cmath>
#include <utility>

#include "workers/agent/machine_impl.h"

namespace wflow::workers {

namespace {

constexpr double kReport_s = 3;       // to send the last results and say Goodbye
constexpr double kCheckpoint_s = 60;  // a training has so long to write a checkpoint, ...
constexpr double kHold_s = 3;         // between the signals to a task and to its worker
constexpr int kFirstMerlinCode = 100, kLastMerlinCode = 105;  // by which a task asks for something
constexpr double kPart = 0.1;  // or this part of the allocation's time, if that is shorter

}  // namespace

void AgentMachine::Impl::on(event::EndKnown& known) {
  if (!std::isfinite(known.steady_s)) return;
  if (end_known_s == kNever) end_known_s = now.steady_s;
  ends_s = known.steady_s;
}

// How long tasks can run here.
std::optional<double> AgentMachine::Impl::left_s() const {
  if (ends_s == kNever) return std::nullopt;
  return ends_s - options.grace_s - kReport_s - now.steady_s;
}

bool AgentMachine::Impl::trains() const {
  return std::any_of(tasks.begin(), tasks.end(), [&](const Task& task) {
    const auto array = arrays.find(task.lease.array);
    return task.stage == Task::Stage::running && array != arrays.end() && array->second.training;
  });
}

double AgentMachine::Impl::stop_s() const {
  if (ends_s == kNever) return kNever;
  const double checkpoint_s = trains() ? std::clamp(kPart * (ends_s - end_known_s), 0.0, kCheckpoint_s) : 0;
  return ends_s - options.grace_s - kReport_s - checkpoint_s;
}

// SIGTERM: trainings write a checkpoint then, from which they go on elsewhere.
void AgentMachine::Impl::look_at_end() {
  if (mode == Mode::ending || now.steady_s < stop_s()) return;
  mode = Mode::ending;
  reason = "the walltime of its allocation ends";
  allocation_end = engine::wire::EndReason::walltime;
  log(LogLevel::info, reason);
  give_back_held();
  give_back(queue.take_all());
  for (SlotId slot = 0; slot < tasks.size(); ++slot) {
    end_task(slot, EndCause::returned, false);
    Task& task = tasks[slot];
    const auto array = arrays.find(task.lease.array);
    const bool training = array != arrays.end() && array->second.training;
    if (task.stage != Task::Stage::free && !task.killed && training)
      task.kill_at_s = std::max(task.kill_at_s, ends_s - kReport_s);
  }
}

// The scheduler's signal to all of a job may end a task before it has come to its worker; and a script makes
// any code of it (`program || exit 1`).
bool AgentMachine::Impl::may_be_the_end(const engine::wire::Results& results) const {
  const bool in_allocation = !options.allocation.empty() || ends_s != kNever;
  if (!in_allocation || !results.done.empty()) return false;
  return std::any_of(results.outcomes.begin(), results.outcomes.end(), [](const auto& outcome) {
    using engine::wire::EndReason;
    const bool asked = outcome.exit_code >= kFirstMerlinCode && outcome.exit_code <= kLastMerlinCode;
    return outcome.reason == EndReason::signalled || outcome.reason == EndReason::bad_output ||
           (outcome.reason == EndReason::exited && outcome.exit_code != 0 && !asked);
  });
}

void AgentMachine::Impl::hold(const engine::wire::Lease& lease, engine::wire::Results&& results) {
  held_back.push_back({lease, std::move(results), now.steady_s + kHold_s});
}

// No signal for the worker came: they were ends of their own.
void AgentMachine::Impl::settle_held(double until_s) {
  if (held_back.empty() || held_back.front().until_s > until_s) return;
  for (Held& end : held_back) {
    if (end.until_s <= until_s) record(std::move(end.results));
  }
  std::erase_if(held_back, [&](const Held& end) { return end.until_s <= until_s; });
}

void AgentMachine::Impl::give_back_held() {
  for (Held& end : std::exchange(held_back, {})) {
    const double started_unix_s = end.results.outcomes.front().started_s;
    give_back_instead(end.lease, std::move(end.results), started_unix_s);
  }
}

// What it has reported stays: a checkpoint is one.
void AgentMachine::Impl::give_back_instead(const engine::wire::Lease& lease, engine::wire::Results&& results,
                                           double started_unix_s) {
  results.outcomes.clear();
  if (!results.events.empty() || !results.usage.empty()) record(std::move(results));
  allocation_end ? record_end_of_allocation(lease, started_unix_s) : give_back({lease});
}

// The execution has its row among the failures, and is charged to nobody. Of a process of several elements one
// row says it.
void AgentMachine::Impl::record_end_of_allocation(const engine::wire::Lease& lease, double started_unix_s) {
  engine::wire::Lease rest = lease;
  ++rest.first;
  if (--rest.count > 0) give_back({rest});
  engine::wire::Results results;
  const double duration_s = std::max(0.0, now.unix_s - started_unix_s);
  results.outcomes.push_back({lease.id, lease.array, lease.first, lease.attempt, *allocation_end, 0,
                              started_unix_s, duration_s, reason});
  record(std::move(results));
}

}  // namespace wflow::workers
