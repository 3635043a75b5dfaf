// SPDX-License-Identifier: Apache-2.0
// What happens to a campaign, and how all of it ends.
#include <algorithm>

#include "tests/simulation/world.h"

namespace wflow::simulation {

namespace {

constexpr double kLongestJump_s = 1e5;
constexpr double kLostNodeEvery_s = 15;
constexpr double kTakeoverEvery_s = 12;
constexpr std::uint64_t kActions = 30;  // a kill between two of so many

}  // namespace

void World::schedule_fault() {
  timeline_.after(draw_.exponential(settings_.fault_every_s), [this] {
    if (healed_ || over_) return;
    inject(settings_.kinds[draw_.below(settings_.kinds.size())]);
    schedule_fault();
  });
}

Worker* World::some_worker() {
  std::vector<Worker*> living;
  for (const auto& worker : workers_.all()) {
    if (!worker->gone()) living.push_back(worker.get());
  }
  return living.empty() ? nullptr : living[draw_.below(living.size())];
}

void World::freeze(Process& process, double for_s) {
  process.stop();
  for (const auto& worker : workers_.all()) worker->note_attendance();
  timeline_.after(for_s, [&process] { process.go_on(); });
}

void World::inject(Fault fault) {
  if (fault <= Fault::coordinator_hangup) return inject_coordinator(fault);
  if (fault <= Fault::task_killed) return inject_worker(fault);
  inject_surroundings(fault);
}

void World::inject_coordinator(Fault fault) {
  Coordinator* const running = coordinator();
  if (fault == Fault::second_coordinator_refused) {
    // Only the lock shows it where the first one is.
    if (running != nullptr) start_second_coordinator(hosts_[draw_.below(hosts_.size())]);
    return;
  }
  if (running == nullptr) return;
  trace_.line("world", "{}", name_of(fault));
  switch (fault) {
    case Fault::coordinator_killed:
      if (draw_.chance(0.5)) return running->die_after(draw_.below(kActions));
      break;
    case Fault::coordinator_killed_in_commit:
      running->die_in_commit(draw_.below(8));
      return;
    case Fault::coordinator_frozen:
      freeze(*running, draw_.logarithmic(0.5, 2 * (around_.timing.lost_s + around_.timing.margin_s)));
      break;
    case Fault::coordinator_moved:
      if (hosts_.size() < 2) return;
      coordinator_host_ = (coordinator_host_ + 1 + draw_.below(hosts_.size() - 1)) % hosts_.size();
      break;
    case Fault::coordinator_interrupted:
      running->signal(engine::event::SignalKind::interrupt);
      break;
    case Fault::coordinator_terminated:
      running->signal(engine::event::SignalKind::terminate);
      break;
    default:
      running->signal(engine::event::SignalKind::hangup);
  }
  faults_.count(fault);
  if (fault == Fault::coordinator_killed || fault == Fault::coordinator_moved) running->end();
}

void World::inject_worker(Fault fault) {
  if (fault == Fault::worker_joined_late) {
    if (workers_.all().size() > 60) return;
    faults_.count(fault);
    return start_remote_worker();
  }
  if (fault == Fault::everything_killed) {
    faults_.count(fault);
    trace_.line("world", "{}", name_of(fault));
    if (Coordinator* const running = coordinator()) running->end();
    for (const auto& worker : workers_.all()) worker->kill();
    return;
  }
  Worker* const worker = some_worker();
  if (worker == nullptr) return;
  const double long_s = 1.3 * (around_.timing.lost_s + around_.timing.margin_s);
  trace_.line("world", "{}: {}", name_of(fault), worker->id());
  switch (fault) {
    case Fault::agent_killed:
      if (!worker->agent().alive()) return;
      draw_.chance(0.5) ? worker->agent().end() : worker->agent().die_after(draw_.below(kActions));
      break;
    case Fault::guardian_killed:
      worker->guardian().end();
      break;
    case Fault::worker_killed:
      worker->kill();
      break;
    case Fault::agent_frozen:
      freeze(worker->agent(), draw_.logarithmic(0.5, long_s));
      break;
    case Fault::guardian_frozen:
      freeze(worker->guardian(), draw_.logarithmic(0.5, long_s));
      break;
    case Fault::allocation_ended:
      if (allocations_.chance(0.5)) {  // at its walltime, which it knows; else it is cancelled or preempted
        worker->end_at(allocations_.logarithmic(1, 100));
        break;
      }
      worker->guardian().terminate();
      timeline_.after(draw_.between(1, 12), [worker] {
        if (!worker->gone()) worker->kill();
      });
      break;
    case Fault::task_killed:
      if (!worker->tasks().kill_from_outside(draw_.bits())) return;
      break;
    default:
      return;  // happens as a consequence of others
  }
  faults_.count(fault);
}

void World::partition(bool one_way) {
  if (hosts_.size() < 2) return;
  const std::size_t first = draw_.below(hosts_.size());
  const std::size_t second = (first + 1 + draw_.below(hosts_.size() - 1)) % hosts_.size();
  const std::string a = hosts_[first].name;
  const std::string b = hosts_[second].name;
  faults_.count(one_way ? Fault::partitioned_one_way : Fault::partitioned);
  trace_.line("world", "network: {} {} {}", a, one_way ? "-/->" : "-/-", b);
  network_.block(a, b);
  if (!one_way) network_.block(b, a);
  timeline_.after(draw_.logarithmic(0.2, 2 * (around_.timing.lost_s + around_.timing.margin_s)),
                  [this, a, b] {
                    network_.unblock(a, b);
                    network_.unblock(b, a);
                  });
}

void World::inject_surroundings(Fault fault) {
  switch (fault) {
    case Fault::host_crashed: {
      Host& host = hosts_[draw_.below(hosts_.size())];
      if (host.up) crash_host(host, draw_.logarithmic(1, 30));
      return;
    }
    case Fault::host_frozen: {
      Host& host = hosts_[draw_.below(hosts_.size())];
      if (!host.up || host.frozen) return;
      faults_.count(fault);
      trace_.line("world", "host {} is frozen", host.name);
      hosts_.freeze(host);
      for (const auto& worker : workers_.all()) worker->note_attendance();
      timeline_.after(draw_.logarithmic(0.5, 2 * (around_.timing.lost_s + around_.timing.margin_s)),
                      [this, &host] { hosts_.thaw(host); });
      return;
    }
    case Fault::clock_jumped:
      faults_.count(fault);
      hosts_[draw_.below(hosts_.size())].jump_s += draw_.between(-kLongestJump_s, kLongestJump_s);
      return;
    case Fault::connection_broken: {
      const auto connections = network_.connections();
      if (!connections.empty()) network_.break_connection(connections[draw_.below(connections.size())]);
      return;
    }
    case Fault::partitioned:
    case Fault::partitioned_one_way:
      return partition(fault == Fault::partitioned_one_way);
    case Fault::send_refused: {
      const auto connections = network_.connections();
      if (connections.empty()) return;
      const ConnectionId connection = connections[draw_.below(connections.size())];
      // The queue of a peer takes 100,000 messages, and a client gets one answer on its connection.
      if (users_.waits_on(connection)) return;
      faults_.count(fault);
      network_.refuse_sends(connection, true);
      timeline_.after(draw_.logarithmic(0.01, 5),
                      [this, connection] { network_.refuse_sends(connection, false); });
      return;
    }
    case Fault::slow_network:
      faults_.count(fault);
      network_.set_delays(0.05, 1.5);
      timeline_.after(draw_.between(1, 10), [this] { network_.set_delays(1e-4, 2e-3); });
      return;
    case Fault::strange_message:
      return users_.send_strange();
    case Fault::disk_full:
      faults_.count(fault);
      trace_.line("world", "the disk is full");
      disk_.set_full(true);
      timeline_.after(draw_.logarithmic(0.1, 20), [this] { disk_.set_full(false); });
      return;
    case Fault::paused:
      users_.pause(true);
      timeline_.after(draw_.between(0.1, 5), [this] { users_.pause(false); });
      return;
    case Fault::retried:
      return users_.retry();
    case Fault::cancelled:
      return users_.cancel(false);
    case Fault::cancelled_running:
      return users_.cancel(true);
    case Fault::drained:
      return users_.drain();
    case Fault::queried:
      return users_.ask();
    default:
      return;  // happens as a consequence of others
  }
}

// A node of a job loses its power, beside what else happens.
void World::schedule_lost_node() {
  timeline_.after(draw_lost_.exponential(kLostNodeEvery_s), [this] {
    if (healed_ || over_) return;
    Host* const host = batch_->used_host();
    if (host != nullptr && host != &hosts_[coordinator_host_])
      crash_host(*host, draw_lost_.logarithmic(5, 40));
    schedule_lost_node();
  });
}

// The coordinator stands still, and a user resumes the campaign on another host: beside what else happens,
// too.
void World::schedule_takeover() {
  timeline_.after(draw_lock_.exponential(kTakeoverEvery_s), [this] {
    if (healed_ || over_) return;
    schedule_takeover();
    Coordinator* const running = coordinator();
    if (running == nullptr || !running->runs()) return;
    trace_.line("world", "the coordinator is frozen, and another one is started");
    freeze(*running, draw_lock_.logarithmic(1, 20));
    Host* other = &hosts_[draw_lock_.below(hosts_.size())];
    timeline_.after(draw_lock_.between(0, 3), [this, other] { start_second_coordinator(*other); });
  });
}

// Beside what else happens, too.
void World::schedule_failing_disk() {
  timeline_.after(draw_disk_.exponential(settings_.fault_every_s * 3), [this] {
    if (healed_ || over_) return;
    const auto call = static_cast<DiskCall>(draw_disk_.below(kDiskCalls));
    const double for_s = draw_disk_.logarithmic(0.05, 10);
    trace_.line("world", "{} fails for {:.2f} s", name_of(call), for_s);
    disk_.fail(call, now_s_ + for_s);
    schedule_failing_disk();
  });
}

void World::crash_host(Host& host, double down_s) {
  faults_.count(Fault::host_crashed);
  trace_.line("world", "host {} crashes", host.name);
  if (batch_) batch_->host_crashes(host);
  hosts_.crash(host);
  const std::set<ResultId> before = journaled();
  disk_.crash(host.name, draw_, faults_);
  forget_lost_journals(before);
  timeline_.after(down_s, [this, &host] {
    if (!host.up) hosts_.boot(host);
  });
}

std::set<ResultId> World::journaled() const {
  std::set<ResultId> all;
  const std::string folder = study_.plan.campaign().string() + "/.wflow/workers/";
  for (const std::string& path : disk_.list(folder)) {
    all.merge(results_in(disk_.find(path)->bytes()));
  }
  return all;
}

// A journal is written without fsync: it survives processes, not hosts. What the crash took of it is no
// promise any more.
void World::forget_lost_journals(const std::set<ResultId>& before) {
  const std::set<ResultId> after = journaled();
  for (const auto& [array, element, lease] : before) {
    if (!after.contains({array, element, lease}) && !history_.at(array, element).committed)
      history_.unseen(array, element, lease);
  }
  std::set<ResultId> lost;
  history_.for_each_uncommitted([&](ArrayId array, Element element, LeaseId lease) {
    if (!after.contains({array, element, lease})) lost.insert({array, element, lease});
  });
  for (const auto& [array, element, lease] : lost) history_.unsecure(array, element, lease);
}

// From here on everything works, and the campaign must come to its end.
void World::end_faults() {
  healed_ = true;
  healed_s_ = now_s_;
  around_.mishaps = {};
  if (batch_) batch_->heal();
  disk_.set_full(false);
  disk_.mend();
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (!hosts_[i].up) hosts_.boot(hosts_[i]);
    hosts_.thaw(hosts_[i]);
    for (std::size_t j = 0; j < hosts_.size(); ++j) {
      if (network_.blocked(hosts_[i].name, hosts_[j].name)) network_.unblock(hosts_[i].name, hosts_[j].name);
    }
  }
  for (const ConnectionId connection : network_.connections()) network_.refuse_sends(connection, false);
  for (const auto& worker : workers_.all()) {
    worker->guardian().go_on();
    worker->agent().go_on();
  }
  for (const auto& one : coordinators_) one->go_on();
  const engine::Timing& timing = around_.timing;
  const double recovery_s = kLockTiming.dead_s + kLockTiming.settle_s + settings_.resume_within_s +
                            1.05 * (timing.lost_here_s + timing.margin_s) + timing.return_s +
                            timing.hand_over_s + timing.dismiss_s;
  bound_s_ = 60 + 3 * recovery_s + settings_.linger_s + 3 * total_work_s();
  constexpr double kGangs_s = 300;  // allocations that follow each other, and fewer nodes after a while
  if (batch_) bound_s_ += kGangs_s;
  if (study_.gangs) bound_s_ += kGangs_s + 3 * total_work_s();
  trace_.line("world", "no more faults; {:.0f} s to the end at most", bound_s_);
}

}  // namespace wflow::simulation
