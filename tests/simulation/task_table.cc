// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/task_table.h"

#include <array>
#include <utility>

namespace wflow::simulation {

namespace {

constexpr double kKill_s = 0.01;     // a killed process is gone within
constexpr double kSlowKill_s = 1.5;  // one that is in the middle of a slow system call
constexpr double kTerminate_s = 1;   // a process that ends on SIGTERM
constexpr double kSearch_s = 0.3;    // for its descendants, before a task is signalled
constexpr double kTeardown_s = 0.1;  // from its exit until its parent can see it, with much memory
constexpr double kSuicide_s =
    1e-6;  // a task kills its agent before its next turn, whose heartbeat would name the task
constexpr int kSigTerm = 15;
constexpr double kThawed_s = 0.05;  // a suspended host looks at its timers again
constexpr int kSigKill = 9;

}  // namespace

TaskTable::TaskTable(Surroundings& around, Host& host, WorkerNumber worker,
                     std::function<void(workers::SlotId)> ended, std::function<void()> kill_agent)
    : around_(around),
      host_(host),
      worker_(worker),
      ended_(std::move(ended)),
      kill_agent_(std::move(kill_agent)) {}

RunningTask* TaskTable::find(workers::SlotId slot) {
  const auto at = tasks_.find(slot);
  return at == tasks_.end() ? nullptr : &at->second;
}

TaskScript TaskTable::script(const RunningTask& task, Element element) const {
  return around_.scripts.of(task.lease.array, element, task.lease.attempt);
}

bool TaskTable::has_children(const RunningTask& task) const {
  return script(task, task.lease.first).has_children;
}

// A bundle's process takes its samples one after the other.
double TaskTable::duration_s(const wire::Lease& lease) const {
  double sum_s = 0;
  for (Element element = lease.first; element < lease.first + lease.count; ++element)
    sum_s += around_.scripts.of(lease.array, element, lease.attempt).duration_s;
  return lease.count > 1 ? sum_s / 4 : sum_s;
}

void TaskTable::start(workers::SlotId slot, const wire::Lease& lease) {
  const Now now = host_.at(around_.timeline.now_s());
  RunningTask& task = tasks_[slot];
  task = {};
  task.number = ++next_;
  task.lease = lease;
  task.started_unix_s = now.unix_s;
  task.started_steady_s = now.steady_s;
  task.events_left = script(task, lease.first).events;
  task.execution = around_.history.start(lease, worker_, around_.timeline.now_s());
  const bool alone = lease.count == 1 && lease.nodes.empty();
  if (!alone || !script(task, lease.first).kills_worker)
    return exit_at(slot, task.number, duration_s(lease), own_end(task), true);
  around_.timeline.after(kSuicide_s, [this, slot, number = task.number] {
    const RunningTask* const one = find(slot);
    if (one == nullptr || one->number != number || one->exits) return;
    around_.faults.count(Fault::worker_killed_by_task);
    kill_agent_();
  });
}

void TaskTable::exit_at(workers::SlotId slot, std::uint64_t number, double delay_s, workers::ProcessEnd end,
                        bool own) {
  around_.timeline.after(delay_s, [this, slot, number, end, own] { exit(slot, number, end, own); });
}

// The exit code of a bundle's process says nothing of its samples, unless one of them kills it.
workers::ProcessEnd TaskTable::own_end(const RunningTask& task) const {
  const TaskScript first = script(task, task.lease.first);
  if (task.lease.count == 1) return {!first.signalled, first.code};
  for (Element element = task.lease.first; element < task.lease.first + task.lease.count; ++element) {
    const TaskScript one = script(task, element);
    if (one.kills_bundle) return {false, one.code};
  }
  return {true, 0};
}

// No signal changes the end of a process from here on.
void TaskTable::exit(workers::SlotId slot, std::uint64_t number, workers::ProcessEnd end, bool own) {
  RunningTask* const task = find(slot);
  if (task == nullptr || task->number != number || task->exits) return;
  if (host_.frozen) return exit_at(slot, number, kThawed_s, end, own);
  task->exits = true;
  task->end = end;
  task->own = own;
  const bool slow = own && around_.draw.chance(0.2);
  if (!slow) return bury(slot, number);
  around_.timeline.after(around_.draw.between(0, kTeardown_s), [this, slot, number] { bury(slot, number); });
}

void TaskTable::bury(workers::SlotId slot, std::uint64_t number) {
  RunningTask* const task = find(slot);
  if (task == nullptr || task->number != number || task->ended) return;
  task->ended = true;
  task->ended_steady_s = host_.at(around_.timeline.now_s()).steady_s;
  around_.history.stop(task->execution);
  ended_(slot);
}

// A task's end and the signal to it are two events: between the machine's decision and the signal its worker
// looks through all processes of the node.
void TaskTable::signal(workers::SlotId slot, workers::EndCause cause, bool kill) {
  RunningTask* const task = find(slot);
  if (task == nullptr || task->ended) return;
  if (!task->decided) task->decided = cause;
  const double search_s = around_.draw.chance(0.5) ? 0 : around_.draw.between(0, kSearch_s);
  if (search_s == 0) return arrive(slot, task->number, cause, kill);
  around_.timeline.after(
      search_s, [this, slot, number = task->number, cause, kill] { arrive(slot, number, cause, kill); });
}

void TaskTable::arrive(workers::SlotId slot, std::uint64_t number, workers::EndCause cause, bool kill) {
  RunningTask* const task = find(slot);
  if (task == nullptr || task->number != number || task->ended) return;
  const TaskScript one = script(*task, task->lease.first);
  // The worker has looked just before: what exits since then gets a signal that has no effect.
  if (task->exits && !kill && around_.draw.chance(0.5)) return;
  if (!task->cause) task->cause = cause;
  task->signals.handles = one.handles_sigterm;
  task->signals.ignores = one.ignores_sigterm;
  (kill ? task->signals.killed : task->signals.terminated) = true;
  if (task->exits) return;
  if (kill) {
    const bool slow = around_.draw.chance(around_.mishaps.slow_death);
    exit_at(slot, number, around_.draw.between(0, slow ? kSlowKill_s : kKill_s), {false, kSigKill}, false);
  } else if (one.handles_sigterm) {
    // It stops in the middle of its work, and may say that this is a success.
    const int code = around_.draw.chance(0.5) ? 0 : 1;
    exit_at(slot, number, around_.draw.between(0, kTerminate_s), {true, code}, false);
  } else if (!one.ignores_sigterm) {
    // Nothing of its own comes any more.
    exit_at(slot, number, 0, {false, kSigTerm}, false);
  }
}

bool TaskTable::ended_by_itself(const RunningTask& task) const {
  if (around_.planted == Planted::signal_before_end && task.decided) return false;
  return workers::is_own_end(task.signals, task.end);
}

bool TaskTable::kill_from_outside(std::uint64_t choice) {
  if (tasks_.empty()) return false;
  const auto at = std::next(tasks_.begin(), static_cast<std::ptrdiff_t>(choice % tasks_.size()));
  if (at->second.exits || at->second.decided) return false;
  at->second.killed_from_outside = true;
  exit(at->first, at->second.number, {false, kSigKill}, true);
  return true;
}

bool TaskTable::needs_check(const RunningTask& task) const {
  if (task.checked || !ended_by_itself(task) || task.killed_from_outside || task.lease.count > 1)
    return false;
  const TaskScript one = script(task, task.lease.first);
  return !one.signalled && one.code == 0 && (one.bad_output || task.lease.first % 7 == 3);
}

bool TaskTable::must_be_done(const RunningTask& task) const {
  const TaskScript one = script(task, task.lease.first);
  const bool excused = task.signals.terminated && one.handles_sigterm;
  return task.own && !task.killed_from_outside && task.lease.count == 1 && one.succeeds() && !excused;
}

Judgement TaskTable::judge(const RunningTask& task) const {
  Judgement judgement;
  const bool own = ended_by_itself(task);
  if (own && !task.own)
    throw Violation("true results", fmt::format("{} was ended by its worker, which takes it for its own end",
                                                around_.history.name(task.lease.array, task.lease.first)));
  if (!own && (!task.cause || *task.cause == workers::EndCause::returned)) return judgement;
  const wire::Lease& lease = task.lease;
  bool bundle_killed = false;
  for (Element element = lease.first; element < lease.first + lease.count; ++element)
    bundle_killed = bundle_killed || script(task, element).kills_bundle;
  if (own && !task.killed_from_outside && bundle_killed && lease.count > 1) {
    wire::Lease half = lease;
    half.count = lease.count / 2;
    judgement.again.push_back(half);
    half.first += half.count;
    half.count = lease.count - half.count;
    judgement.again.push_back(half);
    return judgement;
  }
  const double duration_s = (task.ended_steady_s - task.started_steady_s) / static_cast<double>(lease.count);
  for (Element element = lease.first; element < lease.first + lease.count; ++element) {
    const TaskScript one = script(task, element);
    wire::Outcome outcome{lease.id,
                          lease.array,
                          element,
                          lease.attempt,
                          wire::EndReason::exited,
                          one.code,
                          task.started_unix_s,
                          duration_s,
                          {}};
    if (!own) {
      outcome.reason = *task.cause == workers::EndCause::cancelled ? wire::EndReason::cancelled
                                                                   : wire::EndReason::timed_out;
      outcome.exit_code = 0;
    } else if (task.killed_from_outside) {
      outcome.reason = wire::EndReason::signalled;
      outcome.exit_code = kSigKill;
    } else if (one.bad_output) {
      outcome.reason = wire::EndReason::bad_output;
    } else if (one.signalled) {
      outcome.reason = one.out_of_memory ? wire::EndReason::out_of_memory : wire::EndReason::signalled;
    } else if (one.code == 0) {
      std::vector<wire::DoneRun>& done = judgement.results.done;
      const bool joins = !done.empty() && done.back().first + done.back().count == element;
      if (!joins) done.push_back({lease.id, lease.array, element, 0, lease.attempt, 0, 0, 0});
      ++done.back().count;
      done.back().duration_sum_s += duration_s;
      done.back().duration_square_sum += duration_s * duration_s;
      done.back().last_end_s = task.started_unix_s + duration_s;
      around_.history.element_ended(outcome, true);
      continue;
    }
    if (outcome.reason != wire::EndReason::cancelled)
      around_.history.element_ended(outcome, outcome.reason == wire::EndReason::exited && one.succeeds());
    judgement.results.outcomes.push_back(std::move(outcome));
  }
  return judgement;
}

std::vector<wire::TaskEvent> TaskTable::take_events(RunningTask& task) const {
  std::vector<wire::TaskEvent> events;
  if (task.events_left == 0) return events;
  const auto number = static_cast<std::uint64_t>(task.events_left--);
  wire::TaskEvent event{task.lease.array, task.lease.first, task.lease.attempt, task.started_unix_s,
                        wire::Note{"half way"}};
  if (number == 2) event.body = wire::Metric{"loss", 1, number, 0.5};
  if (number == 3) event.body = wire::Progress{1, 2, "steps"};
  if (number == 1 && around_.study.stages.contains(task.lease.array)) {
    event.body = wire::OtherEvent{"enough_samples", R"({"reason": "the goal is met"})"};
    around_.history.enough_samples(task.lease.array);
  }
  events.push_back(std::move(event));
  return events;
}

// ---- when the worker dies

void TaskTable::kill_leaders() {
  for (auto& [slot, task] : tasks_) {
    if (task.ended) continue;
    task.ended = true;
    task.ended_steady_s = host_.at(around_.timeline.now_s()).steady_s;
    task.signals.killed = true;
    if (!std::exchange(task.exits, true)) task.end = {false, kSigKill};
    if (has_children(task)) {
      children_.push_back(task.execution);
    } else {
      around_.history.stop(task.execution);
    }
  }
}

void TaskTable::end_children() {
  for (const ExecutionNumber execution : std::exchange(children_, {})) around_.history.stop(execution);
}

void TaskTable::leave_orphans() {
  for (const ExecutionNumber execution : children_) {
    around_.history.leave_orphan(execution);
    around_.faults.count(Fault::orphan_left);
  }
}

void TaskTable::vanish() {
  for (auto& [slot, task] : tasks_) {
    task.ended = true;
    task.exits = true;
    task.own = false;
    task.signals.killed = true;
    task.end = {false, kSigKill};
    around_.history.stop(task.execution);
  }
  end_children();
}

TaskScript TaskScripts::of(ArrayId array, Element element, std::uint32_t attempt) const {
  const std::uint64_t key = hash64(hash64(hash64(seed_, array), element), attempt);
  Draw draw(key, Concern::tasks);
  TaskScript script;
  script.duration_s = options_.typical_s * draw.logarithmic(1 / options_.spread, options_.spread);
  script.ignores_sigterm = draw.chance(0.1);
  script.handles_sigterm = !script.ignores_sigterm && draw.chance(0.1);
  script.has_children = draw.chance(options_.children);
  if (options_.poison > 0)
    script.kills_worker =
        Draw(hash64(hash64(seed_, array), ~element), Concern::tasks).chance(options_.poison);
  if (draw.chance(options_.events)) script.events = static_cast<int>(1 + draw.below(3));
  if (draw.chance(options_.stops)) {
    script.code = draw.chance(0.5) ? 102 : 105;
    return script;
  }
  // Repeated failures come to an end: later executions succeed more often than not.
  if (!draw.chance(options_.failures)) return script;
  constexpr std::array<int, 9> kCodes = {1, 2, 42, 100, 100, 101, 104, 104, 255};
  switch (draw.below(6)) {
    case 0:
      script.signalled = true;
      script.code = draw.chance(0.5) ? 11 : 9;
      script.out_of_memory = script.code == 9 && draw.chance(0.7);
      break;
    case 1:
      script.bad_output = true;
      break;
    case 2:
      script.kills_bundle = true;
      script.signalled = true;
      script.code = 11;
      break;
    default:
      script.code = kCodes[draw.below(kCodes.size())];
  }
  return script;
}

}  // namespace wflow::simulation
