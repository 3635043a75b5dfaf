// SPDX-License-Identifier: Apache-2.0
// Tasks on several nodes: none of them may leave while such a task runs, and one that is lost ends it.
#include <fmt/format.h>

#include <algorithm>

#include "engine/coordinate/machine_impl.h"
#include "engine/schedule/exit_codes.h"

namespace wflow::engine {

void CoordinatorMachine::Impl::check_gangs() {
  const double limit_s = options_.timing.gang_silent_s;
  for (auto& [id, worker] : workers_) {
    if (!worker.scheduled || running_s_ - worker.heard_s <= limit_s || scheduler_.gangs_on(id) == 0) continue;
    scheduler_.node_lost(id, {.detail = fmt::format("its node {} has not answered for {:.0f} s",
                                                    worker.capacity.node, limit_s)});
    // It gets nothing more before its next Hello, and then hears what it is to end.
    // Asked once: with two Hellos under way, a lease sent between them would look lost.
    scheduler_.worker_draining(id);
    worker.identify = worker.identify || (!worker.mute && !worker.peer.empty());
    worker.mute = true;
  }
  if (!recovering_) scheduler_.break_incomplete_gangs();
  judge_failures();
  // A worker that takes part in another's task stays until that has ended.
  for (auto& [id, worker] : workers_) {
    if (worker.drain && !worker.drain_sent && worker.state == WorkerState::draining) drain(worker);
  }
}

// Merlin's codes are the task's own word, and some of them are successes (docs/exit-codes.md).
namespace {
constexpr int kFirstWord = 100, kLastWord = 105;
}  // namespace

// The end of a node may show first as the failure of what runs there: it is judged when all nodes of the task
// have answered since, or one is lost.
bool CoordinatorMachine::Impl::waits_for_nodes(const wire::Outcome& outcome, const Worker& worker) {
  const bool by_itself = !is_success(outcome) && outcome.reason != wire::EndReason::cancelled &&
                         outcome.reason != wire::EndReason::timed_out &&
                         outcome.reason != wire::EndReason::not_started;
  const bool said = outcome.reason == wire::EndReason::exited && outcome.exit_code >= kFirstWord &&
                    outcome.exit_code <= kLastWord;
  if (!by_itself || said || worker.reading || scheduler_.gang_of(outcome.lease).size() < 2) return false;
  failures_.push_back({outcome, worker.id, running_s_});
  return true;
}

void CoordinatorMachine::Impl::judge_failures() {
  std::vector<FailureOnNodes> open;
  for (FailureOnNodes& failure : std::exchange(failures_, {})) {
    // Two heartbeats: the first one may have been under way.
    const double answered_s = failure.since_s + 2 * options_.timing.heartbeat_s;
    const std::vector<WorkerId> workers = scheduler_.gang_of(failure.outcome.lease);
    if (workers.empty()) continue;  // given back meanwhile
    const bool all_answered = std::all_of(workers.begin(), workers.end(), [&](const WorkerId& id) {
      const auto at = workers_.find(id);
      return at != workers_.end() && at->second.heard_s >= answered_s;
    });
    if (all_answered || scheduler_.gang_is_broken(failure.outcome.lease)) {
      scheduler_.ended_badly(failure.outcome, failure.worker, now_.steady_s);
    } else {
      open.push_back(std::move(failure));
    }
  }
  failures_ = std::move(open);
}

}  // namespace wflow::engine
