// SPDX-License-Identifier: Apache-2.0
// The coordinator process: its start, its loop, its end. coordinator_actions.cc carries out what the machine
// decides.
#include "tests/simulation/coordinator.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "base/error.h"
#include "engine/coordinate/known_workers.h"
#include "engine/wire/worker_journal.h"

namespace wflow::simulation {

namespace {

constexpr double kTurnAtLeast_s = 1e-5;
constexpr double kTurnAtMost_s = 1e-3;
constexpr std::uint64_t kSpins = 2000;
constexpr double kSpinTime_s = 0.5;

}  // namespace

Worker& Workers::start(Host& host, const std::string& group, int slots, std::uint64_t started_by,
                       double linger_s, JobStart job) {
  const auto number = static_cast<WorkerNumber>(workers_.size());
  workers_.push_back(
      std::make_unique<Worker>(around_, host, number, group, slots, started_by, linger_s, std::move(job)));
  around_.trace.line(workers_.back()->id(), "worker of group {} begins on {}", group, host.name);
  return *workers_.back();
}

Worker* Workers::with_agent(const ProcessIdentity& agent) {
  for (const auto& worker : workers_) {
    if (worker->agent().identity() == agent) return worker.get();
  }
  return nullptr;
}

Worker* Workers::find(const std::string& id) {
  for (const auto& worker : workers_) {
    if (worker->id() == id) return worker.get();
  }
  return nullptr;
}

Coordinator::Coordinator(Surroundings& around, Host& host, Workers& workers, CoordinatorOptions options)
    : Process(around.hosts, host),
      around_(around),
      workers_(workers),
      options_(options),
      disk_user_(std::make_shared<DiskUser>()),
      lock_(around, *this) {
  disk_user_->host = host.name;
  disk_user_->ignores_locks = around.planted == Planted::share_the_lock;
  disk_user_->ignores_syncs = around.planted == Planted::commit_without_sync;
}

Coordinator::~Coordinator() {
  around_.vfs.use(&around_.disk, disk_user_);
  store_.reset();
}

void Coordinator::begin() {
  if (!alive()) return;
  try {
    if (runs() && lock_.rules().take()) return open_store();
  } catch (const Error& error) {
    around_.trace.line("coord", "is refused: {}", error.what());
    around_.faults.count(Fault::second_coordinator_refused);
    return end();
  }
  around_.timeline.after(kLockLook_s, [this] { begin(); });
}

void Coordinator::open_store() {
  beat();
  around_.vfs.use(&around_.disk, disk_user_);
  const std::uint64_t refusals = around_.disk.refusals();
  try {
    store_ = std::make_unique<engine::store::Store>(
        around_.study.plan.campaign(), engine::store::DatabaseOptions{.vfs = Vfs::kName, .lock = &lock_});
    epoch_ = store_->next_epoch();
    const engine::store::Restored restored = store_->restore();
    around_.history.check_restored(restored);
    make_machine(restored);
  } catch (const Error& error) {
    around_.trace.line("coord", "does not begin: {}", error.what());
    if (error.code() == ExitCode::busy) {
      around_.faults.count(Fault::second_coordinator_refused);
    } else if (around_.disk.refusals() == refusals) {
      throw Violation("acknowledged results last",
                      fmt::format("the database can't be opened: {}", error.what()));
    }
    lock_.rules().end(engine::store::HolderState::handed_over);
    return end();
  }
  succeed_others();
  begun_s_ = around_.timeline.now_s();
  listener_ = around_.network.listen(*this, host().name);
  workers::CoordinatorAddress address;
  address.remote = std::to_string(listener_);
  address.host = host().name;
  address.pid = identity().pid;
  address.epoch = epoch_;
  around_.endpoint = Endpoint{address, listener_};
  around_.trace.line("coord", "epoch {} begins on {}", epoch_, host().name);
  carry_out(machine_->take_actions());
  schedule(0);
}

// The heartbeat's thread.
void Coordinator::beat() {
  if (!alive()) return;
  if (runs()) lock_.rules().beat();
  around_.timeline.after(kLockTiming.beat_s, [this] { beat(); });
}

// It closes the database, and leaves the workers to the one that has the campaign.
void Coordinator::lose(const Error& error) {
  around_.trace.line("coord", "{}", error.what());
  around_.faults.count(Fault::campaign_lost);
  around_.vfs.use(&around_.disk, disk_user_);
  store_.reset();
  end();
}

// The earlier one has ended, stands still, or is about to see that it has lost the campaign.
void Coordinator::succeed_others() {
  constexpr double kNotices_s = 1;
  const Process* const before = around_.hosts.find(around_.acting_process);
  if (before != nullptr && before->runs() && around_.timeline.now_s() - before->woken_s() > kNotices_s)
    throw Violation("one coordinator",
                    fmt::format("epoch {} begins while epoch {} runs", epoch_, around_.acting));
  if (before != nullptr) around_.faults.count(Fault::campaign_taken_over);
  around_.acting = epoch_;
  around_.acting_process = identity();
}

void Coordinator::expect_alone() const {
  if (around_.acting == epoch_) return;
  throw Violation("one coordinator",
                  fmt::format("epoch {} acts, and epoch {} has begun", epoch_, around_.acting));
}

void Coordinator::make_machine(const engine::store::Restored& restored) {
  engine::MachineOptions options;
  options.epoch = epoch_;
  options.self = identity();
  options.token = around_.token;
  options.local_groups = around_.study.groups;
  options.keep_going = options_.keep_going;
  options.resumed = options_.resumed;
  options.timing = around_.timing;
  options.trace = around_.trace.on();
  if (options_.batch != nullptr) {
    options.pools = options_.batch->pools();
    options.pool_timing = Batch::timing();
    options.job_prefix = "wjobs";
  }
  if (options_.moves) options.own_allocation = {true, "allocation", 0};
  for (const auto& row : restored.workers) durable_workers_.insert(row.id);
  if (around_.planted == Planted::watch_another_host) options.self = another_host();
  std::vector<engine::ArraySpec> arrays = around_.study.arrays;
  std::vector<engine::KnownWorker> known = known_workers(restored);
  spoil(around_.planted, options, arrays, known);
  machine_ =
      std::make_unique<engine::CoordinatorMachine>(around_.study.plan, std::move(arrays), std::move(options),
                                                   restored, known, host().at(around_.timeline.now_s()));
}

std::vector<engine::KnownWorker> Coordinator::known_workers(const engine::store::Restored& restored) const {
  std::vector<engine::FoundJournal> journals;
  const std::string folder = around_.study.plan.campaign().string() + "/.wflow/workers/";
  for (const std::string& path : around_.disk.list(folder)) {
    const std::string id =
        path.substr(folder.size(), path.size() - folder.size() - std::string_view(".journal").size());
    const Worker* const worker = workers_.find(id);
    journals.push_back({id, engine::wire::parse_records(around_.disk.find(path)->bytes()).header,
                        worker != nullptr && !worker->gone()});
  }
  return engine::known_workers(restored.workers, journals,
                               [&](const std::string& id) { return store_->worker(id).has_value(); });
}

ProcessIdentity Coordinator::another_host() const {
  for (const auto& worker : workers_.all()) {
    if (&worker->host() != &host()) return worker->guardian().identity();
  }
  return identity();
}

void Coordinator::woken() {
  ++pauses_;
  if (commit_due_) finish_commit(commits_);
  schedule(0);
}

void Coordinator::ended(bool with_host) {
  around_.trace.line("coord", "epoch {} has ended", epoch_);
  if (epoch_ != 0 && epoch_ == around_.acting) around_.history.coordinator_ended();
  if (listener_ != 0) around_.network.close_server(listener_, !with_host);
  // Its open files end with it, without another write.
  disk_user_->dead = true;
  around_.vfs.use(&around_.disk, disk_user_);
  store_.reset();
}

void Coordinator::signal(engine::event::SignalKind kind) {
  post(engine::event::Signal{kind});
}

void Coordinator::post(engine::CoordinatorEvent event) {
  if (!alive()) return;
  others_.push_back(std::move(event));
  schedule(0);
}

void Coordinator::receive(ConnectionId connection, wire::Message message) {
  if (!alive()) return;
  const engine::PeerId peer = fmt::format("c{}", connection);
  spoil_received(around_.planted, message);
  if (around_.planted == Planted::answer_at_once && std::holds_alternative<wire::Query>(message))
    check_answer(peer);
  messages_.emplace_back(engine::event::Message{peer, std::move(message)});
  schedule(0);
}

// ---- the loop

void Coordinator::schedule(double delay_s) {
  if (!runs() || failing_ || !begun()) return;
  const double at_s =
      around_.timeline.now_s() + delay_s + around_.draw.logarithmic(kTurnAtLeast_s, kTurnAtMost_s);
  if (scheduled_s_ >= 0 && scheduled_s_ <= at_s) return;
  scheduled_s_ = at_s;
  const std::uint64_t number = ++turn_number_;
  around_.timeline.at(at_s, [this, number] {
    if (number != turn_number_) return;
    scheduled_s_ = -1;
    if (runs() && !failing_) turn();
  });
}

void Coordinator::turn() {
  try {
    if (lock_.rules().is_late()) lock_.check();  // it may have been frozen, and another one may work
  } catch (const Error& error) {
    return lose(error);
  }
  const bool was_there = take_some();
  handle(engine::event::Time{});
  carry_out(machine_->take_actions());
  if (!alive() || failing_) return;
  if (machine_->ended()) {
    campaign_over_ = machine_->campaign_over() && !machine_->handed_over();
    if (machine_->handed_over()) around_.faults.count(Fault::coordinator_handed_over);
    if (around_.endpoint && around_.endpoint->listener == listener_) around_.endpoint.reset();
    around_.vfs.use(&around_.disk, disk_user_);
    store_.reset();  // in good order
    lock_.rules().end(machine_->handed_over() ? engine::store::HolderState::handed_over
                                              : engine::store::HolderState::released);
    end();
    return;
  }
  const double now_s = around_.timeline.now_s();
  if (was_there || now_s - idle_since_s_ > kSpinTime_s) {
    idle_turns_ = 0;
    idle_since_s_ = now_s;
  } else if (++idle_turns_ > kSpins) {
    throw Violation("bounded", "the coordinator spins");
  }
  const double wake_s =
      around_.planted == Planted::wake_at_once ? host().at(now_s).steady_s : machine_->wake_at_s();
  if (std::isnan(wake_s)) throw Violation("bounded", "the coordinator's wake-up is not a number");
  if (!urgent_.empty() || !messages_.empty() || !others_.empty()) return schedule(0);
  if (std::isfinite(wake_s)) schedule(std::max(0.0, host().true_time(wake_s) - now_s));
}

bool Coordinator::take_some() {
  const std::size_t most = 1 + around_.draw.below(20);
  std::size_t taken = 0;
  for (; !urgent_.empty(); ++taken) {
    handle(std::move(urgent_.front()));
    urgent_.pop_front();
  }
  while (taken < most && (!messages_.empty() || !others_.empty())) {
    const bool other = messages_.empty() || (!others_.empty() && around_.draw.chance(0.5));
    std::deque<engine::CoordinatorEvent>& source = other ? others_ : messages_;
    engine::CoordinatorEvent event = std::move(source.front());
    source.pop_front();
    handle(std::move(event));
    ++taken;
  }
  return taken > 0;
}

std::uint64_t Coordinator::ended_elements() const {
  std::uint64_t ended = 0;
  for (ArrayId array = 0; array < around_.study.arrays.size(); ++array) {
    const auto counts = machine_->scheduler().progress(array).counts;
    for (std::size_t state = 0; state < counts.size(); ++state) {
      if (engine::has_ended(static_cast<engine::ElementState>(state))) ended += counts[state];
    }
  }
  return ended;
}

// A planted bug.
void Coordinator::acknowledge_early(const engine::CoordinatorEvent& event) {
  const auto* message = std::get_if<engine::event::Message>(&event);
  if (around_.planted != Planted::acknowledge_before_commit || message == nullptr) return;
  const auto* results = std::get_if<wire::Results>(&message->message);
  if (results == nullptr) return;
  engine::action::Send send{message->peer, wire::Acknowledge{results->sequence}};
  on(send);
}

void Coordinator::handle(engine::CoordinatorEvent event) {
  if (const auto* message = std::get_if<engine::event::Message>(&event)) {
    if (const auto* hello = std::get_if<wire::Hello>(&message->message)) {
      peer_workers_[message->peer] = hello->worker;
      greeted_s_[hello->worker] = around_.timeline.now_s();
    }
    if (std::holds_alternative<wire::Query>(message->message))
      answered_from_[message->peer] = ended_elements();
  }
  acknowledge_early(event);
  follow_request(event);
  if (std::holds_alternative<engine::event::Retry>(event)) {
    around_.history.retry_decided();
    forget_answers();
  }
  machine_->handle(host().at(around_.timeline.now_s()), std::move(event));
  // A status that it has decided on while a commit waits for the disk counts what is not there yet, also
  // where the commit is over before the answer goes out.
  if (machine_->disk_trouble().empty()) return;
  forget_answers();
}

// Questions that wait for their answers are about fewer ended elements now.
void Coordinator::forget_answers() {
  for (auto& [peer, ended] : answered_from_) ended = 0;
}

}  // namespace wflow::simulation
