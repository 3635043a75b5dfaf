// SPDX-License-Identifier: Apache-2.0
// Tasks on several nodes beside small ones, on a simulated clock: their slots are theirs alone, neither kind
// starves the other, and what loses a node runs again once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "engine/schedule/scheduler.h"

namespace wflow::engine {
namespace {

using Task = std::pair<ArrayId, Element>;

ArraySpec small_tasks(std::uint32_t step, std::uint64_t count, int priority = 0) {
  ArraySpec spec;
  spec.count = count;
  spec.step = step;
  spec.priority = priority;
  return spec;
}

ArraySpec gangs(std::uint32_t step, std::uint64_t count, int nodes, int cores, int priority = 0,
                int least = 0) {
  ArraySpec spec = small_tasks(step, count, priority);
  spec.resources.nodes = nodes;
  spec.resources.procs = nodes * cores;
  spec.gang = {nodes, least > 0 ? least : nodes, cores};
  return spec;
}

// Workers that do as wflow's do. They know of the cores that they have given to tasks themselves, and not of
// those that another worker's task takes on their node.
class Site {
 public:
  struct Running {
    Lease lease;
    double end_s = 0;
    bool killed = false;
  };
  struct Node {
    WorkerCapacity capacity;
    std::map<std::pair<std::int64_t, std::uint64_t>, Lease> queue;
    std::map<Task, Running> running;
    double own = 0;  // cores of its own tasks
  };

  explicit Site(std::vector<ArraySpec> specs, std::uint64_t epoch = 1)
      : arrays(specs), scheduler(std::move(specs), epoch) {
    scheduler.start();
  }

  void join(const WorkerId& id, int cores, const std::string& allocation, std::vector<Lease> held = {}) {
    WorkerCapacity capacity(cores);
    capacity.allocation = allocation;
    capacity.node = "node-" + id;
    nodes[id].capacity = capacity;
    scheduler.worker_joined(id, capacity, held);
    scheduler.handed_over(id);
  }

  void lose(WorkerId id) {
    nodes.erase(id);
    scheduler.worker_lost(id, {});
  }

  double cores_of(const Lease& lease, const Node& node) const {
    const ArraySpec& spec = arrays[lease.array];
    const double asked = lease.nodes.empty() ? 1 : spec.gang.cores;
    return std::min<double>(asked, node.capacity.cores);
  }

  // With what tasks of other workers take on the node.
  double used(const WorkerId& id) const {
    double sum = nodes.at(id).own;
    for (const auto& [other, node] : nodes) {
      for (const auto& [task, running] : node.running) {
        const auto& names = running.lease.nodes;
        const bool here = std::find(names.begin(), names.end(), nodes.at(id).capacity.node) != names.end();
        if (other != id && here)
          sum += std::min<double>(arrays[task.first].gang.cores, nodes.at(id).capacity.cores);
      }
    }
    return sum;
  }

  void settle() {
    for (bool again = true; again;) {
      again = false;
      scheduler.assign(now);
      Actions actions = scheduler.take_actions();
      for (const RevokeLease& revoke : actions.revokes) again = take_back(revoke) || again;
      for (const GrantLease& grant : actions.grants) take(grant);
      for (const RecordFailure& failure : actions.failures)
        losses += failure.outcome.reason == EndReason::worker_lost;
      for (auto& [id, node] : nodes) start(id, node);
    }
  }

  void take(const GrantLease& grant) {
    ASSERT_TRUE(nodes.contains(grant.worker));
    const Lease& lease = grant.lease;
    if (!lease.nodes.empty()) {
      const std::set<std::string> distinct(lease.nodes.begin(), lease.nodes.end());
      EXPECT_EQ(distinct.size(), lease.nodes.size());
      EXPECT_EQ(lease.nodes.front(), nodes.at(grant.worker).capacity.node);
      EXPECT_EQ(lease.count, 1U);
      ++gang_grants[{lease.array, lease.first}];
      sizes.push_back(static_cast<int>(lease.nodes.size()));
    }
    nodes.at(grant.worker).queue.emplace(std::pair(-std::int64_t{lease.priority}, arrivals++), lease);
  }

  bool take_back(const RevokeLease& revoke) {
    const auto at = nodes.find(revoke.worker);
    if (at == nodes.end()) return false;
    std::vector<Lease> returned;
    for (auto entry = at->second.queue.begin(); entry != at->second.queue.end();) {
      const bool named = entry->second.id == revoke.part.id;
      if (named) returned.push_back(entry->second);
      entry = named ? at->second.queue.erase(entry) : std::next(entry);
    }
    if (revoke.kill_running) {
      for (auto& [task, running] : at->second.running) {
        if (running.lease.id != revoke.part.id || running.killed) continue;
        running.killed = true;
        running.end_s = now + 1;  // SIGTERM, and what follows
      }
    }
    scheduler.returned(returned);
    return !returned.empty();
  }

  void start(const WorkerId& id, Node& node) {
    while (!node.queue.empty()) {
      Lease& lease = node.queue.begin()->second;
      const double cores = cores_of(lease, node);
      if (node.own + cores > node.capacity.cores + 1e-9) return;
      Lease one = lease;
      one.count = 1;
      ++lease.first;
      if (--lease.count == 0) node.queue.erase(node.queue.begin());
      node.own += cores;
      const Task task(one.array, one.first);
      const double seconds = arrays[one.array].gang.spans_nodes() ? gang_s : small_s(random);
      node.running[task] = {one, now + seconds, false};
      started[task].push_back(now);
      EXPECT_LE(used(id), node.capacity.cores + 1e-9) << id << " at " << now;
      for (const auto& [other, unused] : nodes)
        EXPECT_LE(used(other), nodes.at(other).capacity.cores + 1e-9) << other;
    }
  }

  void advance(double until_s) {
    double next = until_s;
    if (const auto due = scheduler.next_due_s()) next = std::min(next, std::max(now + 1e-3, *due));
    for (const auto& [id, node] : nodes) {
      for (const auto& [task, running] : node.running) next = std::min(next, running.end_s);
    }
    ASSERT_LT(next, 1e299) << "nothing happens any more";
    now = next;
    for (auto& [id, node] : nodes) {
      std::vector<Running> ended;
      for (auto at = node.running.begin(); at != node.running.end();) {
        const bool over = at->second.end_s <= now + 1e-9;
        if (over) ended.push_back(at->second);
        at = over ? node.running.erase(at) : std::next(at);
      }
      for (const Running& one : ended) {
        node.own -= cores_of(one.lease, node);
        tell(id, one);
      }
    }
  }

  void tell(const WorkerId& id, const Running& one) {
    const Task task(one.lease.array, one.lease.first);
    if (one.killed) {
      Outcome outcome;
      outcome.lease = one.lease.id;
      outcome.array = task.first;
      outcome.element = task.second;
      outcome.attempt = one.lease.attempt;
      outcome.reason = EndReason::cancelled;
      scheduler.ended_badly(outcome, id, now);
      return;
    }
    const double seconds = now - started[task].back();
    ++done[task];
    scheduler.done(
        {one.lease.id, task.first, task.second, 1, one.lease.attempt, seconds, seconds * seconds, 0});
  }

  void run(double until_s = 1e299) {
    for (settle(); !scheduler.ended() && now < until_s; settle()) {
      advance(until_s);
      ASSERT_LT(steps++, 500'000);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  std::vector<ArraySpec> arrays;
  Scheduler scheduler;
  std::map<WorkerId, Node> nodes;
  std::map<Task, std::vector<double>> started;
  std::map<Task, int> done, gang_grants;
  std::vector<int> sizes;
  int losses = 0;
  double now = 0;
  double gang_s = 3;
  std::uniform_real_distribution<double> small_s{0.5, 1.5};
  std::mt19937 random{1};
  std::uint64_t arrivals = 0;
  std::uint64_t steps = 0;
};

TEST(Gangs, TakeWholeSlotsOfOneAllocation) {
  Site site({gangs(0, 3, 2, 4)});
  site.join("a1", 4, "a");
  site.join("b1", 4, "b");
  site.join("alone", 4, "");
  site.settle();
  EXPECT_TRUE(site.started.empty()) << "no allocation has two nodes";
  site.join("b2", 4, "b");
  site.run();
  EXPECT_EQ(site.done.size(), 3U);
  EXPECT_EQ(site.now, 9) << "one after the other";
}

TEST(Gangs, WaitForTheirTurnAndThenKeepOthersOff) {
  Site site({small_tasks(0, 4000), gangs(1, 1, 3, 4)});
  for (int i = 0; i < 4; ++i) site.join("w" + std::to_string(i), 4, "a");
  site.run(30);
  ASSERT_TRUE(site.started.contains({1, 0}));
  EXPECT_LT(site.started[Task(1, 0)].front(), 5) << "as soon as the tasks that run have ended";
  std::size_t early = 0;
  for (const auto& [task, times] : site.started) early += task.first == 0 && times.front() < 3;
  EXPECT_GT(early, 4U) << "the fourth node goes on meanwhile";
  site.run();
  EXPECT_EQ(site.done.size(), 4001U);
}

TEST(Gangs, OfALowerPriorityAreServedOnceTheyHaveWaitedTooLong) {
  Site site({small_tasks(0, 100'000, 5), gangs(1, 2, 4, 4)});
  for (int i = 0; i < 4; ++i) site.join("w" + std::to_string(i), 4, "a");
  site.run(200);
  ASSERT_TRUE(site.started.contains({1, 0}));
  EXPECT_LT(site.started[Task(1, 0)].front(), 90);
  EXPECT_GT(site.done.size(), 2000U) << "and small ones have most of the time";
}

TEST(Gangs, LetShortTasksEndBeforeThem) {
  // A task of a hundred seconds holds a slot of one node; the gang needs all of both nodes.
  Site site({small_tasks(0, 1), small_tasks(1, 2000), gangs(2, 1, 2, 4)});
  site.arrays[0].walltime_s = 100;
  std::vector<ArraySpec> specs = site.arrays;
  specs[0].priority = 9;
  specs[0].walltime_s = 100;
  specs[1].walltime_s = 2;
  specs[2].priority = 5;
  Site real(specs);
  real.small_s = std::uniform_real_distribution<double>(1, 1.1);
  real.join("w0", 4, "a");
  real.join("w1", 4, "a");
  real.scheduler.assign(0);
  real.run(20);
  std::size_t beside = 0;
  for (const auto& [task, times] : real.started) beside += task.first == 1;
  EXPECT_GT(beside, 40U) << "what ends in time runs in the slots that wait";
}

TEST(Gangs, TakeFewerNodesWhereThereAreNoMore) {
  Site site({gangs(0, 1, 3, 2, 0, 2)});
  site.join("w0", 2, "a");
  site.join("w1", 2, "a");
  site.run(10);
  EXPECT_TRUE(site.sizes.empty()) << "a third node may still come";
  site.run();
  EXPECT_EQ(site.sizes, std::vector<int>{2});
  EXPECT_GE(site.now, 30);
}

TEST(Gangs, ThatLoseANodeRunAgainOnceAndAreNotCharged) {
  for (const bool lead : {false, true}) {
    std::vector<ArraySpec> specs = {gangs(0, 1, 2, 2)};
    specs[0].max_retries = 0;
    Site site(specs);
    for (int i = 0; i < 3; ++i) site.join("w" + std::to_string(i), 2, "a");
    site.settle();
    ASSERT_EQ(site.gang_grants.size(), 1U);
    EXPECT_EQ(site.scheduler.gangs_on("w1"), 1U);
    EXPECT_TRUE(site.scheduler.helps_gang("w1"));
    site.lose(lead ? "w0" : "w1");
    site.run();
    EXPECT_EQ((site.gang_grants[{0, 0}]), 2) << lead;
    EXPECT_EQ((site.done[{0, 0}]), 1) << lead;
    EXPECT_EQ(site.losses, lead ? 0 : 1) << "the worker that had it did not say that it ran";
  }
}

// The task runs again without the node, and is not charged.
TEST(Gangs, LeaveOutANodeThatSlowsThemDown) {
  std::vector<ArraySpec> specs = {gangs(0, 2, 2, 2)};
  specs[0].max_retries = 0;
  Site site(specs);
  for (int i = 0; i < 3; ++i) site.join("w" + std::to_string(i), 2, "a");
  site.settle();
  ASSERT_EQ(site.gang_grants.size(), 1U);
  EXPECT_EQ(site.scheduler.exclude_node(0, 0, 0, "node-w2", "slow"), Scheduler::Exclusion::stale)
      << "it does not run there";
  EXPECT_EQ(site.scheduler.exclude_node(0, 1, 0, "node-w0", "slow"), Scheduler::Exclusion::stale)
      << "it does not run";
  EXPECT_EQ(site.scheduler.exclude_node(0, 0, 0, "node-w0", "slow"), Scheduler::Exclusion::done);
  EXPECT_EQ(site.scheduler.exclude_node(0, 0, 0, "node-w0", "slow"), Scheduler::Exclusion::stale)
      << "the same event once more";
  site.run();
  EXPECT_EQ((site.gang_grants[{0, 0}]), 2);
  EXPECT_EQ((site.gang_grants[{0, 1}]), 1);
  EXPECT_EQ(site.done.size(), 2U);
  EXPECT_EQ(site.losses, 1);
  for (const auto& [id, node] : site.nodes) EXPECT_EQ(node.own, 0) << id;
}

TEST(Gangs, KeepASlowNodeWhereTooFewOthersAreLeft) {
  Site site({gangs(0, 1, 2, 2)});
  site.join("w0", 2, "a");
  site.join("w1", 2, "a");
  site.settle();
  EXPECT_EQ(site.scheduler.exclude_node(0, 0, 0, "node-w1", "slow"), Scheduler::Exclusion::too_few);
  site.run();
  EXPECT_EQ((site.gang_grants[{0, 0}]), 1);
}

TEST(Gangs, GoOnWithFewerNodesAtOnceWithoutASlowOne) {
  Site site({gangs(0, 1, 3, 2, 0, 2)});
  for (int i = 0; i < 3; ++i) site.join("w" + std::to_string(i), 2, "a");
  site.settle();
  EXPECT_EQ(site.scheduler.exclude_node(0, 0, 0, "node-w1", "slow"), Scheduler::Exclusion::done);
  site.run();
  EXPECT_EQ(site.sizes, (std::vector<int>{3, 2}));
  EXPECT_LT(site.now, 10);
}

TEST(Gangs, LeaveOutThreeNodesAtMost) {
  Site site({gangs(0, 1, 2, 2)});
  for (int i = 0; i < 8; ++i) site.join("w" + std::to_string(i), 2, "a");
  site.gang_s = 100;
  for (std::uint32_t restart = 0; restart < 4; ++restart) {
    site.run(10 * (restart + 1));
    std::string node;
    for (const auto& [id, one] : site.nodes)
      if (!one.running.empty()) node = one.capacity.node;
    EXPECT_EQ(site.scheduler.exclude_node(0, 0, restart, node, "slow"),
              restart < 3 ? Scheduler::Exclusion::done : Scheduler::Exclusion::too_many);
  }
  site.run();
  EXPECT_EQ((site.gang_grants[{0, 0}]), 4);
}

TEST(Gangs, EndTheirRanksOnAllNodes) {
  Scheduler scheduler({gangs(0, 1, 2, 1)}, 1);
  scheduler.start();
  for (const char* name : {"w0", "w1"}) {
    WorkerCapacity capacity(1);
    capacity.allocation = "a";
    capacity.node = name;
    scheduler.worker_joined(name, capacity, {});
  }
  scheduler.assign(0);
  const Lease lease = scheduler.take_actions().grants.at(0).lease;
  EXPECT_EQ(scheduler.gang_of(lease.id), (std::vector<WorkerId>{"w0", "w1"}));
  Outcome outcome;
  outcome.lease = lease.id;
  outcome.exit_code = 1;
  scheduler.ended_badly(outcome, "w0", 1);
  const Actions actions = scheduler.take_actions();
  std::set<std::string> nodes;
  for (const RevokeLease& revoke : actions.revokes) {
    EXPECT_TRUE(revoke.kill_running);
    if (!revoke.part.nodes.empty()) nodes.insert(revoke.worker);
  }
  EXPECT_EQ(nodes, (std::set<std::string>{"w0", "w1"}));
  ASSERT_EQ(actions.failures.size(), 1U);
  EXPECT_TRUE(actions.failures[0].final);
}

TEST(Gangs, AreCountedOnceWhereTheirWorkerComesBackAfterTheyWereLost) {
  Scheduler scheduler({gangs(0, 1, 2, 1)}, 1);
  scheduler.start();
  const auto join = [&](const std::string& name, const std::vector<Lease>& held) {
    WorkerCapacity capacity(1);
    capacity.allocation = "a";
    capacity.node = name;
    scheduler.worker_joined(name, capacity, held);
  };
  join("w0", {});
  join("w1", {});
  scheduler.assign(0);
  const Lease lease = scheduler.take_actions().grants.at(0).lease;
  scheduler.node_lost("w1", {});
  EXPECT_EQ(scheduler.take_actions().failures.size(), 1U);
  scheduler.worker_lost("w0", {});  // it was silent for too long, and runs on
  scheduler.take_actions();
  join("w0", {lease});
  scheduler.node_lost("w1", {});
  const Actions actions = scheduler.take_actions();
  EXPECT_TRUE(actions.failures.empty());
  ASSERT_FALSE(actions.revokes.empty());
  EXPECT_EQ(actions.revokes[0].worker, "w0");
  EXPECT_TRUE(actions.revokes[0].kill_running);
}

// A new coordinator: the worker that has the task names its nodes.
TEST(Gangs, AreKnownAgainByTheirNodes) {
  const Lease held{(std::uint64_t{1} << 40) + 1, 1, 0, 1, 0, false, 0, 0, 0, 0, 0, {"node-w1", "node-w0"}};
  Site site({small_tasks(0, 4), gangs(1, 1, 2, 2)}, 2);
  site.join("w0", 2, "a");
  site.nodes["w1"].running[Task(1, 0)] = {held, 5, false};
  site.nodes["w1"].own = 2;
  site.started[Task(1, 0)].push_back(0);
  site.join("w1", 2, "a", {held});
  EXPECT_EQ(site.scheduler.gangs_on("w0"), 1U);
  site.settle();
  EXPECT_TRUE(site.nodes["w0"].running.empty()) << "both of its slots are taken";
  site.run();
  EXPECT_EQ(site.done.size(), 5U);

  Site other({gangs(0, 1, 2, 2)}, 2);
  Lease lost = held;
  lost.array = 0;
  other.nodes["w1"].running[Task(0, 0)] = {lost, 50, false};
  other.nodes["w1"].own = 2;
  other.started[Task(0, 0)].push_back(0);
  other.join("w1", 2, "a", {lost});
  other.scheduler.break_incomplete_gangs();
  other.settle();
  EXPECT_TRUE((other.nodes["w1"].running[Task(0, 0)].killed));
  EXPECT_EQ(other.losses, 1);
}

TEST(Gangs, AndSmallTasksAtRandom) {
  for (unsigned seed = 1; seed <= 150; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const int widest = 2 + below(3);
    std::vector<ArraySpec> specs;
    for (int step = 0; step < 4; ++step) {
      const auto number = static_cast<std::uint32_t>(step);
      const bool small = step == 0 || below(2) == 0;
      const int priority = below(3);
      specs.push_back(small ? small_tasks(number, 200 + random() % 200, priority)
                            : gangs(number, 1 + random() % 6, 2 + below(widest - 1), 1 + below(4), priority));
    }
    Site site(specs);
    site.random.seed(seed);
    site.gang_s = 0.5 + below(6);
    int joined = 0;
    const auto fill = [&] {
      for (const char* allocation : {"a", "b"}) {
        const auto is_of = [&](const auto& entry) { return entry.second.capacity.allocation == allocation; };
        while (std::count_if(site.nodes.begin(), site.nodes.end(), is_of) < widest)
          site.join("w" + std::to_string(joined++), 4, allocation);
      }
    };
    fill();
    int lost = 0;
    for (double until = 3; !site.scheduler.ended(); until += 3) {
      site.run(until);
      if (::testing::Test::HasFatalFailure() || site.now > 5000) break;
      if (lost < 5 && below(3) == 0 && !site.nodes.empty()) {
        ++lost;
        site.lose(std::next(site.nodes.begin(), below(static_cast<int>(site.nodes.size())))->first);
      }
      fill();
    }
    EXPECT_TRUE(site.scheduler.ended()) << "seed " << seed << ": somebody starves";
    for (const auto& [task, times] : site.done) EXPECT_EQ(times, 1) << "seed " << seed;
    for (const auto& [task, grants] : site.gang_grants) EXPECT_LE(grants, 1 + lost) << "seed " << seed;
    EXPECT_EQ(site.scheduler.leased(), 0U);
    for (const auto& [id, node] : site.nodes) EXPECT_EQ(site.scheduler.gangs_on(id), 0U);
    if (::testing::Test::HasFailure()) return;
  }
}

// Its worker starts them as soon as it has a free core, and knows nothing of the gang.
TEST(Gangs, DoNotTakeCoresThatSpareLeasesGet) {
  constexpr LeaseId kEarlier = (LeaseId{1} << 40) + 1;
  Scheduler scheduler({small_tasks(0, 3), gangs(1, 1, 2, 1)}, 2);
  scheduler.start();
  const auto capacity = [](const std::string& node) {
    WorkerCapacity capacity(2);
    capacity.allocation = "allocation";
    capacity.node = node;
    capacity.alone_s = 60;
    return capacity;
  };
  scheduler.worker_joined("a", capacity("node-a"), {});
  scheduler.worker_joined("b", capacity("node-b"), {{kEarlier, 0, 0, 3, 0, false, 0}});
  scheduler.done({kEarlier, 0, 0, 1, 0, 0.1, 0.01, 0});
  scheduler.assign(0);
  EXPECT_TRUE(scheduler.take_actions().grants.empty()) << "b runs the other two";
  scheduler.done({kEarlier, 0, 1, 1, 0, 0.1, 0.01, 0});
  scheduler.assign(5);
  EXPECT_EQ(scheduler.take_actions().grants.size(), 1U);
}

}  // namespace
}  // namespace wflow::engine
