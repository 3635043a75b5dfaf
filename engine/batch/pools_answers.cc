// SPDX-License-Identifier: Apache-2.0
// What schedulers answer to the coordinator's pools.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "engine/batch/pools.h"

namespace wflow::engine::batch {

namespace {

// A scheduler may not know yet where and why a job waits that it has just accepted.
constexpr double kFirstLook_s = 2;
// Workers leave some seconds before the end of their allocation, those with a training a minute.
constexpr double kNearEnd_s = 90;
// Answers that do not name what was never acknowledged: a submission may take longer than the coordinator
// lived.
constexpr int kMissingIntents = 2;

std::string why(JobEnd end, const std::string& reason) {
  switch (end) {
    case JobEnd::walltime:
      return "its walltime was over";
    case JobEnd::node:
      return "a node failed";
    case JobEnd::memory:
      return "it was killed for memory";
    case JobEnd::preempted:
      return "it was preempted";
    case JobEnd::cancelled:
      return "it was cancelled";
    case JobEnd::none:
    case JobEnd::exit:
      break;
  }
  return reason.empty() ? "its job ended" : reason;
}

}  // namespace

void Pools::changed(const Allocation& allocation) {
  const auto same = std::find_if(actions_.changed.begin(), actions_.changed.end(),
                                 [&](const Allocation& row) { return row.token == allocation.token; });
  same == actions_.changed.end() ? actions_.changed.push_back(allocation) : void(*same = allocation);
}

void Pools::ask_soon(const std::string& scheduler, double steady_s) {
  Asked& asked = asked_[scheduler];
  asked.soon_s = std::min(asked.soon_s, steady_s + kFirstLook_s);
}

// ---- submissions

void Pools::submitted(const std::string& token, const Submission& submission, Now now) {
  const auto at = live_.find(token);
  if (at == live_.end()) return;
  at->second.under_way = false;
  Allocation& allocation = allocations_.at(token);
  Pool& pool = pool_of(allocation);
  if (submission.id.empty()) return refused(pool, allocation, submission, now);
  pool.refusals = 0;
  allocation.id = submission.id;
  if (allocation.state == AllocationState::intended) allocation.state = AllocationState::queued;
  changed(allocation);
  ask_soon(allocation.scheduler, now.steady_s);
  note(fmt::format("allocation {} submitted to {}: {} node{} for the pool '{}'", allocation.id,
                   allocation.scheduler, allocation.nodes, allocation.nodes == 1 ? "" : "s",
                   allocation.pool));
}

void Pools::refused(Pool& pool, const Allocation& allocation, const Submission& submission, Now now) {
  const bool hopeless = submission.refusal == Submission::Refusal::fix;
  const std::string text = fmt::format("{} refused an allocation for the pool '{}': {}", allocation.scheduler,
                                       allocation.pool, submission.text);
  // Several that were submitted together are refused for the same reason.
  if (hopeless && pool.gave_up.empty()) {
    pool.gave_up = text + "; change the study's batch: block or the pool, or run it here with --local";
    note(pool.gave_up, true);
  } else if (!hopeless && now.steady_s >= pool.not_before_s) {
    const double wait_s = std::min(timing_.longest_refusal_s,
                                   timing_.first_refusal_s * std::ldexp(1.0, std::min(pool.refusals, 16)));
    pool.not_before_s = now.steady_s + wait_s;
    if (pool.refusals++ == 0)
      note(fmt::format("{}; it is tried again in {:.0f} s, later and later", text, wait_s), true);
  }
  // After a time-out the job may exist all the same: the next answer then has its name.
  if (!hopeless) return ask_soon(allocation.scheduler, now.steady_s);
  ended(allocations_.at(allocation.token), JobEnd::none, submission.text, now);
}

void Pools::cancelled(const std::string& scheduler, const std::vector<std::string>& ids,
                      const std::optional<std::string>& error, Now now) {
  for (const std::string& id : ids) {
    const auto at = std::find_if(allocations_.begin(), allocations_.end(), [&](const auto& entry) {
      return entry.second.scheduler == scheduler && entry.second.id == id && live_.contains(entry.first);
    });
    if (at == allocations_.end()) continue;
    if (!error) {
      const Live& live = live_.at(at->first);
      if (has_workers(at->first)) dying_.insert(at->first);
      ended(at->second, live.by_person ? JobEnd::cancelled : JobEnd::none,
            live.left ? "its workers left it" : "it was cancelled", now);
      continue;
    }
    live_.at(at->first).cancel_asked = false;  // again, later
    if (live_.at(at->first).cancels_failed++ == 0)
      note(fmt::format("{} did not cancel allocation {} ({}); it is asked again", scheduler, id, *error),
           true);
  }
}

// ---- queries

void Pools::listed(const std::string& scheduler, const JobList& list, Now now) {
  Asked& asked = asked_[scheduler];
  asked.under_way = false;
  if (!list.answered) {
    if (++asked.unanswered == 1)
      note(fmt::format("{} does not answer ({}); allocations that run go on", scheduler, list.text), true);
    return;
  }
  if (std::exchange(asked.unanswered, 0) > 0) note(scheduler + " answers again");
  asked.answered = true;
  std::set<std::string> missing = std::move(asked.known);
  asked.known.clear();
  for (const JobStatus& job : list.jobs) {
    missing.erase(job.token);
    learn(job, now);
  }
  for (const std::string& token : missing) {
    const auto at = live_.find(token);
    if (at == live_.end()) {
      cancelled_job_is_gone(token);
      continue;
    }
    const bool never_answered = allocations_.at(token).id.empty();
    const int limit = finishing_ && !has_workers(token) ? 1
                      : never_answered                  ? kMissingIntents
                                                        : timing_.missing;
    if (++at->second.missing < limit) {
      ask_soon(scheduler, now.steady_s);
      continue;
    }
    actions_.gone.push_back({token, {}});
    if (at->second.recovered) given_back_.insert(token);
    ended(allocations_.at(token), JobEnd::none, fmt::format("{} does not know its job any more", scheduler),
          now);
  }
}

// Nodes of a job that continues without them. Its first list may come after the failure: then its workers'
// nodes are compared, if the list lacks just as many.
std::vector<std::string> Pools::taken_out(const Live& live, const std::vector<std::string>& listed,
                                          int nodes) {
  std::vector<std::string> gone;
  const auto left = [&](const std::string& node) { return std::ranges::find(listed, node) == listed.end(); };
  if (!live.nodes.empty()) {
    std::ranges::copy_if(live.nodes, std::back_inserter(gone), left);
    return gone;
  }
  std::ranges::copy_if(live.manned, std::back_inserter(gone), left);
  if (gone.size() + listed.size() != static_cast<std::size_t>(nodes)) gone.clear();
  return gone;
}

void Pools::cancelled_job_is_gone(const std::string& token) {
  if (dying_.erase(token) > 0) actions_.gone.push_back({token, {}});
}

void Pools::learn(const JobStatus& job, Now now) {
  const auto at = live_.find(job.token);
  if (at == live_.end()) {  // it has ended for this coordinator, or is unknown
    if (job.state == JobState::done || job.state == JobState::failed) cancelled_job_is_gone(job.token);
    return;
  }
  Live& live = at->second;
  Allocation& allocation = allocations_.at(job.token);
  live.missing = 0;
  live.named = true;
  const Allocation before = allocation;
  if (!job.id.empty()) allocation.id = job.id;
  if (job.restarts > allocation.restarts) {
    allocation.restarts = job.restarts;
    live.joined = live.had_workers = live.worked = false;
    live.hosts.clear();
    live.nodes.clear();
    // Workers of this start may have joined before the first list that names it.
    if (live.manned_in != job.restarts) live.manned.clear();
    live.left_since_s.reset();
    if (live.left) live.left = live.goes_on = live.leaving = live.cancel_asked = false;
    live.since_s = now.steady_s;
    allocation.ends_s = allocation.started_s = 0;
    note(fmt::format(
        "allocation {} was requeued by {} (start {}); its tasks run again without a charged attempt", job.id,
        allocation.scheduler, job.restarts + 1));
  }
  if (!job.nodes.empty()) {
    allocation.node_names = job.nodes;
    std::vector<std::string> gone = taken_out(live, job.nodes, allocation.nodes);
    if (!gone.empty()) {
      note(fmt::format("{} has taken {} out of allocation {}: its tasks run again elsewhere",
                       allocation.scheduler, joined(gone), allocation.id));
      actions_.gone.push_back({job.token, std::move(gone)});
    }
    live.nodes = job.nodes;
  }
  switch (job.state) {
    case JobState::unknown:
      break;
    case JobState::queued:
    case JobState::held:
      allocation.state = AllocationState::queued;
      allocation.reason = job.reason;
      if (!job.never_clears.empty() && job.never_clears != allocation.never_clears)
        note(fmt::format("allocation {} will never start: {}", allocation.id, job.never_clears), true);
      allocation.never_clears = job.never_clears;
      break;
    case JobState::running:
    case JobState::ending:
      if (allocation.state != AllocationState::running || allocation.started_s <= 0)
        began(allocation, job.starts_unix_s.value_or(now.unix_s), now);
      if (job.ends_unix_s && std::abs(allocation.ends_s - *job.ends_unix_s) >= 1)
        allocation.ends_s = *job.ends_unix_s;
      live.goes_on = live.left && job.state == JobState::running;
      if (job.state == JobState::ending && !std::exchange(live.leaving, true)) live.left = true;
      break;
    case JobState::done:
    case JobState::failed:
      actions_.gone.push_back({job.token, {}});
      return ended(allocation, job.state == JobState::done ? JobEnd::none : job.end, job.reason, now);
  }
  const bool same = before.id == allocation.id && before.state == allocation.state &&
                    before.reason == allocation.reason && before.never_clears == allocation.never_clears &&
                    before.ends_s == allocation.ends_s && before.started_s == allocation.started_s &&
                    before.restarts == allocation.restarts && before.node_names == allocation.node_names;
  if (!same) changed(allocation);
}

void Pools::began(Allocation& allocation, double started_s, Now now) {
  allocation.state = AllocationState::running;
  allocation.started_s = std::min(started_s, now.unix_s);
  allocation.reason.clear();
  allocation.never_clears.clear();
  Pool& pool = pool_of(allocation);
  const double waited_s = std::max(0.0, allocation.started_s - allocation.created_s);
  pool.wait_s += (waited_s - pool.wait_s) / ++pool.waits;
  const std::string where = allocation.node_names.empty() ? "" : " on " + joined(allocation.node_names);
  note(fmt::format("allocation {} runs{}, after {:.0f} s in the queue", allocation.id, where, waited_s));
}

void Pools::ended(Allocation& allocation, JobEnd end, const std::string& reason, Now now) {
  const Live live = live_.at(allocation.token);
  const bool given_back = live.leaving && !live.left && live.failure.empty();
  live_.erase(allocation.token);
  allocation.state = AllocationState::ended;
  allocation.end = end;
  allocation.ended_s = now.unix_s;
  const double near_s = std::min(kNearEnd_s, allocation.walltime_s / 4);
  const bool at_its_end =
      end == JobEnd::walltime || (allocation.ends_s > 0 && now.unix_s > allocation.ends_s - near_s);
  allocation.reason = !live.failure.empty() ? live.failure
                      : at_its_end          ? why(JobEnd::walltime, reason)
                      : live.by_person      ? "it was cancelled by wflow allocations cancel"
                      : given_back          ? "given back"
                                            : why(end, reason);
  changed(allocation);
  if (allocation.id.empty()) return;  // it never was
  // Draining ends no task: before a cancellation, a task may have caused the end itself.
  if (given_back && cancelled_.contains(allocation.token)) given_back_.insert(allocation.token);
  if (!given_back || live.by_person)
    note(fmt::format("allocation {} has ended: {}", allocation.id, allocation.reason));
  // Workers of a recovered one may well have come, to the coordinator before.
  if (!given_back && !live.joined && !live.recovered && end != JobEnd::preempted)
    start_failed(allocation, live, now);
  const bool nobodys = live.by_person || live.recovered || end == JobEnd::preempted || end == JobEnd::node ||
                       end == JobEnd::cancelled;
  if (live.joined && !live.worked && !nobodys) ran_nothing(allocation, now);
}

// Its workers joined and took none of the waiting tasks, or ended before they had run one. The next
// allocation would do the same: stop before a night of allocations is wasted.
void Pools::ran_nothing(const Allocation& allocation, Now now) {
  Pool& pool = pool_of(allocation);
  if (finishing_ || pool.demand.waiting == 0 || !pool.gave_up.empty()) return;
  ++pool.fruitless;
  pool.not_before_s = now.steady_s + timing_.first_failure_s * std::pow(6, pool.fruitless - 1);
  if (pool.fruitless < timing_.failures) return;
  pool.gave_up = fmt::format(
      "{} allocations of the pool '{}' in a row ended without having run a task, and {} task{} wait{}: {}; "
      "the last "
      "one was {} on {} ({}), see the output of their jobs in {}",
      pool.fruitless, allocation.pool, pool.demand.waiting, pool.demand.waiting == 1 ? "" : "s",
      pool.demand.waiting == 1 ? "s" : "",
      pool.obstacle.empty() ? "their workers ended before they had begun one" : pool.obstacle, allocation.id,
      nodes_of(allocation), allocation.reason, pool.spec->job.directory);
  note(pool.gave_up, true);
}

// It ended before any of its workers had joined. Of several nodes on which none came, none is blamed.
void Pools::start_failed(const Allocation& allocation, const Live& live, Now now) {
  Pool& pool = pool_of(allocation);
  const bool quick = allocation.started_s > 0 && now.unix_s - allocation.started_s < timing_.quick_s;
  if (allocation.node_names.size() == 1 && (quick || !live.failure.empty()))
    blame(allocation.node_names, allocation.reason);
  ++pool.failures;
  pool.not_before_s = now.steady_s + timing_.first_failure_s * std::pow(6, pool.failures - 1);
  if (pool.failures < timing_.failures) return;
  pool.gave_up = fmt::format(
      "{} allocations of the pool '{}' in a row ended before a worker came from them, the last one "
      "({}) on {}: {}; see the output of their jobs in {}",
      pool.failures, allocation.pool, allocation.id, nodes_of(allocation), allocation.reason,
      pool.spec->job.directory);
  note(pool.gave_up, true);
}

std::vector<std::string> Pools::silent_nodes(const Allocation& allocation,
                                             const std::set<std::string>& hosts) {
  std::vector<std::string> silent;
  for (const std::string& node : allocation.node_names) {
    if (!hosts.contains(short_name(node))) silent.push_back(node);
  }
  return silent;
}

void Pools::blame(const std::vector<std::string>& nodes, const std::string& why) {
  for (const std::string& node : nodes) {
    if (++quick_failures_[node] < timing_.quick_failures || !excluded_.insert(node).second) continue;
    note(fmt::format("node {} has let {} allocations fail at their start, the last one with: {}; it is left "
                     "out from now on",
                     node, quick_failures_[node], why),
         true);
  }
}

// Only by a name that the scheduler has given: it would refuse others.
void Pools::exclude(const std::string& token, const std::string& host) {
  const Allocation* allocation = find(token);
  if (allocation == nullptr) return;
  for (const std::string& node : allocation->node_names) {
    if (short_name(node) == short_name(host)) excluded_.insert(node);
  }
}

void Pools::include(const std::string& host) {
  std::erase_if(excluded_, [&](const std::string& node) { return short_name(node) == short_name(host); });
}

}  // namespace wflow::engine::batch
