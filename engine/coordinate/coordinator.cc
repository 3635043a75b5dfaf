// SPDX-License-Identifier: Apache-2.0
#include "engine/coordinate/coordinator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/printable.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/batch/orphans.h"
#include "engine/coordinate/coordinator_impl.h"
#include "engine/followups/followups.h"
#include "engine/schedule/graph.h"

namespace wflow::engine {

namespace {

constexpr double kPulse_s = 1.0;
// A worker that an earlier coordinator left alive has this long to say Hello before it is ended: then it
// hangs.
constexpr double kReturn_s = 20;
// Without a heartbeat for so long a worker counts as lost, where its process can't be watched.
constexpr double kSilence_s = 60;
// A step without any worker for so long is told of.
constexpr double kUnserved_s = 3;
constexpr double kDismiss_s = 15;
// How long a question for the status waits for a coordinator that begins or ends.
constexpr double kStatus_s = 10;
constexpr int kMaxIdleStarts = 3;

CampaignStatus recorded_status(store::Store& store) {
  CampaignStatus status;
  store.add_records(status);
  return status;
}

}  // namespace

Coordinator::Coordinator(const specs::Plan& plan, const CoordinatorOptions& options, const StatusSink& sink)
    : plan_(plan),
      options_(options),
      sink_(sink),
      keys_(wire::read_keys(plan.campaign())),
      signals_({SIGINT, SIGTERM, SIGHUP}),
      store_(plan.campaign()),
      epoch_(store_.next_epoch()),
      groups_(plan.study()),
      scheduler_(array_specs(plan), epoch_),
      status_(plan, recorded_status(store_)),
      socket_(keys_),
      pool_(plan.campaign()),
      merlin_status_(plan) {}

CoordinatorEnd Coordinator::run() {
  const std::string where = fmt::format("{} (pid {})", host_name(), ::getpid());
  status_.set_coordinator(where);
  if (options_.max_range > 0) scheduler_.set_max_range(options_.max_range);
  recover();
  record(options_.resumed ? "resumed" : "started", fmt::format("coordinator {} on {}", epoch_, where));
  commits_ = std::make_unique<store::CommitThread>(store_);
  wire::Endpoint endpoint = socket_.endpoint();
  endpoint.epoch = epoch_;
  wire::write_endpoint(plan_.campaign(), endpoint);
  if (options_.time_limit_s > 0) deadline_s_ = steady_now_s() + options_.time_limit_s;
  if (!options_.zero_workers) write_merlin_shim(plan_.campaign());
  try {
    find_local_groups();
    start_pool();
    while (!over()) step();
    return finish();
  } catch (...) {
    abandon_workers();
    throw;
  }
}

// The database can't be written any more, or worse: what runs is ended, so that nothing is left behind when
// this process ends. Results that were not committed are in the workers' journals.
void Coordinator::abandon_workers() {
  pool_.kill_all(SIGTERM);
  const double until_s = steady_now_s() + kDismiss_s;
  while (!pool_.empty() && steady_now_s() < until_s) {
    socket_.wait(std::chrono::milliseconds(200), pool_.descriptors());
    pool_.take_ended();
  }
  pool_.kill_all(SIGKILL);
}

// What earlier coordinators committed, and what their workers finished without being heard.
void Coordinator::recover() {
  const store::Restored restored = store_.restore();
  restore_states(scheduler_, restored);
  scheduler_.set_keep_going(options_.keep_going);
  scheduler_.start();
  std::map<std::string, store::WorkerRow> known;
  for (const auto& worker : restored.workers) known[worker.id] = worker;
  for (const wire::WorkerJournal& journal : wire::find_worker_journals(plan_.campaign())) {
    if (!journal.alive) {
      take_worker_journal(journal);
    } else if (const auto at = known.find(journal.worker);
               at != known.end() && pool_.adopt(static_cast<pid_t>(at->second.pid), at->second.group)) {
      expected_[journal.worker] = {at->second.pid, steady_now_s() + kReturn_s};
    }
    known.erase(journal.worker);
  }
  for (const auto& [id, worker] : known)
    batch_.workers_ended.push_back({id, unix_now_s(), "its coordinator ended"});
  if (options_.retry) retry(*options_.retry);
}

void Coordinator::take_worker_journal(const wire::WorkerJournal& journal) {
  if (const std::size_t orphans = batch::end_orphans(journal.worker); orphans > 0) {
    record("worker",
           fmt::format("{} processes that worker {} left behind were ended", orphans, journal.worker));
  }
  std::uint64_t count = 0;
  for (const wire::Results& results : journal.results) {
    apply(results, journal.worker);
    for (const wire::DoneRun& run : results.done) count += run.count;
    count += results.outcomes.size();
  }
  if (count > 0) {
    record("worker", fmt::format("{} results of worker {} taken from its journal", count, journal.worker));
  }
  batch_.workers_ended.push_back({journal.worker, unix_now_s(), "ended"});
  journals_to_remove_.push_back(journal.worker);
}

// A worker for each group that has none on this machine.
void Coordinator::start_pool() {
  if (!expected_.empty()) return;
  for (const auto& [group, slots] : local_groups_) {
    if (!pool_.has(group)) start_worker(group, slots);
  }
}

void Coordinator::start_worker(const std::string& group, int slots) {
  const std::uint64_t ended = scheduler_.array_count() == 0 ? 0 : status_.update(scheduler_, 0, 0).ended();
  Starts& starts = starts_[group];
  if (ended > starts.ended) starts.number = 0;
  starts.ended = ended;
  if (++starts.number > kMaxIdleStarts) {
    throw Error(ExitCode::system, fmt::format("workers on this machine end as soon as they start; see {}",
                                              pool_.log_of(group).string()));
  }
  pool_.start({group, slots, groups_.find(group)->pin, options_.zero_workers, options_.zero_failures});
}

// What this machine starts; workers of other groups are started by hand, where the study wants them.
void Coordinator::find_local_groups() {
  std::vector<Group> here;
  for (const Group& group : groups_.all()) {
    if (may_run_on(group, host_name())) {
      here.push_back(group);
      continue;
    }
    record("worker",
           fmt::format("the group '{}' wants workers on {}; start them there: wflow worker --campaign {} "
                       "--group '{}'",
                       group.name, text::join(group.machines, ", "), plan_.campaign().string(), group.name));
  }
  const std::vector<int> slots = local_slots(here, batch::usable_cores(), options_.slots);
  check_pins(here, slots, batch::usable_cores());
  for (std::size_t i = 0; i < here.size(); ++i) local_groups_.emplace_back(here[i].name, slots[i]);
}

void Coordinator::step() {
  wait();
  receive_all();
  take_signals();
  check_processes();
  const double now_s = steady_now_s();
  check_expected();
  check_silence(now_s);
  if (deadline_s_ > 0 && now_s > deadline_s_ && phase_ == Phase::running)
    request_drain("the time limit is reached");
  if (scheduler_.stop_requested() && phase_ == Phase::running) {
    request_drain("a task asked for the end of the campaign (exit code 102 or 105)");
  }
  if (cancelled_) scheduler_.cancel_waiting();
  if (!waits_for_workers()) scheduler_.assign(now_s);
  carry_out();
  commit();
  // Then everything that has ended is in the store, and the store is ours.
  if (!commits_->busy()) merlin_status_.write_some(scheduler_, store_);
  show(now_s, false);
}

void Coordinator::wait() {
  const double now_s = steady_now_s();
  double until_s = std::min(next_status_s_, next_pulse_s_);
  if (const auto due = scheduler_.next_due_s(); due && !waits_for_workers())
    until_s = std::min(until_s, *due);
  const double timeout_ms = std::clamp((until_s - now_s) * 1e3, 0.0, 1000.0);
  std::vector<int> descriptors = pool_.descriptors();
  descriptors.push_back(signals_.descriptor());
  descriptors.push_back(commits_->descriptor());
  socket_.wait(std::chrono::milliseconds(static_cast<int>(timeout_ms) + 1), descriptors);
  if (commits_->committed()) send_acknowledgements();
}

void Coordinator::receive_all() {
  // Bounded, so that signals and the display are served under any load.
  for (int i = 0; i < 1000; ++i) {
    auto received = socket_.receive();
    if (!received) return;
    handle(received->peer, std::move(received->message));
  }
}

void Coordinator::carry_out() {
  Actions actions = scheduler_.take_actions();
  send_grants(actions.grants);
  for (const RevokeLease& revoke : actions.revokes) {
    const auto peer = peers_.find(revoke.worker);
    if (peer != peers_.end())
      socket_.send(peer->second.routing, wire::Revoke{{revoke.lease}, revoke.kill_running});
  }
  batch_.ends.insert(batch_.ends.end(), actions.ends.begin(), actions.ends.end());
  for (const RecordEnd& end : actions.ends) {
    timed_arrays_.insert(end.array);
    merlin_status_.changed(end.array);
  }
  for (RecordFailure& failure : actions.failures) {
    failure.outcome.detail = printable(failure.outcome.detail);  // a task may have printed anything
    status_.failure(failure);
    const wire::Outcome& outcome = failure.outcome;
    if (!failure.final && is_single(outcome.array)) {
      record("retry", fmt::format("{} ended with {} and runs again", plan_.array_name(outcome.array),
                                  describe_end(static_cast<int>(outcome.reason), outcome.exit_code)));
    }
    batch_.failures.push_back(std::move(failure));
  }
}

void Coordinator::send_grants(const std::vector<GrantLease>& grants) {
  std::map<std::string, wire::Leases> leases;
  for (const GrantLease& grant : grants) {
    Peer& peer = peers_.at(grant.worker);
    if (peer.templates.insert(grant.lease.array).second) {
      socket_.send(peer.routing, wire::Templates{{plan_.task_template(grant.lease.array)}});
    }
    leases[grant.worker].leases.push_back(grant.lease);
  }
  for (auto& [worker, message] : leases) socket_.send(peers_.at(worker).routing, message);
}

void Coordinator::commit() {
  if (commits_->busy()) return;
  for (auto& [worker, peer] : peers_) {
    if (peer.acknowledge > 0) acknowledge_after_commit_[worker] = std::exchange(peer.acknowledge, 0);
  }
  journals_after_commit_ = std::exchange(journals_to_remove_, {});
  for (const ArrayId array : std::exchange(timed_arrays_, {}))
    batch_.totals.push_back({array, scheduler_.progress(array)});
  if (batch_.empty()) {
    send_acknowledgements();
    return;
  }
  commits_->submit(std::exchange(batch_, {}));
}

void Coordinator::send_acknowledgements() {
  for (const auto& [worker, sequence] : std::exchange(acknowledge_after_commit_, {})) {
    const auto peer = peers_.find(worker);
    if (peer != peers_.end()) socket_.send(peer->second.routing, wire::Acknowledge{sequence});
  }
  for (const std::string& worker : std::exchange(journals_after_commit_, {})) forget_journal(worker);
}

void Coordinator::forget_journal(const std::string& worker) {
  std::error_code ignored;  // a journal that stays is read again by the next coordinator, to no effect
  const std::filesystem::path folder = plan_.campaign() / ".wflow" / "workers";
  std::filesystem::remove(folder / (worker + ".journal"), ignored);
  std::filesystem::remove_all(folder / worker, ignored);
}

void Coordinator::take_signals() {
  while (const auto signal = signals_.take()) {
    if (*signal == SIGHUP) {
      record("stop", "the terminal was lost; the campaign goes on");
    } else if (phase_ == Phase::running && *signal == SIGINT) {
      request_drain("interrupted");
    } else {
      request_stop(*signal == SIGTERM ? "terminated" : "interrupted again");
    }
  }
}

void Coordinator::request_drain(const std::string& why) {
  if (phase_ != Phase::running) return;
  phase_ = Phase::draining;
  status_.set_state("draining");
  record("stop", why + ": no new tasks are started, running ones may finish");
  scheduler_.set_paused(true);
  for (const auto& [worker, peer] : peers_) {
    scheduler_.worker_draining(worker);
    socket_.send(peer.routing, wire::Drain{});
  }
}

void Coordinator::request_stop(const std::string& why) {
  if (phase_ == Phase::stopping) return;
  phase_ = Phase::stopping;
  status_.set_state("stopping");
  record("stop", why + ": running tasks are ended; they will run again");
  scheduler_.set_paused(true);
  for (const auto& [worker, peer] : peers_) socket_.send(peer.routing, wire::Revoke{{}, true});
}

void Coordinator::check_processes() {
  for (const pid_t pid : pool_.take_ended()) {
    receive_all();  // what it said before it ended comes first
    std::string worker;
    for (const auto& [id, peer] : peers_) {
      if (peer.pid == pid && peer.local) worker = id;
    }
    for (const auto& [id, expected] : expected_) {
      if (expected.pid == pid) worker = id;
    }
    expected_.erase(worker);
    for (const wire::WorkerJournal& journal : wire::find_worker_journals(plan_.campaign())) {
      if (journal.worker == worker && !journal.alive) take_worker_journal(journal);
    }
    if (peers_.contains(worker)) lose_worker(worker, "its process ended");
  }
  if (phase_ == Phase::running && !scheduler_.ended()) start_pool();
}

void Coordinator::lose_worker(const std::string& worker, const std::string& reason) {
  const auto at = peers_.find(worker);
  if (at == peers_.end()) return;
  scheduler_.worker_lost(worker, at->second.running);
  batch_.workers_ended.push_back({worker, unix_now_s(), reason});
  record("worker", fmt::format("worker {} lost: {}", worker, reason));
  by_routing_.erase(at->second.routing);
  peers_.erase(at);
}

void Coordinator::check_expected() {
  for (auto at = expected_.begin(); at != expected_.end();) {
    if (steady_now_s() < at->second.until_s) {
      ++at;
      continue;
    }
    // It lives but does not come back: ended, so that its tasks can't run beside their next execution.
    record("worker", fmt::format("worker {} did not come back and was ended", at->first));
    ::kill(static_cast<pid_t>(at->second.pid), SIGKILL);
    at = expected_.erase(at);
  }
}

void Coordinator::check_silence(double now_s) {
  if (now_s < next_pulse_s_) return;
  next_pulse_s_ = now_s + kPulse_s;
  report_unserved();
  std::vector<std::string> silent;
  for (const auto& [worker, peer] : peers_) {
    socket_.send(peer.routing, wire::Pulse{});
    if (!peer.local && now_s - peer.heard_s > kSilence_s) silent.push_back(worker);
  }
  for (const std::string& worker : silent)
    lose_worker(worker, fmt::format("nothing heard for {:.0f} s", kSilence_s));
}

// A campaign that waits for a worker that nobody has started would look as if it hung.
void Coordinator::report_unserved() {
  if (phase_ != Phase::running || waits_for_workers() || scheduler_.paused()) return;
  for (const ArrayId array : scheduler_.without_worker(kUnserved_s)) {
    const std::size_t step = plan_.step_of(array);
    if (!reported_unserved_.insert(step).second) continue;
    const specs::PlannedStep& planned = plan_.steps()[step];
    const std::string gpus =
        planned.resources.gpus > 0 ? fmt::format(" with {} GPUs", planned.resources.gpus) : "";
    record("note",
           fmt::format("no worker{} serves the step '{}': it waits until one is started (wflow worker "
                       "--campaign {})",
                       gpus, planned.name, plan_.campaign().string()));
  }
}

bool Coordinator::over() const {
  if (scheduler_.ended()) return true;
  return phase_ != Phase::running && scheduler_.leased() == 0 && expected_.empty();
}

CoordinatorEnd Coordinator::finish() {
  bool asked = phase_ != Phase::running;
  const bool ended = scheduler_.ended();
  const CampaignStatus& now = status_.update(scheduler_, steady_now_s(), unix_now_s());
  std::string text =
      fmt::format("{} of {} tasks done", now.ended() - now.failed() - now.cancelled(), now.elements());
  if (now.failed() > 0) text += fmt::format(", {} failed", now.failed());
  const std::uint64_t cancelled = now.cancelled();
  if (cancelled > 0) text += fmt::format(", {} cancelled", cancelled);
  const bool failed = now.failed() > 0;
  if (!ended) text += fmt::format("; continue with: wflow resume {}", plan_.campaign().string());
  dismiss_workers();
  record(ended ? "end" : "interrupted", text);
  status_.set_state(!ended ? "interrupted" : end_state(now));
  flush();
  merlin_status_.finish(scheduler_, store_);
  show(steady_now_s(), true);
  std::error_code ignored;
  std::filesystem::remove(plan_.campaign() / ".wflow" / "endpoint.json", ignored);
  while (const auto signal = signals_.take()) asked = asked || *signal != SIGHUP;
  if (!ended || cancelled > 0) return {ExitCode::interrupted, asked};
  return {failed ? ExitCode::tasks_failed : ExitCode::ok, asked};
}

// Everything gathered so far is on disk and acknowledged when this returns.
void Coordinator::flush() {
  for (int round = 0; round < 2; ++round) {
    carry_out();
    commits_->wait();
    if (commits_->committed()) send_acknowledgements();
    commit();
  }
  commits_->wait();
  if (commits_->committed()) send_acknowledgements();
}

void Coordinator::dismiss_workers() {
  scheduler_.set_paused(true);
  flush();
  for (const auto& [worker, peer] : peers_) socket_.send(peer.routing, wire::Drain{});
  const double until_s = steady_now_s() + kDismiss_s;
  while (!pool_.empty() && steady_now_s() < until_s) {
    std::vector<int> descriptors = pool_.descriptors();
    socket_.wait(std::chrono::milliseconds(200), descriptors);
    receive_all();
    phase_ = Phase::stopping;  // a worker that ends now is not replaced
    check_processes();
    flush();
  }
  pool_.kill_all(SIGKILL);
}

// Of a step with one task, such as a training, the history tells more: there are few such tasks.
bool Coordinator::is_single(ArrayId array) const {
  return plan_.steps()[plan_.step_of(array)].elements == 1;
}

void Coordinator::record(const std::string& kind, const std::string& text) {
  store::HistoryRow row{unix_now_s(), kind, text};
  status_.history(row);
  batch_.history.push_back(std::move(row));
}

void Coordinator::show(double now_s, bool last) {
  if (!last && now_s < next_status_s_) return;
  next_status_s_ = now_s + options_.status_interval_s;
  std::vector<WorkerStatus> workers;
  for (const auto& [id, view] : scheduler_.workers()) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end()) continue;
    workers.push_back({id, peer->second.host, view.capacity.cores, peer->second.running.size(), view.elements,
                       now_s - peer->second.heard_s, view.draining});
  }
  status_.set_workers(std::move(workers));
  if (phase_ == Phase::running && !last) status_.set_state(scheduler_.paused() ? "paused" : "running");
  const CampaignStatus& status = status_.update(scheduler_, now_s, unix_now_s());
  if (sink_) sink_(status);
}

CoordinatorEnd run_coordinator(const specs::Plan& plan, const CoordinatorOptions& options,
                               const StatusSink& sink) {
  return Coordinator(plan, options, sink).run();
}

namespace {

CampaignStatus own_status(const std::filesystem::path& campaign) {
  if (!std::filesystem::exists(store::database_path(campaign)))
    store::Store missing(campaign);  // throws its sentence
  // A coordinator that begins or ends holds the database without answering yet, or no longer.
  for (const double until_s = steady_now_s() + kStatus_s;;) {
    if (wire::read_endpoint(campaign)) {
      const auto answer = wire::ask(campaign, {"status", "{}"}, std::chrono::milliseconds(3000));
      if (answer && answer->ok) return status_from_json(nlohmann::json::parse(answer->body));
    }
    try {
      return store::Store(campaign).status_at_rest();
    } catch (const Error& error) {
      if (error.code() != ExitCode::busy) throw;
      if (steady_now_s() > until_s) {
        throw Error(ExitCode::busy,
                    fmt::format("the coordinator of {} does not answer; try again", campaign.string()));
      }
    }
  }
}

// How far it is: it may be running, have been killed, or not be there yet.
void look_at(FollowupView& followup) {
  if (followup.state == "pending" || !std::filesystem::exists(store::database_path(followup.directory)))
    return;
  try {
    const CampaignStatus status = own_status(followup.directory);
    followup.state = status.state;
    followup.elements = status.elements();
    followup.ended = status.ended();
    followup.failed = status.failed();
  } catch (const Error&) {
    // What the record says of it has to do.
  }
}

}  // namespace

CampaignStatus campaign_status(const std::filesystem::path& campaign) {
  CampaignStatus status = own_status(campaign);
  for (FollowupView& followup : status.followups) look_at(followup);
  return status;
}

}  // namespace wflow::engine
