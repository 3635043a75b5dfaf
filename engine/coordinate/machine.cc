// SPDX-License-Identifier: Apache-2.0
// The coordinator machine's turn: time, phases, what follows from the scheduler's decisions, commits.
#include "engine/coordinate/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "engine/coordinate/machine_impl.h"
#include "engine/monitor/status.h"
#include "engine/schedule/graph.h"

namespace wflow::engine {

namespace {

// Time after which the machine asks an unknown peer again for a Hello.
constexpr double kIdentifyAgain_s = 120;
// While results are gathered, commits wait this many times as long as a message for each worker takes (a
// second for 1,000 workers), but no longer than Timing::longest_commit_s: by then most of a lease has ended,
// and neighbouring ends share a row.
constexpr double kCommitGathers = 5;

// The table of legal moves between phases.
constexpr bool may_move(Phase from, Phase to) {
  switch (from) {
    case Phase::running:
      return to == Phase::draining || to == Phase::stopping || to == Phase::dismissing ||
             to == Phase::handing_over;
    case Phase::handing_over:
      return to == Phase::draining || to == Phase::stopping || to == Phase::dismissing || to == Phase::ended;
    case Phase::draining:
      return to == Phase::stopping || to == Phase::dismissing;
    case Phase::stopping:
      return to == Phase::dismissing;
    case Phase::dismissing:
      return to == Phase::ended;
    case Phase::ended:
      return false;
  }
  return false;
}

}  // namespace

CoordinatorMachine::Impl::Impl(const specs::Plan& plan, std::vector<ArraySpec> arrays, MachineOptions options,
                               const store::Restored& restored, const std::vector<KnownWorker>& known,
                               Now now)
    : plan_(plan),
      options_(std::move(options)),
      groups_(plan.study()),
      scheduler_(std::move(arrays), options_.epoch),
      now_(now),
      retry_due_(options_.retry || !options_.run_again.parts.empty()),
      next_pulse_s_(now.steady_s + options_.timing.pulse_s) {
  if (options_.max_range > 0) scheduler_.set_max_range(options_.max_range);
  if (options_.time_limit_s > 0) time_limit_at_s_ = now.steady_s + options_.time_limit_s;
  restore_states(scheduler_, restored);
  scheduler_.set_keep_going(options_.keep_going);
  for (const std::size_t step : options_.beyond) scheduler_.hold_step(static_cast<std::uint32_t>(step), true);
  scheduler_.start();
  record(options_.resumed ? "resumed" : "started",
         fmt::format("coordinator {} on {} (pid {})", options_.epoch, options_.self.host, options_.self.pid));
  if (!options_.pools.empty()) {
    pools_.emplace(options_.pools, options_.job_prefix, options_.epoch, options_.pool_timing,
                   restored.allocations, now);
    if (options_.own_allocation.moves) pools_->set_own(options_.own_allocation.token, now);
    pools_due_ = true;
  }
  for (const Group& group : groups_.all()) {
    if (has_pool(group.name)) continue;
    const auto is_it = [&](const LocalGroup& local) { return local.name == group.name; };
    if (std::any_of(options_.local_groups.begin(), options_.local_groups.end(), is_it)) continue;
    record("worker",
           fmt::format("the group '{}' wants workers on {}; start them there, or here: wflow worker "
                       "--campaign {} --group '{}'",
                       group.name, text::join(group.machines, ", "), plan_.campaign().string(), group.name));
  }
  for (const KnownWorker& worker : known) meet(worker);
  if (unsettled_ == 0) end_recovery();
}

void CoordinatorMachine::Impl::see_time(Now now) {
  const double gap_s = std::max(0.0, now.steady_s - now_.steady_s);
  running_s_ += std::min(gap_s, options_.timing.longest_gap_s);
  now_ = now;
}

void CoordinatorMachine::Impl::settle() {
  if (phase_ == Phase::ended || failed_) return;
  check_time();
  judge_nodes();
  run_pools();
  check_own_allocation();
  start_local_workers();
  advance_phase();
  if (cancelled_) scheduler_.cancel_waiting();
  if (may_lease()) scheduler_.assign(now_.steady_s);
  take_decisions();
  commit();
  give_up_disk();
  if (phase_ == Phase::dismissing && end_recorded_ && all_is_written()) move_to(Phase::ended);
  if (phase_ == Phase::handing_over && may_end_here() && all_is_written()) {
    handed_over_ = true;
    move_to(Phase::ended);
  }
}

// Results deferred until the end of recovery stay in the workers' journals.
bool CoordinatorMachine::Impl::all_is_written() const {
  return !committing_ && batch_.empty() && (gathered_.empty() || recovering_);
}

// After a stop request, do not wait for the disk. Uncommitted results are in the workers' journals.
void CoordinatorMachine::Impl::give_up_disk() {
  if (disk_trouble_.empty() || !asked_to_end_ || phase_ != Phase::dismissing || !end_recorded_ || failed_)
    return;
  failed_ = true;
  act(action::Fail{ExitCode::system, disk_trouble_});
}

void CoordinatorMachine::Impl::move_to(Phase phase) {
  WFLOW_CHECK(may_move(phase_, phase));
  phase_ = phase;
  phase_due_s_ = kNever_s;  // of the phase that ends
}

void CoordinatorMachine::Impl::check_time() {
  if (now_.steady_s >= next_pulse_s_) pulse();
  if (running_s_ >= next_due_s_) check_due();
  if (now_.steady_s >= time_limit_at_s_ && phase_ == Phase::running)
    request_drain("the time limit is reached");
  if (scheduler_.stop_requested() && phase_ == Phase::running)
    request_drain("a task asked for the end of the campaign (exit code 102 or 105)");
}

void CoordinatorMachine::Impl::pulse() {
  next_pulse_s_ = now_.steady_s + options_.timing.pulse_s;
  sum_running();
  pools_due_ = true;
  report_unserved();
  check_silence();
  check_gangs();
  std::erase_if(identified_, [&](const auto& peer) { return running_s_ - peer.second > kIdentifyAgain_s; });
  const double pulse_s = options_.timing.pulse_s;
  const bool gathers = gather_s() > 0;
  for (auto& [id, worker] : workers_) {
    if (worker.peer.empty()) continue;
    // With many workers, one that gets other messages, as the answers to its heartbeats, needs no pulse.
    // Where heartbeats are rare, so are pulses: the worker finds its coordinator silent after three of them.
    const bool hears = gathers && now_.steady_s - worker.sent_s < std::max(worker.heartbeat_s, pulse_s);
    if (!hears) {
      send(worker, pulse_for(worker));
    } else if (worker.heartbeat_s <= pulse_s) {
      say_acknowledged(worker);
    }
    if (std::exchange(worker.identify, false)) act(action::Send{worker.peer, wire::Identify{}});
  }
}

// Without this note, a campaign that waits for a worker to be started would look hung.
void CoordinatorMachine::Impl::report_unserved() {
  if (phase_ != Phase::running || !may_lease() || scheduler_.paused()) return;
  for (const ArrayId array : scheduler_.without_worker(options_.timing.unserved_s)) {
    if (awaits_allocation(array)) continue;
    const std::size_t step = plan_.step_of(array);
    if (!reported_unserved_.insert(step).second) continue;
    const specs::PlannedStep& planned = plan_.steps()[step];
    const std::string gpus =
        planned.resources.gpus > 0 ? fmt::format(" with {} GPUs", planned.resources.gpus) : "";
    const Group& group = *groups_.serving(planned.study_step).front();
    const std::string where =
        group.machines.empty() ? "" : fmt::format(" on {}, or here", text::join(group.machines, " or "));
    record("note",
           fmt::format("no worker{} serves the step '{}': it waits until you start one{}: wflow worker "
                       "--campaign {} --group '{}'",
                       gpus, planned.name, where, plan_.campaign().string(), group.name));
  }
}

void CoordinatorMachine::Impl::request_drain(const std::string& why) {
  if (phase_ != Phase::running && phase_ != Phase::handing_over) return;
  move_to(Phase::draining);
  asked_to_end_ = true;
  record("stop", why + ": no new tasks are started, running ones may finish");
  if (pools_) pools_->stop_submitting();
  pools_due_ = true;
  scheduler_.set_paused(true);
  for (auto& [id, worker] : workers_) drain(worker);
}

void CoordinatorMachine::Impl::request_stop(const std::string& why) {
  if (phase_ != Phase::running && phase_ != Phase::draining && phase_ != Phase::handing_over) return;
  move_to(Phase::stopping);
  asked_to_end_ = true;
  record("stop", why + ": running tasks are ended; they will run again");
  if (pools_) pools_->stop_submitting();
  pools_due_ = true;
  scheduler_.set_paused(true);
  phase_due_s_ = running_s_ + options_.timing.dismiss_s;
  for (auto& [id, worker] : workers_) send(worker, wire::Revoke{{}, true, true});
}

void CoordinatorMachine::Impl::advance_phase() {
  end_where_all_is_held();
  const bool nothing_runs = scheduler_.leased() == 0 && unsettled_ == 0;
  const bool all_ended = scheduler_.ended() && !retry_due_;
  if ((phase_ == Phase::running || phase_ == Phase::handing_over) && all_ended) begin_to_dismiss();
  if (phase_ == Phase::draining && (all_ended || nothing_runs)) begin_to_dismiss();
  if (phase_ == Phase::stopping && (all_ended || nothing_runs || running_s_ >= phase_due_s_))
    begin_to_dismiss();
  if (phase_ != Phase::dismissing || end_recorded_) return;
  if (!workers_are_gone() && running_s_ >= phase_due_s_) {
    if (killed_all_) {
      log(LogLevel::warning, "processes of workers do not end; the campaign ends without them");
      record_end();
      return;
    }
    kill_all();
  }
  if (!workers_are_gone()) return;
  if (allocations_are_gone()) return record_end();
  phase_due_s_ = std::max(phase_due_s_, pools_give_up_s_);
}

void CoordinatorMachine::Impl::begin_to_dismiss() {
  move_to(Phase::dismissing);
  scheduler_.set_paused(true);
  phase_due_s_ = running_s_ + options_.timing.dismiss_s;
  for (auto& [id, worker] : workers_) drain(worker);
  if (pools_) {
    pools_->finish(now_);
    pools_give_up_s_ = running_s_ + options_.timing.cancel_s;
    pools_due_ = true;
    run_pools();
  }
}

// Waits for workers on other hosts only while they still send messages.
bool CoordinatorMachine::Impl::workers_are_gone() const {
  if (!processes_.empty()) return false;
  return std::none_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    const Worker& worker = entry.second;
    if (worker.here || worker.reading) return true;
    const double talked_s = running_s_ - 3 * worker.heartbeat_s;
    return !killed_all_ && worker.state != WorkerState::awaited && worker.heard_s > talked_s;
  });
}

void CoordinatorMachine::Impl::record_end() {
  if (pools_) {
    pools_->close_own(now_);
    carry_out(pools_->take_actions());
  }
  std::array<std::uint64_t, kElementStates> counts{};
  std::uint64_t elements = 0;
  for (ArrayId array = 0; array < scheduler_.array_count(); ++array) {
    const ArrayProgress progress = scheduler_.progress(array);
    for (std::size_t state = 0; state < kElementStates; ++state) {
      counts[state] += progress.counts[state];
      elements += progress.counts[state];
    }
  }
  const auto count = [&](ElementState state) { return counts[static_cast<std::size_t>(state)]; };
  const std::uint64_t failed = count(ElementState::failed) + count(ElementState::hard_failed);
  std::uint64_t done = count(ElementState::done) + count(ElementState::skipped);
  std::string text = fmt::format("{} of {} tasks done", done, elements);
  if (failed > 0) text += fmt::format(", {} failed", failed);
  if (count(ElementState::cancelled) > 0)
    text += fmt::format(", {} cancelled", count(ElementState::cancelled));
  const bool over = scheduler_.ended();
  if (!over) text += fmt::format("; continue with: wflow resume {}", plan_.campaign().string());
  record(over ? "end" : "interrupted", text);
  end_recorded_ = true;
  phase_due_s_ = kNever_s;
}

// Sends leases and adds records to the batch.
void CoordinatorMachine::Impl::take_decisions() {
  Actions decisions = scheduler_.take_actions();
  send_revokes(decisions.revokes);  // before the grants: a grant may reuse what a revoke takes back
  send_grants(decisions.grants);
  for (const RecordEnd& end : decisions.ends) {
    changed_arrays_.insert(end.array);
    if (has_ended(end.state)) progress_ += end.range.size();
    batch_.ends.push_back(end);
  }
  batch_.floors.insert(batch_.floors.end(), decisions.floors.begin(), decisions.floors.end());
  for (const MeasureOutputs& wanted : decisions.measurements)
    act(action::MeasureOutputs{wanted.array, wanted.element});
  note_disk();
  count_step_ends(decisions);
  std::move(decisions.causes.begin(), decisions.causes.end(), std::back_inserter(batch_.causes));
  for (RecordFailure& failure : decisions.failures) record_failure(std::move(failure));
}

void CoordinatorMachine::Impl::send_grants(const std::vector<GrantLease>& grants) {
  std::map<WorkerId, wire::Leases> leases;
  for (const GrantLease& grant : grants) {
    wire::Lease& lease = leases[grant.worker].leases.emplace_back(grant.lease);
    for (const auto& [range, array, state] :
         scheduler_.left_out(lease.array, {lease.first, lease.first + lease.count - 1}))
      lease.left_out.push_back(
          {range.first, range.size(), reason_left_out(plan_.steps()[plan_.step_of(array)].name, state)});
  }
  for (auto& [id, message] : leases) {
    Worker& worker = workers_.at(id);
    for (const wire::Lease& lease : message.leases) send_templates(worker, lease.array);
    send(worker, std::move(message));
  }
}

void CoordinatorMachine::Impl::send_revokes(const std::vector<RevokeLease>& revokes) {
  std::map<std::pair<WorkerId, bool>, wire::Revoke> messages;
  for (const RevokeLease& revoke : revokes) {
    wire::Revoke& message = messages[{revoke.worker, revoke.kill_running}];
    message.kill_running = revoke.kill_running;
    message.leases.push_back(revoke.part);
  }
  for (auto& [key, message] : messages) {
    const auto at = workers_.find(key.first);
    if (at == workers_.end()) continue;
    if (message.kill_running) remember_kills(at->second, message.leases);
    send(at->second, std::move(message));
  }
}

void CoordinatorMachine::Impl::record_failure(RecordFailure&& failure) {
  wire::Outcome& outcome = failure.outcome;
  if (outcome.reason == wire::EndReason::worker_lost && outcome.started_s == 0)
    outcome.started_s = now_.unix_s;  // only its worker knew the start
  changed_arrays_.insert(outcome.array);
  const bool runs_again = !has_ended(scheduler_.states(outcome.array).at(outcome.element));
  if (!failure.final && runs_again && outcome.reason == wire::EndReason::worker_lost &&
      is_single(outcome.array)) {
    record("retry", fmt::format("{} runs again: {}", plan_.array_name(outcome.array), outcome.detail));
  } else if (!failure.final && runs_again && is_single(outcome.array)) {
    const std::string how = outcome.reason == wire::EndReason::exited
                                ? fmt::format("exit code {}", outcome.exit_code)
                            : outcome.reason == wire::EndReason::signalled
                                ? fmt::format("signal {}", outcome.exit_code)
                                : fmt::format("'{}'", describe_end(static_cast<int>(outcome.reason), 0));
    record("retry", fmt::format("{} ended with {} and runs again", plan_.array_name(outcome.array), how));
  }
  if (outcome.reason == EndReason::out_of_memory && !failure.final && failure.counts.memory_bytes > 0) {
    const auto bytes = static_cast<std::uint64_t>(failure.counts.memory_bytes);
    failure.outcome.detail =
        fmt::format("it runs again with {} of memory\n{}", text::format_bytes(bytes), outcome.detail);
  }
  batch_.failures.push_back(std::move(failure));
}

void CoordinatorMachine::Impl::commit() {
  if (committing_) return;
  if (batch_.empty()) {
    gathered_.during_recovery = recovering_ && !scheduler_.ended();
    follow_up(std::exchange(gathered_, {}));
    return;
  }
  if (now_.steady_s < next_commit_s_ && may_gather()) return;
  if (gather_s() > 0) {
    const double each_s = static_cast<double>(workers_.size()) / options_.timing.results_per_s;
    next_commit_s_ = now_.steady_s + std::min(kCommitGathers * each_s, options_.timing.longest_commit_s);
  }
  for (const ArrayId array : std::exchange(changed_arrays_, {}))
    batch_.totals.push_back({array, scheduler_.progress(array)});
  committing_ = true;
  batch_.time_s = now_.unix_s;
  gathered_.during_recovery = recovering_ && !scheduler_.ended();
  scheduler_.saving();
  written_ = std::exchange(gathered_, {});
  act(action::Commit{std::exchange(batch_, {})});
}

// True if the batch may wait for more: it has only ends, and no request waits for its commit.
bool CoordinatorMachine::Impl::may_gather() const {
  return phase_ == Phase::running && !scheduler_.ended() && gathered_.joined.empty() &&
         gathered_.questions.empty() && gathered_.remove_journals.empty() && batch_.only_ends();
}

// During recovery the scheduler keeps successes that it cannot apply yet in memory alone: the machine
// acknowledges their messages and removes their journals only when all of them can be committed.
void CoordinatorMachine::Impl::put_off(AfterCommit& work) {
  for (const auto& [id, sequence] : std::exchange(work.acknowledge, {})) {
    std::uint64_t& later = gathered_.acknowledge[id];
    later = std::max(later, sequence);
  }
  auto& journals = gathered_.remove_journals;
  journals.insert(journals.end(), work.remove_journals.begin(), work.remove_journals.end());
  work.remove_journals.clear();
}

// Called when everything that `work` names is on disk.
void CoordinatorMachine::Impl::follow_up(AfterCommit work) {
  if (work.during_recovery) put_off(work);
  for (const auto& [id, row] : work.joined) {
    const auto at = workers_.find(id);
    if (at == workers_.end() || at->second.row != row) continue;
    at->second.has_row = true;
    if (at->second.state == WorkerState::joining) join(at->second);
  }
  for (const auto& [id, sequence] : work.acknowledge) {
    if (const auto at = workers_.find(id); at != workers_.end()) acknowledge(at->second, sequence);
  }
  for (const WorkerId& id : work.remove_journals) act(action::RemoveJournal{id});
  for (CoordinatorAction& question : work.questions) actions_.push_back(std::move(question));
}

// The history has more detail on a step with one task, such as a training: there are few such tasks.
bool CoordinatorMachine::Impl::is_single(ArrayId array) const {
  return plan_.steps()[plan_.step_of(array)].elements == 1;
}

void CoordinatorMachine::Impl::record(const std::string& kind, const std::string& text) {
  log(LogLevel::info, text);
  batch_.history.push_back({now_.unix_s, kind, text});
}

void CoordinatorMachine::Impl::log(LogLevel level, std::string text) {
  act(action::Log{level, std::move(text)});
}

// Skips time events: every turn has one.
void CoordinatorMachine::Impl::trace(const CoordinatorEvent& event) {
  if (!std::holds_alternative<event::Time>(event)) log(LogLevel::trace, "event: " + describe(event));
}

// Logs each action before it is carried out.
void CoordinatorMachine::Impl::trace_actions() {
  for (CoordinatorAction& action : std::exchange(actions_, {})) {
    if (!std::holds_alternative<action::Log>(action)) log(LogLevel::trace, "action: " + describe(action));
    actions_.push_back(std::move(action));
  }
}

// ---- the interface

CoordinatorMachine::CoordinatorMachine(const specs::Plan& plan, std::vector<ArraySpec> arrays,
                                       MachineOptions options, const store::Restored& restored,
                                       const std::vector<KnownWorker>& known, Now now)
    : impl_(std::make_unique<Impl>(plan, std::move(arrays), std::move(options), restored, known, now)) {}

CoordinatorMachine::~CoordinatorMachine() = default;

void CoordinatorMachine::handle(Now now, CoordinatorEvent event) {
  impl_->see_time(now);
  if (impl_->phase_ == Phase::ended) return;
  if (impl_->options_.trace) impl_->trace(event);
  std::visit([&](auto& value) { impl_->on(value); }, event);
}

std::vector<CoordinatorAction> CoordinatorMachine::take_actions() {
  impl_->settle();
  if (impl_->options_.trace) impl_->trace_actions();
  return std::exchange(impl_->actions_, {});
}

double CoordinatorMachine::wake_at_s() const {
  double at_s = std::min(impl_->next_pulse_s_, impl_->time_limit_at_s_);
  if (impl_->pools_due_ && impl_->phase_ != Phase::ended) at_s = impl_->now_.steady_s;
  // After that time a hand-over waits only for a commit.
  const bool waited = impl_->phase_ == Phase::handing_over && impl_->running_s_ >= impl_->phase_due_s_;
  for (const double due_s : {impl_->next_due_s_, waited ? kNever_s : impl_->phase_due_s_})
    at_s = std::min(at_s, impl_->now_.steady_s + std::max(0.0, due_s - impl_->running_s_));
  at_s = std::min(at_s, impl_->own_wake_s());
  if (!impl_->committing_ && !impl_->batch_.empty()) at_s = std::min(at_s, impl_->next_commit_s_);
  if (const auto due_s = impl_->scheduler_.next_due_s(); due_s && impl_->may_lease())
    at_s = std::min(at_s, *due_s);
  return at_s;
}

Phase CoordinatorMachine::phase() const {
  return impl_->phase_;
}

bool CoordinatorMachine::campaign_over() const {
  return impl_->scheduler_.ended();
}

const std::string& CoordinatorMachine::disk_trouble() const {
  return impl_->disk_trouble_;
}

bool CoordinatorMachine::handed_over() const {
  return impl_->handed_over_;
}

bool CoordinatorMachine::ended_before_beyond() const {
  return impl_->ended_before_beyond_;
}

bool CoordinatorMachine::asked_to_end() const {
  return impl_->asked_to_end_;
}

const Scheduler& CoordinatorMachine::scheduler() const {
  return impl_->scheduler_;
}

std::uint64_t CoordinatorMachine::refused_messages() const {
  return impl_->refused_;
}

wire::AllocationsAnswer CoordinatorMachine::allocations(double unix_s, bool ended) const {
  return impl_->allocations(unix_s, ended);
}

std::string CoordinatorMachine::waits_for(ArrayId array, double unix_s) const {
  return impl_->waits_for(array, unix_s);
}

bool CoordinatorMachine::gathers() const {
  return impl_->gather_s() > 0;
}

std::vector<CoordinatorMachine::PeerView> CoordinatorMachine::peers(double steady_s) const {
  std::vector<PeerView> views;
  views.reserve(impl_->workers_.size());
  const double now_s = impl_->running_s_ + std::max(0.0, steady_s - impl_->now_.steady_s);
  for (const auto& [id, worker] : impl_->workers_) {
    if (worker.peer.empty()) continue;
    views.push_back(
        {id, worker.guardian.host, now_s - worker.heard_s, worker.running, worker.ended, worker.scheduled});
  }
  return views;
}

}  // namespace wflow::engine
