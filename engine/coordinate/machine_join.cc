// SPDX-License-Identifier: Apache-2.0
// How workers come to the coordinator machine: those that earlier coordinators left, and every Hello.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/coordinate/checks.h"
#include "engine/coordinate/machine_impl.h"

namespace wflow::engine {

namespace {

// Workers that end as soon as they start would be started for ever.
// More than a task can cost before it is put into quarantine.
constexpr int kMaxIdleStarts = static_cast<int>(kCrashLimit) + 2;

}  // namespace

// A worker of an earlier coordinator. Its leases are not in the database: it says them, or its journal and
// its end (or its fence) make them void.
void CoordinatorMachine::Impl::meet(const KnownWorker& known) {
  const bool rowless = !known.row || !known.guardian.known();
  if (rowless && known.locked) return;  // it never held a lease; it lives, and will say Hello
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
    const double fence_s = known.lost_s + options_.timing.margin_s;
    set_due(worker, Worker::Due::fence, options_.planted.lease_before_fence ? 0 : fence_s);
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

// Whether this machine's worker of the group is there already, or under way.
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
  reported_unserved_.clear();  // of those that wait on, it is said again
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
  worker.capacity.alone_s = worker.here ? options_.timing.lost_here_s : options_.timing.lost_s;
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
  if (plan_.study().samples) welcome.sample_design = specs::to_json(plan_.study().samples->design).dump();
  welcome.heartbeat_s = timing.heartbeat_s;
  welcome.lost_s = worker.here ? timing.lost_here_s : timing.lost_s;
  send(worker, std::move(welcome));
  // Its templates went with its connection: leases that it still holds need theirs again.
  for (const wire::Lease& lease : worker.held) {
    if (lease.array < plan_.array_count()) send_templates(worker, lease.array);
  }
}

void CoordinatorMachine::Impl::record_row(Worker& worker) {
  // It has come back before its end was written down: its row must not end.
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

// Its row is on disk: a coordinator that comes after this one will know of it. So it may hold leases.
void CoordinatorMachine::Impl::join(Worker& worker) {
  if (options_.planted.forget_leases_at_hand_over) worker.held.clear();
  scheduler_.worker_joined(worker.id, worker.capacity, worker.held);
  worker.held.clear();
  worker.scheduled = true;
  if (worker.ends_s) scheduler_.worker_ends(worker.id, *worker.ends_s);
  worker.drain = worker.drain || phase_ != Phase::running;
  move(worker, worker.drain ? WorkerState::draining : WorkerState::working);
  if (!worker.killed.empty()) send(worker, wire::Revoke{worker.killed, false, true});
  if (phase_ == Phase::stopping) send(worker, wire::Revoke{{}, true, true});
  if (worker.drain) drain(worker);
  const WorkerId id = worker.id;
  for (wire::Message& message : std::exchange(worker.deferred, {})) {
    const auto at = workers_.find(id);
    if (at == workers_.end()) return;  // it said Goodbye
    on_message(at->second, message);
  }
}

// What the worker holds of an earlier coordinator's leases is known now.
void CoordinatorMachine::Impl::settle_worker(Worker& worker) {
  if (!std::exchange(worker.unsettled, false)) return;
  if (--unsettled_ == 0 && recovering_) end_recovery();
}

void CoordinatorMachine::Impl::end_recovery() {
  recovering_ = false;
  scheduler_.drop_early_results();
  run_again(options_.run_again);
  retry_due_ = options_.retry.has_value();
  if (options_.retry) ask_for_retry({}, *options_.retry);
}

// A worker for each group that has none on this machine.
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

}  // namespace wflow::engine
