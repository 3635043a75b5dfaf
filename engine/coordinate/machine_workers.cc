// SPDX-License-Identifier: Apache-2.0
// Workers in the coordinator machine: those of earlier coordinators and every Hello; their messages; their
// ends, by processes, silence and journals.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "engine/coordinate/machine_impl.h"
#include "engine/followups/submission.h"
#include "engine/schedule/attempt.h"
#include "engine/schedule/sizing.h"

namespace wflow::engine {

namespace {

// Limits restarts of workers that end as soon as they start.
// It is larger than the number of workers that a task can end before it goes into quarantine.
constexpr int kMaxIdleStarts = static_cast<int>(kCrashLimit) + 2;

}  // namespace

// Takes a worker of an earlier coordinator. Its leases are not in the database: the worker reports them, or
// its journal and its end (or its fence) make them void.
void CoordinatorMachine::Impl::meet(const KnownWorker& known) {
  const bool rowless = !known.row || !known.guardian.known();
  if (rowless && known.locked) return;  // it never held a lease; it lives and will send Hello
  Worker& worker = workers_[known.id];
  worker.id = known.id;
  worker.group = known.group;
  worker.guardian = known.guardian;
  worker.agent = known.agent;
  worker.here = !rowless && known.guardian.same_table(options_.self);
  worker.unsettled = true;
  ++unsettled_;
  const bool before_reboot =
      !rowless && known.guardian.host == options_.self.host && known.guardian.boot != options_.self.boot;
  worker.certainly_dead = rowless || before_reboot || known.ended;
  if (worker.certainly_dead) return lose(worker, "it ended with its coordinator");
  if (worker.here) {
    watch(worker.guardian, worker.group, worker.id);
    watch(worker.agent, worker.group, worker.id);
    set_due(worker, Worker::Due::return_to_us, options_.timing.return_s);
  } else {
    set_due(worker, Worker::Due::fence, known.lost_s + options_.timing.margin_s);
  }
}

std::optional<std::string> CoordinatorMachine::Impl::objection(const wire::Hello& hello) const {
  if (hello.campaign != options_.token) return "this worker belongs to another campaign";
  if (auto reason = reason_to_refuse(hello)) return reason;
  if (auto reason = groups_.reason_to_refuse(hello.group)) return reason;
  if (auto reason = objection_to_allocation(hello)) return reason;
  const auto known = workers_.find(hello.worker);
  if (known == workers_.end()) {
    const bool leftover = hello.started_by != 0 && hello.started_by != options_.epoch && hello.held.empty();
    if (leftover && group_has_another(hello)) return "the coordinator that started this worker has ended";
    return std::nullopt;
  }
  const Worker& worker = known->second;
  if (worker.guardian.known() && (worker.guardian != hello.guardian || worker.agent != hello.agent))
    return "there is another worker of this name";
  if (worker.guardian_ended || worker.agent_ended || worker.said_goodbye)
    return "the coordinator has seen this worker's end";
  return std::nullopt;
}

// True if this machine's worker of the group exists already or is being started.
bool CoordinatorMachine::Impl::group_has_another(const wire::Hello& hello) const {
  if (!hello.guardian.same_table(options_.self)) return false;
  const auto is_local = [&](const LocalGroup& group) { return group.name == hello.group; };
  if (std::none_of(options_.local_groups.begin(), options_.local_groups.end(), is_local)) return false;
  if (const auto at = starts_.find(hello.group); at != starts_.end() && at->second.asked > 0) return true;
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& entry) {
    return entry.second.group == hello.group && entry.second.worker != hello.worker &&
           entry.first != hello.guardian && entry.first != hello.agent;
  });
}

void CoordinatorMachine::Impl::on_hello(const PeerId& peer, wire::Hello& hello) {
  identified_.erase(peer);
  if (const auto reason = objection(hello)) {
    ++refused_;
    act(action::Send{peer, wire::Refuse{*reason}});
    return;
  }
  const bool leftover = hello.started_by != 0 && hello.started_by != options_.epoch;
  const bool beside_another = leftover && group_has_another(hello);
  Worker& worker = workers_[hello.worker];
  worker.drain = worker.drain || beside_another;
  connect(worker, peer, hello);
  welcome(worker);
  if (worker.has_row && !worker.row_ended) return join(worker);
  if (worker.state == WorkerState::joining && !worker.row_ended && worker.row > 0) return;  // under way
  const bool returned = worker.state == WorkerState::awaited;
  if (worker.state != WorkerState::joining) move(worker, WorkerState::joining);
  reported_unserved_.clear();  // a note for those still waiting comes again
  record("worker",
         fmt::format("worker {} {} with {} cores", worker.id,
                     returned && worker.unsettled ? "came back from an earlier coordinator" : "joined",
                     hello.cores));
  record_row(worker);
}

void CoordinatorMachine::Impl::connect(Worker& worker, const PeerId& peer, wire::Hello& hello) {
  if (worker.peer != peer) disconnect(worker);
  if (const auto other = by_peer_.find(peer); other != by_peer_.end() && other->second != hello.worker)
    disconnect(workers_.at(other->second));
  by_peer_[peer] = hello.worker;
  worker.id = hello.worker;
  worker.group = hello.group;
  worker.guardian = hello.guardian;
  worker.agent = hello.agent;
  worker.here = hello.guardian.known() && hello.guardian.same_table(options_.self);
  worker.certainly_dead = false;
  worker.peer = peer;
  worker.mute = worker.identify = worker.drain_sent = false;
  worker.templates.clear();
  worker.heartbeat = 0;
  worker.heard_s = running_s_;
  worker.gone.clear();
  worker.capacity = {hello.cores, hello.gpus, hello.memory_bytes, groups_.find(hello.group)->pools};
  worker.allocation = hello.allocation;
  worker.capacity.allocation = hello.allocation;
  worker.capacity.alone_s = worker.here ? 0 : options_.timing.lost_s;
  worker.capacity.node = hello.node.empty() ? hello.guardian.host : hello.node;
  worker.incarnation = hello.incarnation;
  note_end(worker, hello.left_s);
  pools_due_ = true;
  worker.held = std::move(hello.held);
  worker.deferred.clear();
  if (worker.here) {
    watch(worker.guardian, worker.group, worker.id);
    watch(worker.agent, worker.group, worker.id);
  }
  worker.unsettled&& worker.here ? set_due(worker, Worker::Due::hand_over, options_.timing.hand_over_s)
                                 : set_due(worker, Worker::Due::nothing, 0);
}

void CoordinatorMachine::Impl::welcome(Worker& worker) {
  const Timing& timing = options_.timing;
  wire::Welcome welcome;
  welcome.campaign_directory = plan_.campaign().string();
  if (plan_.study().samples) welcome.samples = plan_.study().samples->design;
  worker.heartbeat_s = timing.heartbeat_of(workers_.size());
  welcome.heartbeat_s = worker.heartbeat_s;
  welcome.lost_s = worker.here ? timing.lost_here_s : timing.lost_s;
  send(worker, std::move(welcome));
  // Its templates were lost with its connection: leases that it still holds need theirs again.
  for (const wire::Lease& lease : worker.held) {
    if (lease.array < plan_.array_count()) send_templates(worker, lease.array);
  }
}

void CoordinatorMachine::Impl::record_row(Worker& worker) {
  // It has come back before its end was recorded: its row must not end.
  std::erase_if(batch_.workers_ended, [&](const auto& end) { return end.id == worker.id; });
  store::WorkerRow row;
  row.id = worker.id;
  row.group = worker.group;
  row.guardian = worker.guardian;
  row.agent = worker.agent;
  row.lost_s = worker.here ? options_.timing.lost_here_s : options_.timing.lost_s;
  row.cores = worker.capacity.cores;
  row.gpus = worker.capacity.gpus;
  row.joined_s = now_.unix_s;
  batch_.workers_joined.push_back(std::move(row));
  worker.row = ++rows_;
  worker.has_row = worker.row_ended = false;
  gathered_.joined.emplace_back(worker.id, worker.row);
}

// Its row is on disk, so the next coordinator will know it, and it may hold leases.
void CoordinatorMachine::Impl::join(Worker& worker) {
  scheduler_.worker_joined(worker.id, worker.capacity, worker.held);
  worker.held.clear();
  worker.scheduled = true;
  if (worker.ends_s) scheduler_.worker_ends(worker.id, *worker.ends_s);
  worker.drain = worker.drain || phase_ != Phase::running || is_of_old_incarnation(worker);
  move(worker, worker.drain ? WorkerState::draining : WorkerState::working);
  if (!worker.killed.empty()) send(worker, wire::Revoke{worker.killed, false, true});
  if (phase_ == Phase::stopping) send(worker, wire::Revoke{{}, true, true});
  if (worker.drain) drain(worker);
  const WorkerId id = worker.id;
  for (wire::Message& message : std::exchange(worker.deferred, {})) {
    const auto at = workers_.find(id);
    if (at == workers_.end()) return;  // it has sent Goodbye
    on_message(at->second, message);
  }
}

// Called when the worker's leases from an earlier coordinator are known.
void CoordinatorMachine::Impl::settle_worker(Worker& worker) {
  if (!std::exchange(worker.unsettled, false)) return;
  if (--unsettled_ == 0 && recovering_) end_recovery();
}

void CoordinatorMachine::Impl::end_recovery() {
  recovering_ = false;
  scheduler_.drop_early_results();
  for (const auto& [follower, line] : std::exchange(enough_, {})) skip_rest(follower, line);
  run_again(options_.run_again);
  retry_due_ = options_.retry.has_value();
  if (options_.retry) ask_for_retry({}, *options_.retry);
}

// Starts a worker for each local group that has none.
void CoordinatorMachine::Impl::start_local_workers() {
  const bool nothing_to_do = scheduler_.ended() && !retry_due_;
  if (phase_ != Phase::running || !may_lease() || nothing_to_do) return;
  for (const LocalGroup& group : options_.local_groups) {
    Starts& starts = starts_[group.name];
    const bool there = std::any_of(processes_.begin(), processes_.end(),
                                   [&](const auto& entry) { return entry.second.group == group.name; });
    if (there || starts.asked > 0) continue;
    if (progress_ > starts.progress) starts.since_progress = 0;
    starts.progress = progress_;
    if (++starts.since_progress > kMaxIdleStarts) {
      const std::string text = fmt::format(
          "workers of the group '{}' on this machine end as soon as they start; see their logs in {}",
          group.name, (plan_.campaign() / ".wflow" / "workers").string());
      log(LogLevel::error, text);
      act(action::Fail{ExitCode::system, text});
      failed_ = true;
      return;
    }
    ++starts.asked;
    act(action::StartWorker{group.name, group.slots});
  }
}

namespace {

constexpr std::size_t kNoteText = 1024;
constexpr std::uint64_t kNotes = 10'000;  // in the history; the events have all of them
constexpr std::size_t kReasonText = 1024;
constexpr std::size_t kKills = 4096;
// Less than a worker's queued work: no core idles because results are gathered.
constexpr double kLongestGather_s = 0.4 * kAhead_s;
// Below this a message is sent at once.
constexpr double kLeastGather_s = 0.02;
// A worker with spare leases may gather for a part of the time that they last: it runs out of work no
// earlier.
constexpr double kPatientPart = 0.25, kLongestPatientGather_s = 5;
// A worker with so many unacknowledged results gets the acknowledgement at once: they fill its journal.
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
  // It has not joined yet: keep its messages in order, after its leases.
  if (const auto* heartbeat = std::get_if<wire::Heartbeat>(&event.message)) {
    worker.heartbeat = heartbeat->number;
    send(worker, pulse_for(worker));
  }
  worker.deferred.push_back(std::move(event.message));
}

// One request until it answers: with two Hellos under way, a lease sent between them would look lost.
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
  if (const auto* returned = std::get_if<wire::Returned>(&message)) return on_returned(worker, *returned);
  ++refused_;  // only a coordinator sends such a message
}

// Elements that it has reported or returned may be leased to it again before its next heartbeat: a loss must
// not count them as running.
void CoordinatorMachine::Impl::forget_running(Worker& worker, ArrayId array, Element first,
                                              std::uint64_t count) {
  std::erase_if(worker.running, [&](const wire::RunningElement& running) {
    return running.array == array && running.element - first < count;
  });
}

void CoordinatorMachine::Impl::on_returned(Worker& worker, const wire::Returned& returned) {
  for (const wire::Lease& lease : returned.leases)
    forget_running(worker, lease.array, lease.first, lease.count);
  scheduler_.returned(returned.leases);
}

void CoordinatorMachine::Impl::on_results(Worker& worker, wire::Results& results) {
  const std::uint64_t sequence = results.sequence;
  for (const wire::DoneRun& run : results.done) forget_running(worker, run.array, run.first, run.count);
  for (const wire::Outcome& outcome : results.outcomes)
    forget_running(worker, outcome.array, outcome.element, 1);
  apply(results, worker.id);
  for (const wire::DoneRun& run : results.done) worker.ended += run.count;
  worker.ended += results.outcomes.size();
  follow_health(results, worker);
  worker.unacknowledged += results.done.size() + results.outcomes.size() + results.events.size();
  std::uint64_t& acknowledge = gathered_.acknowledge[worker.id];
  acknowledge = std::max(acknowledge, sequence);
}

// The scheduler's signal reaches the task, its worker and this coordinator in any order: a failure in a
// cancelled allocation counts as caused by it.
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
  // Before the ends below: afterwards it cannot be known if they counted.
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
  const auto* other = std::get_if<wire::OtherEvent>(&event.body);
  if (other != nullptr && other->type == "exclude_node") exclude_node(event, other->json);
  if (other != nullptr && other->type == "enough_samples") skip_rest(event.array, other->json);
  if (auto followup = followup_of(event); followup && submitted_.insert(followup->source).second) {
    record("submit", fmt::format("{}: {}", plan_.array_name(event.array),
                                 followup->spec.empty() ? followup->directory : followup->spec));
    batch_.followups.push_back(std::move(*followup));
  }
  batch_.events.push_back(std::move(event));
}

namespace {

std::string text_in(const std::string& line, const char* key) {
  const nlohmann::json asked = nlohmann::json::parse(line, nullptr, false);
  const auto at = asked.is_object() ? asked.find(key) : asked.end();
  return at != asked.end() && at->is_string() ? checked_text(at->get<std::string>(), kNoteText) : "";
}

}  // namespace

// A training that follows its data set has reached its goal (`until`).
void CoordinatorMachine::Impl::skip_rest(ArrayId follower, const std::string& line) {
  // Samples that look ready may have succeeded: a worker of an earlier coordinator has not said so yet.
  if (recovering_) return void(enough_.emplace_back(follower, line));
  const std::uint64_t skipped = scheduler_.skip_rest_for(follower);
  if (skipped == 0) return;
  record("note", fmt::format("{}: {}: {} that had not begun {} skipped", plan_.array_name(follower),
                             text_in(line, "reason"),
                             text::format_count(skipped) + (skipped == 1 ? " sample" : " samples"),
                             skipped == 1 ? "is" : "are"));
}

// A training asks to run without a node that slows it down (`exclude_slow`).
void CoordinatorMachine::Impl::exclude_node(const wire::TaskEvent& event, const std::string& line) {
  const std::string host = batch::short_name(text_in(line, "node"));
  const auto is_there = [&](const auto& entry) {
    const Worker& worker = entry.second;
    return batch::short_name(worker.capacity.node) == host || batch::short_name(worker.guardian.host) == host;
  };
  const auto worker = std::ranges::find_if(workers_, is_there);
  if (host.empty() || worker == workers_.end()) return;
  const std::string node = worker->second.capacity.node;
  const std::string name = plan_.array_name(event.array);
  switch (scheduler_.exclude_node(event.array, event.element, event.attempt, node,
                                  fmt::format("without the node {}: {}", node, text_in(line, "reason")))) {
    case Scheduler::Exclusion::done:
    case Scheduler::Exclusion::stale:
      return;
    case Scheduler::Exclusion::too_few:
      return record("note",
                    fmt::format("{}: keeps the slow node {}: without it too few nodes are left", name, node));
    case Scheduler::Exclusion::too_many:
      return record("note", fmt::format("{}: keeps the slow node {}: {} nodes were left out already", name,
                                        node, Scheduler::kMostExcluded));
  }
}

void CoordinatorMachine::Impl::on_heartbeat(Worker& worker, wire::Heartbeat& heartbeat) {
  refused_ += check(heartbeat.running, scheduler_);
  worker.running = std::move(heartbeat.running);
  note_end(worker, heartbeat.left_s);
  worker.heartbeat = heartbeat.number;
  send(worker, pulse_for(worker));
  if (!worker.scheduled) return;
  // All results from before its Hello have come: an element that it neither holds nor reported was lost.
  scheduler_.handed_over(worker.id);
  if (worker.due == Worker::Due::hand_over) set_due(worker, Worker::Due::nothing, 0);
  settle_worker(worker);
}

// It holds no lease any more. But its journal may have results whose acknowledgement it never got: its leases
// are free only when the journal has been read.
void CoordinatorMachine::Impl::on_goodbye(Worker& worker, const wire::Goodbye& goodbye) {
  worker.said_goodbye = true;
  worker.reason = checked_text(goodbye.reason, kReasonText);
  worker.running.clear();  // none of it was lost
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

// How long results, their commits and their acknowledgements may wait for others: 0 with few workers.
double CoordinatorMachine::Impl::gather_s() const {
  const double gather_s = static_cast<double>(workers_.size()) / options_.timing.results_per_s;
  return gather_s < kLeastGather_s ? 0 : std::min(gather_s, kLongestGather_s);
}

// How long this worker may gather its results. What waits is work that others wait for, too, so that workers
// gather for longer only where they are many.
double CoordinatorMachine::Impl::gather_s(const Worker& worker) const {
  const double common_s = gather_s();
  if (common_s <= 0 || worker.drain || phase_ != Phase::running) return common_s;
  const double patient_s = static_cast<double>(workers_.size()) / options_.timing.patient_results_per_s;
  const double spare_s = kPatientPart * scheduler_.spare_s(worker.id);
  return std::max(common_s, std::min({patient_s, spare_s, kLongestPatientGather_s}));
}

wire::Pulse CoordinatorMachine::Impl::pulse_for(const Worker& worker) const {
  return {worker.heartbeat, static_cast<std::uint32_t>(scheduler_.gangs_on(worker.id)), gather_s(worker),
          running_s_ < watched_until_s_};
}

// With many workers an acknowledgement goes out with the next message to its worker, at the latest with a
// pulse: two messages at once cost little more than one.
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

namespace {

// A worker known to be gone is lost after so many missing heartbeats; the machine checks the journal of
// another silent worker after more.
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

// Its fence has passed, or it is known to be dead: its leases are void once its journal is read.
void CoordinatorMachine::Impl::lose(Worker& worker, const std::string& reason) {
  worker.reason = reason;
  move(worker, WorkerState::ending);
  disconnect(worker);  // if it still lives, it gets a request for a Hello
  set_due(worker, Worker::Due::nothing, 0);
  read_journal(worker);
}

void CoordinatorMachine::Impl::read_journal(Worker& worker) {
  if (std::exchange(worker.reading, true)) return;
  act(action::ReadJournal{worker.id, worker.here});
}

// A result that is not in its journal will never come: do not wait.
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
  // Without a row or a result it may be the journal of a worker that is still starting.
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

// Called when no further message or journal record can come from it.
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
      // It lives but does not come back: kill it, so that its tasks cannot run beside their next execution.
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

// Checks workers of other process tables in the coordinator's own running time: while it is frozen, their
// heartbeats wait unread.
void CoordinatorMachine::Impl::check_silence() {
  const Timing& timing = options_.timing;
  const double limit_s = timing.lost_s + timing.margin_s;
  std::vector<WorkerId> silent;
  for (auto& [id, worker] : workers_) {
    const bool talks = worker.state == WorkerState::joining || worker.state == WorkerState::working ||
                       worker.state == WorkerState::draining;
    const double silent_s = running_s_ - worker.heard_s;
    if (!talks || worker.here) continue;
    if (silent_s > (worker.gone.empty() ? limit_s : kGoneHeartbeats * worker.heartbeat_s))
      silent.push_back(id);
    const double look_s = kLookHeartbeats * worker.heartbeat_s;
    const bool looks = silent_s > look_s && worker.gone.empty() && running_s_ - worker.looked_s > look_s;
    if (!looks) continue;
    worker.looked_s = running_s_;
    act(action::LookAtJournal{id});
  }
  for (const WorkerId& id : silent) {
    Worker& worker = workers_.at(id);
    lose(worker, worker.gone.empty() ? fmt::format("nothing heard for {:.0f} s", limit_s) : worker.gone);
  }
}

// Called when the campaign ends and workers of this machine do not.
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
