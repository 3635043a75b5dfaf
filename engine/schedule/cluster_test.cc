// SPDX-License-Identifier: Apache-2.0
// The scheduler with workers on a simulated clock: who gets what and when, and what happens when they die,
// break their connection, or are much slower than others.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "engine/schedule/scheduler.h"
#include "engine/schedule/sizing.h"

namespace wflow::engine {
namespace {

using specs::EdgeKind;

ArraySpec step_of(std::uint32_t step, std::uint64_t count, int priority = 0,
                  std::vector<specs::Edge> edges = {}) {
  ArraySpec spec;
  spec.count = count;
  spec.step = step;
  spec.priority = priority;
  spec.edges = std::move(edges);
  return spec;
}

// Workers that do as wflow's do: a queue by priority and arrival, as many tasks at once as there are cores;
// what is revoked is given back unless it has started.
class Cluster {
 public:
  using Task = std::pair<ArrayId, Element>;
  struct Start {
    double time_s;
    Task task;
    WorkerId node;
  };
  struct Node {
    WorkerCapacity capacity;
    double speed = 1;
    std::map<std::pair<std::int64_t, std::uint64_t>, Lease> queue;
    std::multimap<double, Lease> running;  // by end
    double cores = 0;
    double waits_since_s = -1;  // idle beside work that has not started elsewhere
  };

  explicit Cluster(std::vector<ArraySpec> specs) : arrays(specs), scheduler(std::move(specs), 1) {}

  void join(const WorkerId& id, const WorkerCapacity& capacity, double speed = 1) {
    nodes[id] = Node{capacity, speed, {}, {}, 0, -1};
    nodes[id].capacity.alone_s = alone_s;
    scheduler.worker_joined(id, nodes[id].capacity, {});
  }

  void lose(const WorkerId& id) {
    std::vector<RunningElement> running;
    for (const auto& [end, lease] : nodes[id].running) running.push_back({lease.array, lease.first, now});
    for (const auto& lease : everything(nodes[id])) let_go(lease);
    nodes.erase(id);
    scheduler.worker_lost(id, running);
  }

  // Its connection breaks, with what was under way to it; it says Hello again.
  void reconnect(const WorkerId& id, bool loses_queue) {
    Node& node = nodes[id];
    if (loses_queue) {
      for (const auto& [key, lease] : node.queue) let_go(lease);
      node.queue.clear();
    }
    scheduler.worker_joined(id, node.capacity, everything(node));
    scheduler.handed_over(id);
  }

  // Everything that happens at this moment.
  void settle() {
    for (bool again = true; again;) {
      again = false;
      scheduler.saving();
      scheduler.saved();
      scheduler.assign(now);
      Actions actions = scheduler.take_actions();
      for (const GrantLease& grant : actions.grants) take(grant);
      for (const RevokeLease& revoke : actions.revokes) {
        again = true;
        ++revokes;
        give_back(revoke);
      }
      for (const RecordEnd& end : actions.ends) record(end);
      for (auto& [id, node] : nodes) again = start(id, node) || again;
    }
    watch_idle();
  }

  double next_event() const {
    double next = 1e300;
    if (const auto due = scheduler.next_due_s()) next = std::max(now + 1e-6, *due);
    for (const auto& [id, node] : nodes) {
      if (!node.running.empty()) next = std::min(next, node.running.begin()->first);
    }
    return next;
  }

  void advance(double to_s) {
    now = to_s;
    for (auto& [id, node] : nodes) {
      while (!node.running.empty() && node.running.begin()->first <= now + 1e-12) {
        const Lease lease = node.running.begin()->second;
        node.running.erase(node.running.begin());
        node.cores -= cores_of(lease.array, node);
        let_go(lease);
        tell(id, node, lease);
      }
    }
  }

  void run(double until_s = 1e299) {
    for (settle(); !scheduler.ended(); settle()) {
      const double next = next_event();
      if (next > until_s) return;
      ASSERT_LT(steps++, 3'000'000);
      advance(next);
    }
  }

  double core_s(ArrayId array) const {
    double sum = 0;
    for (const Start& at : starts) {
      if (at.task.first == array) sum += seconds(at.task);
    }
    return sum;
  }

  std::vector<ArraySpec> arrays;
  Scheduler scheduler;
  std::map<WorkerId, Node> nodes;
  std::function<double(Task)> seconds = [](Task) { return 1.0; };
  std::function<int(const Lease&)> code = [](const Lease&) { return 0; };
  double now = 0;
  double alone_s = 0;  // of workers that join: they keep spare leases for that time
  double longest_idle_s = 0;
  std::uint64_t revokes = 0;
  int steps = 0;
  std::vector<Start> starts;
  std::map<Task, int> ended;  // how often
  std::set<Task> held;

 private:
  static std::vector<Lease> everything(const Node& node) {
    std::vector<Lease> all;
    for (const auto& [key, lease] : node.queue) all.push_back(lease);
    for (const auto& [end, lease] : node.running) all.push_back(lease);
    return all;
  }

  double cores_of(ArrayId array, const Node& node) const {
    return std::min(arrays[array].resources.cores, node.capacity.cores);
  }

  void take(const GrantLease& grant) {
    const Lease& lease = grant.lease;
    ASSERT_TRUE(nodes.contains(grant.worker));
    for (Element at = lease.first; at < lease.first + lease.count; ++at)
      EXPECT_TRUE(held.insert({lease.array, at}).second) << "leased twice at once";
    nodes[grant.worker].queue[{-std::int64_t{lease.priority}, ++arrivals_}] = lease;
  }

  void let_go(const Lease& lease) {
    for (Element at = lease.first; at < lease.first + lease.count; ++at) held.erase({lease.array, at});
  }

  void give_back(const RevokeLease& revoke) {
    EXPECT_FALSE(revoke.kill_running);
    std::vector<Lease> returned, rest;
    auto& queue = nodes[revoke.worker].queue;
    for (auto& [key, lease] : queue) {
      const Element end = lease.first + lease.count;
      const Element from = std::max(lease.first, revoke.part.first);
      const Element to = std::min(end, revoke.part.first + revoke.part.count);
      if (lease.id != revoke.part.id || from >= to) continue;
      returned.push_back(lease);
      returned.back().first = from;
      returned.back().count = to - from;
      let_go(returned.back());
      rest.push_back(lease);
      rest.back().first = to;
      rest.back().count = end - to;
      lease.count = from - lease.first;
    }
    std::erase_if(queue, [](const auto& entry) { return entry.second.count == 0; });
    for (const Lease& lease : rest) {
      if (lease.count > 0) queue[{-std::int64_t{lease.priority}, ++arrivals_}] = lease;
    }
    scheduler.returned(returned);
  }

  void record(const RecordEnd& end) {
    for (Element at = end.range.first; at <= end.range.last; ++at) {
      has_ended(end.state) ? ++ended[{end.array, at}] : --ended[{end.array, at}];
    }
  }

  bool start(const WorkerId& id, Node& node) {
    bool any = false;
    while (!node.queue.empty()) {
      Lease& lease = node.queue.begin()->second;
      if (node.cores + cores_of(lease.array, node) > node.capacity.cores) break;
      Lease one = lease;
      one.count = 1;
      ++lease.first;
      if (--lease.count == 0) node.queue.erase(node.queue.begin());
      node.cores += cores_of(one.array, node);
      node.running.emplace(now + seconds({one.array, one.first}) / node.speed, one);
      starts.push_back({now, {one.array, one.first}, id});
      any = true;
    }
    return any;
  }

  void tell(const WorkerId& id, const Node& node, const Lease& lease) {
    const double took_s = seconds({lease.array, lease.first}) / node.speed;
    const int result = code(lease);
    if (result == 0) {
      scheduler.done({lease.id, lease.array, lease.first, 1, 0, took_s, took_s * took_s, now});
      return;
    }
    Outcome outcome;
    outcome.lease = lease.id;
    outcome.array = lease.array;
    outcome.element = lease.first;
    outcome.attempt = lease.attempt;
    outcome.exit_code = result;
    scheduler.ended_badly(outcome, id, now);
  }

  void watch_idle() {
    for (auto& [id, node] : nodes) {
      bool elsewhere = false;
      for (const auto& [other, owner] : nodes) elsewhere = elsewhere || (other != id && !owner.queue.empty());
      const bool idle = node.cores + 1 <= node.capacity.cores && elsewhere;
      if (!idle) {
        node.waits_since_s = -1;
      } else if (node.waits_since_s < 0) {
        node.waits_since_s = now;
      } else {
        longest_idle_s = std::max(longest_idle_s, now - node.waits_since_s);
      }
    }
  }

  std::uint64_t arrivals_ = 0;
};

constexpr int kLow = -(1 << 16);  // `priority: -1` of a step

TEST(Cluster, ThreeStepsDepthFirstAndNoneStarves) {
  // simulate -> analyse of every sample, and a report on its own that the study puts last.
  for (const double alone_s : {0.0, 60.0}) {
    Cluster cluster(
        {step_of(0, 400), step_of(1, 400, 1, {{0, EdgeKind::element, 0}}), step_of(2, 100, kLow)});
    cluster.alone_s = alone_s;
    cluster.scheduler.start();
    cluster.join("a", {2});
    cluster.join("b", {2});
    cluster.run();
    ASSERT_TRUE(cluster.scheduler.ended());
    EXPECT_NEAR(cluster.now, 900 / 4, 5) << "no core is left without work";
    std::map<Cluster::Task, double> began;
    for (const auto& start : cluster.starts) began[start.task] = start.time_s;
    double others_end = 0;
    for (Element i = 0; i < 400; ++i) {
      EXPECT_LE((began[{1, i}] - began[{0, i}]), 3.5)
          << "sample " << i << ": its chain is finished before others begin";
      others_end = std::max(others_end, began[{1, i}]);
    }
    std::vector<double> reports;
    for (const auto& start : cluster.starts) {
      if (start.task.first == 2 && start.time_s < others_end - 1) reports.push_back(start.time_s);
    }
    ASSERT_FALSE(reports.empty());
    EXPECT_LE(reports.front(), 65);
    EXPECT_GT(reports.front(), 55) << "while others have work, the last one waits";
    for (std::size_t i = 1; i < reports.size(); ++i) EXPECT_LE(reports[i] - reports[i - 1], 65);
    EXPECT_LE(static_cast<double>(reports.size()), others_end * 4 / 20) << "and takes a small share";
  }
}

TEST(Cluster, TheClockBeginsAnywhere) {
  Cluster cluster({step_of(0, 100), step_of(1, 100, kLow)});
  cluster.now = 1e6;
  cluster.scheduler.start();
  cluster.join("a", {1});
  cluster.run(1e6 + 30);
  EXPECT_EQ(cluster.core_s(1), 0) << "nothing has waited for a minute yet";
}

TEST(Cluster, AWaitingStepOfLongTasksTakesASmallShare) {
  Cluster cluster({step_of(0, 100'000), step_of(1, 1000, kLow)});
  cluster.seconds = [](auto task) { return task.first == 0 ? 1.0 : 500.0; };
  cluster.scheduler.start();
  cluster.join("a", {4});
  cluster.run(20'000);
  EXPECT_GT(cluster.core_s(1), 500) << "more than once";
  EXPECT_LE(cluster.core_s(1), cluster.now * 4 / 15);
}

TEST(Cluster, StepsOfEqualPriorityTakeTurns) {
  for (const double alone_s : {0.0, 60.0}) {
    Cluster cluster({step_of(0, 100'000), step_of(1, 10'000)});
    cluster.alone_s = alone_s;
    cluster.seconds = [](auto task) { return task.first == 0 ? 0.1 : 10.0; };
    cluster.scheduler.start();
    cluster.join("a", {4});
    cluster.join("b", {4});
    cluster.run(500);
    EXPECT_GT(cluster.core_s(0), 0.25 * 500 * 8);
    EXPECT_GT(cluster.core_s(1), 0.25 * 500 * 8);
  }
}

TEST(Cluster, AWorkerThatJoinsLateGetsWhatHasNotStarted) {
  Cluster cluster({step_of(0, 2)});
  cluster.seconds = [](auto) { return 100.0; };
  cluster.scheduler.start();
  cluster.join("a", {1});
  cluster.settle();
  ASSERT_EQ(cluster.held.size(), 2U) << "one runs, one is ahead";
  cluster.advance(1);
  cluster.join("b", {1});
  cluster.run();
  ASSERT_EQ(cluster.starts.size(), 2U);
  EXPECT_EQ(cluster.starts[1].node, "b");
  EXPECT_LE(cluster.starts[1].time_s, 1 + kAhead_s + 0.01);
}

TEST(Cluster, NoWorkerIdlesBesideWhatOthersHaveNotStarted) {
  for (const auto& [slow, alone_s] : std::vector<std::pair<double, double>>{
           {0.5, 0}, {0.1, 0}, {0.01, 0}, {0.001, 0}, {0.5, 60}, {0.1, 60}, {0.01, 60}, {0.001, 60}}) {
    Cluster cluster({step_of(0, 5000)});
    cluster.alone_s = alone_s;
    cluster.seconds = [](auto) { return 0.02; };
    cluster.scheduler.start();
    cluster.join("fast", {4});
    cluster.join("slow", {4}, slow);
    cluster.run();
    ASSERT_TRUE(cluster.scheduler.ended());
    EXPECT_EQ(cluster.starts.size(), 5000U) << "nothing runs twice";
    EXPECT_LE(cluster.longest_idle_s, kAhead_s + 0.05) << "speed " << slow;
    EXPECT_LE(cluster.revokes, 40U) << "speed " << slow << ": nothing goes to and fro";
    EXPECT_LE(cluster.now, 25 + 1.5 + 0.02 / slow) << "speed " << slow;
  }
}

TEST(Cluster, TasksThatSuddenlyLastLongAreSpreadAgain) {
  // The first thousand say that a task lasts 1 ms; the rest lasts 10 s.
  Cluster cluster({step_of(0, 1160)});
  cluster.seconds = [](auto task) { return task.second < 1000 ? 0.001 : 10.0; };
  cluster.scheduler.start();
  for (const char* id : {"a", "b", "c", "d"}) cluster.join(id, {2});
  cluster.run();
  EXPECT_LE(cluster.longest_idle_s, kAhead_s + 0.05);
  EXPECT_LE(cluster.now, 160 * 10 / 8 + 15);
  EXPECT_LE(cluster.revokes, 100U);
}

TEST(Cluster, GroupsServeTheirStepsOnly) {
  std::vector<ArraySpec> arrays = {step_of(0, 50), step_of(1, 50, 1, {{0, EdgeKind::element, 0}})};
  arrays[1].pool = 1;
  Cluster cluster(std::move(arrays));
  cluster.scheduler.start();
  cluster.join("simulations", {2, 0, 0, {true, false}});
  cluster.join("analyses", {2, 0, 0, {false, true}});
  cluster.run();
  ASSERT_TRUE(cluster.scheduler.ended());
  for (const auto& start : cluster.starts)
    EXPECT_EQ(start.node, start.task.first == 0 ? "simulations" : "analyses");
}

TEST(Cluster, NobodysStepWaitsForItsGroup) {
  std::vector<ArraySpec> arrays = {step_of(0, 4)};
  arrays[0].pool = 1;
  Cluster cluster(std::move(arrays));
  cluster.scheduler.start();
  cluster.join("other", {2, 0, 0, {true, false}});
  cluster.run(10);
  EXPECT_TRUE(cluster.starts.empty());
  cluster.join("mine", {2, 0, 0, {false, true}});
  cluster.run();
  EXPECT_TRUE(cluster.scheduler.ended());
}

std::map<ArrayId, std::uint64_t> first_leases(Cluster& cluster) {
  cluster.settle();
  std::map<ArrayId, std::uint64_t> count;
  for (const auto& [array, element] : cluster.held) ++count[array];
  return count;
}

TEST(Cluster, MemoryAndGpusAreSharedAsCoresAre) {
  std::vector<ArraySpec> arrays = {step_of(0, 100, 2), step_of(1, 100, 1), step_of(2, 100)};
  arrays[0].resources.gpus = 1;
  arrays[1].resources.memory_bytes = 40;
  Cluster cluster(std::move(arrays));
  for (ArrayId array = 0; array < 3; ++array) cluster.scheduler.restore_durations(array, 1, 100, 10'000);
  cluster.scheduler.start();
  cluster.join("a", {8, 2, 100, {}});
  EXPECT_EQ(first_leases(cluster), (std::map<ArrayId, std::uint64_t>{{0, 2}, {1, 2}, {2, 4}}));
}

TEST(Cluster, ATaskThatWantsMoreMemoryThanThereIsRunsAlone) {
  std::vector<ArraySpec> arrays = {step_of(0, 3)};
  arrays[0].resources.memory_bytes = 1000;
  Cluster cluster(std::move(arrays));
  cluster.scheduler.restore_durations(0, 1, 100, 10'000);
  cluster.scheduler.start();
  cluster.join("a", {8, 0, 100, {}});
  EXPECT_EQ(first_leases(cluster), (std::map<ArrayId, std::uint64_t>{{0, 1}}));
}

TEST(Cluster, WorkWaitsBehindTasksOfASecondAndNotBehindLongOnes) {
  for (const auto& [seconds, ahead] : {std::pair(0.1, 40U), std::pair(1.0, 4U), std::pair(100.0, 0U)}) {
    Cluster cluster({step_of(0, 1000)});
    cluster.scheduler.restore_durations(0, 100, 100 * seconds, 100 * seconds * seconds);
    cluster.scheduler.start();
    cluster.join("a", {8});
    cluster.settle();
    EXPECT_EQ(cluster.held.size(), 8 + ahead) << "tasks of " << seconds << " s";
  }
}

TEST(Cluster, ALongTaskKeepsNoOtherCoreFromItsShortOnes) {
  Cluster cluster({step_of(0, 1, 1), step_of(1, 1'000'000)});
  cluster.scheduler.restore_durations(0, 1, 10'000, 1e8);
  cluster.scheduler.restore_durations(1, 1000, 1, 0.001);
  cluster.scheduler.start();
  cluster.join("a", {4});
  EXPECT_GE(first_leases(cluster)[1], 1000U) << "half a second of 1 ms for three cores";
}

TEST(Cluster, WhatWasLostWithAConnectionIsLeasedAgain) {
  Cluster cluster({step_of(0, 100)});
  cluster.scheduler.start();
  cluster.join("a", {2});
  cluster.settle();
  ASSERT_FALSE(cluster.nodes["a"].queue.empty());
  cluster.reconnect("a", true);
  cluster.run();
  EXPECT_TRUE(cluster.scheduler.ended());
  EXPECT_EQ(cluster.starts.size(), 100U);
}

TEST(Cluster, OurOwnProgramsErrorsAreFinal) {
  for (const int code : {1, 2, 3, 4, 5}) {
    std::vector<ArraySpec> arrays = {step_of(0, 1)};
    arrays[0].failure_retries = 1;
    arrays[0].own_program = true;
    Cluster cluster(std::move(arrays));
    cluster.code = [code](const auto&) { return code; };
    cluster.scheduler.start();
    cluster.join("a", {1});
    cluster.run();
    EXPECT_EQ(cluster.starts.size(), code >= 2 && code <= 4 ? 1U : 2U) << "exit code " << code;
  }
}

TEST(Cluster, BundlesOfOne) {
  Cluster cluster({step_of(0, 1000)});
  cluster.scheduler.set_max_range(1);
  cluster.seconds = [](auto) { return 1e-3; };
  cluster.scheduler.start();
  cluster.join("a", {2});
  cluster.settle();
  for (const auto& [key, lease] : cluster.nodes["a"].queue) EXPECT_EQ(lease.count, 1U);
  cluster.run();
  EXPECT_TRUE(cluster.scheduler.ended());
}

// How long the node works on with what it holds.
double works_alone_s(const Cluster& cluster, const WorkerId& id) {
  const Cluster::Node& node = cluster.nodes.at(id);
  std::multiset<double> cores;  // when each is free
  for (const auto& [end, lease] : node.running) cores.insert(end);
  for (const auto& [key, lease] : node.queue) {
    for (Element at = lease.first; at < lease.first + lease.count; ++at) {
      const double free_s = *cores.begin();
      cores.erase(cores.begin());
      cores.insert(free_s + cluster.seconds({lease.array, at}));
    }
  }
  return *cores.begin() - cluster.now;  // no core is idle before
}

// Two slots had three tasks, and then nothing to do until the fence.
TEST(Cluster, AWorkerKeepsEnoughForTheTimeThatItMayWorkAlone) {
  for (const double seconds : {0.05, 0.5, 5.0, 45.0, 90.0, 3600.0}) {
    Cluster cluster({step_of(0, 1'000'000)});
    cluster.seconds = [seconds](auto) { return seconds; };
    cluster.alone_s = 60;
    cluster.scheduler.start();
    for (const char* id : {"a", "b", "c"}) cluster.join(id, {2});
    for (int i = 0; i < 6; ++i) {
      cluster.run(cluster.now + 1.3 * std::max(seconds, 1.0));
      cluster.advance(cluster.next_event());
    }
    cluster.settle();
    for (const char* id : {"a", "b", "c"}) {
      EXPECT_GE(works_alone_s(cluster, id), std::min(0.75 * 60, 60 - seconds))
          << "tasks of " << seconds << " s";
      EXPECT_LE(works_alone_s(cluster, id), 62 + 2 * seconds) << "tasks of " << seconds << " s";
    }
  }
}

// Ten thousand workers begin at once: their first tasks end at once, too.
TEST(Cluster, AllWorkersGetSpareLeasesOnceDurationsAreKnown) {
  Cluster cluster({step_of(0, 10'000)});
  cluster.seconds = [](auto task) { return task.second < 60 ? 1.0 : 10.0; };  // two each of 30 workers
  cluster.alone_s = 60;
  cluster.scheduler.start();
  for (int i = 0; i < 40; ++i) cluster.join(std::to_string(i), {1});
  const auto fewest = [&] {
    std::uint64_t fewest = 10'000;
    for (const auto& [id, node] : cluster.nodes) {
      std::uint64_t queued = 0;
      for (const auto& [key, lease] : node.queue) queued += lease.count;
      fewest = std::min(fewest, queued);
    }
    return fewest;
  };
  cluster.run(0.9);
  EXPECT_LT(fewest(), 20U) << "no duration is known yet";
  cluster.run(1.1);
  EXPECT_GE(fewest(), 45U) << "of a second each";
}

TEST(Cluster, TheEndOfACampaignIsNotLaterForSpareLeases) {
  for (const double seconds : {0.02, 1.0, 7.0, 100.0}) {
    const auto end_s = [&](double alone_s, std::uint64_t count) {
      Cluster cluster({step_of(0, count)});
      cluster.seconds = [seconds](auto task) {
        return seconds * (0.5 + static_cast<double>(task.second % 11) / 10);
      };
      cluster.alone_s = alone_s;
      cluster.scheduler.start();
      cluster.join("a", {4});
      cluster.join("b", {4}, 0.3);
      cluster.join("c", {2});
      cluster.run();
      EXPECT_EQ(cluster.starts.size(), count) << "nothing runs twice";
      EXPECT_LE(cluster.longest_idle_s, kAhead_s + 0.05) << "tasks of " << seconds << " s";
      EXPECT_LE(cluster.revokes, alone_s > 0 ? 100U : 60U);
      return cluster.now;
    };
    for (const std::uint64_t count : {5U, 20U, 60U, 400U, 5000U}) {
      EXPECT_LE(end_s(60, count), end_s(0, count) + 1.5 + 2 * seconds)
          << count << " tasks of " << seconds << " s";
    }
  }
}

TEST(Cluster, SpareLeasesComeBackWhenNothingMayStart) {
  Cluster cluster({step_of(0, 1000)});
  cluster.seconds = [](auto) { return 5.0; };
  cluster.alone_s = 60;
  cluster.scheduler.start();
  cluster.join("a", {2});
  cluster.run(20);
  ASSERT_GE(cluster.held.size(), 20U);
  cluster.scheduler.set_paused(true);
  cluster.settle();
  EXPECT_EQ(cluster.held.size(), 2U) << "what runs";
  cluster.scheduler.set_paused(false);
  cluster.run(40);
  ASSERT_GE(cluster.held.size(), 20U);
  cluster.scheduler.cancel(0, {0, 999});
  cluster.settle();
  EXPECT_EQ(cluster.held.size(), 2U) << "what runs";
  cluster.run();
  EXPECT_TRUE(cluster.scheduler.ended());
  EXPECT_EQ(cluster.now, 45);
}

// A later coordinator: what waits in a worker's queue is no reason to keep what comes first from it.
TEST(Cluster, SpareLeasesOfAnEarlierCoordinatorComeLast) {
  ArraySpec urgent = step_of(1, 2, 5);
  Scheduler scheduler({step_of(0, 1000), urgent}, 2);
  scheduler.start();
  WorkerCapacity capacity(2);
  capacity.alone_s = 60;
  const LeaseId lease = (LeaseId{1} << 40) + 1;
  scheduler.worker_joined("a", capacity, {{lease, 0, 0, 20, 0, false, 0}});
  std::uint64_t first = 0;
  const auto count = [&] {
    for (const GrantLease& grant : scheduler.take_actions().grants)
      first += grant.lease.array == 1 ? grant.lease.count : 0;
  };
  scheduler.assign(0);
  count();
  scheduler.done({lease, 0, 0, 2, 0, 10, 50, 5});
  scheduler.assign(5);
  count();
  EXPECT_GE(first, 1U);
}

TEST(Cluster, NoSpareLeaseIsCutByTheEndOfItsAllocation) {
  Cluster cluster({step_of(0, 1000)});
  cluster.seconds = [](auto) { return 5.0; };
  cluster.alone_s = 60;
  cluster.scheduler.start();
  cluster.join("a", {2});
  cluster.scheduler.worker_ends("a", 50);
  cluster.run(100);
  for (const auto& start : cluster.starts) EXPECT_LE(start.time_s, 45) << start.task.second;
  EXPECT_GE(cluster.starts.size(), 16U);
}

// Kills, broken connections, failures, retries, revocations, cancellations, pauses and groups, at random:
// every element ends exactly once, and is never leased twice at once (Cluster::take).
TEST(Cluster, RandomEvents) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
    std::vector<ArraySpec> arrays = {step_of(0, 300),
                                     step_of(0, 200),
                                     step_of(1, 300, 1, {{0, EdgeKind::element, 0}}),
                                     step_of(2, 20, 2, {{1, EdgeKind::block, 10}}),
                                     step_of(3, 50, kLow),
                                     step_of(4, 1, 3, {{2, EdgeKind::all, 0}, {3, EdgeKind::all, 0}})};
    arrays[0].failure_retries = 3;
    arrays[2].pool = 1;
    arrays[2].resources.cores = 2;
    arrays[4].resources.memory_bytes = 30;
    Cluster cluster(std::move(arrays));
    cluster.alone_s = seed % 2 == 0 ? 60 : 0;
    cluster.code = [&](const Lease&) { return chance(8) ? (chance(30) ? 104 : 1) : 0; };
    for (ArrayId id = 0; id < 5; ++id) cluster.arrays[id].max_retries = 3;
    cluster.seconds = [](auto task) {
      return task.second % 17 == 0 ? 5.0 : 0.05 * (1.0 + static_cast<double>(task.first));
    };
    cluster.scheduler.start();
    int joined = 0;
    for (int round = 0; round < 200'000 && !cluster.scheduler.ended(); ++round) {
      while (cluster.nodes.size() < 4) {
        const std::vector<bool> pools = joined % 3 == 0   ? std::vector<bool>{true, false}
                                        : joined % 3 == 1 ? std::vector<bool>{false, true}
                                                          : std::vector<bool>{};
        cluster.join("w" + std::to_string(joined++), {1 + static_cast<int>(random() % 4), 0, 100, pools},
                     chance(25) ? 0.02 : 1.0);
      }
      cluster.settle();
      if (cluster.scheduler.ended()) break;
      if (cluster.scheduler.paused() && chance(50)) cluster.scheduler.set_paused(false);
      auto node =
          std::next(cluster.nodes.begin(), static_cast<std::ptrdiff_t>(random() % cluster.nodes.size()));
      const WorkerId id = node->first;
      const unsigned dice = random() % 1000;
      if (dice < 10) cluster.lose(id);
      if (dice >= 10 && dice < 30) cluster.reconnect(id, chance(50));
      if (dice >= 30 && dice < 35) cluster.scheduler.cancel(random() % 5, {5, 9});
      if (dice >= 35 && dice < 40) cluster.scheduler.retry_failed(random() % 5, {0, 19});
      if (dice >= 40 && dice < 45) cluster.scheduler.set_paused(true);
      if (dice >= 45 && dice < 47) cluster.scheduler.worker_draining(id);
      cluster.advance(std::min(cluster.next_event(), cluster.now + 0.2));
    }
    cluster.settle();
    ASSERT_TRUE(cluster.scheduler.ended()) << "seed " << seed;
    EXPECT_EQ(cluster.scheduler.leased(), 0U) << "seed " << seed;
    EXPECT_EQ(cluster.ended.size(), 300U + 200 + 300 + 20 + 50 + 1);
    for (const auto& [task, times] : cluster.ended)
      EXPECT_EQ(times, 1) << "seed " << seed << ": " << task.first << "/" << task.second;
  }
}

}  // namespace
}  // namespace wflow::engine
