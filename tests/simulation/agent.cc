// SPDX-License-Identifier: Apache-2.0
// What the agent's edge does for its machine, with simulated children, files and connections.
#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "base/error.h"
#include "tests/simulation/worker.h"

namespace wflow::simulation {

namespace {

constexpr double kBegin_s = 0.3;         // from fork to the first look for a coordinator, at most
constexpr double kTurnAtLeast_s = 1e-5;  // a turn of its loop
constexpr double kTurnAtMost_s = 1e-3;
constexpr double kSlowLaunch_s = 2;
constexpr double kCheckAtMost_s = 0.05;
constexpr std::uint64_t kSpins = 2000;  // turns in which it wanted to wake at once and nothing was there
constexpr double kSpinTime_s = 0.5;

}  // namespace

Agent::Agent(Surroundings& around, Host& host, Worker& worker, workers::AgentOptions options)
    : Process(around.hosts, host), around_(around), worker_(worker) {
  options.agent = identity();
  options.trace = around.trace.on();
  machine_ = std::make_unique<workers::AgentMachine>(std::move(options), host.at(around.timeline.now_s()));
}

void Agent::begin() {
  schedule(around_.draw.between(0, kBegin_s));
}

void Agent::guardian_gone() {
  others_.emplace_back(workers::event::GuardianGone{});
  schedule(0);
}

void Agent::terminate() {
  others_.emplace_back(workers::event::Terminate{});
  schedule(0);
}

void Agent::told_end(double in_s) {
  if (!alive()) return;
  others_.emplace_back(
      workers::event::EndKnown{host().at(around_.timeline.now_s()).steady_s + in_s * host().rate});
  schedule(0);
}

void Agent::task_ended(workers::SlotId slot) {
  children_.push_back(slot);
  schedule(0);
}

void Agent::connected(ConnectionId connection) {
  if (connection != connection_) return;
  messages_.emplace_back(workers::event::Connected{});
  schedule(0);
}

void Agent::connection_lost(ConnectionId connection) {
  if (connection != connection_) return;
  messages_.emplace_back(workers::event::ConnectionLost{});
  schedule(0);
}

void Agent::receive(ConnectionId connection, wire::Message message) {
  if (connection != connection_) return;
  messages_.emplace_back(workers::event::Message{std::move(message)});
  schedule(0);
}

void Agent::woken() {
  worker_.note_attendance();
  schedule(0);
}

void Agent::ended(bool with_host) {
  if (connection_ != 0 && !with_host) around_.network.close(connection_);
  if (connection_ != 0 && with_host) around_.network.vanish(connection_);
  worker_.agent_ended(with_host, machine_->open_sequence());
  machine_.reset();
}

// ---- the loop

void Agent::schedule(double delay_s) {
  // Without a journal it ends before its loop begins, and without a word: a signal changes nothing.
  if (!runs() || !worker_.has_journal()) return;
  const double at_s =
      std::max(around_.timeline.now_s() + delay_s + around_.draw.logarithmic(kTurnAtLeast_s, kTurnAtMost_s),
               busy_until_s_);
  if (scheduled_s_ >= 0 && scheduled_s_ <= at_s) return;
  scheduled_s_ = at_s;
  const std::uint64_t number = ++turn_number_;
  around_.timeline.at(at_s, [this, number] {
    if (number != turn_number_) return;
    scheduled_s_ = -1;
    if (runs()) turn();
  });
}

void Agent::turn() {
  const bool was_there = take_some();
  if (!alive()) return;
  handle(workers::event::Time{});
  if (!alive()) return;
  // A machine that wants to wake at once, again and again, would burn a processor.
  const double now_s = around_.timeline.now_s();
  if (was_there || now_s - idle_since_s_ > kSpinTime_s) {
    idle_turns_ = 0;
    idle_since_s_ = now_s;
  } else if (++idle_turns_ > kSpins) {
    throw Violation("bounded", fmt::format("the agent of {} spins", worker_.id()));
  }
  const bool more =
      !messages_.empty() || !others_.empty() || (!children_.empty() && !machine_->journal_full());
  const double wake_s = machine_->wake_at_s();
  if (std::isnan(wake_s)) throw Violation("bounded", "the agent's wake-up is not a number");
  if (more) return schedule(0);
  if (std::isfinite(wake_s)) schedule(std::max(0.0, host().true_time(wake_s) - now_s));
}

// Some of what is there, in an order that chance decides among sources, and not within one.
bool Agent::take_some() {
  const std::size_t most = 1 + around_.draw.below(8);
  std::size_t taken = 0;
  while (taken < most && alive()) {
    const bool children = !children_.empty() && !machine_->journal_full();
    const std::size_t sources = (messages_.empty() ? 0 : 1) + (children ? 1 : 0) + (others_.empty() ? 0 : 1);
    if (sources == 0) break;
    ++taken;
    std::size_t choice = around_.draw.below(sources);
    if (!messages_.empty() && choice-- == 0) {
      workers::AgentEvent event = std::move(messages_.front());
      messages_.pop_front();
      handle(std::move(event));
    } else if (children && choice-- == 0) {
      const workers::SlotId slot = children_.front();
      children_.pop_front();
      take_child(slot);
    } else {
      // Delivers ended tasks before the end of this process itself.
      while (alive() && !children_.empty() &&
             std::holds_alternative<workers::event::GuardianGone>(others_.front())) {
        const workers::SlotId slot = children_.front();
        children_.pop_front();
        take_child(slot);
      }
      if (!alive()) break;
      workers::AgentEvent event = std::move(others_.front());
      others_.pop_front();
      handle(std::move(event));
    }
  }
  return taken > 0;
}

void Agent::take_child(workers::SlotId slot) {
  RunningTask* const task = worker_.tasks().find(slot);
  if (task == nullptr || !task->ended) return;
  if (worker_.tasks().needs_check(*task)) {
    if (!std::exchange(task->checking, true)) {
      const std::uint64_t number = task->number;
      around_.timeline.after(around_.draw.between(0, kCheckAtMost_s), [this, slot, number] {
        RunningTask* const checked = worker_.tasks().find(slot);
        if (!alive() || checked == nullptr || checked->number != number) return;
        checked->checking = false;
        checked->checked = true;
        task_ended(slot);
      });
    }
    return handle(workers::event::TaskChecking{slot});
  }
  Judgement judgement = worker_.tasks().judge(*task);
  if (judgement.results.done.empty() && judgement.results.outcomes.empty()) {
    worker_.expect_not_done(*task);
    around_.history.lost(task->execution);
  }
  around_.trace.line(worker_.id(), "slot {} ended: {} runs done, {} outcomes, {} parts again", slot,
                     judgement.results.done.size(), judgement.results.outcomes.size(),
                     judgement.again.size());
  for (auto& event : worker_.tasks().take_events(*task)) judgement.results.events.push_back(std::move(event));
  spoil(around_.planted, judgement.results);
  const ExecutionNumber execution = task->execution;
  const wire::Lease lease = task->lease;
  const bool has_succeeded = !judgement.results.done.empty();
  const bool has_result = !judgement.results.done.empty() || !judgement.results.outcomes.empty();
  journal_failed_ = journal_written_ = false;
  handle(workers::event::TaskEnded{slot, std::move(judgement.results), std::move(judgement.again)});
  if (!alive()) return;  // it may not be in the journal
  if (has_succeeded && !journal_written_) worker_.expect_not_done(*task);
  if (has_result && !journal_written_) {
    held_back_.emplace_back(lease, execution);  // its allocation may be ending, too
  } else if (!journal_failed_) {
    around_.history.told(execution);
  }
  worker_.tasks().remove(slot);  // reaped
}

void Agent::note_written(const wire::Results& record) {
  journal_written_ = true;
  std::erase_if(held_back_, [&](const auto& held) {
    const auto& [lease, execution] = held;
    const bool written =
        std::any_of(record.outcomes.begin(), record.outcomes.end(), [&lease = lease](const auto& outcome) {
          return outcome.lease == lease.id && outcome.array == lease.array && outcome.element == lease.first;
        });
    if (written && !journal_failed_) around_.history.told(execution);
    return written;
  });
}

// The coordinator promises that all of it is on disk.
void Agent::take_acknowledgement(std::uint64_t sequence) {
  while (!unacknowledged_.empty() && unacknowledged_.begin()->first <= sequence) {
    const wire::Results& results = unacknowledged_.begin()->second;
    around_.history.acknowledged(results);
    for_each_result(results, [&](const ResultId& result) { acknowledged_.insert(result); });
    unacknowledged_.erase(unacknowledged_.begin());
  }
}

void Agent::handle(workers::AgentEvent event) {
  if (const auto* message = std::get_if<workers::event::Message>(&event)) {
    if (const auto* acknowledge = std::get_if<wire::Acknowledge>(&message->message))
      take_acknowledgement(acknowledge->sequence);
  }
  machine_->handle(host().at(around_.timeline.now_s()), std::move(event));
  carry_out(machine_->take_actions());
  // Delivers the answer before any other event.
  while (alive() && !answers_.empty()) {
    workers::AgentEvent answer = std::move(answers_.front());
    answers_.pop_front();
    machine_->handle(host().at(around_.timeline.now_s()), std::move(answer));
    carry_out(machine_->take_actions());
  }
}

void Agent::carry_out(std::vector<workers::AgentAction> actions) {
  // A Log is not counted as an action, so that a schedule is the same with a trace.
  const auto is_trace = [](const workers::AgentAction& action) {
    const auto* log = std::get_if<workers::action::Log>(&action);
    return log != nullptr && log->level == LogLevel::trace;
  };
  const auto traced = static_cast<std::size_t>(std::count_if(actions.begin(), actions.end(), is_trace));
  if (actions.size() - traced > 20 + 4 * around_.study.elements + 10 * machine_->running())
    throw Violation("bounded",
                    fmt::format("the agent of {} decides {} actions at once", worker_.id(), actions.size()));
  for (workers::AgentAction& action : actions) {
    if (is_trace(action)) {
      if (alive()) on(std::get<workers::action::Log>(action));
      continue;
    }
    if (die_after_ && (*die_after_)-- == 0) {
      around_.trace.line(worker_.id(), "agent is killed between two actions");
      end();
    }
    if (!alive()) return;
    std::visit([this](auto& value) { on(value); }, action);
  }
}

// ---- actions

void Agent::on(workers::action::LookUp&) {
  workers::event::EndpointRead read;
  if (around_.endpoint) read.address = around_.endpoint->address;
  answers_.emplace_back(std::move(read));
}

void Agent::on(workers::action::Connect& connect) {
  if (connection_ != 0) around_.network.close(connection_);
  // Drops messages of the earlier connection.
  std::erase_if(messages_, [](const auto&) { return true; });
  // A file of another coordinator may have been read: its listener is part of the address here.
  connection_ = around_.network.connect(*this, host().name, std::stoull(connect.address.remote));
  around_.trace.line(worker_.id(), "connects to epoch {}", connect.address.epoch);
}

void Agent::on(workers::action::Send& send) {
  const bool leaves = std::holds_alternative<wire::Goodbye>(send.message);
  if (leaves && journal_unseen_) return;
  if (leaves) worker_.expect_visible_journal(acknowledged_);
  if (const auto* results = std::get_if<wire::Results>(&send.message))
    unacknowledged_[results->sequence] = *results;
  if (connection_ != 0) around_.network.send_to_server(connection_, std::move(send.message));
}

void Agent::on(workers::action::AppendJournal& append) {
  for (const wire::Outcome& outcome : append.record.outcomes) {
    // Once, however often it is written.
    if (engine::is_neutral(outcome.reason) &&
        neutral_.emplace(outcome.lease, outcome.element, outcome.attempt).second)
      around_.history.element_ended(outcome, false);
  }
  const bool appended = worker_.append(append.record);
  journal_failed_ = journal_failed_ || !appended;
  note_written(append.record);
  if (appended) return;
  around_.trace.line(worker_.id(), "journal: the disk is full");
  answers_.emplace_back(workers::event::JournalFailed{"the disk is full", std::move(append.record)});
}

void Agent::on(workers::action::ClearJournal&) {
  if (!worker_.clear_journal())
    answers_.emplace_back(workers::event::JournalFailed{"the disk fails", std::nullopt});
}

void Agent::on(workers::action::SyncJournal&) {
  if (around_.planted == Planted::goodbye_without_sync) return;
  try {
    worker_.journal().sync();
  } catch (const Error&) {
    journal_unseen_ = true;
  }
}

void Agent::on(workers::action::NoteLost& note) {
  if (!worker_.note_lost(note.lost_s))
    answers_.emplace_back(workers::event::JournalFailed{"the disk fails", std::nullopt});
}

void Agent::on(workers::action::OpenSamples&) {
  answers_.emplace_back(workers::event::SamplesOpened{});
}

void Agent::on(workers::action::StartTask& start) {
  if (around_.draw.chance(around_.mishaps.not_started)) {
    around_.faults.count(Fault::task_not_started);
    for (Element element = start.lease.first; element < start.lease.first + start.lease.count; ++element) {
      around_.history.element_ended({start.lease.id,
                                     start.lease.array,
                                     element,
                                     start.lease.attempt,
                                     wire::EndReason::not_started,
                                     0,
                                     0,
                                     0,
                                     {}},
                                    false);
    }
    answers_.emplace_back(workers::event::TaskNotStarted{start.slot, "no memory"});
    return;
  }
  if (around_.draw.chance(around_.mishaps.slow_launch)) {
    around_.faults.count(Fault::slow_launch);
    busy_until_s_ = around_.timeline.now_s() + around_.draw.between(0, kSlowLaunch_s);
  }
  around_.trace.line(worker_.id(), "starts {} (+{}) attempt {} lease {:x} in slot {}",
                     around_.history.name(start.lease.array, start.lease.first), start.lease.count - 1,
                     start.lease.attempt, start.lease.id, start.slot);
  worker_.tasks().start(start.slot, start.lease);
  answers_.emplace_back(workers::event::TaskStarted{start.slot});
}

void Agent::on(workers::action::EndTask& end) {
  if (end.cause == workers::EndCause::returned && end.kill) around_.faults.count(Fault::fence_passed);
  around_.trace.line(worker_.id(), "ends slot {} (cause {}, {})", end.slot, static_cast<int>(end.cause),
                     end.kill ? "kill" : "term");
  worker_.tasks().signal(end.slot, end.cause, end.kill);
}

// Kills the processes of the lease on this node, also the task itself if this worker runs it.
void Agent::on(workers::action::EndRanks& end) {
  around_.history.ranks_ended(end.lease, worker_.number());
  for (auto& [slot, task] : worker_.tasks().all()) {
    if (task.lease.id == end.lease && !task.ended)
      worker_.tasks().signal(slot, workers::EndCause::cancelled, true);
  }
}

void Agent::on(workers::action::FollowEvents&) {
  for (auto& [slot, task] : worker_.tasks().all()) {
    if (task.ended || task.events_left == 0) continue;
    answers_.emplace_back(workers::event::TaskReports{slot, worker_.tasks().take_events(task)});
  }
}

void Agent::on(workers::action::SetFence& fence) {
  worker_.guardian().set_fence(fence.steady_s);
}

void Agent::on(workers::action::Log& log) {
  around_.trace.line(worker_.id(), "agent: {}", log.text);
}

void Agent::on(workers::action::Exit& exit) {
  around_.trace.line(worker_.id(), "agent ends with {}", exit.code);
  let_go_ = exit.code == 0 && !worker_.guardian().was_signalled();
  end();
}

}  // namespace wflow::simulation
