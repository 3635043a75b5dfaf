// SPDX-License-Identifier: Apache-2.0
// A schedule's beginning, its course and its end; world_faults.cc has what happens in between.
#include "tests/simulation/world.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/store/store.h"

namespace wflow::simulation {

namespace {

constexpr std::uint64_t kMaxSteps = 6'000'000;
constexpr double kLook_s = 0.25;       // period of the simulated user's checks
constexpr double kAnswered_s = 20;     // a question that lives so long after all faults is not answered
constexpr double kWorkersGone_s = 40;  // local ones, after the end
constexpr double kStopCycle_s = 80;    // a task that ends the campaign, until that goes on
constexpr std::size_t kManyWorkers = 44;
constexpr double kLocksOnOneHost = 0.2;  // part of the schedules with several hosts
constexpr double kFailingDisks = 0.2;    // part of the schedules

// Everything scaled down, so that a schedule has more of it.
engine::Timing quick_timing() {
  engine::Timing timing;
  timing.lost_s = 8;
  timing.lost_here_s = 20;
  timing.margin_s = 12;
  timing.return_s = 6;
  timing.hand_over_s = 12;
  timing.dismiss_s = 6;
  timing.end_agent_s = 1.5;
  timing.gang_silent_s = 4;
  timing.results_per_s = 40;  // a few workers gather, as hundreds do, ...
  timing.patient_results_per_s = 15;
  timing.heartbeats_per_s = 3;  // ... and send fewer heartbeats
  return timing;
}

std::size_t some_hosts(Draw& draw) {
  const double kind = draw.unit();
  if (kind < 0.45) return 1;
  return kind < 0.85 ? 2 + draw.below(2) : 4 + draw.below(3);
}

std::size_t some_remote_workers(Draw& draw, std::size_t hosts) {
  if (draw.chance(0.01)) return 10 + draw.below(kManyWorkers - 10);
  if (hosts == 1) return draw.chance(0.6) ? 0 : 1 + draw.below(2);
  return draw.below(hosts + 2);
}

TaskOptions some_tasks(Draw draw, const SimulatedStudy& study) {
  int slots = 0;
  for (const auto& group : study.groups) slots += group.slots;
  TaskOptions options;
  const double all_s = draw.logarithmic(0.5, 60);
  options.typical_s = std::clamp(all_s * slots / static_cast<double>(study.elements), 4e-4, 5.0);
  options.spread = draw.logarithmic(1.1, 10);
  const double failing = draw.unit();
  options.failures = failing < 0.4 ? 0 : failing < 0.75 ? 0.05 : 0.3;
  if (draw.chance(0.2)) options.stops = 2.0 / static_cast<double>(study.elements + 10);
  if (draw.chance(0.3)) options.children = 0.3;
  if (draw.chance(0.3)) options.events = 0.4;
  if (!study.stages.empty()) options.events = 0.7;
  if (draw.chance(0.1)) options.poison = 1.0 / static_cast<double>(study.elements);
  return options;
}

NetworkOptions some_network(Draw draw) {
  NetworkOptions options;
  if (draw.chance(0.3)) {
    options.delay_low_s = 1e-3;
    options.delay_high_s = 0.2;
    options.local_high_s = 0.02;
  }
  return options;
}

}  // namespace

World::World(std::uint64_t seed, const Studies& studies, Vfs& vfs, const RunOptions& options)
    : seed_(seed),
      study_(studies.of(seed)),
      options_(options),
      draw_(seed, Concern::faults),
      allocations_(seed, Concern::allocations),
      draw_lost_(hash64(seed, 3), Concern::batch),
      draw_lock_(hash64(seed, 5), Concern::hosts),
      draw_disk_(hash64(seed, 4), Concern::disk),
      trace_(options.trace, now_s_),
      disk_(now_s_, Draw(seed, Concern::disk), faults_),
      network_(timeline_, Draw(seed, Concern::network), faults_, some_network(Draw(seed, Concern::network))),
      hosts_(timeline_),
      scripts_(seed, some_tasks(Draw(seed, Concern::tasks), study_)),
      history_(study_,
               [this](const Execution& execution) {
                 return workers_.all()[execution.worker]->beyond_bounds(execution.started_s) ||
                        (execution.orphan && hosts_.size() > 1);
               }),
      around_{seed,     study_,   timeline_, disk_,
              vfs,      network_, hosts_,    history_,
              scripts_, faults_,  trace_,    Draw(seed, Concern::processes),
              {},       {},       {},        {},
              0,        {},       "token",   options.planted,
              0},
      workers_(around_),
      users_(around_, Draw(seed, Concern::clients)) {
  vfs.restart(seed);
  disk_.put(engine::store::database_path(study_.plan.campaign()).string(), study_.database);
}

RunResult World::run() {
  RunResult result;
  try {
    simulate();
  } catch (const Violation& violation) {
    result.violation = violation.what();
    result.invariant = violation.invariant;
  } catch (const std::exception& error) {
    result.violation = std::string("no exceptions: ") + error.what();
    result.invariant = "no exceptions";
  }
  result.last_lines.assign(trace_.last_lines().begin(), trace_.last_lines().end());
  result.faults = faults_;
  result.simulated_s = timeline_.now_s();
  if (healed_ && bound_s_ > 0) result.over_bound = (timeline_.now_s() - healed_s_) / bound_s_;
  result.steps = timeline_.steps();
  result.executions = history_.executions();
  result.lost_results = around_.lost_results;
  result.fingerprint = hash64(hash64(timeline_.steps(), static_cast<std::uint64_t>(timeline_.now_s() * 1e6)),
                              around_.draw.bits());
  return result;
}

void World::simulate() {
  set_up();
  step_until_over();
  check_end();
}

// With the rates of messages of production: thousands a second.
void World::set_many_workers() {
  constexpr std::size_t kWorkersOfAHost = 20;
  settings_.remote_workers = options_.workers;
  settings_.hosts = std::max(settings_.hosts, 2 + options_.workers / kWorkersOfAHost);
  const engine::Timing real;
  around_.timing.results_per_s = real.results_per_s;
  around_.timing.patient_results_per_s = real.patient_results_per_s;
  around_.timing.heartbeats_per_s = real.heartbeats_per_s;
}

void World::set_up() {
  Draw setup(seed_, Concern::setup);
  settings_.hosts = some_hosts(setup);
  settings_.remote_workers = some_remote_workers(setup, settings_.hosts);
  around_.timing = setup.chance(0.8) ? quick_timing() : engine::Timing();
  if (options_.workers > 0) set_many_workers();
  settings_.linger_s = setup.chance(0.5) ? 300 : around_.timing.lost_here_s / 2;
  settings_.keep_going = setup.chance(0.5);
  settings_.journals_unseen = setup.chance(0.2);
  settings_.waits_for_workers = setup.chance(0.1);
  settings_.drift = setup.chance(0.5) ? 0.0099 : 0;
  settings_.resume_within_s = setup.logarithmic(0.3, 40);
  settings_.faults_until_s = setup.chance(0.1) ? 0 : setup.logarithmic(3, 80);
  settings_.fault_every_s = setup.logarithmic(0.2, 10);
  const double share = setup.between(0.05, 0.5);
  for (std::size_t fault = 0; fault < kDrawnFaults; ++fault) {
    if (setup.chance(share)) settings_.kinds.push_back(static_cast<Fault>(fault));
  }
  if (setup.chance(0.2)) around_.mishaps.not_started = 0.03;
  if (setup.chance(0.2)) around_.mishaps.slow_launch = 0.05;
  if (setup.chance(0.2)) around_.mishaps.slow_commit = setup.chance(0.5) ? 0.2 : 1;
  if (setup.chance(0.2)) around_.mishaps.strange_message = 0.3;
  if (setup.chance(0.3)) around_.mishaps.slow_death = 0.3;
  for (std::size_t i = 0; i < settings_.hosts; ++i) {
    const double rate = 1 + setup.between(-settings_.drift, settings_.drift);
    if (settings_.drift > 0) faults_.count(Fault::clock_drifted);
    hosts_.add(rate, setup.between(10, 1e6));
  }
  if (settings_.hosts > 1 && draw_lock_.chance(kLocksOnOneHost)) {
    around_.lock_file.one_host = true;
    disk_.keep_locks_to_hosts();
  }
  // The simulated pools take two nodes each.
  if (settings_.hosts > 2 && !study_.gangs && hash64(seed_, 2000) % 2 == 0)
    batch_ = std::make_unique<Batch>(around_, workers_, seed_, settings_.linger_s);
  trace_.line("world", "seed {}: study {}, {} hosts, {} other workers, faults until {:.1f} s every {:.1f} s",
              seed_, study_.name, settings_.hosts, settings_.remote_workers, settings_.faults_until_s,
              settings_.fault_every_s);
  start_coordinator();
  for (std::size_t i = 0; i < settings_.remote_workers; ++i) {
    const bool late = setup.chance(0.5);
    timeline_.at(late ? setup.between(1, 30) : 0.1, [this, late] {
      if (late) faults_.count(Fault::worker_joined_late);
      start_remote_worker();
    });
  }
  if (settings_.faults_until_s > 0 && !settings_.kinds.empty()) schedule_fault();
  if (settings_.faults_until_s > 0 && batch_) schedule_lost_node();
  if (settings_.faults_until_s > 0 && around_.lock_file.one_host) schedule_takeover();
  if (settings_.faults_until_s > 0 && draw_disk_.chance(kFailingDisks)) schedule_failing_disk();
  look_after();
}

Coordinator* World::coordinator() {
  Coordinator* last = nullptr;
  for (const auto& one : coordinators_) {
    const bool later = one->alive() && one->begun() && (last == nullptr || one->epoch() > last->epoch());
    if (later) last = one.get();
  }
  return last;
}

void World::start_coordinator() {
  for (std::size_t i = 0;
       i < hosts_.size() && (!hosts_[coordinator_host_].up || hosts_[coordinator_host_].frozen); ++i)
    coordinator_host_ = (coordinator_host_ + 1) % hosts_.size();
  Host& host = hosts_[coordinator_host_];
  if (!host.up || host.frozen) return;
  start_coordinator_on(host).begin();
}

Coordinator& World::start_coordinator_on(Host& host) {
  CoordinatorOptions options;
  options.resumed = !coordinators_.empty();
  options.keep_going = settings_.keep_going;
  options.linger_s = settings_.linger_s;
  options.journals_unseen = settings_.journals_unseen;
  options.moves = !batch_ && hash64(seed_, 1000 + coordinators_.size()) % 10 < 4;
  options.batch = batch_.get();
  coordinators_.push_back(std::make_unique<Coordinator>(around_, host, workers_, options));
  return *coordinators_.back();
}

// A user who believes that the campaign has stopped resumes it on this host.
void World::start_second_coordinator(Host& host) {
  if (over_ || !host.up || host.frozen) return;
  start_coordinator_on(host).begin();
}

void World::start_remote_worker() {
  if (over_) return;
  Host& host = hosts_[draw_.below(hosts_.size())];
  if (!host.up || host.frozen) return;
  const auto& group = study_.groups[draw_.below(study_.groups.size())];
  workers_.start(host, group.name, 1 + static_cast<int>(draw_.below(4)), 0, settings_.linger_s,
                 {allocation_, 0});
}

// Acts like a pool of allocations: there is always one with enough workers, or will be soon.
void World::keep_allocation() {
  constexpr int kWorkers = 3;
  constexpr double kAgain_s = 20;
  const auto lives = [&](const auto& worker) {
    return !worker->gone() && worker->allocation() == allocation_;
  };
  if (now_s_ < next_allocation_s_ || over_) return;
  if (!allocation_.empty() && std::count_if(workers_.all().begin(), workers_.all().end(), lives) >= kWorkers)
    return;
  next_allocation_s_ = now_s_ + kAgain_s;
  allocation_ = fmt::format("allocation{}", ++allocations_made_);
  for (int i = 0; i < kWorkers; ++i) start_remote_worker();
}

void World::step_until_over() {
  while (!over_) {
    if (timeline_.empty())
      throw Violation("ends", "nothing is left to happen, and the campaign has not ended");
    if (timeline_.steps() > kMaxSteps * std::max<std::size_t>(1, options_.workers / kManyWorkers))
      throw Violation("ends", "too much happens");
    now_s_ = timeline_.next_s();
    timeline_.step();
    if (healed_ && now_s_ > healed_s_ + bound_s_) {
      throw Violation("ends",
                      fmt::format("the campaign has not ended {:.0f} s after the last fault", bound_s_));
    }
  }
}

// Acts like a user: continues a stopped campaign until all is done.
void World::look_after() {
  if (!healed_ && now_s_ >= settings_.faults_until_s) end_faults();
  if (study_.gangs) keep_allocation();
  Coordinator* const running = coordinator();
  if (std::ranges::any_of(coordinators_, [](const auto& one) { return one->campaign_over(); })) {
    over_ = true;
    if (batch_) batch_->close();
    return;
  }
  const bool starts =
      std::ranges::any_of(coordinators_, [](const auto& one) { return one->alive() && !one->begun(); });
  if (running == nullptr && !starts && !resume_at_s_)
    resume_at_s_ = now_s_ + draw_.logarithmic(0.1, settings_.resume_within_s);
  if (running == nullptr && !starts && now_s_ >= *resume_at_s_) {
    resume_at_s_.reset();
    start_coordinator();
  }
  if (healed_ && running != nullptr && running->machine()->scheduler().paused() &&
      running->machine()->phase() == engine::Phase::running) {
    users_.pause(false);
  }
  if (healed_ && running != nullptr && now_s_ - healed_s_ > kAnswered_s &&
      now_s_ - healed_s_ < kAnswered_s + 2 * kLook_s && users_.unanswered(running->listener()) > 0 &&
      running->begun_s() < healed_s_) {
    throw Violation("answers",
                    fmt::format("{} questions were never answered", users_.unanswered(running->listener())));
  }
  timeline_.after(kLook_s, [this] { look_after(); });
}

double World::total_work_s() const {
  double sum_s = 0;
  for (ArrayId array = 0; array < study_.arrays.size(); ++array) {
    for (Element element = 0; element < study_.arrays[array].count; ++element) {
      const TaskScript script = scripts_.of(array, element, 0);
      sum_s += script.duration_s + study_.arrays[array].retry_delay_s;
      const auto limit = study_.plan.steps()[study_.plan.step_of(array)].max_failures.kind;
      const bool limited =
          limit == specs::FailureLimit::Kind::count || limit == specs::FailureLimit::Kind::fraction;
      // Failures may pause their step, and the campaign then ends until the user resumes it.
      // Workers on other hosts are lost for it, and it waits for the cause of its last loss.
      if (script.kills_worker) sum_s += 4 * (around_.timing.lost_s + around_.timing.margin_s) + 100;
      if (script.code == 102 || script.code == 105 || (limited && !script.succeeds())) sum_s += kStopCycle_s;
    }
  }
  return sum_s;
}

void World::check_end() {
  disk_.mend();
  const engine::store::Restored restored = [&] {
    auto user = std::make_shared<DiskUser>();
    user->host = "reader";
    around_.vfs.use(&disk_, user);
    return engine::store::Store(study_.plan.campaign(), {.vfs = Vfs::kName}).restore();
  }();
  history_.check_final(restored);
  const double ended_s = now_s_;
  const auto over = std::ranges::find_if(coordinators_, [](const auto& one) { return one->campaign_over(); });
  const Host& last_host = (*over)->host();
  const double until_s = now_s_ + kWorkersGone_s +
                         (settings_.waits_for_workers ? settings_.linger_s + around_.timing.lost_here_s : 0);
  while (!timeline_.empty() && timeline_.next_s() < until_s) {
    now_s_ = timeline_.next_s();
    timeline_.step();
  }
  for (const auto& worker : workers_.all()) {
    const bool local =
        &worker->host() == &last_host && worker->row_s() + 3 * around_.timing.dismiss_s < ended_s;
    if (!worker->gone() && (local || settings_.waits_for_workers))
      throw Violation("ends", fmt::format("the worker {} is left behind after the end", worker->id()));
  }
}

}  // namespace wflow::simulation
