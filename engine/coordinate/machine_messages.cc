// SPDX-License-Identifier: Apache-2.0
// What workers say to the coordinator machine, and what it says to them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/coordinate/checks.h"
#include "engine/coordinate/machine_impl.h"
#include "engine/followups/submission.h"
#include "engine/schedule/exit_codes.h"
#include "engine/schedule/sizing.h"

namespace wflow::engine {

namespace {

constexpr std::size_t kNoteText = 1024;
constexpr std::uint64_t kNotes = 10'000;  // in the history; all of them are among the events
constexpr std::size_t kReasonText = 1024;
constexpr std::size_t kKills = 4096;
// Less than what a worker has ahead of it: no core is without work because results are gathered.
constexpr double kLongestGather_s = 0.4 * kAhead_s;
// Below it a message goes out at once.
constexpr double kLeastGather_s = 0.02;
// A worker with so many unacknowledged results hears of them at once: they fill its journal.
constexpr std::size_t kUnacknowledged = 1000;

}  // namespace

void CoordinatorMachine::Impl::on(event::Message& event) {
  if (auto* query = std::get_if<wire::Query>(&event.message)) return on_query(event.peer, *query);
  if (auto* hello = std::get_if<wire::Hello>(&event.message)) return on_hello(event.peer, *hello);
  const auto known = by_peer_.find(event.peer);
  if (known == by_peer_.end()) return identify(event.peer);
  Worker& worker = workers_.at(known->second);
  worker.heard_s = running_s_;
  if (worker.state != WorkerState::joining) return on_message(worker, event.message);
  // It is no worker yet: what it says keeps its order behind what it holds.
  if (const auto* heartbeat = std::get_if<wire::Heartbeat>(&event.message)) {
    worker.heartbeat = heartbeat->number;
    send(worker, pulse_for(worker));
  }
  worker.deferred.push_back(std::move(event.message));
}

// Once until it answers: with two Hellos under way, a lease sent between them would look lost.
void CoordinatorMachine::Impl::identify(const PeerId& peer) {
  if (identified_.try_emplace(peer, running_s_).second) act(action::Send{peer, wire::Identify{}});
}

void CoordinatorMachine::Impl::on(const event::Undelivered& event) {
  identified_.erase(event.peer);
  const auto known = by_peer_.find(event.peer);
  if (known == by_peer_.end()) return;
  Worker& worker = workers_.at(known->second);
  worker.mute = true;
  worker.identify = true;
  if (worker.scheduled) scheduler_.worker_draining(worker.id);  // until its next Hello
}

void CoordinatorMachine::Impl::on_message(Worker& worker, wire::Message& message) {
  if (auto* results = std::get_if<wire::Results>(&message)) return on_results(worker, *results);
  if (auto* heartbeat = std::get_if<wire::Heartbeat>(&message)) return on_heartbeat(worker, *heartbeat);
  if (const auto* goodbye = std::get_if<wire::Goodbye>(&message)) return on_goodbye(worker, *goodbye);
  if (const auto* returned = std::get_if<wire::Returned>(&message))
    return scheduler_.returned(returned->leases);
  ++refused_;  // only a coordinator says such a thing
}

// What has ended may be leased to it anew before its next heartbeat: a loss must not count that as running.
void CoordinatorMachine::Impl::forget_running(Worker& worker, const wire::Results& results) {
  std::erase_if(worker.running, [&](const wire::RunningElement& running) {
    const auto in_run = [&](const wire::DoneRun& run) {
      return run.array == running.array && running.element - run.first < run.count;
    };
    const auto is_it = [&](const wire::Outcome& outcome) {
      return outcome.array == running.array && outcome.element == running.element;
    };
    return std::any_of(results.done.begin(), results.done.end(), in_run) ||
           std::any_of(results.outcomes.begin(), results.outcomes.end(), is_it);
  });
}

void CoordinatorMachine::Impl::on_results(Worker& worker, wire::Results& results) {
  const std::uint64_t sequence = results.sequence;
  forget_running(worker, results);
  apply(results, worker.id);
  for (const wire::DoneRun& run : results.done) worker.ended += run.count;
  worker.ended += results.outcomes.size();
  follow_health(results, worker);
  if (options_.planted.acknowledge_before_commit) return send(worker, wire::Acknowledge{sequence});
  worker.unacknowledged += results.done.size() + results.outcomes.size() + results.events.size();
  std::uint64_t& acknowledge = gathered_.acknowledge[worker.id];
  acknowledge = std::max(acknowledge, sequence);
}

// The scheduler's signal reaches the task, its worker and this coordinator in any order: what fails in an
// allocation that was cancelled has failed for that.
void CoordinatorMachine::Impl::note_preempted(wire::Results& results, const WorkerId& id) const {
  const auto worker = workers_.find(id);
  if (!pools_ || worker == workers_.end() || worker->second.allocation.empty()) return;
  if (!pools_->is_cancelled(worker->second.allocation)) return;
  for (wire::Outcome& outcome : results.outcomes) {
    const bool asked = outcome.exit_code >= kRestart && outcome.exit_code <= kStopWorkers;
    const bool exited = outcome.reason == EndReason::exited && outcome.exit_code != 0 && !asked;
    if (exited || outcome.reason == EndReason::signalled || outcome.reason == EndReason::bad_output)
      outcome.reason = EndReason::preempted;
  }
}

void CoordinatorMachine::Impl::apply(wire::Results& results, const WorkerId& worker) {
  refused_ += check(results, scheduler_);
  note_preempted(results, worker);
  // Before the ends below: afterwards nobody knows whether they counted.
  std::erase_if(results.usage, [&](const wire::TaskUsage& usage) {
    return !scheduler_.awaits(usage.lease, usage.array, usage.first, usage.attempt);
  });
  if (!results.usage.empty()) batch_.usage.push_back({worker, std::move(results.usage)});
  for (const wire::DoneRun& run : results.done) scheduler_.done(run);
  const auto sender = workers_.find(worker);
  for (const wire::Outcome& outcome : results.outcomes) {
    if (sender != workers_.end() && waits_for_nodes(outcome, sender->second)) continue;
    scheduler_.ended_badly(outcome, worker, now_.steady_s);
  }
  for (wire::TaskEvent& event : results.events) apply_event(event);
}

void CoordinatorMachine::Impl::apply_event(wire::TaskEvent& event) {
  const auto* note = std::get_if<wire::Note>(&event.body);
  if (note != nullptr && is_single(event.array) && notes_ < kNotes) {
    ++notes_;
    record("note", fmt::format("{}: {}", plan_.array_name(event.array), checked_text(note->text, kNoteText)));
  }
  if (auto followup = followup_of(event); followup && submitted_.insert(followup->source).second) {
    record("submit", fmt::format("{}: {}", plan_.array_name(event.array),
                                 followup->spec.empty() ? followup->directory : followup->spec));
    batch_.followups.push_back(std::move(*followup));
  }
  batch_.events.push_back(std::move(event));
}

void CoordinatorMachine::Impl::on_heartbeat(Worker& worker, wire::Heartbeat& heartbeat) {
  refused_ += check(heartbeat.running, scheduler_);
  worker.running = std::move(heartbeat.running);
  note_end(worker, heartbeat.left_s);
  worker.heartbeat = heartbeat.number;
  send(worker, pulse_for(worker));
  if (!worker.scheduled) return;
  // All that it finished before its Hello has come: what it neither holds nor told of was lost on the way.
  scheduler_.handed_over(worker.id);
  if (worker.due == Worker::Due::hand_over) set_due(worker, Worker::Due::nothing, 0);
  settle_worker(worker);
}

// It holds nothing any more. But results of which it never heard an acknowledgement may stand in its journal:
// what it was leased is free only when that has been read.
void CoordinatorMachine::Impl::on_goodbye(Worker& worker, const wire::Goodbye& goodbye) {
  worker.said_goodbye = true;
  worker.reason = checked_text(goodbye.reason, kReasonText);
  worker.running.clear();  // nothing of it was lost
  disconnect(worker);
  if (worker.state != WorkerState::ending) move(worker, WorkerState::ending);
  if (!worker.here) {
    set_due(worker, Worker::Due::nothing, 0);
    read_journal(worker);
  } else if (worker.due == Worker::Due::nothing) {
    set_due(worker, Worker::Due::end_guardian, options_.timing.dismiss_s);  // its processes end now
  }
}

void CoordinatorMachine::Impl::send(Worker& worker, wire::Message message) {
  if (worker.peer.empty() || worker.mute) return;
  say_acknowledged(worker);
  worker.sent_s = now_.steady_s;
  act(action::Send{worker.peer, std::move(message)});
}

// How long results, their commits and their acknowledgements may wait for others: 0 where few workers are.
double CoordinatorMachine::Impl::gather_s() const {
  const double gather_s = static_cast<double>(workers_.size()) / options_.timing.results_per_s;
  return gather_s < kLeastGather_s ? 0 : std::min(gather_s, kLongestGather_s);
}

wire::Pulse CoordinatorMachine::Impl::pulse_for(const Worker& worker) const {
  return {worker.heartbeat, static_cast<std::uint32_t>(scheduler_.gangs_on(worker.id)), gather_s(),
          running_s_ < watched_until_s_};
}

// With many workers an acknowledgement goes out with the next message to its worker, which a pulse is at the
// latest: two messages at once cost little more than one.
void CoordinatorMachine::Impl::acknowledge(Worker& worker, std::uint64_t sequence) {
  worker.acknowledge = std::max(worker.acknowledge, sequence);
  const bool waits = gather_s() > 0 && phase_ == Phase::running && !worker.drain && !scheduler_.ended() &&
                     worker.unacknowledged < kUnacknowledged;
  if (!waits) say_acknowledged(worker);
}

void CoordinatorMachine::Impl::say_acknowledged(Worker& worker) {
  if (worker.acknowledge == 0 || worker.peer.empty() || worker.mute) return;
  worker.unacknowledged = 0;
  act(action::Send{worker.peer, wire::Acknowledge{std::exchange(worker.acknowledge, 0)}});
}

void CoordinatorMachine::Impl::send_templates(Worker& worker, ArrayId array) {
  if (worker.peer.empty() || worker.mute || !worker.templates.insert(array).second) return;
  act(action::Send{worker.peer, wire::Templates{{plan_.task_template(array)}}});
}

void CoordinatorMachine::Impl::drain(Worker& worker) {
  worker.drain = true;
  if (!worker.scheduled) return;  // a worker that joins is drained then
  scheduler_.worker_draining(worker.id);
  if (worker.state == WorkerState::working) move(worker, WorkerState::draining);
  if (worker.drain_sent || scheduler_.helps_gang(worker.id)) return;
  worker.drain_sent = true;
  send(worker, wire::Drain{});
}

void CoordinatorMachine::Impl::remember_kills(Worker& worker, const std::vector<wire::Lease>& parts) {
  worker.killed.insert(worker.killed.end(), parts.begin(), parts.end());
  if (worker.killed.size() > kKills) worker.killed.erase(worker.killed.begin(), worker.killed.end() - kKills);
}

}  // namespace wflow::engine
