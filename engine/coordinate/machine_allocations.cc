// SPDX-License-Identifier: Apache-2.0
// Batch allocations in the coordinator machine: engine/batch/pools.h decides; this passes it the backlog and
// the workers, and turns its decisions into actions. Also tasks on several nodes (gangs), and the hand-over
// of a coordinator that runs in an allocation to the one that waits in another. Workers continue meanwhile
// and find the next coordinator by its endpoint file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "engine/coordinate/machine_impl.h"
#include "engine/monitor/status.h"
#include "engine/schedule/attempt.h"

namespace wflow::engine {

namespace {

constexpr double kEndChange_s = 1;  // smaller changes of a worker's end come from its clock
constexpr double kLongestLeft_s = 1e9;
constexpr double kLateCause_s = 600;           // Slurm's SlurmdTimeout is 300 s
constexpr std::size_t kUnexplained = 100'000;  // losses whose cause may still become known
constexpr const char* kNodeFailed = "its node has failed, as its scheduler says";
// Exit codes with which a task requests something: retries, soft and hard failures, stops.
constexpr int kFirstMerlinCode = 100, kLastMerlinCode = 105;

// In whole minutes: waits last for hours.
std::string waited(double seconds) {
  constexpr int kMinute_s = 60;
  const auto minutes = static_cast<long>(std::max(0.0, seconds)) / kMinute_s;
  if (minutes == 0) return fmt::format("{:.0f} s", std::max(0.0, seconds));
  return minutes < kMinute_s ? fmt::format("{} min", minutes)
                             : fmt::format("{} h {:02} min", minutes / kMinute_s, minutes % kMinute_s);
}

}  // namespace

// ---- answers of batch schedulers

void CoordinatorMachine::Impl::on(event::JobSubmitted& event) {
  if (!pools_) return;
  pools_->submitted(event.token, event.submission, now_);
  pools_due_ = true;
}

void CoordinatorMachine::Impl::on(event::JobsListed& event) {
  if (!pools_) return;
  pools_->listed(event.scheduler, event.list, now_);
  drain_old_incarnations();
  pools_due_ = true;
}

void CoordinatorMachine::Impl::on(event::JobsCancelled& event) {
  if (!pools_) return;
  pools_->cancelled(event.scheduler, event.ids, event.error, now_);
  pools_due_ = true;
}

// ---- decisions

void CoordinatorMachine::Impl::run_pools() {
  if (!std::exchange(pools_due_, false) || !pools_) return;
  feed_pools();
  pools_->decide(now_);
  carry_out(pools_->take_actions());
  explain_losses();
  check_stuck();
}

// With each pulse only: thousands of workers run hundreds of thousands of tasks, and pools are fed with each
// worker that joins.
void CoordinatorMachine::Impl::sum_running() {
  so_far_s_.clear();
  if (!pools_) return;
  for (const auto& [id, worker] : workers_) {
    // A worker's clock may be off: no longer than this coordinator runs.
    for (const wire::RunningElement& element : worker.running)
      so_far_s_[element.array] += std::clamp(now_.unix_s - element.started_s, 0.0, running_s_);
  }
}

void CoordinatorMachine::Impl::feed_pools() {
  std::map<std::string, batch::AllocationWorkers> by_token;
  const double silent_s = 5 * options_.timing.heartbeat_s;
  for (const auto& [id, worker] : workers_) {
    const bool there = worker.state == WorkerState::joining || worker.state == WorkerState::working ||
                       worker.state == WorkerState::draining;
    if (worker.allocation.empty() || !there || is_of_old_incarnation(worker)) continue;
    batch::AllocationWorkers& workers = by_token[worker.allocation];
    ++workers.count;
    workers.busy = workers.busy || scheduler_.leased_to(id) > 0;
    workers.worked = workers.worked || worker.ended > 0;
    workers.silent = workers.silent || running_s_ - worker.heard_s > silent_s;
    workers.slots = std::max(workers.slots, worker.capacity.cores);
    workers.hosts.push_back(worker.guardian.host);
    if (worker.incarnation > workers.incarnation) workers.nodes.clear();
    workers.incarnation = std::max(workers.incarnation, worker.incarnation);
    if (worker.incarnation == workers.incarnation) workers.nodes.push_back(worker.capacity.node);
  }
  pools_->set_workers(std::move(by_token));
  const std::vector<Backlog> backlog = scheduler_.backlog(so_far_s_);
  for (const batch::PoolSpec& pool : pools_->pools()) {
    const Group* group = groups_.find(pool.name);
    batch::Demand demand;
    demand.measured = true;
    for (std::size_t i = 0; group != nullptr && i < backlog.size(); ++i) {
      if (i >= group->pools.size() || !group->pools[i] || backlog[i].open == 0) continue;
      // Groups that serve the same pool share its work.
      const auto serves = [i](const Group& other) { return other.pools[i]; };
      const auto servers = static_cast<double>(std::ranges::count_if(groups_.all(), serves));
      demand.open += backlog[i].open;
      demand.cores += scheduler_.paused() ? 0 : std::ceil(backlog[i].cores / servers);
      demand.core_s += backlog[i].core_s / servers;
      demand.measured = demand.measured && backlog[i].measured;
      demand.longest_s = std::max(demand.longest_s, backlog[i].longest_s);
      const bool leases = may_lease() && !scheduler_.paused() && phase_ == Phase::running;
      demand.waiting += leases ? backlog[i].waiting : 0;
    }
    if (demand.waiting > 0) demand.obstacle = obstacle_of(pool.name);
    pools_->set_demand(pool.name, demand);
  }
}

// Why the present workers of a pool take none of the tasks that wait for them; empty: not known.
std::string CoordinatorMachine::Impl::obstacle_of(const std::string& name) const {
  const Group* group = groups_.find(name);
  int gpus = -1;
  for (const auto& [id, worker] : workers_) {
    if (worker.scheduled && worker.group == name) gpus = std::max(gpus, worker.capacity.gpus);
  }
  if (group == nullptr || gpus < 0) return {};
  for (const ScheduledWait& wait : scheduler_.waits()) {
    const specs::PlannedStep& step = plan_.steps()[plan_.step_of(wait.array)];
    if (!group->pools[groups_.pool_of(step.study_step)]) continue;
    if (wait.gpus > gpus)
      return fmt::format("a task of the step '{}' asks for {} GPUs, and the workers have {}", step.name,
                         wait.gpus, gpus);
    if (wait.cut_s > 0)
      return fmt::format(
          "tasks of the step '{}' were cut after {:.0f} s by the end of an allocation, and none came "
          "with more time left for them; raise 'walltime' above {:.0f} s",
          step.name, wait.cut_s, std::max(wait.walltime_s, wait.cut_s));
  }
  return {};
}

// Submits a job once its row is on disk: the next coordinator then finds it by its name.
void CoordinatorMachine::Impl::carry_out(batch::PoolActions actions) {
  for (const batch::PoolNote& note : actions.notes) record(note.warning ? "note" : "batch", note.text);
  batch_.allocations.insert(batch_.allocations.end(), actions.changed.begin(), actions.changed.end());
  for (auto& submit : actions.submits)
    gathered_.questions.emplace_back(action::SubmitJob{std::move(submit.scheduler), std::move(submit.job)});
  for (auto& cancel : actions.cancels)
    act(action::CancelJobs{std::move(cancel.scheduler), std::move(cancel.ids)});
  for (const std::string& scheduler : actions.queries) act(action::QueryJobs{scheduler, options_.job_prefix});
  for (const std::string& token : actions.drains) drain_allocation(token);
  for (const auto& gone : actions.gone) note_gone(gone);
}

// Does not count them as lost at once: their messages may be on the way, and count more than the scheduler's
// answer.
void CoordinatorMachine::Impl::note_gone(const batch::PoolActions::Gone& gone) {
  const auto named = [&](const std::string& host) {
    return std::ranges::any_of(gone.nodes, [&](const std::string& node) {
      return batch::short_name(node) == batch::short_name(host);
    });
  };
  for (auto& [id, worker] : workers_) {
    if (worker.allocation != gone.token || worker.here) continue;
    if (gone.nodes.empty()) worker.gone = "its job has ended, as its scheduler says";
    if (named(worker.capacity.node) || named(worker.guardian.host)) worker.gone = kNodeFailed;
  }
}

void CoordinatorMachine::Impl::drain_allocation(const std::string& token) {
  for (auto& [id, worker] : workers_) {
    if (worker.allocation == token && !worker.drain) drain(worker);
  }
}

bool CoordinatorMachine::Impl::is_of_old_incarnation(const Worker& worker) const {
  if (!pools_ || worker.allocation.empty()) return false;
  const batch::Allocation* allocation = pools_->find(worker.allocation);
  return allocation != nullptr && allocation->restarts > worker.incarnation;
}

// The scheduler has restarted their job: they may run on for a while on a node that it has given up.
void CoordinatorMachine::Impl::drain_old_incarnations() {
  for (auto& [id, worker] : workers_) {
    if (!worker.drain && is_of_old_incarnation(worker)) drain(worker);
  }
}

// No allocation can be had and no worker is left: fail now instead of waiting without an end.
void CoordinatorMachine::Impl::check_stuck() {
  const auto why = pools_->stuck();
  if (!why || stuck_ || phase_ != Phase::running || scheduler_.leased() > 0 || !workers_.empty()) return;
  stuck_ = true;
  const std::string text =
      fmt::format("{}; then continue with: wflow resume {}", *why, plan_.campaign().string());
  record("error", text);
  gathered_.questions.emplace_back(action::Fail{ExitCode::system, text});
}

bool CoordinatorMachine::Impl::allocations_are_gone() {
  if (!pools_ || !pools_->any_left()) return true;
  if (running_s_ < pools_give_up_s_) return false;
  pools_give_up_s_ = kNever_s;
  std::vector<std::string> ids;
  for (const auto& [token, allocation] : pools_->allocations()) {
    if (allocation.state != batch::AllocationState::ended && !allocation.id.empty())
      ids.push_back(allocation.id);
  }
  record("note",
         fmt::format("allocations that the scheduler did not cancel: {}; their workers end by themselves",
                     text::join(ids, ", ")));
  pools_.reset();
  return true;
}

// ---- workers

// Uses the machine's own clock, so that it compares no two clocks.
void CoordinatorMachine::Impl::note_end(Worker& worker, std::optional<double> left_s) {
  if (!left_s || !std::isfinite(*left_s)) return;
  const double ends_s = now_.steady_s + std::clamp(*left_s, -kLongestLeft_s, kLongestLeft_s);
  if (worker.ends_s && std::abs(*worker.ends_s - ends_s) < kEndChange_s) return;
  worker.ends_s = ends_s;
  if (worker.scheduled) scheduler_.worker_ends(worker.id, ends_s);
}

std::optional<std::string> CoordinatorMachine::Impl::objection_to_allocation(const wire::Hello& hello) const {
  if (!pools_ || hello.allocation.empty() || workers_.contains(hello.worker)) return std::nullopt;
  const batch::Allocation* allocation = pools_->find(hello.allocation);
  if (allocation == nullptr) return std::nullopt;
  if (allocation->state == batch::AllocationState::ended)
    return "the coordinator has given up this worker's allocation";
  if (allocation->restarts > hello.incarnation)
    return "the scheduler has started this worker's allocation anew";
  return std::nullopt;
}

// A loss with the end of its allocation charges no attempt. Without an allocation, the task itself may have
// ended its worker.
Loss CoordinatorMachine::Impl::loss_of(const Worker& worker) const {
  if (worker.ends_s && now_.steady_s >= *worker.ends_s)
    return {EndReason::walltime, "the walltime of its allocation was over", true, true};
  if (worker.gone == kNodeFailed) return {EndReason::node, "its node failed", true, true};
  const batch::Allocation* allocation =
      pools_ && !worker.allocation.empty() ? pools_->find(worker.allocation) : nullptr;
  if (allocation == nullptr) return {};
  if (auto known = loss_by(*allocation, worker.incarnation)) return *known;
  Loss loss;
  loss.settled = false;
  return loss;
}

// Empty while the allocation runs, as far as the scheduler has reported.
std::optional<Loss> CoordinatorMachine::Impl::loss_by(const batch::Allocation& allocation,
                                                      int incarnation) const {
  using batch::JobEnd;
  const std::string name = "allocation " + (allocation.id.empty() ? allocation.token : allocation.id);
  if (allocation.restarts > incarnation)
    return Loss{EndReason::preempted, name + " was requeued by its scheduler", true, true};
  if (allocation.state != batch::AllocationState::ended) return std::nullopt;
  const bool over = allocation.ends_s > 0 && allocation.ended_s >= allocation.ends_s;
  switch (allocation.end) {
    case JobEnd::walltime:
      return Loss{EndReason::walltime, "the walltime of " + name + " was over", true, true};
    case JobEnd::node:
      return Loss{EndReason::node, "a node of " + name + " failed", true, true};
    case JobEnd::preempted:
      return Loss{EndReason::preempted, name + " was preempted", true, true};
    case JobEnd::memory:
      return Loss{EndReason::out_of_memory, name + " was ended for its memory, as its scheduler says", true,
                  true};
    case JobEnd::cancelled:
      if (!over) return Loss{EndReason::preempted, name + " was cancelled", true, true};
      break;
    case JobEnd::none:
    case JobEnd::exit:
      break;
  }
  if (over) return Loss{EndReason::walltime, "the walltime of " + name + " was over", true, true};
  if (pools_->was_given_back(allocation.token))
    return Loss{EndReason::worker_lost, name + " was given back", false, true};
  // The task itself may have caused this end: it explains nothing.
  const std::string why = allocation.reason.empty() ? "" : ": " + allocation.reason;
  return Loss{EndReason::worker_lost, name + " ended with the worker on which this task ran" + why, true,
              true};
}

void CoordinatorMachine::Impl::keep_losses(const Worker& worker, std::vector<Outcome> lost) {
  for (Outcome& outcome : lost) {
    if (unexplained_.size() >= kUnexplained) return;
    unexplained_.push_back(
        {worker.id, worker.allocation, worker.incarnation, running_s_, std::move(outcome)});
  }
}

// A scheduler takes minutes to give up a node; an end that it reports much later has another cause.
void CoordinatorMachine::Impl::explain_losses() {
  std::erase_if(unexplained_, [&](const UnexplainedLoss& lost) {
    if (running_s_ - lost.lost_s > kLateCause_s) return true;
    const batch::Allocation* allocation = pools_->find(lost.allocation);
    const auto loss = allocation == nullptr ? std::nullopt : loss_by(*allocation, lost.incarnation);
    if (!loss) return false;
    scheduler_.loss_explained(lost.outcome, lost.worker, *loss);
    return true;
  });
}

// ---- nodes on which every task fails (NodeHealth)

// Ignores ends that a task requests, and those caused by its allocation or its size.
void CoordinatorMachine::Impl::follow_health(const wire::Results& results, const Worker& worker) {
  if (worker.here || !worker.scheduled) return;
  const auto step_of = [&](ArrayId array) { return plan_.step_of(array); };
  for (const wire::DoneRun& run : results.done) {
    if (run.array < plan_.array_count() && run.count > 0)
      health_.succeeded(worker.guardian.host, step_of(run.array), run.array,
                        {run.first, run.first + run.count - 1});
  }
  for (const wire::Outcome& outcome : results.outcomes) {
    const bool exited = outcome.reason == wire::EndReason::exited;
    const bool asked = exited && (outcome.exit_code == 0 || (outcome.exit_code >= kFirstMerlinCode &&
                                                             outcome.exit_code <= kLastMerlinCode));
    const bool failed = exited || outcome.reason == wire::EndReason::signalled ||
                        outcome.reason == wire::EndReason::not_started ||
                        outcome.reason == wire::EndReason::bad_output ||
                        outcome.reason == wire::EndReason::disk;
    if (outcome.array >= plan_.array_count() || !failed || asked) continue;
    const std::size_t step = step_of(outcome.array);
    if (plan_.steps()[step].resources.nodes > 1) continue;  // any of its nodes may be the cause
    health_.failed(worker.guardian.host, step, {outcome.array, outcome.element});
  }
}

void CoordinatorMachine::Impl::judge_nodes() {
  for (const NodeHealth::Isolation& isolation : health_.take_isolations()) isolate(isolation);
  for (const NodeHealth::Cleared& cleared : health_.take_cleared()) {
    record("note",
           fmt::format("the tasks that failed on {} fail elsewhere, too: it is used again", cleared.host));
    if (pools_) pools_->include(cleared.host);
  }
}

// The tasks that failed there may succeed elsewhere: each runs once more, whatever its budget of attempts.
void CoordinatorMachine::Impl::isolate(const NodeHealth::Isolation& isolation) {
  if (!isolation.again) {
    record("note",
           fmt::format("node {}: the last {} tasks there failed, and on other nodes {} of {} did; it gets no "
                       "more tasks, and what failed there runs again elsewhere",
                       isolation.host, isolation.failed.size(), isolation.failed_elsewhere,
                       isolation.ended_elsewhere));
  }
  for (auto& [id, worker] : workers_) {
    if (worker.guardian.host != isolation.host || worker.here) continue;
    if (!worker.drain) drain(worker);
    if (pools_ && !worker.allocation.empty()) pools_->exclude(worker.allocation, isolation.host);
  }
  if (phase_ != Phase::running || cancelled_) return;
  std::vector<std::pair<ArrayId, Range>> parts;
  for (const auto& [array, element] : isolation.failed) {
    if (scheduler_.states(array).at(element) == ElementState::failed)
      parts.push_back({array, {element, element}});
  }
  scheduler_.retry_failed(parts);
}

// ---- questions

bool CoordinatorMachine::Impl::has_pool(const std::string& group) const {
  return std::ranges::any_of(options_.pools, [&](const batch::PoolSpec& pool) { return pool.name == group; });
}

bool CoordinatorMachine::Impl::awaits_allocation(ArrayId array) const {
  return pools_ && !waits_for(array, now_.unix_s).empty();
}

std::string CoordinatorMachine::Impl::waits_for(ArrayId array, double unix_s) const {
  if (!pools_ || array >= plan_.array_count()) return {};
  const std::uint32_t pool = groups_.pool_of(plan_.steps()[plan_.step_of(array)].study_step);
  std::string other;
  for (const Group& group : groups_.all()) {
    if (pool >= group.pools.size() || !group.pools[pool] || !has_pool(group.name)) continue;
    if (const batch::Allocation* allocation = pools_->waited_for(group.name)) {
      const std::string id = allocation->id.empty() ? "that is being submitted" : allocation->id;
      if (allocation->state == batch::AllocationState::running)
        return fmt::format("allocation {}, whose workers start", id);
      std::string text =
          fmt::format("allocation {}, pending for {}", id, waited(unix_s - allocation->created_s));
      const std::string& why =
          allocation->never_clears.empty() ? allocation->reason : allocation->never_clears;
      return why.empty() ? text : text + ": " + why;
    }
    const std::string* gave_up = pools_->gave_up(group.name);
    other = gave_up != nullptr ? *gave_up : fmt::format("an allocation of the pool '{}'", group.name);
  }
  return other;
}

wire::AllocationsAnswer CoordinatorMachine::Impl::allocations(double unix_s, bool ended) const {
  wire::AllocationsAnswer answer;
  if (!pools_) return answer;
  std::map<std::string, int> workers;
  for (const auto& [id, worker] : workers_) ++workers[worker.allocation];
  std::vector<const batch::Allocation*> listed;
  for (const auto& [token, allocation] : pools_->allocations()) {
    if (ended || allocation.state != batch::AllocationState::ended) listed.push_back(&allocation);
  }
  std::ranges::stable_sort(listed, {}, &batch::Allocation::created_s);
  answer.allocations_total = listed.size();
  const std::size_t first = listed.size() - std::min(listed.size(), kListedAllocations);
  for (std::size_t i = first; i < listed.size(); ++i) {
    wire::AllocationView& view = answer.allocations.emplace_back(view_of(*listed[i]));
    view.workers = workers[view.token];
    view.leaving = pools_->is_leaving(view.token);
  }
  for (const batch::PoolSpec& pool : pools_->pools()) {
    const batch::Forecast forecast = pools_->forecast(pool.name, {now_.steady_s, unix_s});
    const std::string* gave_up = pools_->gave_up(pool.name);
    answer.pools.push_back({pool.name, pool.scheduler, pool.job.nodes, pools_->slots(pool.name), pool.min,
                            pool.max, pool.job.walltime_s, forecast.used_node_h, forecast.left_node_h,
                            forecast.ends_s, forecast.more, gave_up == nullptr ? "" : *gave_up});
  }
  answer.excluded_nodes.assign(pools_->excluded_nodes().begin(), pools_->excluded_nodes().end());
  return answer;
}

std::optional<wire::Answer> CoordinatorMachine::Impl::command(const wire::AllocationsCommand& command) {
  constexpr std::uint32_t kMost = 1000;
  if (!pools_)
    return wire::refusal("this campaign has no pool of allocations: its study asks for no scheduler");
  if (phase_ != Phase::running && command.verb == wire::AllocationsVerb::add)
    return wire::refusal("the campaign is ending");
  std::optional<std::string> error;
  switch (command.verb) {
    case wire::AllocationsVerb::add:
      error = command.count == 0 || command.count > kMost
                  ? fmt::format("give a number of allocations from 1 to {}", kMost)
                  : pools_->add(command.name, static_cast<int>(command.count), now_);
      break;
    case wire::AllocationsVerb::cancel:
      error = pools_->cancel(command.name, now_);
      break;
    case wire::AllocationsVerb::drain:
      error = pools_->drain(command.name, now_);
      break;
  }
  if (error) return wire::refusal(*error);
  pools_due_ = true;
  return wire::done_answer();
}

void CoordinatorMachine::Impl::check_gangs() {
  const double limit_s = options_.timing.gang_silent_s;
  for (auto& [id, worker] : workers_) {
    if (!worker.scheduled || running_s_ - worker.heard_s <= limit_s || scheduler_.gangs_on(id) == 0) continue;
    scheduler_.node_lost(id, {.detail = fmt::format("its node {} has not answered for {:.0f} s",
                                                    worker.capacity.node, limit_s)});
    // It gets nothing more before its next Hello, and then the revokes that it missed.
    // One Identify only: with two Hellos under way, a lease sent between them would look lost.
    scheduler_.worker_draining(id);
    worker.identify = worker.identify || (!worker.mute && !worker.peer.empty());
    worker.mute = true;
  }
  if (!recovering_) scheduler_.break_incomplete_gangs();
  judge_failures();
  // A worker with ranks of another worker's task stays until that task has ended.
  for (auto& [id, worker] : workers_) {
    if (worker.drain && !worker.drain_sent && worker.state == WorkerState::draining) drain(worker);
  }
}

// The task itself sets Merlin's codes, and some of them are successes (docs/exit-codes.md).
namespace {
constexpr int kFirstWord = 100, kLastWord = 105;
}  // namespace

// The end of a node may show first as a failure of the task there: the machine decides when all nodes of the
// task have answered since, or one is lost.
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

bool CoordinatorMachine::Impl::has_own_allocation() const {
  return pools_ && pools_->own() != nullptr;
}

std::optional<double> CoordinatorMachine::Impl::own_left_s() const {
  if (!runs_in_allocation()) return std::nullopt;
  const batch::Allocation* own = pools_ ? pools_->find(options_.own_allocation.token) : nullptr;
  const double ends_s = own != nullptr && own->ends_s > 0 ? own->ends_s : options_.own_allocation.ends_unix_s;
  return ends_s > 0 ? std::optional(ends_s - now_.unix_s) : std::nullopt;
}

// Steady time at which check_own_allocation() or may_end_here() changes its result, without any other event.
double CoordinatorMachine::Impl::own_wake_s() const {
  const auto left_s = own_left_s();
  const bool hands_over = phase_ == Phase::handing_over;
  if (!left_s || (phase_ != Phase::running && phase_ != Phase::draining && !hands_over)) return kNever_s;
  const double in_s = *left_s - options_.timing.leave_allocation_s / (hands_over ? 2 : 1);
  return in_s > 0 ? now_.steady_s + in_s : kNever_s;
}

void CoordinatorMachine::Impl::check_own_allocation() {
  if (!options_.own_allocation.moves) return;
  const auto left_s = own_left_s();
  if (left_s && *left_s <= options_.timing.leave_allocation_s) {
    if (phase_ == Phase::running) begin_hand_over("the walltime of its allocation ends");
    if (phase_ == Phase::draining) request_stop("the allocation of the coordinator ends");
  }
  // Outside the allocations it runs only until the first allocation can take over.
  const bool submitted = pools_ && !has_own_allocation() && !retry_due_ && pools_->has_successor(now_);
  if (phase_ == Phase::running && submitted) begin_hand_over("an allocation is on its way");
  if (phase_ != Phase::handing_over || said_alone_ || running_s_ < phase_due_s_) return;
  if (pools_ && pools_->needs_successor(now_)) {
    said_alone_ = true;
    record("note", fmt::format("no further allocation is queued or runs; continue with: wflow resume {}",
                               plan_.campaign().string()));
  }
}

void CoordinatorMachine::Impl::begin_hand_over(const std::string& why) {
  if (phase_ != Phase::running) return;
  move_to(Phase::handing_over);
  phase_due_s_ = running_s_ + options_.timing.succeed_s;
  record("batch", fmt::format("coordinator {} hands over: {}", options_.epoch, why));
  if (!pools_) return;
  pools_->leave_own();
  pools_due_ = true;
  run_pools();
}

// True if there is a successor, and all messages of its own allocation's workers have come.
bool CoordinatorMachine::Impl::may_end_here() const {
  const auto left_s = own_left_s();
  if (running_s_ >= phase_due_s_ || (left_s && *left_s <= options_.timing.leave_allocation_s / 2))
    return true;
  if (pools_ && pools_->needs_successor(now_)) return false;
  return std::none_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    const Worker& worker = entry.second;
    const bool of_own = runs_in_allocation() && worker.allocation == options_.own_allocation.token;
    return of_own || worker.reading || worker.state == WorkerState::ending;
  });
}

}  // namespace wflow::engine
