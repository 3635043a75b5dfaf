// SPDX-License-Identifier: Apache-2.0
// The coordinator's loop: waits, gathers events for the machine, shows the status.
#include "engine/coordinate/coordinator.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "engine/coordinate/coordinator_impl.h"
#include "engine/coordinate/journals.h"
#include "engine/query/selection.h"
#include "engine/schedule/graph.h"
#include "engine/update/changes.h"
#include "engine/wire/addresses.h"

namespace wflow::engine {

namespace {

// Workers have so long to end before they are killed where the coordinator itself fails.
constexpr double kAbandon_s = 15;
// Messages of one turn: so that signals and the display are served under any load.
constexpr int kMessages = 1000;
// With many workers, messages gather for a moment: a turn for each would cost more than the message.
constexpr auto kMoment = std::chrono::milliseconds(2);
// The status is made less often where there are many workers, a look at each of which takes about a
// microsecond.
constexpr double kStatusEach_s = 1e-4;
// At orphans, 0.1 s apart.
constexpr int kAdoptedLooks = 50;

CampaignStatus recorded_status(store::Store& store) {
  CampaignStatus status;
  store.add_records(status);
  return status;
}

Now now() {
  return {steady_now_s(), unix_now_s()};
}

}  // namespace

Coordinator::Coordinator(const specs::Plan& plan, const CoordinatorOptions& options, const StatusSink& sink)
    : plan_(plan),
      options_(options),
      sink_(sink),
      keys_(wire::read_keys(plan.campaign())),
      signals_({SIGINT, SIGTERM, SIGHUP, SIGUSR1}),
      lock_(plan.campaign()),
      store_(plan.campaign(), {.vfs = {}, .accept_loss = false, .lock = &lock_}),
      epoch_(store_.next_epoch()),
      groups_(plan.study()),
      status_(plan, recorded_status(store_), store_.usage(), store_.missing_samples()),
      pool_(plan.campaign()),
      merlin_status_(plan),
      raw_outputs_(plan) {}

CoordinatorEnd Coordinator::run() {
  log::open(plan_.campaign(), "coordinator-" + std::to_string(::getpid()));
  status_.set_coordinator(host_name() + " (pid " + std::to_string(::getpid()) + ")");
  status_.set_state(CampaignState::running);
  machine_ = make_machine();
  merlin_status_.find_missing(machine_->scheduler());
  write_due_status();
  commits_ = std::make_unique<store::CommitThread>(store_);
  wire::Endpoint endpoint = socket_->endpoint();
  endpoint.epoch = epoch_;
  wire::write_endpoint(plan_.campaign(), endpoint);
  try {
    work();
  } catch (const Error& error) {
    // Where another coordinator has the campaign, they are that one's.
    if (error.code() != ExitCode::busy) abandon_workers();
    throw;
  } catch (...) {
    abandon_workers();
    throw;
  }
  return finish();
}

std::unique_ptr<CoordinatorMachine> Coordinator::make_machine() {
  const store::Restored restored = store_.restore();
  record_sources(plan_, store_);
  MachineOptions options;
  options.epoch = epoch_;
  options.self = own_identity();
  options.token = keys_.token;
  if (options_.fence_s > 0) {
    options.timing.lost_s = options_.fence_s;
    options.timing.margin_s = 1 + options_.fence_s / 4;
  }
  options.local_groups = find_local_groups();
  if (!options_.local) {
    options.pools = pool_specs(plan_);
    options.own_allocation = options_.own_allocation;
    if (options.own_allocation.moves) {
      // The next coordinator may be on another host, where no process table shows that a worker has ended.
      options.timing.lost_here_s = options.timing.lost_s;
      const auto command = coordinator_command(plan_.campaign(), options_.top, options_.keep_going);
      for (batch::PoolSpec& pool : options.pools) pool.job.coordinator = command;
    }
    options.job_prefix = job_prefix(plan_.campaign(), keys_.token);
  }
  if (!options.pools.empty()) batch_ = std::make_unique<batch::BatchThread>();
  options.keep_going = options_.keep_going;
  if (!options_.until.empty()) options.beyond = steps_beyond(plan_, options_.until);
  options.resumed = options_.resumed;
  options.time_limit_s = options_.time_limit_s;
  options.max_range = options_.max_range;
  options.retry = options_.retry;
  options.trace = log::takes(LogLevel::trace);
  options.run_again = options_.run_again;
  const auto known = known_workers(plan_.campaign(), restored.workers, store_);
  socket_ = std::make_unique<wire::ServerSocket>(keys_, listens(known));
  return std::make_unique<CoordinatorMachine>(plan_,
                                              array_specs(plan_, options_.local, options_.around.has_value()),
                                              std::move(options), restored, known, now());
}

// A campaign that runs on this machine alone accepts no connection from other hosts.
wire::Listen Coordinator::listens(const std::vector<KnownWorker>& known) const {
  const auto is_elsewhere = [&](const KnownWorker& worker) {
    return worker.guardian.known() && worker.guardian.host != host_name();
  };
  const auto names_machines = [](const Group& group) { return !group.machines.empty(); };
  const bool network = options_.listen || options_.around || batch_ != nullptr || wire::named_host() ||
                       std::ranges::any_of(groups_.all(), names_machines) ||
                       std::ranges::any_of(known, is_elsewhere);
  return network ? wire::Listen::network : wire::Listen::host;
}

// The groups whose workers this machine starts; the user starts workers of other groups where the study
// places them.
std::vector<LocalGroup> Coordinator::find_local_groups() const {
  std::vector<Group> here;
  for (const Group& group : groups_.all()) {
    if (may_run_on(group, host_name()) && (options_.local || !wants_scheduler(plan_.study(), group.name)))
      here.push_back(group);
  }
  if (options_.around) {
    // A single group uses all of each node; several groups share it.
    std::vector<LocalGroup> groups;
    const bool shared = here.size() > 1 && options_.around->cores > 0;
    const std::vector<int> slots =
        local_slots(here, shared ? options_.around->cores : options_.slots, options_.slots);
    for (std::size_t i = 0; i < here.size(); ++i) groups.push_back({here[i].name, slots[i]});
    return groups;
  }
  const std::vector<int> slots = local_slots(here, batch::usable_cores(), options_.slots);
  check_pins(here, slots, batch::usable_cores());
  std::vector<LocalGroup> groups;
  for (std::size_t i = 0; i < here.size(); ++i) groups.push_back({here[i].name, slots[i]});
  return groups;
}

void Coordinator::work() {
  if (options_.first) handle(event::Message{{}, wire::Query{*options_.first}});
  carry_out();
  while (!machine_->ended()) {
    wait();
    take_events();
    carry_out();
    show(steady_now_s(), false);
  }
}

void Coordinator::wait() {
  double until_s = std::min(next_status_s_, machine_->wake_at_s());
  std::vector<int> descriptors = pool_.descriptors();
  for (const JournalReading& reading : readings_) {
    std::ranges::copy(reading.descriptors(), std::back_inserter(descriptors));
    until_s = std::min(until_s, steady_now_s() + batch::OrphanEnd::kAgain_s);
  }
  const double timeout_ms = std::clamp((until_s - steady_now_s()) * 1e3, 0.0, 1000.0);
  descriptors.push_back(signals_.descriptor());
  descriptors.push_back(commits_->descriptor());
  if (batch_) descriptors.push_back(batch_->descriptor());
  if (copies_) descriptors.push_back(copies_->descriptor());
  if (files_) descriptors.push_back(files_->descriptor());
  const int wait_ms = pool_.has_ended() ? 0 : static_cast<int>(timeout_ms) + 1;
  if (machine_->gathers()) std::this_thread::sleep_for(kMoment);
  socket_->wait(std::chrono::milliseconds(wait_ms), descriptors);
}

void Coordinator::take_events() {
  lock_.check_if_late();  // first of all: it may have been frozen, and another one may work
  lock_.check_place();
  if (commits_->committed()) finish_commit();
  if (auto why = commits_->trouble()) {
    // Shown at once; the machine records it when it can.
    store::Batch batch;
    batch.history.push_back({unix_now_s(), "note", *why + "; the campaign pauses until that has changed"});
    status_.apply(batch);
    handle(event::CommitWaits{std::move(*why)});
  }
  take_messages();  // first the messages that a worker sent before it ended
  for (event::JournalRead& journal : take_journals()) handle(std::move(journal));
  for (ProcessIdentity& process : pool_.take_ended()) handle(event::ProcessEnded{std::move(process)});
  take_batch_replies();
  take_side_work();
  take_signals();
  handle(event::Time{});
}

// A commit ends for the machine once Merlin's status files of what it records are written: only then may
// tasks begin that look for them. Until then the machine begins no other commit, so the store is ours.
void Coordinator::finish_commit() {
  std::vector<ArrayStatus> due = merlin_status_.take_due(machine_->scheduler(), store_);
  if (due.empty()) {
    handle(event::CommitFinished{});
    return carry_out();  // answers queries while scheduler and store agree
  }
  made(files_).call([this, due = std::move(due)]() -> SideThread::OnLoop {
    merlin_status_.write(due);
    return [this] { finish_commit(); };
  });
}

// While no commit is under way.
void Coordinator::write_due_status() {
  for (;;) {
    const std::vector<ArrayStatus> due = merlin_status_.take_due(machine_->scheduler(), store_);
    if (due.empty()) return;
    merlin_status_.write(due);
  }
}

void Coordinator::take_messages() {
  for (int i = 0; i < kMessages; ++i) {
    auto received = socket_->receive();
    if (!received) return;
    handle(event::Message{std::move(received->peer), std::move(received->message)});
  }
}

std::vector<event::JournalRead> Coordinator::take_journals() {
  std::vector<event::JournalRead> read;
  // They must end before their tasks run again, as what the journals' readers look for.
  // One that hangs in the kernel must not hold up the campaign.
  const bool some_left = !readings_.empty() && adopted_.end_all() > 0;
  if (some_left && ++adopted_looks_ < kAdoptedLooks) return read;
  adopted_looks_ = 0;
  std::erase_if(readings_, [&](JournalReading& reading) {
    auto journal = reading.take(steady_now_s());
    if (!journal) return false;
    read.push_back(std::move(*journal));
    return true;
  });
  return read;
}

void Coordinator::take_batch_replies() {
  if (!batch_) return;
  for (batch::BatchReply& reply : batch_->take()) {
    if (auto* submitted = std::get_if<batch::SubmitReply>(&reply)) {
      handle(event::JobSubmitted{std::move(submitted->token), std::move(submitted->submission)});
    } else if (auto* listed = std::get_if<batch::QueryReply>(&reply)) {
      handle(event::JobsListed{std::move(listed->scheduler), std::move(listed->list)});
    } else if (auto* cancelled = std::get_if<batch::CancelReply>(&reply)) {
      handle(event::JobsCancelled{std::move(cancelled->scheduler), std::move(cancelled->ids),
                                  std::move(cancelled->error)});
    }
  }
}

void Coordinator::take_side_work() {
  for (std::optional<SideThread>* thread : {&copies_, &files_}) {
    if (!*thread) continue;
    for (const SideThread::OnLoop& then : (*thread)->take()) then();
  }
}

void Coordinator::take_signals() {
  while (const auto signal = signals_.take()) {
    handle(event::Signal{*signal == SIGHUP    ? event::SignalKind::hangup
                         : *signal == SIGUSR1 ? event::SignalKind::workers_left
                         : *signal == SIGINT  ? event::SignalKind::interrupt
                                              : event::SignalKind::terminate});
  }
}

void Coordinator::handle(CoordinatorEvent event) {
  machine_->handle(now(), std::move(event));
}

// The database can't be written any more, or worse: what runs is ended, so that nothing is left behind when
// this process ends. Results that were not committed are in the workers' journals.
void Coordinator::abandon_workers() {
  pool_.kill_all(SIGTERM);
  const double until_s = steady_now_s() + kAbandon_s;
  while (!pool_.empty() && steady_now_s() < until_s) {
    socket_->wait(std::chrono::milliseconds(200), pool_.descriptors());
    pool_.take_ended();
  }
  pool_.kill_all(SIGKILL);
}

CampaignState Coordinator::state() const {
  switch (machine_->phase()) {
    case Phase::running:
    case Phase::handing_over:
      return machine_->scheduler().paused() || !machine_->disk_trouble().empty() ? CampaignState::paused
                                                                                 : CampaignState::running;
    case Phase::draining:
      return CampaignState::draining;
    case Phase::stopping:
      return CampaignState::stopping;
    case Phase::dismissing:
      // The end itself can't be recorded.
      if (!machine_->disk_trouble().empty() && !machine_->asked_to_end()) return CampaignState::paused;
      break;
    case Phase::ended:
      break;  // as before, until it is known how it ended
  }
  return state_;
}

void Coordinator::set_state(CampaignState state) {
  if (std::exchange(state_, state) != state) status_.set_state(state);
}

void Coordinator::show(double now_s, bool last) {
  if (!last && now_s < next_status_s_) return;
  // Several times a second: nothing is copied that grows with the number of running tasks.
  const auto peers = machine_->peers(now_s);
  next_status_s_ =
      now_s + std::max(options_.status_interval_s, kStatusEach_s * static_cast<double>(peers.size()));
  std::vector<WorkerStatus> listed;
  std::size_t workers = 0;
  std::vector<LiveStatus::RunningOn> running;
  running.reserve(peers.size());
  for (const auto& peer : peers) {
    if (!peer.scheduled) continue;
    running.push_back({peer.worker, peer.running});
    if (++workers > kListedWorkers) continue;
    const std::string id(peer.worker);
    const auto view = machine_->scheduler().worker(id);
    if (!view) continue;
    listed.push_back({id, std::string(peer.host), view->capacity.cores, peer.running.size(), view->elements,
                      peer.silent_s, view->draining, peer.ended});
  }
  status_.set_workers(std::move(listed), workers);
  std::map<std::size_t, std::string> held = machine_->held();
  held.merge(machine_->held_back());
  status_.set_held(std::move(held));
  status_.set_running(running, unix_now_s());
  if (batch_) status_.set_allocations(machine_->allocations(unix_now_s(), false));
  if (!last) set_state(state());
  note_refused();
  const CampaignStatus& status = status_.update(machine_->scheduler(), now_s, unix_now_s());
  if (sink_) sink_(status);
}

// In the log when it begins, and whenever it has grown tenfold.
void Coordinator::note_refused() {
  wire::RefusedView refused = socket_->refused();
  refused.messages += machine_->refused_messages();
  status_.set_refused(refused);
  if (refused.all() < next_refused_) return;
  next_refused_ = refused.all() * 10;
  log::record(LogLevel::warning, refused.sentence());
}

CoordinatorEnd Coordinator::finish() {
  const CampaignStatus& last = status_.update(machine_->scheduler(), steady_now_s(), unix_now_s());
  const bool over = machine_->campaign_over();
  const bool failed = last.failed() > 0;
  const bool cancelled = last.cancelled() > 0;
  set_state(over ? end_state(last) : CampaignState::interrupted);
  files_.reset();  // it may still write the same files
  merlin_status_.end(machine_->scheduler());
  write_due_status();
  show(steady_now_s(), true);
  std::error_code ignored;
  std::filesystem::remove(plan_.campaign() / ".wflow" / "endpoint.json", ignored);
  // Another coordinator may start now: this one must not use the database or remove journals any more. Where
  // locks do not reach other hosts, the record alone says so.
  copies_.reset();
  commits_.reset();
  store_.close();
  lock_.end(machine_->handed_over() ? store::HolderState::handed_over : store::HolderState::released);
  bool asked = machine_->asked_to_end();
  while (const auto signal = signals_.take()) asked = asked || (*signal != SIGHUP && *signal != SIGUSR1);
  if (!over && machine_->ended_before_beyond())
    return {failed ? ExitCode::tasks_failed : ExitCode::ok, true, false};
  if (!over && !machine_->held().empty()) return {ExitCode::tasks_failed, true, false};
  if (!over || cancelled) return {ExitCode::interrupted, asked, machine_->handed_over()};
  return {failed ? ExitCode::tasks_failed : ExitCode::ok, asked, false};
}

CoordinatorEnd run_coordinator(const specs::Plan& plan, const CoordinatorOptions& options,
                               const StatusSink& sink) {
  return Coordinator(plan, options, sink).run();
}

}  // namespace wflow::engine
