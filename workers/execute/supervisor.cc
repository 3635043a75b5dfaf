// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/supervisor.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "steps/step.h"
#include "workers/execute/process_end.h"
#include "workers/execute/processes.h"

namespace wflow::workers {

namespace wire = engine::wire;

namespace {

std::uint64_t size_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

double thread_cpu_s() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

void Supervisor::end(std::size_t slot, EndCause cause, bool kill_now) {
  if (kill_now) {
    kill(slot, cause);
  } else {
    end_gently(slot, cause);
  }
}

void Supervisor::note_cause(std::size_t slot, EndCause cause) {
  SlotRecord& record = slots_.records[slot];
  record.kill_reason = cause == EndCause::time_limit ? wire::EndReason::timed_out
                       : cause == EndCause::stalled  ? wire::EndReason::stalled
                                                     : wire::EndReason::cancelled;
  record.killed = true;
}

// The search for descendants takes long on a node with many processes. It comes first, so that little time
// passes between the look at the process and the signal. A process that ends in between keeps its own result
// (is_own_end).
void Supervisor::end_gently(std::size_t slot, EndCause cause) {
  SlotRecord& record = slots_.records[slot];
  // The task has succeeded, and the check of its outputs is short.
  if (record.killed || record.returned || record.checking) return;
  slots_.tasks[slot].below = descendants(record.pid);
  const TermDisposition before = settled_term_disposition(record.pid);
  record.catches_term = before.catches;
  record.blocks_term = before.blocks;
  if (has_ended(record.pid) || is_exiting(record.pid)) return;
  record.terminated = true;
  if (cause == EndCause::returned) {
    record.returned = true;
  } else {
    note_cause(slot, cause);
  }
  const SlotTask& task = slots_.tasks[slot];
  const bool trains = arrays_.at(task.lease.array).task_template.kind == specs::StepKind::train;
  // srun kills its ranks when it gets SIGTERM, and passes SIGUSR1 on: a training writes its checkpoint then.
  if (trains && !task.lease.nodes.empty()) {
    ::kill(record.pid, SIGUSR1);
  } else {
    ::kill(-record.pid, SIGTERM);
  }
}

void Supervisor::kill(std::size_t slot, EndCause cause) {
  SlotRecord& record = slots_.records[slot];
  if (!record.killed && !record.returned) {
    SlotTask& task = slots_.tasks[slot];
    task.below = descendants(record.pid);
    if (has_ended(record.pid)) return;
    // The record stays as it is: the status tells if the task had ended before the signal.
    if (cause == EndCause::returned) {
      task.dropped = true;
    } else {
      note_cause(slot, cause);
    }
    ::kill(record.pid, SIGKILL);  // the leader first: it must not see its children die and end by itself
  }
  kill_tree(slot);
}

void Supervisor::interrupt(std::size_t slot) {
  slots_.tasks[slot].interrupted = true;
  // Signals only the leader: mpirun passes the signal on to its ranks.
  ::kill(slots_.records[slot].pid, SIGUSR1);
}

void Supervisor::kill_tree(std::size_t slot) {
  const pid_t leader = slots_.records[slot].pid;
  ::kill(-leader, SIGKILL);
  const std::vector<pid_t> ours = descendants(::getpid());
  std::vector<pid_t>& below = slots_.tasks[slot].below;
  for (const pid_t pid : descendants(leader)) below.push_back(pid);
  for (const pid_t pid : started_with(ours, own_variables(slot))) below.push_back(pid);
  for (const pid_t pid : below) {
    if (std::find(ours.begin(), ours.end(), pid) != ours.end()) ::kill(pid, SIGKILL);
  }
}

void Supervisor::clean_up_after(std::size_t slot) {
  std::vector<pid_t> killed = slots_.tasks[slot].below;
  killed.push_back(slots_.records[slot].pid);
  remove_mpi_sessions(killed);
}

// Returns variables that no other task has.
std::vector<std::string> Supervisor::own_variables(std::size_t slot) const {
  const SlotTask& task = slots_.tasks[slot];
  std::vector<std::string> variables =
      steps::element_environment(arrays_.at(task.lease.array).task_template, task.execution());
  variables.push_back("WFLOW_EVENTS=" + slots_.files[slot].events());
  return variables;
}

std::optional<EndedChild> Supervisor::next_ended() {
  siginfo_t info{};
  ProcessUsage used;
  if (find_ended(P_ALL, 0, info, used) != ChildState::ended) return std::nullopt;
  EndedChild child{info.si_pid, info.si_code, info.si_status, used, std::nullopt};
  const auto found = slot_of_.find(info.si_pid);
  if (found != slot_of_.end()) {
    child.slot = found->second;
    slot_of_.erase(found);
  }
  return child;
}

void Supervisor::reap(const EndedChild& child) {
  while (::waitpid(child.pid, nullptr, WNOHANG) < 0 && errno == EINTR) {
  }
}

std::vector<wire::TaskEvent> Supervisor::read_events(std::size_t slot, bool at_end) {
  const SlotRecord& record = slots_.records[slot];
  std::vector<wire::TaskEvent> events;
  for (wire::EventBody& body :
       read_event_bodies(slots_.files[slot].events(), slots_.tasks[slot].events, at_end)) {
    events.push_back({record.array, record.element, record.attempt, unix_now_s(), std::move(body)});
  }
  return events;
}

std::vector<event::TaskReports> Supervisor::follow_events() {
  std::vector<event::TaskReports> reports;
  for (const auto& [pid, slot] : slot_of_) {
    auto events = read_events(slot, false);
    if (!events.empty()) reports.push_back({slot, std::move(events)});
  }
  return reports;
}

// The kernel reports the peak of each process when it has ended, but not that of several at once. The cost of
// a sample grows with the number of processes on the node: on a node with many, samples are rarer. The
// measure is CPU time, because on a busy node a sample may take long.
event::TaskMemory Supervisor::sample_memory() {
  constexpr double kPeriod_s = 1;
  constexpr double kCostFraction = 0.008;  // part of one core
  const double begin_s = steady_now_s();
  if (begin_s < next_sample_s_ || !usage_is_measured()) return {};
  next_sample_s_ = begin_s + kPeriod_s;
  std::vector<pid_t> running;
  for (const auto& [pid, slot] : slot_of_) {
    if (begin_s - slots_.records[slot].started_steady_s >= kPeriod_s) running.push_back(pid);
  }
  if (running.empty()) return {};
  event::TaskMemory memory;
  const double cpu_before_s = thread_cpu_s();
  for (const auto& [pid, usage] : tree_usage(running)) {
    const std::size_t slot = slot_of_.at(pid);
    std::atomic<std::uint64_t>& most = slots_.records[slot].sampled_bytes;
    most = std::max<std::uint64_t>(most, usage.resident_bytes);
    memory.held.push_back({slot, most});
  }
  next_sample_s_ = std::max(next_sample_s_, begin_s + (thread_cpu_s() - cpu_before_s) / kCostFraction);
  return memory;
}

// Adds up the time between looks, so that time in which this process itself was frozen does not count. A
// waiting task (a poll, a timer) uses less than a hundredth of a core. A task on several nodes works in
// processes of other parents, and is left out.
std::vector<event::TaskSilent> Supervisor::silent_tasks() {
  constexpr double kPeriod_s = 1;
  constexpr double kIdle = 0.01;  // cores
  const double now_s = steady_now_s();
  std::vector<event::TaskSilent> silent;
  if (now_s < next_look_s_) return silent;
  const double elapsed_s = std::min(now_s - last_look_s_, 2 * kPeriod_s);
  last_look_s_ = now_s;
  next_look_s_ = now_s + kPeriod_s;
  std::vector<pid_t> roots;
  for (const auto& [pid, slot] : slot_of_) {
    const SlotTask& task = slots_.tasks[slot];
    if (arrays_.at(task.lease.array).task_template.stall_timeout_s > 0 && task.lease.nodes.empty())
      roots.push_back(pid);
  }
  if (roots.empty()) return silent;
  static const auto ticks_a_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (const auto& [pid, usage] : tree_usage(roots)) {
    const std::size_t slot = slot_of_.at(pid);
    SlotTask& task = slots_.tasks[slot];
    const SlotRecord& record = slots_.records[slot];
    const std::uint64_t printed =
        size_of(record.out.data()) + size_of(record.err.data()) + size_of(slots_.files[slot].events());
    const double cpu_s = static_cast<double>(usage.cpu_ticks) / ticks_a_second;
    const bool works = printed != task.printed_bytes ||
                       std::abs(cpu_s - task.cpu_s) > kIdle * std::max(elapsed_s, kPeriod_s);
    task.silent_s = works ? 0 : task.silent_s + elapsed_s;
    task.printed_bytes = printed;
    task.cpu_s = cpu_s;
    silent.push_back({slot, task.silent_s});
  }
  return silent;
}

bool Supervisor::kill_everything(std::chrono::milliseconds limit) {
  for (const auto& [pid, slot] : slot_of_) {
    slots_.records[slot].returned = true;
    ::kill(-pid, SIGKILL);
  }
  slot_of_.clear();
  return kill_all_children(limit);
}

}  // namespace wflow::workers
