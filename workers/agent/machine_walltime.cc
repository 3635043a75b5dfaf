// SPDX-License-Identifier: Apache-2.0
// The end of the worker's allocation: what still runs then is ended in time and given back, so that the
// scheduler finds nothing to kill, and no attempt of a task is charged.
#include <algorithm>
#include <cmath>

#include "workers/agent/machine_impl.h"

namespace wflow::workers {

namespace {

constexpr double kReport_s = 3;       // to send the last results and say Goodbye
constexpr double kCheckpoint_s = 60;  // a training has so long to write a checkpoint, ...
constexpr double kHold_s = 1.5;       // between the signals to a task and to its worker
constexpr int kTerm = 15, kShell = 128;
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

bool AgentMachine::Impl::may_be_the_end(const engine::wire::Results& results) const {
  if (options.allocation.empty() || !results.done.empty()) return false;
  return std::any_of(
      results.outcomes.begin(), results.outcomes.end(), [](const engine::wire::Outcome& outcome) {
        const bool signalled =
            outcome.reason == engine::wire::EndReason::signalled && outcome.exit_code == kTerm;
        return signalled ||
               (outcome.reason == engine::wire::EndReason::exited && outcome.exit_code == kShell + kTerm);
      });
}

void AgentMachine::Impl::hold(const engine::wire::Lease& lease, engine::wire::Results&& results) {
  held_back.push_back({lease, std::move(results), now.steady_s + kHold_s});
}

// No signal for the worker came: they were ends of their own.
void AgentMachine::Impl::settle_held(double until_s) {
  for (Held& end : held_back) {
    if (end.until_s <= until_s) record(std::move(end.results));
  }
  std::erase_if(held_back, [&](const Held& end) { return end.until_s <= until_s; });
}

void AgentMachine::Impl::give_back_held() {
  for (const Held& end : held_back) give_back({end.lease});
  held_back.clear();
}

}  // namespace wflow::workers
