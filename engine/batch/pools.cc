// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/pools.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

namespace wflow::engine::batch {

namespace {

// One more allocation is worth its start if it has so much work, or a tenth of its walltime.
constexpr double kWorthwhile_s = 60;
// A successor is submitted so long before the last one ends, beyond twice the usual wait in the queue.
constexpr double kLead_s = 20;
constexpr double kLeft_s = 2;  // without any worker, after it had some
// Then the scheduler is queried for the reason before the job is cancelled, which would hide it.
constexpr double kAskFirst_s = 40;
constexpr double kCancelAgain_s = 10;
// Workers of an earlier coordinator's allocation find this one within so long.
constexpr double kRejoin_s = 20;
constexpr double kHour_s = 3600;

// Tokens in base 36: a letter first, of equal length.
std::string in_base_36(std::uint64_t number, int digits) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string text(static_cast<std::size_t>(digits), '0');
  for (auto at = text.rbegin(); at != text.rend(); ++at, number /= kDigits.size())
    *at = kDigits[number % kDigits.size()];
  return text;
}

double end_of(const Allocation& allocation) {
  if (allocation.ends_s > 0) return allocation.ends_s;
  if (allocation.started_s > 0 && allocation.walltime_s > 0)
    return allocation.started_s + allocation.walltime_s;
  return std::numeric_limits<double>::infinity();
}

}  // namespace

JobRequest job_of(const PoolSpec& pool, const std::string& token, const std::string& prefix,
                  std::size_t number) {
  JobRequest job = pool.job;
  job.token = token;
  job.chain = pool.chain > 0 ? (job.name.empty() ? prefix + "-" + job.chain : job.name + "-" + prefix) : "";
  if (!job.name.empty()) job.name += fmt::format("-{}", number);
  for (auto* command : {&job.command, &job.coordinator}) {
    if (!command->empty()) command->insert(command->end(), {"--allocation", token});
  }
  return job;
}

std::string short_name(const std::string& host) {
  return host.substr(0, host.find('.'));
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string nodes_of(const Allocation& allocation) {
  return allocation.node_names.empty() ? "its nodes" : joined(allocation.node_names);
}

Pools::Pools(std::vector<PoolSpec> pools, std::string prefix, std::uint64_t epoch, PoolTiming timing,
             std::vector<Allocation> known, Now now)
    : specs_(std::move(pools)), prefix_(std::move(prefix)), epoch_(epoch), timing_(timing) {
  for (const PoolSpec& spec : specs_) {
    Pool& pool = pools_[spec.name];
    pool.spec = &spec;
    pool.slots = spec.slots;
    asked_[spec.scheduler];
  }
  for (Allocation& allocation : known) {
    if (!pools_.contains(allocation.pool)) continue;  // the study had that pool in an earlier version
    if (allocation.state != AllocationState::ended) {
      Live& live = live_[allocation.token];
      live.recovered = true;
      live.since_s = now.steady_s;
      asked_[allocation.scheduler].soon_s = now.steady_s;
    }
    allocations_.emplace(allocation.token, std::move(allocation));
  }
}

void Pools::set_demand(const std::string& pool, const Demand& demand) {
  pools_.at(pool).demand = demand;
  if (!demand.obstacle.empty()) pools_.at(pool).obstacle = demand.obstacle;
}

const Allocation* Pools::find(const std::string& token) const {
  const auto at = allocations_.find(token);
  return at == allocations_.end() ? nullptr : &at->second;
}

bool Pools::any_left() const {
  return std::any_of(live_.begin(), live_.end(), [&](const auto& entry) { return entry.first != own_; });
}

const Allocation* Pools::waited_for(const std::string& pool) const {
  for (const auto& [token, live] : live_) {
    const Allocation& allocation = allocations_.at(token);
    if (allocation.pool == pool && !live.joined && !live.leaving) return &allocation;
  }
  return nullptr;
}

bool Pools::is_leaving(const std::string& token) const {
  const auto at = live_.find(token);
  return at != live_.end() && at->second.leaving;
}

const std::string* Pools::gave_up(const std::string& pool) const {
  const auto at = pools_.find(pool);
  return at == pools_.end() || at->second.gave_up.empty() ? nullptr : &at->second.gave_up;
}

std::optional<std::string> Pools::stuck() const {
  const std::string* why = nullptr;
  for (const auto& [name, pool] : pools_) {
    if (pool.demand.cores <= 0) continue;
    if (pool.gave_up.empty()) return std::nullopt;
    why = &pool.gave_up;
  }
  if (why == nullptr || !live_.empty()) return std::nullopt;
  return *why;
}

// ---- the coordinator's own allocation

void Pools::set_own(std::string token, Now now) {
  own_ = std::move(token);
  if (!live_.contains(own_) || allocations_.at(own_).state == AllocationState::running) return;
  began(allocations_.at(own_), now.unix_s, now);
  changed(allocations_.at(own_));
}

const Allocation* Pools::own() const {
  const auto at = live_.find(own_);
  return at == live_.end() || at->second.leaving ? nullptr : &allocations_.at(own_);
}

void Pools::leave_own() {
  if (const auto at = live_.find(own_); at != live_.end()) at->second.leaving = true;
}

bool Pools::has_successor(Now now) const {
  return std::any_of(live_.begin(), live_.end(), [&](const auto& entry) {
    const auto& [token, live] = entry;
    const Allocation& allocation = allocations_.at(token);
    const bool there = (!live.recovered || live.joined || live.named) && live.missing == 0;
    return token != own_ && there && !live.leaving && !live.under_way && !allocation.id.empty() &&
           lasts(allocation, pools_.at(allocation.pool), now);
  });
}

bool Pools::needs_successor(Now now) const {
  const bool some_can = std::any_of(pools_.begin(), pools_.end(), [](const auto& entry) {
    return entry.second.demand.open > 0 && entry.second.gave_up.empty();
  });
  return some_can && !finishing_ && !has_successor(now);
}

void Pools::close_own(Now now) {
  const auto at = live_.find(own_);
  if (at == live_.end()) return;
  at->second.leaving = true;
  ended(allocations_.at(own_), JobEnd::none, {}, now);
}

// ---- requests of users

std::optional<std::string> Pools::add(const std::string& name, int count, Now now) {
  if (pools_.empty()) return "this campaign has no pool of allocations: its study asks for no scheduler";
  const auto at = name.empty() && pools_.size() == 1 ? pools_.begin() : pools_.find(name);
  if (at == pools_.end()) {
    std::string names;
    for (const auto& [known, pool] : pools_) names += (names.empty() ? "" : ", ") + known;
    return fmt::format("the campaign has no pool '{}'; its pools are: {}", name, names);
  }
  if (finishing_) return "the campaign is ending";
  Pool& pool = at->second;
  pool.gave_up.clear();
  pool.failures = pool.refusals = pool.fruitless = 0;
  pool.not_before_s = 0;
  for (int i = 0; i < count; ++i) submit(pool, true, now);
  return std::nullopt;
}

std::vector<std::string> Pools::matching(const std::string& name) const {
  std::vector<std::string> tokens;
  for (const auto& [token, live] : live_) {
    if (name.empty() || token == name || allocations_.at(token).id == name) tokens.push_back(token);
  }
  return tokens;
}

std::optional<std::string> Pools::cancel(const std::string& name, Now now) {
  const auto tokens = matching(name);
  if (tokens.empty())
    return name.empty() ? "no allocation is queued or runs" : "no such allocation is queued or runs";
  for (const std::string& token : tokens) {
    cancel_own_ = cancel_own_ || token == own_;
    give_back(token, now);
    live_.at(token).by_person = true;
    live_.at(token).leaving_since_s = now.steady_s - timing_.drain_s;  // its workers are not waited for
  }
  carry_out_cancels(now);
  return std::nullopt;
}

std::optional<std::string> Pools::drain(const std::string& name, Now now) {
  const auto tokens = matching(name);
  if (tokens.empty())
    return name.empty() ? "no allocation is queued or runs" : "no such allocation is queued or runs";
  for (const std::string& token : tokens) {
    give_back(token, now);
    live_.at(token).leaving_since_s =
        std::numeric_limits<double>::infinity();  // tasks take as long as they take
  }
  return std::nullopt;
}

void Pools::stop_submitting() {
  finishing_ = patient_ = true;
}

void Pools::finish(Now now) {
  finishing_ = true;
  if (!std::exchange(patient_, false)) return;
  for (auto& [token, live] : live_) live.leaving_since_s = std::min(live.leaving_since_s, now.steady_s);
}

// ---- decisions

void Pools::decide(Now now) {
  follow_workers(now);
  for (auto& [name, pool] : pools_) decide(pool, now);
  carry_out_cancels(now);
  ask(now);
}

// Looks for jobs that earlier coordinators have submitted before it submits new ones: else the campaign would
// get them twice.
bool Pools::known_to_scheduler() const {
  return std::none_of(live_.begin(), live_.end(), [&](const auto& entry) {
    const auto& [token, live] = entry;
    return live.recovered && !live.joined && !asked_.at(allocations_.at(token).scheduler).answered;
  });
}

void Pools::follow_workers(Now now) {
  for (auto& [token, live] : live_) follow(token, live, now);
  std::erase_if(dying_, [&](const std::string& token) { return !has_workers(token); });
  for (const std::string& token : dying_) ask_soon(allocations_.at(token).scheduler, now.steady_s);
}

void Pools::follow(const std::string& token, Live& live, Now now) {
  Allocation& allocation = allocations_.at(token);
  const auto at = workers_.find(token);
  const AllocationWorkers workers = at == workers_.end() ? AllocationWorkers{} : at->second;
  Pool& pool = pool_of(allocation);
  if (workers.count > 0) {
    for (const std::string& host : workers.hosts) live.hosts.insert(short_name(host));
    if (workers.incarnation > live.manned_in) live.manned.clear();
    if (workers.incarnation >= live.manned_in) {
      live.manned_in = workers.incarnation;
      live.manned.insert(workers.nodes.begin(), workers.nodes.end());
    }
    live.joined = live.had_workers = true;
    live.left_since_s.reset();
    pool.failures = 0;
    if (pool.spec->slots == 0) pool.slots = std::max(pool.slots, workers.slots);
    if (allocation.node_names.empty() && static_cast<int>(live.hosts.size()) == allocation.nodes) {
      allocation.node_names.assign(live.hosts.begin(), live.hosts.end());  // until the scheduler reports it
      changed(allocation);
    }
    if (allocation.state == AllocationState::intended || allocation.state == AllocationState::queued) {
      began(allocation, now.unix_s, now);  // its workers report it before the next query
      changed(allocation);
      ask_soon(allocation.scheduler, now.steady_s);
    }
  } else if (live.had_workers && !live.left_since_s) {
    live.left_since_s = now.steady_s;
    ask_soon(allocation.scheduler, now.steady_s);
  }
  if ((workers.busy || workers.worked) && !std::exchange(live.worked, true)) {
    pool.fruitless = 0;
    pool.obstacle.clear();
  }
  live.silent = workers.silent || (live.had_workers && workers.count == 0);
  if (live.silent) ask_soon(allocation.scheduler, now.steady_s);
  if (workers.count == 0 || workers.busy) live.idle_since_s.reset();
  if (workers.count > 0 && !workers.busy && !live.idle_since_s) live.idle_since_s = now.steady_s;
  if (live.left_since_s && now.steady_s - *live.left_since_s >= kLeft_s && !live.leaving) {
    give_back(token, now);
    live.left = true;
  }
  if (allocation.state == AllocationState::running && allocation.started_s > 0 && !live.leaving)
    look_for_workers(allocation, live, now);
}

// An allocation whose nodes, or some of them, send no worker: a dead node, a network that does not reach
// here.
void Pools::look_for_workers(Allocation& allocation, Live& live, Now now) {
  const double runs_s = std::min(now.unix_s - allocation.started_s, now.steady_s - live.since_s);
  if (runs_s > timing_.late_s && !std::exchange(live.said_late, true)) {
    const std::vector<std::string> silent = silent_nodes(allocation, live.hosts);
    if (!live.joined) {
      note(fmt::format("allocation {} has run for {:.0f} s on {} and none of its workers has reached this "
                       "coordinator; see {}/{}.out, and docs/cluster.md about addresses",
                       allocation.id, runs_s, nodes_of(allocation), pool_of(allocation).spec->job.directory,
                       allocation.token),
           true);
    } else if (!silent.empty()) {
      note(fmt::format("allocation {} has run for {:.0f} s and no worker has come from {}", allocation.id,
                       runs_s, joined(silent)),
           true);
      blame(silent, "no worker came from it");
    }
  }
  if (live.joined || runs_s <= timing_.unmanned_s) return;
  live.failure = fmt::format("no worker came within {:.0f} s", timing_.unmanned_s);
  note(fmt::format("allocation {} on {} is cancelled: {}", allocation.id, nodes_of(allocation), live.failure),
       true);
  give_back(allocation.token, now);
}

double Pools::lead_s(const Pool& pool) const {
  const double walltime_s = pool.spec->job.walltime_s > 0 ? pool.spec->job.walltime_s : kHour_s;
  return std::min(kLead_s + 2 * pool.wait_s, walltime_s / 2);
}

bool Pools::lasts(const Allocation& allocation, const Pool& pool, Now now) const {
  return allocation.state != AllocationState::running || end_of(allocation) - now.unix_s > lead_s(pool);
}

// How many allocations the work justifies: no more than its tasks can fill, and none that has little to do.
int Pools::wanted(const Pool& pool, double core_s) const {
  const Demand& demand = pool.demand;
  const PoolSpec& spec = *pool.spec;
  if (demand.open == 0) return 0;
  if (demand.cores <= 0 || (demand.measured && core_s <= 0)) return spec.min;
  const double slots = static_cast<double>(pool.slots) * spec.job.nodes;
  double want = 1;
  if (slots > 0) {
    const double worthwhile_s =
        spec.job.walltime_s > 0 ? std::min(kWorthwhile_s, spec.job.walltime_s / 10) : kWorthwhile_s;
    want = std::ceil(demand.cores / slots);
    if (demand.measured) want = std::min(want, std::ceil(core_s / (slots * worthwhile_s)));
  }
  return static_cast<int>(std::clamp<double>(want, std::max(1, spec.min), std::max(1, spec.max)));
}

bool Pools::may_submit(const Pool& pool, Now now) const {
  return !finishing_ && pool.gave_up.empty() && now.steady_s >= pool.not_before_s && known_to_scheduler();
}

void Pools::decide(Pool& pool, Now now) {
  int lasting = 0, running = 0;
  bool under_way = false, runs_nothing = false;
  double ending_core_s = 0;   // that allocations whose end is near still complete
  double running_core_s = 0;  // and the others that run
  for (const auto& [token, live] : live_) {
    const Allocation& allocation = allocations_.at(token);
    if (&pool_of(allocation) != &pool) continue;
    // It may be the last one that the pool is allowed: its end is awaited.
    runs_nothing = runs_nothing || (live.leaving && live.joined && !live.worked && !live.recovered &&
                                    !live.by_person && pool.demand.waiting > 0);
    if (live.leaving) continue;
    under_way = under_way || live.under_way;
    const double left_s = std::max(0.0, end_of(allocation) - now.unix_s - pool.demand.longest_s);
    const bool lasting_one = lasts(allocation, pool, now);
    const bool runs = allocation.state == AllocationState::running;
    lasting += lasting_one ? 1 : 0;
    running += lasting_one && runs ? 1 : 0;
    if (runs) (lasting_one ? running_core_s : ending_core_s) += left_s * pool.slots * allocation.nodes;
  }
  const double core_s = pool.demand.core_s - ending_core_s;
  const int want = finishing_             ? 0
                   : pool.spec->chain > 0 ? wanted_in_chain(pool, running, core_s - running_core_s)
                                          : wanted(pool, core_s);
  if (want > lasting && !runs_nothing && may_submit(pool, now)) {
    for (int i = most_now(pool, want - lasting, lasting, under_way); i > 0; --i) submit(pool, false, now);
  }
  if (want < lasting) cancel_surplus(pool, lasting - want, now);
  give_back_idle(pool, now);
}

// While something is wrong one at a time shows whether it still is.
int Pools::most_now(const Pool& pool, int missing, int lasting, bool under_way) {
  if (pool.failures == 0 && pool.refusals == 0 && pool.fruitless == 0) return missing;
  const bool waits = under_way || (pool.failures + pool.fruitless > 0 && lasting > 0);
  return waits ? 0 : 1;
}

// Those that run, and as many behind them as the rest of the work can fill.
int Pools::wanted_in_chain(const Pool& pool, int running, double core_s) const {
  const Demand& demand = pool.demand;
  const PoolSpec& spec = *pool.spec;
  if (demand.open == 0) return 0;
  if (demand.cores <= 0) return std::max(running, spec.min);
  const double each_core_s = spec.job.walltime_s * pool.slots * spec.job.nodes;
  if (!demand.measured || each_core_s <= 0) return spec.chain;
  const double behind = std::ceil(std::max(0.0, core_s) / each_core_s);
  return std::clamp(running + static_cast<int>(std::min<double>(behind, spec.chain)), 1, spec.chain);
}

std::string Pools::new_token() {
  return prefix_ + in_base_36(epoch_, 3) + in_base_36(++numbered_, 3);
}

void Pools::submit(Pool& pool, bool by_hand, Now now) {
  Allocation allocation;
  allocation.token = new_token();
  allocation.pool = pool.spec->name;
  allocation.scheduler = pool.spec->scheduler;
  allocation.nodes = pool.spec->job.nodes;
  allocation.walltime_s = pool.spec->job.walltime_s;
  allocation.by_hand = by_hand;
  allocation.created_s = now.unix_s;
  const auto of_pool = [&](const auto& entry) { return entry.second.pool == pool.spec->name; };
  const auto number = static_cast<std::size_t>(std::ranges::count_if(allocations_, of_pool)) + 1;
  JobRequest job = job_of(*pool.spec, allocation.token, prefix_, number);
  job.exclude.insert(job.exclude.end(), excluded_.begin(), excluded_.end());
  Live& live = live_[allocation.token];
  live.under_way = true;
  live.since_s = now.steady_s;
  changed(allocation);
  actions_.submits.push_back({allocation.scheduler, std::move(job)});
  allocations_.emplace(allocation.token, std::move(allocation));
}

// The ones that were submitted last, of those that do not run.
void Pools::cancel_surplus(Pool& pool, int surplus, Now now) {
  std::vector<const Allocation*> queued;
  for (const auto& [token, live] : live_) {
    const Allocation& allocation = allocations_.at(token);
    const bool waits = allocation.state != AllocationState::running && !live.leaving && !live.under_way;
    const bool kept = allocation.by_hand && pool.demand.open > 0 && !finishing_;
    if (&pool_of(allocation) == &pool && waits && !kept) queued.push_back(&allocation);
  }
  std::sort(queued.begin(), queued.end(), [](const auto* a, const auto* b) {
    return std::tie(a->created_s, a->token) > std::tie(b->created_s, b->token);
  });
  for (std::size_t i = 0; i < queued.size() && static_cast<int>(i) < surplus; ++i)
    give_back(queued[i]->token, now);
}

void Pools::give_back_idle(Pool& pool, Now now) {
  const bool nothing_left = finishing_ || pool.demand.open == 0;
  int running = 0;
  for (const auto& [token, live] : live_) {
    const Allocation& allocation = allocations_.at(token);
    if (&pool_of(allocation) == &pool && allocation.state == AllocationState::running && !live.leaving)
      ++running;
  }
  for (auto& [token, live] : live_) {
    const Allocation& allocation = allocations_.at(token);
    if (&pool_of(allocation) != &pool || allocation.state != AllocationState::running || live.leaving)
      continue;
    const bool idle = live.idle_since_s && now.steady_s - *live.idle_since_s >= pool.spec->idle_timeout_s;
    if (token == own_ && !finishing_ && !has_successor(now)) continue;  // the coordinator runs there
    if (!nothing_left && (!idle || running <= pool.spec->min)) continue;
    if (!nothing_left)
      note(fmt::format("allocation {} has had no work for {:.0f} s and is given back", allocation.id,
                       pool.spec->idle_timeout_s));
    give_back(token, now);
    --running;
  }
}

void Pools::give_back(const std::string& token, Now now) {
  Live& live = live_.at(token);
  if (std::exchange(live.leaving, true)) return;
  live.leaving_since_s = patient_ ? std::numeric_limits<double>::infinity() : now.steady_s;
  actions_.drains.push_back(token);
}

bool Pools::has_workers(const std::string& token) const {
  const auto at = workers_.find(token);
  return at != workers_.end() && at->second.count > 0;
}

bool Pools::is_cancelled(const std::string& token) const {
  if (cancelled_.contains(token)) return true;
  const Allocation* known = live_.contains(token) ? nullptr : find(token);
  return known != nullptr && (known->end == JobEnd::cancelled || known->end == JobEnd::preempted);
}

// A job whose workers have left ends by itself, too; but the batch script may do more, and one that is queued
// does not.
void Pools::carry_out_cancels(Now now) {
  std::map<std::string, std::vector<std::string>> ids;
  for (auto& [token, live] : live_) {
    const Allocation& allocation = allocations_.at(token);
    if (!live.leaving || live.cancel_asked || allocation.id.empty()) continue;
    const bool asks = live.left && !live.goes_on && now.steady_s - live.leaving_since_s < kAskFirst_s;
    if (asks && !finishing_) continue;
    if (token == own_ && !cancel_own_) continue;  // its job ends when workers and coordinator have left
    const bool may_rejoin = live.recovered && !live.joined && allocation.state == AllocationState::running &&
                            now.steady_s - live.since_s < kRejoin_s;
    const bool waits = (has_workers(token) || may_rejoin) && !abandoned_ &&
                       now.steady_s - live.leaving_since_s < timing_.drain_s;
    if (waits || now.steady_s < live.cancel_after_s) continue;
    live.cancel_asked = true;
    cancelled_.insert(token);
    live.cancel_after_s = now.steady_s + kCancelAgain_s;
    ids[allocation.scheduler].push_back(allocation.id);
  }
  for (auto& [scheduler, of_it] : ids) actions_.cancels.push_back({scheduler, std::move(of_it)});
}

double Pools::next_query_s(const std::string& scheduler) const {
  const Asked& asked = asked_.at(scheduler);
  bool any = false;
  bool quiet = true;
  bool silent = false;
  for (const auto& [token, live] : live_) {
    const Allocation& allocation = allocations_.at(token);
    if (allocation.scheduler != scheduler || live.under_way) continue;
    any = true;
    quiet = quiet && has_workers(token);
    silent = silent || live.silent;
  }
  for (const std::string& token : dying_) {
    if (allocations_.at(token).scheduler == scheduler) any = silent = true;
  }
  if (!any) return std::numeric_limits<double>::infinity();
  const double usual_s = asked.last_s + (quiet ? timing_.quiet_query_s : timing_.query_s);
  return std::max(std::min(usual_s, asked.soon_s),
                  asked.last_s + (silent ? timing_.silent_query_s : timing_.query_s));
}

void Pools::ask(Now now) {
  for (auto& [scheduler, asked] : asked_) {
    if (asked.under_way || now.steady_s < next_query_s(scheduler)) continue;
    asked.under_way = true;
    asked.last_s = now.steady_s;
    asked.soon_s = std::numeric_limits<double>::infinity();
    asked.known.clear();
    for (const auto& [token, live] : live_) {
      if (allocations_.at(token).scheduler == scheduler && !live.under_way) asked.known.insert(token);
    }
    for (const std::string& token : dying_) {
      if (allocations_.at(token).scheduler == scheduler) asked.known.insert(token);
    }
    actions_.queries.push_back(scheduler);
  }
}

// ---- the forecast

Forecast Pools::forecast(const std::string& name, Now now) const {
  const Pool& pool = pools_.at(name);
  Forecast forecast;
  double slots_now = 0;
  double supply_core_s = 0;
  for (const auto& [token, allocation] : allocations_) {
    if (allocation.pool != name || allocation.started_s <= 0) continue;
    const double until_s = allocation.ended_s > 0 ? allocation.ended_s : now.unix_s;
    forecast.used_node_h += std::max(0.0, until_s - allocation.started_s) * allocation.nodes / kHour_s;
  }
  for (const auto& [token, live] : live_) {
    const Allocation& allocation = allocations_.at(token);
    if (allocation.pool != name || live.leaving) continue;
    const double slots = static_cast<double>(pool.slots) * allocation.nodes;
    const bool runs = allocation.state == AllocationState::running;
    if (runs) slots_now += slots;
    supply_core_s += slots * (runs ? std::max(0.0, end_of(allocation) - now.unix_s) : allocation.walltime_s);
  }
  if (pool.slots <= 0) return forecast;
  forecast.left_node_h = pool.demand.core_s / pool.slots / kHour_s;
  if (slots_now > 0 && pool.demand.measured) forecast.ends_s = now.unix_s + pool.demand.core_s / slots_now;
  const double each_s = pool.spec->job.walltime_s * pool.slots * pool.spec->job.nodes;
  if (each_s > 0)
    forecast.more = static_cast<int>(std::ceil(std::max(0.0, pool.demand.core_s - supply_core_s) / each_s));
  return forecast;
}

}  // namespace wflow::engine::batch
