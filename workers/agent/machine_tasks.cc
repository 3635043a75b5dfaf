// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/blocks.h"
#include "workers/agent/machine_impl.h"

namespace wflow::workers {

namespace wire = engine::wire;

namespace {

// Limits the starts in one turn, so that results do not wait for slow launches, nor messages for starts that
// fail.
constexpr int kStartsATurn = 32;

bool sensible(const wire::Lease& lease) {
  return lease.count > 0 && lease.first + lease.count > lease.first;
}

}  // namespace

// ---- leases

void AgentMachine::Impl::hear(wire::Templates& templates) {
  for (specs::TaskTemplate& task_template : templates.templates) {
    arrays[task_template.array] = {
        task_template.resources, task_template.timeout_s,     task_template.stall_timeout_s,
        task_template.bundle,    task_template.sample_starts, task_template.kind == specs::StepKind::train};
    emit(action::AddTemplate{std::move(task_template)});
  }
}

void AgentMachine::Impl::hear(wire::Leases& leases) {
  std::vector<wire::Lease> not_taken;
  for (const wire::Lease& lease : leases.leases) {
    if (!sensible(lease)) continue;
    log(LogLevel::debug, fmt::format("lease {}: elements {} to {} of array {}", lease.id, lease.first,
                                     lease.first + lease.count - 1, lease.array));
    if (!takes_leases()) {
      not_taken.push_back(lease);
    } else if (options.complete) {
      // Not in the journal: no process ran that could run twice.
      outbox.add(options.complete(lease, now.unix_s), now.steady_s);
    } else {
      queue.add(lease);
    }
  }
  if (!not_taken.empty()) refuse(std::move(not_taken));
}

// A coordinator that does not know yet that this worker takes nothing (its guardian was killed, on another
// host) would lease it at once again what it returns: only the first ones go back before the next heartbeat.
void AgentMachine::Impl::refuse(std::vector<wire::Lease> leases) {
  if (!std::exchange(refuses, true)) return give_back(std::move(leases));
  refused.insert(refused.end(), leases.begin(), leases.end());
}

void AgentMachine::Impl::hear(wire::Revoke& revoke) {
  log(LogLevel::debug,
      fmt::format("{} of its leases revoked{}",
                  revoke.all ? std::string("all") : fmt::format("{} parts", revoke.leases.size()),
                  revoke.kill_running ? ", what runs is ended" : ""));
  send(wire::Returned{revoke.all ? queue.take_all() : queue.take(revoke.leases)});
  if (!revoke.kill_running) return;
  for (SlotId slot = 0; slot < tasks.size(); ++slot) {
    if (tasks[slot].stage == Task::Stage::free) continue;
    const bool named = std::any_of(revoke.leases.begin(), revoke.leases.end(),
                                   [&](const wire::Lease& part) { return overlap(tasks[slot].lease, part); });
    if (revoke.all || named) end_task(slot, EndCause::cancelled, false);
  }
  for (const wire::Lease& part : revoke.leases) {
    if (!part.nodes.empty()) emit(action::EndRanks{part.id, campaign});
  }
}

void AgentMachine::Impl::give_back(std::vector<wire::Lease> leases) {
  returned.insert(returned.end(), leases.begin(), leases.end());
}

// The rest of all leases: running and queued elements. A task that is being ended counts until it has ended.
// What runs comes first: a coordinator takes what is beyond the worker's cores for spare, and the cores for
// free without it.
std::vector<wire::Lease> AgentMachine::Impl::held() const {
  std::vector<wire::Lease> leases;
  for (const Task& task : tasks) {
    if (task.stage != Task::Stage::free) leases.push_back(task.lease);
  }
  for (const Held& end : held_back) leases.push_back(end.lease);
  const std::vector<wire::Lease> queued = queue.list();
  leases.insert(leases.end(), queued.begin(), queued.end());
  return leases;
}

std::vector<wire::RunningElement> AgentMachine::Impl::running_elements() const {
  std::vector<wire::RunningElement> elements;
  elements.reserve(running());
  for (const Task& task : tasks) {
    if (task.stage == Task::Stage::running || task.stage == Task::Stage::checking)
      elements.push_back(
          {task.lease.array, task.lease.first, task.started_unix_s, watched ? task.memory_bytes : 0});
  }
  return elements;
}

// True if anything is queued, or runs and has not been sent SIGKILL.
bool AgentMachine::Impl::holds_anything() const {
  return !queue.empty() || std::any_of(tasks.begin(), tasks.end(), [](const Task& task) {
    return task.stage != Task::Stage::free && !task.killed;
  });
}

// ---- starting

// The resources that a task takes on this node: one node's part of a task on several nodes, and the larger
// memory of a task that was killed for want of memory before.
specs::Resources AgentMachine::Impl::resources_of(const Array& array, const wire::Lease& lease) {
  specs::Resources wanted = array.resources;
  if (lease.memory_bytes > 0) wanted.memory_bytes = lease.memory_bytes;
  if (!lease.nodes.empty()) wanted.procs = specs::ranks_a_node(wanted);
  return wanted;
}

// True if the next task in the queue can start, or be refused, now. No later task starts before it: a task
// that needs all cores would otherwise wait for ever while small ones keep coming.
bool AgentMachine::Impl::next_fits() const {
  if (queue.empty() || free_slots.empty() || !takes_leases() || now.steady_s < no_start_before_s ||
      !unwritten.empty())
    return false;
  const auto array = arrays.find(queue.front().array);
  if (array == arrays.end()) return true;
  const specs::Resources wanted = resources_of(array->second, queue.front());
  return !pool.possible(wanted) || pool.fits(wanted);
}

void AgentMachine::Impl::start_ready() {
  for (int starts = 0; starts < kStartsATurn && next_fits(); ++starts) start_next();
}

void AgentMachine::Impl::start_next() {
  wire::Lease lease = queue.front();
  const auto found = arrays.find(lease.array);
  const bool bundled = found != arrays.end() && found->second.bundle > 0;
  // One process takes a lease's first elements up to the end of their bundle.
  lease.count = bundled ? Blocks(found->second.bundle, found->second.sample_starts)
                                  .around(lease.first, lease.first + lease.count)
                                  .end -
                              lease.first
                        : 1;
  queue.pop(lease.count);
  if (found == arrays.end()) {
    refuse(lease, "the worker was not told what this task is");
    return;
  }
  const specs::Resources wanted = resources_of(found->second, lease);
  if (!pool.possible(wanted)) {
    refuse(lease, fmt::format("it needs {} GPUs and this worker has {}", wanted.gpus, options.capacity.gpus));
    return;
  }
  const SlotId slot = free_slots.back();
  free_slots.pop_back();
  tasks[slot] = {};
  tasks[slot].stage = Task::Stage::starting;
  tasks[slot].lease = lease;
  tasks[slot].share = pool.take(wanted);
  emit(action::StartTask{slot, lease, tasks[slot].share});
}

void AgentMachine::Impl::refuse(const wire::Lease& lease, const std::string& why) {
  wire::Results results;
  for (wire::Element element = lease.first; element < lease.first + lease.count; ++element) {
    results.outcomes.push_back(
        {lease.id, lease.array, element, lease.attempt, wire::EndReason::not_started, 0, now.unix_s, 0, why});
  }
  record(std::move(results));
}

void AgentMachine::Impl::on(event::TaskStarted& started) {
  Task& task = tasks.at(started.slot);
  if (task.stage != Task::Stage::starting) return;
  task.stage = Task::Stage::running;
  // Sends a heartbeat at once: the first tasks may end the worker before its next heartbeat would name them.
  if (!std::exchange(has_started, true)) next_heartbeat_s = now.steady_s;
  disk_trouble = false;
  task.started_unix_s = now.unix_s;
  task.memory_bytes = 0;
  const auto array = arrays.find(task.lease.array);
  if (array != arrays.end() && array->second.timeout_s > 0)
    task.end_by_s = now.steady_s + array->second.timeout_s;
  // end_task() was called before the process had started.
  if (task.ending) emit(action::EndTask{started.slot, *task.ending, task.killed});
}

void AgentMachine::Impl::on(event::TaskNotStarted& refused) {
  const Task& task = tasks.at(refused.slot);
  if (task.stage == Task::Stage::free) return;
  const wire::Lease lease = task.lease;
  const bool waits = refused.disk_trouble && !task.ending;
  const bool goes_back = task.ending == EndCause::returned || (waits && !takes_leases());
  free_slot(refused.slot);
  if (goes_back) {
    give_back({lease});
  } else if (waits) {
    wait_for_disk(lease, refused.why);
  } else {
    refuse(lease, refused.why);
  }
}

// Queues the task again, without using up an attempt; no task starts for a while.
void AgentMachine::Impl::wait_for_disk(const wire::Lease& lease, const std::string& why) {
  queue.add(lease);
  no_start_before_s = now.steady_s + kDiskWait_s;
  if (!std::exchange(disk_trouble, true)) log(LogLevel::warning, why + "; tasks wait until that has changed");
}

// ---- ending

void AgentMachine::Impl::on(event::TaskEnded& ended) {
  const Task& task = tasks.at(ended.slot);
  if (task.stage == Task::Stage::free) return;
  const wire::Lease lease = task.lease;
  const double started_unix_s = task.started_unix_s;
  const std::optional<EndCause> task_ending = task.ending;
  const bool has_ended =
      !ended.results.done.empty() || !ended.results.outcomes.empty() || !ended.again.empty();
  const bool by_signal = may_be_the_end(ended.results);
  const bool goes_back = task.ending == EndCause::returned && (!has_ended || by_signal);
  const bool waits = by_signal && !task.ending && mode != Mode::ending;
  note_disk_trouble(ended.results);
  free_slot(ended.slot);
  if (goes_back) return give_back_instead(lease, std::move(ended.results), started_unix_s);
  if (task_ending == EndCause::returned) give_back_rest(lease, ended, started_unix_s);
  waits ? hold(lease, std::move(ended.results)) : record(std::move(ended.results));
  for (const wire::Lease& part : ended.again) {
    if (takes_leases()) {
      queue.add(part);
    } else {
      give_back({part});
    }
  }
}

// Returns the samples that a bundle's process had not reported when it was ended.
void AgentMachine::Impl::give_back_rest(const wire::Lease& lease, const event::TaskEnded& ended,
                                        double started_unix_s) {
  std::vector<bool> known(lease.count, false);
  const auto note = [&](wire::Element first, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      if (first + i >= lease.first && first + i - lease.first < lease.count)
        known[first + i - lease.first] = true;
    }
  };
  for (const wire::DoneRun& run : ended.results.done) note(run.first, run.count);
  for (const wire::Outcome& outcome : ended.results.outcomes) note(outcome.element, 1);
  for (const wire::Lease& part : ended.again) note(part.first, part.count);
  bool first = true;
  for (std::uint64_t i = 0; i < lease.count;) {
    wire::Lease rest = lease;
    rest.first += i;
    for (rest.count = 0; i < lease.count && !known[i]; ++i) ++rest.count;
    while (i < lease.count && known[i]) ++i;
    if (rest.count == 0) continue;
    std::exchange(first, false) ? give_back_instead(rest, {}, started_unix_s) : give_back({rest});
  }
}

// Delays further starts, which would fail for the same cause.
void AgentMachine::Impl::note_disk_trouble(const wire::Results& results) {
  for (const wire::Outcome& outcome : results.outcomes) {
    if (outcome.reason != wire::EndReason::disk) continue;
    no_start_before_s = now.steady_s + kDiskWait_s;
    if (!std::exchange(disk_trouble, true))
      log(LogLevel::warning,
          "a task failed while its disk was full or broken; tasks wait until that has changed");
    return;
  }
}

void AgentMachine::Impl::on(event::TaskSilent& silent) {
  const Task& task = tasks.at(silent.slot);
  if (task.stage != Task::Stage::running) return;
  const auto array = arrays.find(task.lease.array);
  if (array == arrays.end() || array->second.stall_timeout_s <= 0) return;
  if (silent.silent_s >= array->second.stall_timeout_s) end_task(silent.slot, EndCause::stalled, false);
}

void AgentMachine::Impl::on(event::TaskMemory& memory) {
  for (const auto& [slot, bytes] : memory.held) {
    Task& task = tasks.at(slot);
    if (task.stage == Task::Stage::running) task.memory_bytes = std::max(task.memory_bytes, bytes);
  }
}

void AgentMachine::Impl::on(event::TaskChecking& checking) {
  Task& task = tasks.at(checking.slot);
  if (task.stage != Task::Stage::running) return;
  task.stage = Task::Stage::checking;
  task.end_by_s = kNever;
}

void AgentMachine::Impl::on(event::TaskReports& reports) {
  wire::Results results;
  results.events = std::move(reports.events);
  record(std::move(results));
}

void AgentMachine::Impl::free_slot(SlotId slot) {
  pool.give_back(tasks[slot].share);
  tasks[slot] = {};
  free_slots.push_back(slot);
}

// Keeps the first cause; a kill may follow it.
void AgentMachine::Impl::end_task(SlotId slot, EndCause cause, bool kill) {
  Task& task = tasks[slot];
  if (task.stage == Task::Stage::free || task.killed || (task.ending && !kill)) return;
  if (!task.ending) task.ending = cause;
  task.killed = kill;
  task.end_by_s = kNever;
  task.kill_at_s = kill ? kNever : now.steady_s + options.grace_s;
  if (task.stage != Task::Stage::starting) emit(action::EndTask{slot, *task.ending, kill});
}

void AgentMachine::Impl::end_all(EndCause cause, bool kill) {
  for (SlotId slot = 0; slot < tasks.size(); ++slot) end_task(slot, cause, kill);
}

void AgentMachine::Impl::enforce_limits() {
  for (SlotId slot = 0; slot < tasks.size(); ++slot) {
    const Task& task = tasks[slot];
    if (now.steady_s >= task.end_by_s) end_task(slot, EndCause::time_limit, false);
    if (now.steady_s >= task.kill_at_s) end_task(slot, EndCause::returned, true);  // whatever the cause was
  }
}

double AgentMachine::Impl::next_limit_s() const {
  double next_s = kNever;
  for (const Task& task : tasks) next_s = std::min({next_s, task.end_by_s, task.kill_at_s});
  return next_s;
}

// ---- the end of the allocation: the worker ends running tasks in time and returns them, so that the
// scheduler finds nothing to kill and no task uses up an attempt.

namespace {

constexpr double kReport_s = 3;       // time to send the last results and a Goodbye
constexpr double kCheckpoint_s = 60;  // time for a training to write a checkpoint, ...
constexpr double kHold_s = 3;         // longest time between the signals to a task and to its worker
constexpr int kFirstMerlinCode = 100, kLastMerlinCode = 105;  // exit codes that request an action
constexpr double kPart = 0.1;  // ... or this part of the allocation's time, if shorter

}  // namespace

void AgentMachine::Impl::on(event::EndKnown& known) {
  if (!std::isfinite(known.steady_s)) return;
  if (end_known_s == kNever) end_known_s = now.steady_s;
  ends_s = known.steady_s;
}

// The time for which tasks can run here.
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

// Sends SIGTERM to all tasks. Trainings then write a checkpoint, from which they continue elsewhere.
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

// True if the end of the allocation may have caused these results: the scheduler signals all processes of a
// job, so a task may end before its worker gets the signal, and a script may turn the signal into any code
// (`program || exit 1`).
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

// Records held ends: no signal for the worker followed, so the tasks had ended by themselves.
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

// Keeps the reported events, such as checkpoints.
void AgentMachine::Impl::give_back_instead(const engine::wire::Lease& lease, engine::wire::Results&& results,
                                           double started_unix_s) {
  results.outcomes.clear();
  if (!results.events.empty() || !results.usage.empty()) record(std::move(results));
  allocation_end ? record_end_of_allocation(lease, started_unix_s) : give_back({lease});
}

// Records the execution among the failures without using up an attempt. A process of several elements gets
// one row.
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
