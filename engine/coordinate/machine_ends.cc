// SPDX-License-Identifier: Apache-2.0
// How workers end for the coordinator machine: their processes, their silence, their journals.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "engine/coordinate/checks.h"
#include "engine/coordinate/machine_impl.h"

namespace wflow::engine {

namespace {

// One that is known to be gone is lost when so many heartbeats are missing; the journal of one that is not is
// looked at after more.
constexpr double kGoneHeartbeats = 3, kLookHeartbeats = 5;

}  // namespace

void CoordinatorMachine::Impl::on(const event::WorkerStarted& event) {
  Starts& starts = starts_[event.group];
  starts.asked = std::max(0, starts.asked - 1);
  watch(event.guardian, event.group, {});
}

void CoordinatorMachine::Impl::watch(const ProcessIdentity& process, const std::string& group,
                                     const WorkerId& worker) {
  if (!process.known()) return;
  const auto [at, is_new] = processes_.try_emplace(process);
  at->second.group = group;
  if (!worker.empty()) at->second.worker = worker;
  if (is_new) act(action::Watch{process});
}

void CoordinatorMachine::Impl::on(const event::ProcessEnded& event) {
  const auto at = processes_.find(event.process);
  if (at == processes_.end()) return;
  const auto worker = workers_.find(at->second.worker);
  processes_.erase(at);
  if (worker == workers_.end()) return;
  worker->second.guardian_ended = worker->second.guardian_ended || event.process == worker->second.guardian;
  worker->second.agent_ended = worker->second.agent_ended || event.process == worker->second.agent;
  process_ended(worker->second);
}

// The journal is whole only when both processes have ended: the guardian adds what the agent could not.
void CoordinatorMachine::Impl::process_ended(Worker& worker) {
  if (worker.state != WorkerState::ending) {
    worker.reason = "its process ended";
    move(worker, WorkerState::ending);
    if (worker.scheduled) scheduler_.worker_draining(worker.id);
  }
  if (worker.guardian_ended && (worker.agent_ended || !worker.agent.known())) {
    worker.certainly_dead = true;
    set_due(worker, Worker::Due::nothing, 0);
    read_journal(worker);
    return;
  }
  // The other one may be frozen.
  kill(worker.guardian_ended ? worker.agent : worker.guardian, kSigCont);
  worker.guardian_ended ? set_due(worker, Worker::Due::end_agent, options_.timing.end_agent_s)
                        : set_due(worker, Worker::Due::end_guardian, options_.timing.dismiss_s);
}

void CoordinatorMachine::Impl::kill(const ProcessIdentity& process, int signal) {
  act(action::Kill{process, signal});
}

void CoordinatorMachine::Impl::disconnect(Worker& worker) {
  if (!worker.peer.empty()) by_peer_.erase(worker.peer);
  worker.peer.clear();
  worker.mute = worker.identify = false;
  if (worker.scheduled) scheduler_.worker_draining(worker.id);
}

// Its fence has passed, or it is known to be dead: what it holds is void once its journal is read.
void CoordinatorMachine::Impl::lose(Worker& worker, const std::string& reason) {
  worker.reason = reason;
  move(worker, WorkerState::ending);
  disconnect(worker);  // one that lives all the same is asked for a Hello
  set_due(worker, Worker::Due::nothing, 0);
  read_journal(worker);
}

void CoordinatorMachine::Impl::read_journal(Worker& worker) {
  if (std::exchange(worker.reading, true)) return;
  act(action::ReadJournal{worker.id, worker.here});
}

// What it did not journal it will never say: there is nothing to wait for.
void CoordinatorMachine::Impl::on(const event::JournalEnded& event) {
  const auto at = workers_.find(event.worker);
  if (at == workers_.end() || at->second.here) return;
  at->second.gone = "its agent was killed";
  at->second.certainly_dead = true;
}

void CoordinatorMachine::Impl::on(event::JournalRead& event) {
  std::uint64_t count = 0;
  for (wire::Results& results : event.results) {
    apply(results, event.worker);
    for (const wire::DoneRun& run : results.done) count += run.count;
    count += results.outcomes.size();
  }
  if (count > 0) {
    record("worker", fmt::format("{} results of worker {} taken from its journal", text::format_count(count),
                                 checked_text(event.worker, 255)));
  }
  if (event.orphans > 0) {
    record("worker",
           fmt::format("{} processes that worker {} left behind were ended", event.orphans, event.worker));
  }
  if (event.damaged) {
    const std::string text = fmt::format("worker {}: {}", event.worker, *event.damaged);
    log(LogLevel::warning, text);
    batch_.history.push_back({now_.unix_s, "error", text});
  }
  const auto at = workers_.find(event.worker);
  if (at == workers_.end() || !std::exchange(at->second.reading, false)) return;
  // Without a row or a result it may be the journal of a worker that is just being started.
  Worker& worker = at->second;
  if (!worker.guardian.known() && event.results.empty()) worker.certainly_dead = false;
  for (const RunningElement& task : event.running) {
    const bool known = std::ranges::any_of(worker.running, [&](const auto& said) {
      return said.array == task.array && said.element == task.element;
    });
    if (!known) worker.running.push_back(task);
  }
  if (worker.state == WorkerState::ending) finish(worker);
}

// Nothing more will come from it.
void CoordinatorMachine::Impl::finish(Worker& worker) {
  if (worker.scheduled) {
    Loss loss = loss_of(worker);
    loss.charged = loss.charged && !worker.said_goodbye;
    const bool neutral = is_neutral(loss.reason) || !loss.charged;
    const bool had_some = !worker.running.empty();
    keep_losses(worker, scheduler_.worker_lost(worker.id, worker.running, loss));
    if (!worker.said_goodbye) {
      record("worker",
             fmt::format("worker {} lost: {}{}", worker.id, worker.reason,
                         neutral && had_some ? "; " + loss.detail + ", so that no attempt is charged" : ""));
    }
  }
  worker.scheduled = false;
  if (!worker.row_ended) record_worker_end(worker);
  if (worker.certainly_dead) gathered_.remove_journals.push_back(worker.id);
  settle_worker(worker);
  move(worker, WorkerState::gone);
  forget(worker);
}

void CoordinatorMachine::Impl::forget(Worker& worker) {
  disconnect(worker);
  pools_due_ = true;
  const WorkerId id = worker.id;
  workers_.erase(id);
}

void CoordinatorMachine::Impl::record_worker_end(Worker& worker) {
  batch_.workers_ended.push_back({worker.id, now_.unix_s, worker.reason});
  worker.row_ended = true;
}

void CoordinatorMachine::Impl::set_due(Worker& worker, Worker::Due due, double in_s) {
  worker.due = due;
  worker.due_s = due == Worker::Due::nothing ? kNever_s : running_s_ + in_s;
  next_due_s_ = std::min(next_due_s_, worker.due_s);
}

void CoordinatorMachine::Impl::check_due() {
  next_due_s_ = kNever_s;
  std::vector<WorkerId> due;
  for (const auto& [id, worker] : workers_) {
    if (worker.due_s <= running_s_) due.push_back(id);
  }
  for (const WorkerId& id : due) {
    if (const auto at = workers_.find(id); at != workers_.end()) is_due(at->second);
  }
  for (const auto& [id, worker] : workers_) next_due_s_ = std::min(next_due_s_, worker.due_s);
}

void CoordinatorMachine::Impl::is_due(Worker& worker) {
  const double again_s = options_.timing.end_agent_s;
  switch (worker.due) {
    case Worker::Due::return_to_us:
    case Worker::Due::hand_over:
      // It lives but does not come back: ended, so that its tasks can't run beside their next execution.
      record("worker", fmt::format("worker {} did not come back and was ended", worker.id));
      kill(worker.guardian, kSigKill);
      return set_due(worker, Worker::Due::end_guardian, again_s);
    case Worker::Due::fence:
      return lose(worker, "it did not come back");
    case Worker::Due::end_agent:
      kill(worker.agent, kSigKill);
      return set_due(worker, Worker::Due::end_agent, again_s);
    case Worker::Due::end_guardian:
      kill(worker.guardian, kSigKill);
      return set_due(worker, Worker::Due::end_guardian, again_s);
    case Worker::Due::nothing:
      return;
  }
}

// Workers of other process tables, in the coordinator's own running time: while it is frozen their heartbeats
// wait unread.
void CoordinatorMachine::Impl::check_silence() {
  const Timing& timing = options_.timing;
  const double limit_s =
      options_.planted.lease_before_fence ? 3 * timing.heartbeat_s : timing.lost_s + timing.margin_s;
  std::vector<WorkerId> silent;
  for (auto& [id, worker] : workers_) {
    const bool talks = worker.state == WorkerState::joining || worker.state == WorkerState::working ||
                       worker.state == WorkerState::draining;
    const double silent_s = running_s_ - worker.heard_s;
    if (!talks || worker.here) continue;
    if (silent_s > (worker.gone.empty() ? limit_s : kGoneHeartbeats * timing.heartbeat_s))
      silent.push_back(id);
    const bool looks = silent_s > kLookHeartbeats * timing.heartbeat_s && worker.gone.empty() &&
                       running_s_ - worker.looked_s > kLookHeartbeats * timing.heartbeat_s;
    if (!looks) continue;
    worker.looked_s = running_s_;
    act(action::LookAtJournal{id});
  }
  for (const WorkerId& id : silent) {
    Worker& worker = workers_.at(id);
    lose(worker, worker.gone.empty() ? fmt::format("nothing heard for {:.0f} s", limit_s) : worker.gone);
  }
}

// The campaign ends, and workers of this machine do not.
void CoordinatorMachine::Impl::kill_all() {
  killed_all_ = true;
  if (pools_) pools_->abandon();
  pools_due_ = true;
  phase_due_s_ = running_s_ + 4 * options_.timing.end_agent_s;
  for (const auto& [process, watched] : processes_) {
    if (!workers_.contains(watched.worker)) kill(process, kSigKill);
  }
  for (auto& [id, worker] : workers_) {
    if (!worker.here || worker.guardian_ended) continue;
    kill(worker.guardian, kSigKill);
    set_due(worker, Worker::Due::end_guardian, options_.timing.end_agent_s);
  }
}

void CoordinatorMachine::Impl::move(Worker& worker, WorkerState state) {
  if (worker.state == state) return;
  WFLOW_CHECK(may_move(worker.state, state));
  log(LogLevel::debug, fmt::format("worker {}: {} -> {}", worker.id, name_of(worker.state), name_of(state)));
  worker.state = state;
}

}  // namespace wflow::engine
