// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/scheduler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>
#include <utility>

namespace wflow::engine {
namespace {

using specs::EdgeKind;

ArraySpec array_of(std::uint64_t count, std::vector<specs::Edge> edges = {}, int priority = 0) {
  ArraySpec spec;
  spec.count = count;
  spec.edges = std::move(edges);
  spec.priority = priority;
  return spec;
}

// Workers that run whatever they are leased, in order, and say how it ended.
class Campaign {
 public:
  explicit Campaign(std::vector<ArraySpec> arrays) : scheduler(std::move(arrays), 1) {}

  void take() {
    scheduler.saving();
    scheduler.saved();
    scheduler.assign(now);
    Actions actions = scheduler.take_actions();
    for (const GrantLease& grant : actions.grants) {
      for (std::uint64_t i = 0; i < grant.lease.count; ++i) {
        Lease one = grant.lease;
        one.first += i;
        one.count = 1;
        leased.push_back({grant.worker, one});
        ++grants[{one.array, one.first}];
      }
    }
    ends.insert(ends.end(), actions.ends.begin(), actions.ends.end());
    failures.insert(failures.end(), actions.failures.begin(), actions.failures.end());
  }

  void succeed(const Lease& lease) {
    scheduler.done({lease.id, lease.array, lease.first, lease.count, 0, 0.1, 0.01, 0});
  }
  void fail(const Lease& lease, int code) {
    Outcome outcome;
    outcome.lease = lease.id;
    outcome.array = lease.array;
    outcome.element = lease.first;
    outcome.attempt = lease.attempt;
    outcome.exit_code = code;
    scheduler.ended_badly(outcome, "w", now);
  }

  // Runs to the end; `code` gives an exit code for every execution.
  template <typename Code>
  void run(Code code) {
    for (int round = 0; round < 1'000'000 && !scheduler.ended(); ++round) {
      take();
      if (leased.empty()) {
        if (const auto due = scheduler.next_due_s()) {
          now = std::max(now, *due);
          continue;
        }
        return;
      }
      const auto [worker, lease] = leased.front();
      leased.pop_front();
      const int result = code(lease);
      result == 0 ? succeed(lease) : fail(lease, result);
    }
    take();
  }

  ElementState state(ArrayId array, Element element) const { return scheduler.states(array).at(element); }
  std::uint64_t total(ArrayId array, ElementState state) const {
    return scheduler.states(array).total(state);
  }

  Scheduler scheduler;
  double now = 0;
  std::deque<std::pair<WorkerId, Lease>> leased;
  std::map<std::pair<ArrayId, Element>, int> grants;
  std::vector<RecordEnd> ends;
  std::vector<RecordFailure> failures;
};

TEST(Scheduler, RunsEveryElementOnce) {
  Campaign campaign({array_of(1000)});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {2, 0}, {});
  campaign.scheduler.worker_joined("b", {4, 0}, {});
  campaign.run([](const auto&) { return 0; });
  EXPECT_TRUE(campaign.scheduler.ended());
  EXPECT_EQ(campaign.grants.size(), 1000u);
  for (const auto& [key, count] : campaign.grants) EXPECT_EQ(count, 1);
  EXPECT_EQ(campaign.total(0, ElementState::done), 1000u);
  EXPECT_EQ(campaign.scheduler.states(0).run_count(), 1u);
}

TEST(Scheduler, ElementEdgesReleaseSampleBySample) {
  Campaign campaign({array_of(10), array_of(10, {{0, EdgeKind::element, 0}}, 1)});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.take();
  const Lease first = campaign.leased.front().second;
  campaign.leased.pop_front();
  EXPECT_EQ(campaign.state(1, first.first), ElementState::blocked);
  campaign.succeed(first);
  EXPECT_EQ(campaign.state(1, first.first), ElementState::ready);
  EXPECT_EQ(campaign.total(1, ElementState::ready), 1u);
}

ArraySpec bundled(std::uint64_t count, std::uint64_t bundle, std::vector<specs::Edge> edges = {}) {
  ArraySpec spec = array_of(count, std::move(edges));
  spec.bundle = bundle;
  return spec;
}

TEST(Scheduler, LeasesOfABundledStepEndWhereProcessesEnd) {
  Scheduler scheduler({bundled(1005, 10)}, 1);
  scheduler.start();
  scheduler.worker_joined("a", {2, 0}, {});
  scheduler.worker_joined("b", {3, 0}, {});
  std::uint64_t leased = 0;
  while (leased < 1005) {
    scheduler.assign(0);
    const Actions actions = scheduler.take_actions();
    ASSERT_FALSE(actions.grants.empty());
    for (const GrantLease& grant : actions.grants) {
      const Lease& lease = grant.lease;
      EXPECT_EQ(lease.first % 10, 0U);
      EXPECT_TRUE((lease.first + lease.count) % 10 == 0 || lease.first + lease.count == 1005);
      leased += lease.count;
      scheduler.done({lease.id, 0, lease.first, lease.count, 0, 0.1, 0.01, 0});
    }
  }
  EXPECT_TRUE(scheduler.ended());
}

TEST(Scheduler, AWorkerGetsABundleForEachOfItsCores) {
  Scheduler scheduler({bundled(1000, 10)}, 1);
  scheduler.start();
  scheduler.worker_joined("a", {4, 0}, {});
  scheduler.assign(0);
  std::uint64_t leased = 0;
  for (const GrantLease& grant : scheduler.take_actions().grants) leased += grant.lease.count;
  EXPECT_GE(leased, 40U);
}

TEST(Scheduler, ABundleWaitsForTheLastOfItsElements) {
  Campaign campaign({array_of(25), bundled(25, 10, {{0, EdgeKind::element, 0}})});
  campaign.scheduler.start();
  for (const Element element : {0, 1, 2, 3, 4, 5, 6, 7, 8}) {
    campaign.scheduler.done({0, 0, element, 1, 0, 0, 0, 0});
    EXPECT_EQ(campaign.total(1, ElementState::ready), 0U);
  }
  campaign.scheduler.done({0, 0, 20, 5, 0, 0, 0, 0});  // the last bundle is short
  EXPECT_EQ(campaign.total(1, ElementState::ready), 5U);
  campaign.scheduler.done({0, 0, 9, 1, 0, 0, 0, 0});
  EXPECT_EQ(campaign.total(1, ElementState::ready), 15U);
  EXPECT_EQ(campaign.state(1, 9), ElementState::ready);
  EXPECT_EQ(campaign.state(1, 10), ElementState::blocked);
}

TEST(Scheduler, DepthFirst) {
  Campaign campaign({array_of(100), array_of(100, {{0, EdgeKind::element, 0}}, 1)});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  std::vector<ArrayId> order;
  campaign.run([&](const auto& lease) {
    order.push_back(lease.array);
    return 0;
  });
  // The second step's first element must not wait for the whole first step.
  const auto second = std::find(order.begin(), order.end(), 1u) - order.begin();
  EXPECT_LT(second, 20);
}

TEST(Scheduler, BlocksWaitForTheirElementsOnly) {
  // 25 samples in blocks of 10: the last block has 5.
  Campaign campaign(
      {array_of(25), array_of(3, {{0, EdgeKind::block, 10}}), array_of(1, {{1, EdgeKind::all, 0}})});
  campaign.scheduler.start();
  for (Element i = 0; i < 9; ++i) campaign.scheduler.done({0, 0, i, 1, 0, 0, 0, 0});
  EXPECT_EQ(campaign.state(1, 0), ElementState::blocked);
  campaign.scheduler.done({0, 0, 9, 1, 0, 0, 0, 0});
  EXPECT_EQ(campaign.state(1, 0), ElementState::ready);
  campaign.scheduler.done({0, 0, 20, 5, 0, 0, 0, 0});
  EXPECT_EQ(campaign.state(1, 2), ElementState::ready);
  EXPECT_EQ(campaign.state(1, 1), ElementState::blocked);
  campaign.scheduler.done({0, 0, 10, 10, 0, 0, 0, 0});
  EXPECT_EQ(campaign.state(1, 1), ElementState::ready);
  EXPECT_EQ(campaign.state(2, 0), ElementState::blocked);
  campaign.scheduler.done({0, 1, 0, 3, 0, 0, 0, 0});
  EXPECT_EQ(campaign.state(2, 0), ElementState::ready);
}

// 25 samples that became 40: the block of five stays one, and the new blocks begin behind it.
TEST(Scheduler, BlocksOfAGrownCampaignBeginWhereItGrew) {
  const auto starts = std::make_shared<const std::vector<std::uint64_t>>(std::vector<std::uint64_t>{25});
  Campaign campaign({array_of(40), array_of(5, {{0, EdgeKind::block, 10, starts}})});
  campaign.scheduler.restore_end(0, {0, 24}, ElementState::done);
  campaign.scheduler.restore_end(1, {0, 2}, ElementState::done);
  campaign.scheduler.start();
  campaign.scheduler.done({0, 0, 25, 9, 0, 0, 0, 0});
  EXPECT_EQ(campaign.state(1, 3), ElementState::blocked);
  campaign.scheduler.done({0, 0, 34, 1, 0, 0, 0, 0});
  EXPECT_EQ(campaign.state(1, 3), ElementState::ready);
  EXPECT_EQ(campaign.state(1, 4), ElementState::blocked);
  campaign.scheduler.done({0, 0, 35, 5, 0, 0, 0, 0});
  EXPECT_EQ(campaign.state(1, 4), ElementState::ready);
}

// A process never takes samples from before and after.
TEST(Scheduler, BundlesOfAGrownCampaignBeginWhereItGrew) {
  ArraySpec spec = bundled(47, 10);
  spec.block_starts = std::make_shared<const std::vector<std::uint64_t>>(std::vector<std::uint64_t>{25});
  Scheduler scheduler({spec}, 1);
  scheduler.start();
  scheduler.worker_joined("a", {2, 0}, {});
  const std::set<Element> begins = {0, 10, 20, 25, 35, 45, 47};
  std::uint64_t leased = 0;
  while (leased < 47) {
    scheduler.assign(0);
    const Actions actions = scheduler.take_actions();
    ASSERT_FALSE(actions.grants.empty());
    for (const GrantLease& grant : actions.grants) {
      const Lease& lease = grant.lease;
      EXPECT_TRUE(begins.contains(lease.first) && begins.contains(lease.first + lease.count)) << lease.first;
      leased += lease.count;
      scheduler.done({lease.id, 0, lease.first, lease.count, 0, 0.1, 0.01, 0});
    }
  }
  EXPECT_TRUE(scheduler.ended());
}

TEST(Scheduler, OrdinaryFailuresUseTheirBudgetThenFailSoftly) {
  ArraySpec spec = array_of(3);
  spec.failure_retries = 2;
  spec.retry_delay_s = 5;
  Campaign campaign({spec, array_of(3, {{0, EdgeKind::element, 0}})});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.run([](const auto& lease) { return lease.array == 0 && lease.first == 1 ? 3 : 0; });
  EXPECT_EQ(campaign.grants.at({0, 1}), 3);
  EXPECT_GE(campaign.now, 10);
  EXPECT_EQ(campaign.state(0, 1), ElementState::failed);
  EXPECT_EQ(campaign.total(1, ElementState::done), 3u) << "a soft failure lets dependents run";
  ASSERT_EQ(campaign.failures.size(), 3u);
  EXPECT_FALSE(campaign.failures[0].final);
  EXPECT_TRUE(campaign.failures[2].final);
}

TEST(Scheduler, MerlinExitCodes) {
  ArraySpec spec = array_of(6);
  spec.max_retries = 2;
  Campaign campaign({spec});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  std::map<Element, std::vector<bool>> restarts;
  campaign.run([&](const Lease& lease) {
    restarts[lease.first].push_back(lease.restart);
    switch (lease.first) {
      case 0:
        return lease.attempt == 0 ? 100 : 0;  // restart once
      case 1:
        return 100;  // restart for ever
      case 2:
        return lease.attempt == 0 ? 104 : 0;  // retry
      case 3:
        return 101;
      case 4:
        return 1;  // ordinary failure without a budget of its own
      default:
        return 103;  // Merlin's code of a dry run: from a task an ordinary failure
    }
  });
  EXPECT_EQ(restarts[0], (std::vector<bool>{false, true}));
  EXPECT_EQ(restarts[1], (std::vector<bool>{false, true, true})) << "max_retries N means N + 1 executions";
  EXPECT_EQ(restarts[2], (std::vector<bool>{false, false}));
  EXPECT_EQ(campaign.state(0, 0), ElementState::done);
  EXPECT_EQ(campaign.state(0, 1), ElementState::failed);
  EXPECT_EQ(campaign.state(0, 3), ElementState::failed);
  EXPECT_EQ(campaign.state(0, 4), ElementState::failed);
  EXPECT_EQ(campaign.state(0, 5), ElementState::failed);
}

TEST(Scheduler, HardFailureSkipsDependentsAndAsksForTheEnd) {
  Campaign campaign(
      {array_of(1), array_of(1, {{0, EdgeKind::all, 0}}), array_of(1, {{1, EdgeKind::all, 0}})});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.run([](const auto&) { return 102; });
  EXPECT_TRUE(campaign.scheduler.stop_requested());
  EXPECT_EQ(campaign.state(0, 0), ElementState::hard_failed);
  EXPECT_EQ(campaign.state(2, 0), ElementState::skipped);
}

TEST(Scheduler, KeepsGoingAfterAHardFailureWhereAsked) {
  Campaign campaign({array_of(4), array_of(4, {{0, EdgeKind::element, 0}})});
  campaign.scheduler.set_keep_going(true);
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.run([](const auto& lease) { return lease.array == 0 && lease.first == 1 ? 102 : 0; });
  EXPECT_TRUE(campaign.scheduler.ended());
  EXPECT_EQ(campaign.state(0, 1), ElementState::hard_failed);
  EXPECT_EQ(campaign.state(1, 1), ElementState::skipped);
  EXPECT_EQ(campaign.total(1, ElementState::done), 3u);
}

TEST(Scheduler, CancelsAPartAndWhatRunsOfIt) {
  ArraySpec spec = array_of(8);
  spec.failure_retries = 3;
  Campaign campaign({spec, array_of(8, {{0, EdgeKind::element, 0}})});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {2, 0}, {});
  campaign.take();
  const std::deque<std::pair<WorkerId, Lease>> held = campaign.leased;
  ASSERT_GE(held.size(), 2u);
  const Scheduler::Cancelled waiting = campaign.scheduler.cancel(0, {0, 7}, false);
  EXPECT_EQ(waiting.waiting, 8 - held.size()) << "what is leased goes on";
  EXPECT_EQ(waiting.running, held.size());
  EXPECT_EQ(campaign.scheduler.cancel(0, {0, 1}, true).running, 2u);
  const Actions actions = campaign.scheduler.take_actions();
  EXPECT_FALSE(actions.revokes.empty());
  EXPECT_EQ(campaign.state(0, 0), ElementState::leased) << "until its worker has ended it";
  campaign.scheduler.returned({held[0].second});
  EXPECT_EQ(campaign.state(0, 0), ElementState::cancelled);
  EXPECT_EQ(campaign.state(1, 0), ElementState::skipped);
  campaign.fail(held[1].second, 1);
  EXPECT_EQ(campaign.state(0, 1), ElementState::failed) << "not tried again";
  campaign.leased.erase(campaign.leased.begin(), campaign.leased.begin() + 2);
  campaign.run([](const auto&) { return 0; });
  EXPECT_TRUE(campaign.scheduler.ended());
  EXPECT_EQ(campaign.scheduler.retry_failed(0, {0, 7}), 2 + 8 - held.size());
  campaign.run([](const auto&) { return 0; });
  EXPECT_EQ(campaign.total(0, ElementState::done), 8u);
  EXPECT_EQ(campaign.total(1, ElementState::done), 8u);
}

TEST(Scheduler, ContinueOnNeverSkipsAfterASoftFailure) {
  ArraySpec child = array_of(1, {{0, EdgeKind::all, 0}});
  child.continue_on = specs::ContinueOn::never;
  Campaign campaign({array_of(5), child});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.run([](const auto& lease) { return lease.first == 2 ? 1 : 0; });
  EXPECT_EQ(campaign.state(1, 0), ElementState::skipped);
  EXPECT_TRUE(campaign.scheduler.ended());
}

// simulate -> measure -> blocks of a conversion, and a summary of all. A sample that crashed is left out of
// its block, named by the step that crashed; the data set and the summary go on without it.
TEST(Scheduler, AConversionLeavesOutTheSamplesWhoseChainFailed) {
  ArraySpec simulate = array_of(12);
  simulate.continue_on = specs::ContinueOn::never;
  ArraySpec measure = array_of(12, {{0, EdgeKind::element, 0}}, 1);
  measure.continue_on = specs::ContinueOn::never;
  ArraySpec blocks = array_of(3, {{1, EdgeKind::block, 4, nullptr, specs::ContinueOn::ended}}, 2);
  blocks.continue_on = specs::ContinueOn::never;
  blocks.leaves_out_failed = true;
  ArraySpec summary = array_of(1, {{1, EdgeKind::all, 0, nullptr, specs::ContinueOn::gathered}}, 1);
  Campaign campaign({simulate, measure, blocks, summary});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  std::map<Element, std::vector<std::string>> out;
  campaign.run([&](const Lease& lease) {
    if (lease.array == 2) {
      for (const auto& [range, array, state] : campaign.scheduler.left_out(2, {lease.first, lease.first}))
        out[lease.first].push_back(
            fmt::format("{}-{} array {} {}", range.first, range.last, array, name_of(state)));
    }
    if (lease.array == 0) return lease.first == 5 ? 1 : lease.first == 6 ? 101 : 0;
    return lease.array == 1 && lease.first == 8 ? 1 : 0;
  });
  EXPECT_TRUE(campaign.scheduler.ended());
  EXPECT_EQ(campaign.state(1, 5), ElementState::skipped);
  EXPECT_EQ(campaign.total(2, ElementState::done), 3U);
  EXPECT_EQ(campaign.state(3, 0), ElementState::done);
  EXPECT_EQ(out[0], std::vector<std::string>{});
  EXPECT_EQ(out[1], std::vector<std::string>{"5-6 array 0 failed"});
  EXPECT_EQ(out[2], std::vector<std::string>{"8-8 array 1 failed"});
}

// Where the step before fails softly and the next one runs all the same (Merlin's files), the sample is left
// out, too.
TEST(Scheduler, ASampleIsLeftOutThoughALaterStepSucceeded) {
  ArraySpec blocks = array_of(1, {{1, EdgeKind::block, 4, nullptr, specs::ContinueOn::ended}}, 2);
  blocks.leaves_out_failed = true;
  ArraySpec all = blocks;
  all.leaves_out_failed = false;
  Campaign campaign({array_of(4), array_of(4, {{0, EdgeKind::element, 0}}, 1), blocks, all});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.run([&](const Lease& lease) {
    if (lease.array == 2) {
      const auto out = campaign.scheduler.left_out(2, {0, 0});
      EXPECT_EQ(out.size(), 1U);
      EXPECT_EQ(out.at(0).range.first, 2U);
      EXPECT_EQ(out.at(0).array, 0U);
    }
    if (lease.array == 3) {
      EXPECT_TRUE(campaign.scheduler.left_out(3, {0, 0}).empty()) << "use_failed";
    }
    return lease.array == 0 && lease.first == 2 ? 1 : 0;
  });
  EXPECT_EQ(campaign.total(1, ElementState::done), 4U);
  EXPECT_EQ(campaign.total(2, ElementState::done), 1U);
}

// A coordinator that is killed before the commit forgets a cancellation: the samples run, and the block is
// not to have run without them.
TEST(Scheduler, ABlockThatLeavesOutSamplesWaitsUntilTheirEndsAreOnDisk) {
  ArraySpec blocks = array_of(2, {{0, EdgeKind::block, 4, nullptr, specs::ContinueOn::ended}}, 1);
  blocks.leaves_out_failed = true;
  blocks.failure_retries = 1;
  Scheduler scheduler({array_of(8), blocks}, 1);
  scheduler.start();
  scheduler.worker_joined("a", {8, 0}, {});
  scheduler.set_paused(true);
  scheduler.assign(0);
  EXPECT_EQ(scheduler.cancel(0, {4, 7}).waiting, 4U);
  scheduler.set_paused(false);
  const auto leased = [&] {
    std::vector<Lease> found;
    scheduler.assign(1);
    for (const GrantLease& grant : scheduler.take_actions().grants) found.push_back(grant.lease);
    return found;
  };
  const auto is_block = [](const Lease& lease) { return lease.array == 1; };
  std::vector<Lease> simulations = leased();
  EXPECT_TRUE(std::none_of(simulations.begin(), simulations.end(), is_block))
      << "the cancellation is not on disk";
  scheduler.saving();
  for (const Lease& lease : simulations)
    scheduler.done({lease.id, lease.array, lease.first, lease.count, 0, 0.1, 0.01, 0});
  const std::vector<Lease> whole = leased();
  ASSERT_EQ(whole.size(), 1U) << "nothing is left out: no commit is waited for";
  EXPECT_EQ(whole[0].first, 0U);
  EXPECT_EQ(whole[0].array, 1U);
  scheduler.saved();
  const std::vector<Lease> second = leased();
  ASSERT_EQ(second.size(), 1U) << "the ends after it are not on disk, and do not matter";
  EXPECT_EQ(second[0].first, 1U);
  EXPECT_EQ(second[0].array, 1U);
}

// The failure may be known to this coordinator alone (a worker that was lost). If it were killed now, the
// next one would run the element that failed again, and what runs after it, too, though that had succeeded.
TEST(Scheduler, WhatRunsAfterAFailureWaitsUntilThatIsOnDisk) {
  ArraySpec all = array_of(1, {{1, EdgeKind::all, 0}});
  Scheduler scheduler({array_of(3), array_of(3, {{0, EdgeKind::element, 0}}), all}, 1);
  scheduler.start();
  scheduler.worker_joined("a", {8, 0}, {});
  using Elements = std::vector<std::pair<ArrayId, Element>>;
  std::map<std::pair<ArrayId, Element>, LeaseId> leases;
  const auto leased = [&] {
    Elements found;
    scheduler.assign(1);
    for (const GrantLease& grant : scheduler.take_actions().grants) {
      for (std::uint64_t i = 0; i < grant.lease.count; ++i) {
        found.emplace_back(grant.lease.array, grant.lease.first + i);
        leases[found.back()] = grant.lease.id;
      }
    }
    return found;
  };
  const auto end = [&](ArrayId array, Element element, int code) {
    Outcome outcome;
    outcome.lease = leases.at({array, element});
    outcome.array = array;
    outcome.element = element;
    outcome.exit_code = code;
    code == 0 ? scheduler.done({outcome.lease, array, element, 1, 0, 0.1, 0.01, 0})
              : scheduler.ended_badly(outcome, "a", 1);
  };
  ASSERT_EQ(leased().size(), 3U);
  end(0, 0, 0);
  end(0, 1, 1);
  EXPECT_EQ(leased(), (Elements{{1, 0}})) << "the failure is not on disk";
  scheduler.saving();
  end(0, 2, 1);
  scheduler.saved();
  EXPECT_EQ(leased(), (Elements{{1, 1}})) << "the second failure is not on disk";
  scheduler.saving();
  scheduler.saved();
  EXPECT_EQ(leased(), (Elements{{1, 2}}));
  end(1, 0, 0);
  end(1, 1, 0);
  end(1, 2, 1);
  EXPECT_TRUE(leased().empty()) << "one of the elements that are needed failed, which is not on disk";
  scheduler.saving();
  scheduler.saved();
  EXPECT_EQ(leased(), (Elements{{2, 0}}));
}

// Merlin's status file of the first is written with the commit of its end.
TEST(Scheduler, ReadersOfStatusFilesWaitUntilTheEndIsOnDisk) {
  ArraySpec reader = array_of(2, {{0, EdgeKind::all, 0}});
  reader.after_record = true;
  const ArraySpec other = array_of(1, {{0, EdgeKind::all, 0}});
  Scheduler scheduler({array_of(1), reader, other}, 1);
  scheduler.start();
  scheduler.worker_joined("a", {8, 0}, {});
  const auto leased = [&] {
    std::vector<Lease> found;
    scheduler.assign(1);
    for (const GrantLease& grant : scheduler.take_actions().grants) found.push_back(grant.lease);
    return found;
  };
  const std::vector<Lease> first = leased();
  ASSERT_EQ(first.size(), 1U);
  scheduler.saving();
  scheduler.done({first[0].id, 0, 0, 1, 0, 0.1, 0.01, 0});
  scheduler.saved();
  const std::vector<Lease> second = leased();
  ASSERT_EQ(second.size(), 1U) << "the end is not in the commit that has ended";
  EXPECT_EQ(second[0].array, 2U);
  scheduler.saving();
  scheduler.saved();
  std::uint64_t readers = 0;
  for (const Lease& lease : leased()) readers += lease.array == 1 ? lease.count : 0;
  EXPECT_EQ(readers, 2U);
}

// A process takes its elements together.
TEST(Scheduler, ABundleWaitsUntilTheFailuresBeforeItAreOnDisk) {
  Campaign campaign({array_of(4), bundled(4, 2, {{0, EdgeKind::element, 0}})});
  Scheduler& scheduler = campaign.scheduler;
  scheduler.start();
  scheduler.worker_joined("a", {4, 0}, {});
  campaign.take();
  while (!campaign.leased.empty()) {
    const Lease lease = campaign.leased.front().second;
    campaign.leased.pop_front();
    lease.first == 1 ? campaign.fail(lease, 1) : campaign.succeed(lease);
  }
  scheduler.assign(1);
  const std::vector<GrantLease> first = scheduler.take_actions().grants;
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].lease.first, 2U);
  EXPECT_EQ(first[0].lease.count, 2U);
  scheduler.saving();
  scheduler.saved();
  scheduler.assign(1);
  const std::vector<GrantLease> second = scheduler.take_actions().grants;
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].lease.first, 0U);
  EXPECT_EQ(second[0].lease.count, 2U);
}

// A task that gathers the elements of a step does not run if all of them were skipped.
TEST(Scheduler, AStepThatGathersNothingIsSkipped) {
  ArraySpec simulate = array_of(5, {{0, EdgeKind::all, 0}}, 1);
  simulate.continue_on = specs::ContinueOn::never;
  ArraySpec summary = array_of(1, {{1, EdgeKind::all, 0, nullptr, specs::ContinueOn::gathered}}, 2);
  Campaign campaign({array_of(1), simulate, summary});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.run([](const Lease&) { return 1; });
  EXPECT_EQ(campaign.total(1, ElementState::skipped), 5U);
  EXPECT_EQ(campaign.state(2, 0), ElementState::skipped);
}

TEST(Scheduler, ALostWorkersElementsRunElsewhere) {
  Campaign campaign({array_of(50)});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {4, 0}, {});
  campaign.take();
  const auto held = campaign.leased.size();
  ASSERT_GT(held, 0u);
  campaign.leased.clear();
  campaign.scheduler.worker_lost("a", {{0, 0, 1.0}});
  EXPECT_EQ(campaign.scheduler.leased(), 0u);
  campaign.scheduler.worker_joined("b", {4, 0}, {});
  campaign.run([](const auto&) { return 0; });
  EXPECT_EQ(campaign.total(0, ElementState::done), 50u);
  ASSERT_EQ(campaign.failures.size(), 1u) << "the one that ran counts as lost with its worker";
  EXPECT_EQ(campaign.failures[0].outcome.reason, EndReason::worker_lost);
}

TEST(Scheduler, AnElementThatKillsItsWorkersFails) {
  Campaign campaign({array_of(1)});
  campaign.scheduler.start();
  for (std::uint32_t loss = 0; loss < kCrashLimit; ++loss) {
    EXPECT_FALSE(has_ended(campaign.state(0, 0)));
    campaign.now += 100;  // each loss is followed by a delay
    campaign.scheduler.worker_joined("a", {1, 0}, {});
    campaign.take();
    campaign.scheduler.worker_lost("a", {{0, 0, 1.0}});
  }
  EXPECT_EQ(campaign.state(0, 0), ElementState::failed);
}

TEST(Scheduler, ResultsToldTwiceCountOnce) {
  ArraySpec spec = array_of(2);
  spec.failure_retries = 3;
  Campaign campaign({spec});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {2, 0}, {});
  campaign.take();
  const Lease first = campaign.leased[0].second;
  campaign.succeed(first);
  campaign.succeed(first);
  EXPECT_EQ(campaign.scheduler.progress(0).timed, 1u);
  Lease second = first;
  second.first = 1;
  campaign.fail(second, 1);
  campaign.fail(second, 1);
  campaign.take();
  EXPECT_EQ(campaign.failures.size(), 1u);
}

TEST(Scheduler, AdoptsWhatAWorkerStillHolds) {
  Campaign campaign({array_of(10)});
  campaign.scheduler.restore_end(0, {0, 3}, ElementState::done);
  campaign.scheduler.start();
  const Lease held{77, 0, 2, 4, 0, false, 0};
  campaign.scheduler.worker_joined("a", {1, 0}, {held});
  EXPECT_EQ(campaign.scheduler.leased(), 2u) << "2 and 3 have ended, 4 and 5 are still to come";
  campaign.scheduler.done({77, 0, 4, 2, 0, 0, 0, 0});
  EXPECT_EQ(campaign.scheduler.leased(), 0u);
  campaign.run([](const auto&) { return 0; });
  EXPECT_EQ(campaign.grants.count({0, 4}), 0u);
  EXPECT_TRUE(campaign.scheduler.ended());
}

TEST(Scheduler, RestoredAttemptsGoOnCounting) {
  ArraySpec spec = array_of(1);
  spec.failure_retries = 2;
  Campaign campaign({spec});
  campaign.scheduler.restore_attempt(0, 0, {2, 2, 0, false});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.run([](const auto& lease) { return lease.attempt == 2 ? 1 : 0; });
  EXPECT_EQ(campaign.state(0, 0), ElementState::failed);
}

// Samples of two steps, blocks of four, a stage that waits for the first block, and what closes the data set.
TEST(Scheduler, SkipsSamplesThatATrainingDoesNotNeed) {
  ArraySpec blocks = array_of(3, {{1, EdgeKind::block, 4}});
  blocks.continue_on = specs::ContinueOn::ended;
  ArraySpec closing = array_of(1, {{2, EdgeKind::all, 0}});
  closing.continue_on = specs::ContinueOn::never;
  Campaign campaign({array_of(12), array_of(12, {{0, EdgeKind::element, 0}}), blocks,
                     array_of(1, {{2, EdgeKind::block, 1}}), closing});
  campaign.scheduler.start();
  EXPECT_EQ(campaign.scheduler.skip_rest_for(4), 0u) << "it follows nothing";
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.take();
  while (campaign.state(3, 0) == ElementState::blocked) {
    ASSERT_FALSE(campaign.leased.empty());
    const auto deepest = std::ranges::max_element(campaign.leased, {}, [](const auto& held) {
      return std::pair(held.second.array, ~held.second.first);
    });
    const Lease next = deepest->second;
    campaign.leased.erase(deepest);
    campaign.succeed(next);
    campaign.take();
  }
  const std::uint64_t begun = 12 - campaign.total(0, ElementState::ready);
  campaign.scheduler.skip_rest_for(3);
  std::uint64_t asked = 0;
  for (const RevokeLease& revoke : campaign.scheduler.take_actions().revokes) {
    EXPECT_FALSE(revoke.kill_running);
    asked += revoke.part.count;
  }
  EXPECT_GT(asked, 1u) << "what waits behind running tasks comes back";
  EXPECT_EQ(campaign.total(0, ElementState::ready), 0u);
  EXPECT_EQ(campaign.total(0, ElementState::skipped), 12 - begun);
  std::vector<Lease> waiting;
  for (const auto& [worker, lease] : campaign.leased)
    if (lease.array == 0) waiting.push_back(lease);
  std::erase_if(campaign.leased, [](const auto& held) { return held.second.array == 0; });
  campaign.scheduler.returned(waiting);
  campaign.run([](const auto&) { return 0; });
  EXPECT_TRUE(campaign.scheduler.ended());
  const std::uint64_t skipped = campaign.total(0, ElementState::skipped);
  EXPECT_EQ(skipped, 12 - begun + waiting.size()) << "what came back is skipped, too";
  EXPECT_EQ(campaign.total(1, ElementState::skipped), skipped);
  EXPECT_EQ(campaign.total(2, ElementState::done), 3u) << "a block without samples ends, too";
  EXPECT_EQ(campaign.state(4, 0), ElementState::done);
}

TEST(Scheduler, CancelAndRetry) {
  Campaign campaign({array_of(4), array_of(4, {{0, EdgeKind::element, 0}})});
  campaign.scheduler.start();
  campaign.scheduler.cancel_waiting();
  EXPECT_TRUE(campaign.scheduler.ended());
  EXPECT_EQ(campaign.scheduler.retry_failed(0, {0, 3}), 4u);
  EXPECT_EQ(campaign.scheduler.retry_failed(1, {0, 3}), 0u);  // opened with what they wait for
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.run([](const auto&) { return 0; });
  EXPECT_EQ(campaign.total(1, ElementState::done), 4u);
}

TEST(Scheduler, RetryOpensWhatWasSkipped) {
  ArraySpec child = array_of(1, {{0, EdgeKind::all, 0}});
  child.continue_on = specs::ContinueOn::never;
  Campaign campaign({array_of(3), child});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.run([](const auto& lease) { return lease.first == 1 ? 1 : 0; });
  ASSERT_EQ(campaign.state(1, 0), ElementState::skipped);
  EXPECT_EQ(campaign.scheduler.retry_failed(0, {0, 2}), 1u);
  campaign.run([](const auto&) { return 0; });
  EXPECT_EQ(campaign.state(1, 0), ElementState::done);
}

// A coordinator granted a task after a retry and was killed before that was on disk: for the next one, the
// task was skipped, and its worker ends it.
TEST(Scheduler, ARetryWaitsForWhatAWorkerStillEnds) {
  for (const bool lost : {false, true}) {
    ArraySpec child = array_of(1, {{0, EdgeKind::element, 0}});
    child.continue_on = specs::ContinueOn::never;
    Campaign campaign({array_of(1), child});
    campaign.scheduler.start();
    campaign.scheduler.worker_joined("w", {2, 0}, {});
    campaign.run([](const auto&) { return 1; });
    ASSERT_EQ(campaign.state(1, 0), ElementState::skipped);
    campaign.scheduler.worker_joined("v", {1, 0}, {{1, 1, 0, 1, 0, false, 0, {}}});
    const std::vector<RevokeLease> revokes = campaign.scheduler.take_actions().revokes;
    ASSERT_EQ(revokes.size(), 1u);
    EXPECT_TRUE(revokes[0].kill_running);
    EXPECT_EQ(campaign.scheduler.retry_failed(0, {0, 0}), 1u);
    campaign.run([](const auto&) { return 0; });
    EXPECT_EQ(campaign.state(0, 0), ElementState::done);
    EXPECT_EQ((campaign.grants[{1, 0}]), 0);
    if (lost) {
      campaign.scheduler.worker_lost("v", {});
    } else {
      Outcome ended;
      ended.lease = 1;
      ended.array = 1;
      ended.reason = EndReason::cancelled;
      campaign.scheduler.ended_badly(ended, "v", campaign.now);
    }
    campaign.run([](const auto&) { return 0; });
    EXPECT_EQ(campaign.state(1, 0), ElementState::done);
    EXPECT_EQ((campaign.grants[{1, 0}]), 1);
  }
}

TEST(Scheduler, RetryOpensWhatRanWithoutIt) {
  // Samples, their analysis, a funnel over all analyses, and what follows it: all ran in spite of one soft
  // failure.
  Campaign campaign({array_of(3), array_of(3, {{0, EdgeKind::element, 0}}),
                     array_of(1, {{1, EdgeKind::all, 0}}), array_of(1, {{2, EdgeKind::all, 0}}),
                     array_of(1)});
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.run([](const auto& lease) { return lease.array == 0 && lease.first == 1 ? 1 : 0; });
  ASSERT_EQ(campaign.state(0, 1), ElementState::failed);
  ASSERT_EQ(campaign.state(3, 0), ElementState::done);
  campaign.grants.clear();
  EXPECT_EQ(campaign.scheduler.retry_failed(0, {0, 2}), 1u);
  EXPECT_EQ(campaign.state(2, 0), ElementState::blocked);
  campaign.run([](const auto&) { return 0; });
  EXPECT_TRUE(campaign.scheduler.ended());
  const std::map<std::pair<ArrayId, Element>, int> again = {
      {{0, 1}, 1}, {{1, 1}, 1}, {{2, 0}, 1}, {{3, 0}, 1}};
  EXPECT_EQ(campaign.grants, again);
  EXPECT_EQ(campaign.scheduler.progress(2).counts[static_cast<std::size_t>(ElementState::done)], 1u);
}

TEST(Scheduler, WhatIsDoneRunsAgainWithOrWithoutWhatDependsOnIt) {
  using Grants = std::map<std::pair<ArrayId, Element>, int>;
  for (const bool below : {false, true}) {
    Campaign campaign(
        {array_of(3), array_of(3, {{0, EdgeKind::element, 0}}), array_of(1, {{1, EdgeKind::all, 0}})});
    campaign.scheduler.start();
    campaign.scheduler.worker_joined("a", {1, 0}, {});
    campaign.run([](const auto& lease) { return lease.array == 0 && lease.first == 2 ? 1 : 0; });
    campaign.grants.clear();
    EXPECT_EQ(campaign.scheduler.run_again({{0, {1, 2}}}, below), 1u) << "a failure is not done";
    EXPECT_EQ(campaign.state(1, 1), below ? ElementState::blocked : ElementState::done);
    campaign.run([](const auto&) { return 0; });
    EXPECT_TRUE(campaign.scheduler.ended());
    EXPECT_EQ(campaign.state(0, 2), ElementState::failed);
    EXPECT_EQ(campaign.grants,
              below ? (Grants{{{0, 1}, 1}, {{1, 1}, 1}, {{2, 0}, 1}}) : (Grants{{{0, 1}, 1}}));
  }
}

TEST(Scheduler, WhatHasNotEndedWaitsForWhatRunsAgain) {
  Campaign campaign({array_of(1), array_of(1, {{0, EdgeKind::all, 0}})});
  campaign.scheduler.restore_end(0, {0, 0}, ElementState::done);
  campaign.scheduler.start();
  ASSERT_EQ(campaign.state(1, 0), ElementState::ready);
  EXPECT_EQ(campaign.scheduler.run_again({{0, {0, 0}}}, false), 1u);
  EXPECT_EQ(campaign.state(1, 0), ElementState::blocked);
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.run([](const auto&) { return 0; });
  EXPECT_EQ(campaign.state(1, 0), ElementState::done);
}

TEST(Scheduler, RetryWaitsForWhatRunsOnTheOldInput) {
  for (const bool lost : {false, true}) {
    Campaign campaign({array_of(2), array_of(2, {{0, EdgeKind::element, 0}})});
    campaign.scheduler.restore_durations(1, 1, 100, 10000);  // long tasks: no prefetch
    campaign.scheduler.start();
    campaign.scheduler.worker_joined("w", {2, 0}, {});
    campaign.take();
    campaign.fail(campaign.leased[0].second, 1);
    campaign.fail(campaign.leased[1].second, 1);
    campaign.leased.clear();
    campaign.take();
    ASSERT_EQ(campaign.total(1, ElementState::leased), 2u);
    EXPECT_EQ(campaign.scheduler.retry_failed(0, {0, 0}), 1u);
    const Lease old = campaign.leased[0].second;
    ASSERT_EQ(old.array, 1u);
    if (lost) {
      campaign.scheduler.worker_lost("w", {});
      campaign.leased.clear();
      campaign.scheduler.worker_joined("w", {2, 0}, {});
    } else {
      for (const auto& [worker, lease] : std::exchange(campaign.leased, {})) campaign.succeed(lease);
      EXPECT_EQ(campaign.state(1, 1), ElementState::done);
    }
    EXPECT_EQ(campaign.state(1, 0), ElementState::blocked);
    campaign.run([](const auto&) { return 0; });
    EXPECT_TRUE(campaign.scheduler.ended());
    EXPECT_EQ(campaign.scheduler.leased(), 0u);
    EXPECT_EQ(campaign.total(1, ElementState::done), 2u);
    EXPECT_EQ((campaign.grants[{1, 0}]), 2);
  }
}

TEST(Scheduler, CancellingAStepSkipsWhatWaitsForIt) {
  Campaign campaign({array_of(4), array_of(4, {{0, EdgeKind::element, 0}}), array_of(1)});
  campaign.scheduler.start();
  EXPECT_EQ(campaign.scheduler.cancel(0, {1, 2}).waiting, 2u);
  EXPECT_EQ(campaign.total(1, ElementState::skipped), 2u);
  campaign.scheduler.worker_joined("a", {1, 0}, {});
  campaign.run([](const auto&) { return 0; });
  EXPECT_TRUE(campaign.scheduler.ended());
  EXPECT_EQ(campaign.total(1, ElementState::done), 2u);
  EXPECT_EQ(campaign.scheduler.retry_failed(0, {0, 3}), 2u);
  campaign.run([](const auto&) { return 0; });
  EXPECT_EQ(campaign.total(1, ElementState::done), 4u);
}

TEST(Scheduler, TasksOfManyCoresShareAWorker) {
  ArraySpec spec = array_of(8);
  spec.resources.cores = 2;
  Campaign campaign({spec});
  campaign.scheduler.restore_durations(0, 1, 100, 10000);  // long tasks: no prefetch
  campaign.scheduler.start();
  campaign.scheduler.worker_joined("a", {4, 0}, {});
  campaign.take();
  EXPECT_EQ(campaign.leased.size(), 2u);
}

TEST(Scheduler, HostileMessagesAreIgnored) {
  Campaign campaign({array_of(4)});
  campaign.scheduler.start();
  campaign.scheduler.done({1, 9, 0, 1, 0, 0, 0, 0});
  campaign.scheduler.done({1, 0, 3, 2, 0, 0, 0, 0});
  campaign.scheduler.done({1, 0, 0, 0, 0, 0, 0, 0});
  campaign.scheduler.done({1, 0, 1, ~0ULL, 0, 0, 0, 0});
  campaign.scheduler.returned({{1, 0, 0, ~0ULL, 0, false, 0}});
  EXPECT_EQ(campaign.total(0, ElementState::ready), 4u);
}

// Random ends, losses and reconnections over a diamond of steps: everything ends, nothing that succeeded runs
// again.
TEST(Scheduler, RandomCampaignsEndWithEverythingAccountedFor) {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    std::mt19937 random(seed);
    ArraySpec flaky = array_of(97);
    flaky.failure_retries = 3;
    Campaign campaign({flaky, array_of(97, {{0, EdgeKind::element, 0}}, 1),
                       array_of(10, {{0, EdgeKind::block, 10}}, 1),
                       array_of(1, {{1, EdgeKind::all, 0}, {2, EdgeKind::all, 0}}, 2)});
    campaign.scheduler.start();
    std::map<std::pair<ArrayId, Element>, int> successes;
    int joined = 0;
    for (int round = 0; round < 100000 && !campaign.scheduler.ended(); ++round) {
      campaign.now += 0.1;
      if (campaign.scheduler.workers().size() < 3) {
        campaign.scheduler.worker_joined("w" + std::to_string(joined++),
                                         {1 + static_cast<int>(random() % 4), 0}, {});
      }
      campaign.take();
      if (campaign.leased.empty()) continue;
      const std::size_t pick = random() % campaign.leased.size();
      const auto [worker, lease] = campaign.leased[pick];
      const unsigned dice = random() % 100;
      if (dice < 3) {
        std::erase_if(campaign.leased, [lost = worker](const auto& item) { return item.first == lost; });
        campaign.scheduler.worker_lost(worker, {});
        continue;
      }
      campaign.leased.erase(campaign.leased.begin() + static_cast<std::ptrdiff_t>(pick));
      if (dice < 10) {
        campaign.scheduler.returned({lease});
      } else if (dice < 20 && lease.array == 0) {
        campaign.fail(lease, 1);
      } else {
        campaign.succeed(lease);
        ++successes[{lease.array, lease.first}];
      }
    }
    ASSERT_TRUE(campaign.scheduler.ended()) << "seed " << seed;
    EXPECT_EQ(campaign.scheduler.leased(), 0u);
    for (const auto& [key, count] : successes) EXPECT_EQ(count, 1);
    const auto failed = campaign.total(0, ElementState::failed);
    EXPECT_EQ(successes.size(), 97 - failed + 97 + 10 + 1) << "seed " << seed;
  }
}

TEST(Scheduler, AMillionElementsStayFewRuns) {
  Campaign campaign({array_of(1'000'000), array_of(1'000'000, {{0, EdgeKind::element, 0}}, 1),
                     array_of(100, {{1, EdgeKind::block, 10'000}}, 2)});
  campaign.scheduler.start();
  for (int worker = 0; worker < 100; ++worker)
    campaign.scheduler.worker_joined("w" + std::to_string(worker), {8, 0}, {});
  std::size_t most_runs = 0;
  std::deque<Lease> leases;
  while (!campaign.scheduler.ended()) {
    campaign.scheduler.assign(0);
    for (const auto& grant : campaign.scheduler.take_actions().grants) leases.push_back(grant.lease);
    ASSERT_FALSE(leases.empty());
    const Lease lease = leases.front();
    leases.pop_front();
    const double each = 1e-3;
    campaign.scheduler.done(
        {lease.id, lease.array, lease.first, lease.count, 0, each * static_cast<double>(lease.count), 0, 0});
    most_runs = std::max(most_runs, campaign.scheduler.states(0).run_count());
  }
  EXPECT_LT(most_runs, 1000u);
}

// ---- the end of a worker's allocation

TEST(Walltime, NoTaskStartsThatCanNotEndInTime) {
  Campaign campaign({array_of(100)});
  Scheduler& scheduler = campaign.scheduler;
  scheduler.restore_end(0, {0, 4}, ElementState::done);
  scheduler.restore_durations(0, 5, 50, 500);
  scheduler.start();
  scheduler.assign(0);
  scheduler.worker_joined("w", {1}, {});
  scheduler.worker_ends("w", 100);
  campaign.now = 95;
  campaign.take();
  EXPECT_TRUE(campaign.leased.empty()) << "5 s are left for a task of 10 s";
  scheduler.worker_ends("w", 1000);
  campaign.now = 97;
  campaign.take();
  EXPECT_FALSE(campaign.leased.empty()) << "its allocation was made longer";
}

TEST(Walltime, AFreshWorkerMayTryWhatNoAllocationIsLongEnoughFor) {
  Campaign campaign({array_of(100)});
  Scheduler& scheduler = campaign.scheduler;
  scheduler.restore_end(0, {0, 4}, ElementState::done);
  scheduler.restore_durations(0, 5, 50, 500);
  scheduler.start();
  scheduler.assign(0);
  scheduler.worker_joined("w", {1}, {});
  scheduler.worker_ends("w", 8);
  campaign.take();
  EXPECT_EQ(campaign.leased.size(), 1U);
}

TEST(Walltime, TheStudysWalltimeCountsBeforeAnythingIsMeasured) {
  ArraySpec spec = array_of(10);
  spec.walltime_s = 60;
  Campaign campaign({spec});
  Scheduler& scheduler = campaign.scheduler;
  scheduler.start();
  scheduler.assign(0);
  scheduler.worker_joined("w", {1}, {});
  scheduler.worker_ends("w", 100);
  campaign.now = 50;
  campaign.take();
  EXPECT_TRUE(campaign.leased.empty());
}

TEST(Walltime, TheBacklogHasWhatRunsAndWhatWaits) {
  ArraySpec last = array_of(1, {{0, EdgeKind::all, 0}});
  last.step = 1;
  Campaign campaign({array_of(8), last});
  Scheduler& scheduler = campaign.scheduler;
  scheduler.start();
  auto backlog = scheduler.backlog();
  ASSERT_EQ(backlog.size(), 1U);
  EXPECT_EQ(backlog[0].open, 9U);
  EXPECT_EQ(backlog[0].cores, 8);
  EXPECT_FALSE(backlog[0].measured);
  EXPECT_EQ(backlog[0].core_s, 0);
  scheduler.worker_joined("w", {2}, {});
  campaign.take();
  campaign.succeed(campaign.leased.front().second);
  backlog = scheduler.backlog();
  EXPECT_TRUE(backlog[0].measured);
  EXPECT_NEAR(backlog[0].core_s, 0.7, 1e-9) << "seven of 0.1 s; of the last one nothing is known";
  EXPECT_NEAR(backlog[0].longest_s, 0.1, 1e-6);
  backlog = scheduler.backlog({{0, 30.0}});
  EXPECT_NEAR(backlog[0].core_s, 7 * 30.1, 1e-9) << "one has ended after 0.1 s, and another runs for 30 s";
}

}  // namespace
}  // namespace wflow::engine
