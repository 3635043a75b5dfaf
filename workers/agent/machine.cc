// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "workers/agent/machine_impl.h"

namespace wflow::workers {

namespace wire = engine::wire;

namespace {
constexpr double kLastAcknowledge_s = 3;  // longest wait for the last acknowledgement
// If the coordinator that started the worker ends before its Welcome, the worker lingers only this long: the
// next coordinator starts its own workers, and may have ended the campaign without knowing of this one.
constexpr double kUnknownLinger_s = 15;
}  // namespace

AgentMachine::Impl::Impl(AgentOptions&& given, Now start)
    : options(std::move(given)),
      now(start),
      link(options.retry_s, start.steady_s),
      pool(options.capacity),
      tasks(options.slots),
      last_busy_s(start.steady_s) {
  for (SlotId slot = tasks.size(); slot > 0; --slot) free_slots.push_back(slot - 1);
}

AgentMachine::AgentMachine(AgentOptions options, Now now)
    : impl_(std::make_unique<Impl>(std::move(options), now)) {}

AgentMachine::~AgentMachine() = default;

void AgentMachine::handle(Now now, AgentEvent event) {
  if (impl_->exited) return;
  impl_->now.steady_s = std::max(impl_->now.steady_s, now.steady_s);
  impl_->now.unix_s = now.unix_s;
  if (impl_->options.trace) impl_->trace(event);
  impl_->look_at_fence();
  std::visit([this](auto& value) { impl_->on(value); }, event);
}

std::vector<AgentAction> AgentMachine::take_actions() {
  if (impl_->options.trace) impl_->trace_actions();
  return std::exchange(impl_->actions, {});
}

// Leaves out event::Time, which comes in every turn.
void AgentMachine::Impl::trace(const AgentEvent& event) {
  if (!std::holds_alternative<event::Time>(event)) log(LogLevel::trace, "event: " + describe(event));
}

// Puts the Log of each action before the action.
void AgentMachine::Impl::trace_actions() {
  for (AgentAction& action : std::exchange(actions, {})) {
    if (!std::holds_alternative<action::Log>(action)) log(LogLevel::trace, "action: " + describe(action));
    actions.push_back(std::move(action));
  }
}

double AgentMachine::wake_at_s() const {
  return impl_->wake_at_s();
}

bool AgentMachine::journal_full() const {
  return impl_->journal_full();
}

std::uint64_t AgentMachine::open_sequence() const {
  return impl_->outbox.sequence();
}

std::size_t AgentMachine::running() const {
  return impl_->running();
}

// Sends results before it starts tasks, so that results do not wait for slow launches.
void AgentMachine::Impl::on(event::Time&) {
  enforce_limits();
  write_journal_again();
  look_at_end();
  settle_held(now.steady_s);
  if (running() > 0 && now.steady_s >= next_events_s && !journal_full()) {
    next_events_s = now.steady_s + options.event_period_s;
    emit(action::FollowEvents{});
  }
  send_results();
  send_returned();
  send_heartbeat();
  if (link.look_up(now.steady_s)) emit(action::LookUp{});
  if (running() > 0 || helps || !queue.empty() || !outbox.all_acknowledged()) last_busy_s = now.steady_s;
  start_ready();
  decide_end();
}

void AgentMachine::Impl::on(event::SamplesOpened& opened) {
  if (opened.error)
    quit(ExitCode::data, fmt::format("cannot read the campaign's samples: {}", *opened.error));
}

void AgentMachine::Impl::on(event::JournalFailed& failed) {
  // The results are on their way to the coordinator; only the death of both at once would lose them. No task
  // starts meanwhile, so that no further results are at risk.
  if (!journal_failed) log(LogLevel::error, failed.why + "; no task starts before its results can be kept");
  journal_failed = true;
  write_again_s = now.steady_s + kDiskWait_s;
  if (failed.record) unwritten.push_back(std::move(*failed.record));
}

void AgentMachine::Impl::write_journal_again() {
  if (unwritten.empty() || now.steady_s < write_again_s) return;
  write_again_s = now.steady_s + kDiskWait_s;
  for (wire::Results& record : std::exchange(unwritten, {})) emit(action::AppendJournal{std::move(record)});
}

// ---- end

void AgentMachine::Impl::on(event::Terminate&) {
  if (mode == Mode::ending) return;
  mode = Mode::ending;
  reason = "told to end by a signal";
  if (!options.allocation.empty()) {
    const bool over = now.steady_s >= ends_s;
    allocation_end = over ? wire::EndReason::walltime : wire::EndReason::preempted;
    reason = over ? "its allocation was ended after its walltime" : "its allocation was ended by a signal";
  }
  give_back_held();
  give_back(queue.take_all());
  end_all(EndCause::returned, false);
}

void AgentMachine::Impl::on(event::GuardianGone&) {
  quit(ExitCode::internal, "the worker's guardian was killed; its tasks are ended");
}

void AgentMachine::Impl::on(event::CampaignGone&) {
  quit(ExitCode::system, "the campaign's directory is gone: somebody has removed or moved it");
}

void AgentMachine::Impl::hear(wire::Refuse& refuse) {
  quit(ExitCode::usage, fmt::format("the coordinator refused this worker: {}", refuse.reason));
}

void AgentMachine::Impl::hear(wire::Drain&) {
  if (mode == Mode::working) {
    mode = Mode::draining;
    reason = "drained";
    for (SlotId slot = 0; slot < tasks.size(); ++slot) {
      const Task& task = tasks[slot];
      if (task.stage != Task::Stage::running || task.ending) continue;
      const auto array = arrays.find(task.lease.array);
      if (array != arrays.end() && array->second.training) emit(action::InterruptTask{slot});
    }
  }
  send(wire::Returned{queue.take_all()});
}

// Ends the worker at once, but first takes the results of tasks that have ended by themselves.
void AgentMachine::Impl::quit(ExitCode code, std::string why) {
  if (exit_code != ExitCode::ok) return;
  log(LogLevel::error, why);
  mode = Mode::ending;
  reason = std::move(why);
  exit_code = code;
  leave_by_s = now.steady_s + kLastAcknowledge_s;
  give_back(queue.take_all());
  end_all(EndCause::returned, true);
}

void AgentMachine::Impl::decide_end() {
  const double now_s = now.steady_s;
  const bool quitting = exit_code != ExitCode::ok;
  if (running() > 0 && !(quitting && now_s >= leave_by_s)) return;
  if (mode == Mode::working) {
    decide_to_leave();
    return;
  }
  if (leave_by_s == kNever) leave_by_s = now_s + kLastAcknowledge_s;
  if (quitting || everything_reported() || now_s >= leave_by_s) leave();
}

// Returns also true if a signal ends the worker and there is no coordinator.
bool AgentMachine::Impl::everything_reported() const {
  return outbox.all_acknowledged() || (mode == Mode::ending && !link.is_welcome());
}

void AgentMachine::Impl::decide_to_leave() {
  if (now.steady_s >= idle_end_s()) {
    reason = fmt::format("without work for {} s", options.idle_timeout_s);
    leave();
  } else if (now.steady_s >= linger_end_s()) {
    exit_code = ExitCode::system;
    reason = fmt::format("no coordinator for {} s; results that it does not have yet stay in the journal",
                         linger_s());
    log(LogLevel::error, reason);
    leave();
  }
}

void AgentMachine::Impl::leave() {
  settle_held(kNever);
  flush = true;
  send_results();
  return_refused();
  log(LogLevel::info, fmt::format("ends: {}", reason));
  say_goodbye();
  emit(action::Exit{static_cast<int>(exit_code)});
  exited = true;
}

// A Goodbye frees the leases of this worker: the coordinator reads the journal and leases the rest again. So
// the worker must not send it while a task may still run, nor before other hosts can see the journal.
void AgentMachine::Impl::say_goodbye() {
  if (running() > 0) {
    log(LogLevel::warning,
        fmt::format(
            "{} tasks do not end (a file system that hangs?); they run again when this worker's fence "
            "has passed",
            running()));
    return;
  }
  if (!outbox.all_acknowledged()) emit(action::SyncJournal{});
  send(wire::Goodbye{reason});
}

double AgentMachine::Impl::idle_end_s() const {
  if (!queue.empty() || helps || !link.is_welcome() || !outbox.all_acknowledged() ||
      options.idle_timeout_s <= 0)
    return kNever;
  return last_busy_s + options.idle_timeout_s;
}

double AgentMachine::Impl::linger_s() const {
  const bool unknown = options.started_by != 0 && !link.was_welcome() && !link.is_connected();
  return std::max(unknown ? std::min(kUnknownLinger_s, options.linger_s) : options.linger_s,
                  link.silence_limit_s());
}

double AgentMachine::Impl::linger_end_s() const {
  return queue.empty() ? link.heard_s() + linger_s() : kNever;
}

double AgentMachine::Impl::wake_at_s() const {
  if (exited) return kNever;
  double at_s = std::min({next_limit_s(), link.next_look_s(), end_wake_s()});
  for (const Held& end : held_back) at_s = std::min(at_s, end.until_s);
  if (mode != Mode::ending) at_s = std::min(at_s, stop_s());
  if (holds_anything()) at_s = std::min(at_s, fence.deadline_s());
  if (link.is_welcome()) {
    at_s = std::min(at_s, next_heartbeat_s);
    if (results_due() || !returned.empty()) return now.steady_s;
    if (!outbox.empty()) at_s = std::min(at_s, outbox.due_s());
  }
  if (running() > 0 && !journal_full()) at_s = std::min(at_s, next_events_s);
  if (!unwritten.empty()) at_s = std::min(at_s, write_again_s);
  if (now.steady_s < no_start_before_s && !queue.empty()) at_s = std::min(at_s, no_start_before_s);
  return next_fits() ? now.steady_s : at_s;
}

// The next time at which decide_end() can have an effect if no other event comes.
double AgentMachine::Impl::end_wake_s() const {
  if (running() > 0) return exit_code != ExitCode::ok ? leave_by_s : kNever;
  if (mode == Mode::working) return std::min(idle_end_s(), linger_end_s());
  const bool leaves = leave_by_s == kNever || exit_code != ExitCode::ok || everything_reported();
  return leaves ? now.steady_s : leave_by_s;
}

// ---- the coordinator

namespace {

// Above this size the agent takes no further ends until the coordinator has committed the results and the
// journal is emptied: some milliseconds once in about 100,000 tasks.
constexpr std::size_t kJournalBytes = 8 << 20;

double checked(double value, double otherwise) {
  return std::isfinite(value) && value > 0 ? std::min(value, 1e9) : otherwise;
}

}  // namespace

void AgentMachine::Impl::on(event::EndpointRead& read) {
  if (!read.address || !link.wants(*read.address)) return;
  link.connecting(*read.address);
  log(LogLevel::debug, fmt::format("connects to coordinator {} on {} (pid {})", read.address->epoch,
                                   read.address->host, read.address->pid));
  emit(action::Connect{std::move(*read.address)});
}

void AgentMachine::Impl::on(event::Connected&) {
  link.connected(now.steady_s);
  fence.connected();
  say_hello();
}

void AgentMachine::Impl::on(event::ConnectionLost&) {
  if (link.is_connected()) {
    log(LogLevel::info, fmt::format("the connection to the coordinator is lost; {} tasks run on", running()));
  }
  link.lost();
}

void AgentMachine::Impl::on(event::Message& message) {
  if (!link.is_connected()) return;
  link.heard(now.steady_s);
  std::visit([this](auto& value) { hear(value); }, message.message);
}

void AgentMachine::Impl::say_hello() {
  wire::Hello hello;
  hello.version = options.version;
  hello.campaign = options.campaign_token;
  hello.worker = options.worker;
  hello.group = options.group;
  hello.guardian = options.guardian;
  hello.agent = options.agent;
  hello.started_by = options.started_by;
  hello.cores = options.capacity.cores;
  hello.gpus = options.capacity.gpus;
  hello.memory_bytes = options.capacity.memory_bytes;
  hello.allocation = options.allocation;
  hello.node = options.node;
  hello.incarnation = options.incarnation;
  hello.left_s = left_s();
  hello.held = held();
  returned.clear();  // Hello names the held leases; the coordinator frees all others
  refused.clear();
  link.hello_sent();
  fence.hello_sent(now.steady_s);
  send(std::move(hello));
}

void AgentMachine::Impl::hear(wire::Identify&) {
  say_hello();
}

void AgentMachine::Impl::hear(wire::Welcome& welcome) {
  log(LogLevel::info, fmt::format("the coordinator of {} welcomes this worker", welcome.campaign_directory));
  campaign = welcome.campaign_directory;
  link.welcomed(checked(welcome.heartbeat_s, 1));
  fence.welcomed(checked(welcome.lost_s, 60), queue.empty() && running() == 0);
  set_fence();
  if (fence.lost_s() != noted_lost_s) emit(action::NoteLost{fence.lost_s()});
  noted_lost_s = fence.lost_s();
  if (welcome.samples && welcome.samples != samples) {
    samples = std::move(welcome.samples);
    emit(action::OpenSamples{*samples});
  }
  log(LogLevel::info,
      fmt::format("let in by the coordinator; without its answers for {} s the tasks are ended",
                  fence.lost_s()));
  outbox.resend_all();
  flush = true;
  next_heartbeat_s = now.steady_s;
  if (mode != Mode::working) send(wire::Returned{});
}

void AgentMachine::Impl::hear(wire::Pulse& pulse) {
  helps = pulse.gangs > 0;
  watched = pulse.watched;
  outbox.set_batch_time(std::isfinite(pulse.gather_s) ? pulse.gather_s : 0);
  if (fence.answered(pulse.heartbeat)) set_fence();
}

void AgentMachine::Impl::hear(wire::Acknowledge& acknowledge) {
  outbox.acknowledge(acknowledge.sequence);
  if (!outbox.all_acknowledged() || journal_bytes == 0) return;
  journal_bytes = 0;
  journal_failed = false;
  unwritten.clear();
  emit(action::ClearJournal{});
}

void AgentMachine::Impl::look_at_fence() {
  if (!fence.passed(now.steady_s) || !holds_anything()) return;
  log(LogLevel::warning,
      fmt::format("the coordinator has answered nothing for {} s: the {} tasks that run are ended, and what "
                  "was leased is given up",
                  fence.lost_s(), running()));
  give_back(queue.take_all());
  end_all(EndCause::returned, true);
}

// ---- results

void AgentMachine::Impl::record(wire::Results&& results) {
  if (results.done.empty() && results.outcomes.empty() && results.events.empty()) return;
  results.sequence = outbox.sequence();
  journal_bytes += weight(results);
  emit(action::AppendJournal{results});
  outbox.add(std::move(results), now.steady_s);
}

bool AgentMachine::Impl::journal_full() const {
  return journal_bytes > kJournalBytes && link.is_welcome();
}

// True if the open batch should be closed now. What is gathered goes out with a heartbeat, too: two messages
// at once cost the coordinator little more than one.
bool AgentMachine::Impl::results_due() const {
  if (outbox.empty()) return false;
  if (outbox.full()) return true;
  const bool at_once = flush || queue.empty() || !unwritten.empty() || journal_full() ||
                       now.steady_s >= std::min(next_heartbeat_s, outbox.due_s());
  return link.is_welcome() && at_once;
}

void AgentMachine::Impl::send_results() {
  if (results_due()) outbox.seal(now.steady_s);
  if (!link.is_welcome()) return;
  flush = false;
  while (const wire::Results* batch = outbox.next_to_send()) {
    send(*batch);
    outbox.sent();
  }
}

void AgentMachine::Impl::send_returned() {
  if (!link.is_welcome() || returned.empty()) return;
  send(wire::Returned{std::exchange(returned, {})});
}

void AgentMachine::Impl::return_refused() {
  refuses = false;
  give_back(std::exchange(refused, {}));
  send_returned();
}

// The first heartbeat after a Welcome follows all earlier results and ends the hand-over.
void AgentMachine::Impl::send_heartbeat() {
  if (!link.is_welcome() || now.steady_s < next_heartbeat_s) return;
  return_refused();
  send(wire::Heartbeat{fence.next_heartbeat(now.steady_s), queue.elements(), running_elements(), left_s()});
  next_heartbeat_s = now.steady_s + link.heartbeat_s();
}

}  // namespace wflow::workers
