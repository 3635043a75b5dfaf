// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "workers/agent/machine_impl.h"

namespace wflow::workers {

namespace wire = engine::wire;

namespace {

// Beyond it the agent waits with taking further ends until the coordinator has committed those that it knows,
// and empties the journal: some milliseconds once in about 100,000 tasks.
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
  returned.clear();  // what Hello does not name needs no other word
  link.said_hello();
  fence.said_hello(now.steady_s);
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
  if (!welcome.sample_design.empty() && welcome.sample_design != sample_design) {
    sample_design = welcome.sample_design;
    emit(action::OpenSamples{sample_design});
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

// Whether the open batch is to be closed.
bool AgentMachine::Impl::results_due() const {
  if (outbox.empty()) return false;
  if (outbox.full()) return true;
  const bool at_once = flush || queue.empty() || !unwritten.empty() || journal_full() || now.steady_s >= outbox.due_s();
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

// The first one after a Welcome follows all results from before: it ends the hand-over.
void AgentMachine::Impl::send_heartbeat() {
  if (!link.is_welcome() || now.steady_s < next_heartbeat_s) return;
  send(wire::Heartbeat{fence.next_heartbeat(now.steady_s), queue.elements(), running_elements(), left_s()});
  next_heartbeat_s = now.steady_s + link.heartbeat_s();
}

}  // namespace wflow::workers
