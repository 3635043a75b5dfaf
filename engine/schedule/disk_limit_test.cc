// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/disk_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "engine/schedule/scheduler.h"

namespace wflow::engine {
namespace {

constexpr std::uint64_t kBlock = 4;
constexpr std::uint64_t kSize = 100;  // bytes of a sample

// simulate (array 0) and its conversion (array 1), which deletes what it reads.
std::vector<ArraySpec> simulations(std::uint64_t count, std::uint64_t limit_bytes, std::uint64_t bundle = 0) {
  ArraySpec simulate;
  simulate.count = count;
  simulate.bundle = bundle;
  ArraySpec data;
  data.count = (count + kBlock - 1) / kBlock;
  data.priority = 1;
  data.step = 1;
  data.deletes_input = true;
  data.max_disk_bytes = limit_bytes;
  data.edges = {{0, specs::EdgeKind::block, kBlock}};
  return {simulate, data};
}

// A worker with so many cores, and the files that there are.
class Campaign {
 public:
  Campaign(std::vector<ArraySpec> arrays, int cores) : scheduler_(std::move(arrays), 1) {
    scheduler_.start();
    scheduler_.worker_joined("w", {cores}, {});
  }

  // Leases, and answers about sizes, until nothing more follows.
  void take() {
    for (bool more = true; more;) {
      scheduler_.assign(now_s);
      Actions actions = scheduler_.take_actions();
      more = !actions.measurements.empty();
      for (const MeasureOutputs& wanted : actions.measurements) {
        ++measurements;
        scheduler_.outputs_measured(wanted.array, size_of(wanted.element));
      }
      for (const GrantLease& grant : actions.grants) {
        for (std::uint64_t i = 0; i < grant.lease.count; ++i) {
          Lease one = grant.lease;
          one.first += i;
          one.count = 1;
          leased.push_back(one);
          if (one.array == 0) files.insert(one.first);
        }
      }
    }
    most = std::max<std::uint64_t>(most, files.size());
  }
  void succeed(const Lease& lease) {
    if (lease.array == 1) {
      files.erase(files.lower_bound(lease.first * kBlock), files.lower_bound((lease.first + 1) * kBlock));
    }
    scheduler_.done({lease.id, lease.array, lease.first, 1, 0, 0.1, 0.01, 0});
  }
  void fail(const Lease& lease, int code) {
    Outcome outcome;
    outcome.lease = lease.id;
    outcome.array = lease.array;
    outcome.element = lease.first;
    outcome.exit_code = code;
    scheduler_.ended_badly(outcome, "w", now_s);
    scheduler_.saving();
    scheduler_.saved();
  }
  // To the end, or until nothing is leased any more.
  template <typename Fails>
  void run(Fails fails) {
    for (take(); !leased.empty(); take()) {
      const Lease lease = leased.front();
      leased.pop_front();
      fails(lease) ? fail(lease, 1) : succeed(lease);
    }
  }
  void run() {
    run([](const Lease&) { return false; });
  }

  std::optional<std::uint64_t> size_of(Element element) const {
    return files.contains(element) ? std::optional(kSize) : std::nullopt;
  }
  std::uint64_t total(ArrayId array, ElementState state) const {
    return scheduler_.states(array).total(state);
  }
  Scheduler& scheduler() { return scheduler_; }

  std::deque<Lease> leased;
  std::set<Element> files;
  std::uint64_t most = 0;
  int measurements = 0;
  double now_s = 1;

 private:
  Scheduler scheduler_;
};

TEST(DiskLimit, BlocksBeginAsFarAsThereIsRoom) {
  Campaign campaign(simulations(400, 3 * kBlock * kSize), 16);
  campaign.take();
  EXPECT_EQ(campaign.files.size(), kBlock) << "nothing was measured yet";
  EXPECT_EQ(campaign.scheduler().disk().held_back(0), 400 - kBlock);
  campaign.run();
  EXPECT_TRUE(campaign.scheduler().ended());
  EXPECT_TRUE(campaign.files.empty());
  EXPECT_LE(campaign.most, 3 * kBlock);
  EXPECT_GT(campaign.most, 2 * kBlock);
  EXPECT_FALSE(campaign.scheduler().take_disk_overrun());
}

TEST(DiskLimit, OneBlockAtATimeBelowTheSizeOfABlock) {
  Campaign campaign(simulations(40, kSize), 16);
  campaign.run();
  EXPECT_TRUE(campaign.scheduler().ended());
  EXPECT_EQ(campaign.most, kBlock);
  EXPECT_EQ(campaign.scheduler().take_disk_overrun(), kBlock * kSize);
  EXPECT_FALSE(campaign.scheduler().take_disk_overrun()) << "once";
}

TEST(DiskLimit, WithoutALimitNothingIsHeldBackNorMeasured) {
  Campaign campaign(simulations(40, 0), 64);
  campaign.take();
  EXPECT_EQ(campaign.files.size(), 40U);
  campaign.run();
  EXPECT_EQ(campaign.measurements, 0);
}

TEST(DiskLimit, FilesOfConversionsThatFailedStayAndCount) {
  Campaign campaign(simulations(40, 2 * kBlock * kSize), 16);
  campaign.run([](const Lease& lease) { return lease.array == 1 && lease.first < 2; });
  EXPECT_TRUE(campaign.scheduler().ended()) << "one block at a time then";
  EXPECT_EQ(campaign.files.size(), 2 * kBlock);
  EXPECT_EQ(campaign.most, 3 * kBlock);
  EXPECT_EQ(campaign.total(1, ElementState::failed), 2U);
  EXPECT_EQ(campaign.scheduler().disk().used_bytes(), 2 * kBlock * kSize);
}

// No conversion will free space: they run one block at a time, to the end.
TEST(DiskLimit, SimulationsOfCancelledConversionsRun) {
  Campaign campaign(simulations(40, kBlock * kSize), 16);
  campaign.scheduler().cancel(1, {3, 9});
  std::size_t most_at_once = 0;
  campaign.run([&](const Lease&) {
    most_at_once = std::max(most_at_once, campaign.leased.size() + 1);
    return false;
  });
  EXPECT_TRUE(campaign.scheduler().ended());
  EXPECT_EQ(campaign.total(0, ElementState::done), 40U);
  EXPECT_EQ(most_at_once, kBlock);
}

TEST(DiskLimit, HeldConversionsLeaveNothingThatCouldRun) {
  Campaign campaign(simulations(40, kBlock * kSize), 16);
  campaign.scheduler().hold_step(1, true);
  campaign.run();
  EXPECT_EQ(campaign.total(0, ElementState::done), kBlock);
  EXPECT_TRUE(campaign.scheduler().only_held_left());
  EXPECT_EQ(campaign.scheduler().backlog().front().cores, 0);
  campaign.scheduler().hold_step(1, false);
  campaign.run();
  EXPECT_TRUE(campaign.scheduler().ended());
}

TEST(DiskLimit, BundlesAreNotCut) {
  Campaign campaign(simulations(60, kSize, 3), 16);
  campaign.take();
  EXPECT_EQ(campaign.files.size(), 6U) << "two bundles have the first block";
  campaign.run();
  EXPECT_TRUE(campaign.scheduler().ended());
  EXPECT_LE(campaign.most, kBlock + 4);
}

TEST(DiskLimit, SizesAreMeasuredSeldomOnceTheyAreKnown) {
  Campaign campaign(simulations(4000, 100 * kBlock * kSize), 16);
  campaign.run();
  EXPECT_TRUE(campaign.scheduler().ended());
  EXPECT_LE(campaign.measurements, 34);
  EXPECT_GE(campaign.measurements, 32);
}

// The record of earlier coordinators decides which blocks have begun.
TEST(DiskLimit, GoesOnAfterARestart) {
  Scheduler scheduler(simulations(40, kBlock * kSize), 2);
  scheduler.restore_end(0, {0, 5}, ElementState::done);
  scheduler.restore_end(1, {0, 0}, ElementState::done);
  scheduler.start();
  scheduler.worker_joined("w", {16}, {});
  scheduler.assign(1);
  const Actions actions = scheduler.take_actions();
  std::set<Element> leased;
  for (const GrantLease& grant : actions.grants) {
    for (std::uint64_t i = 0; i < grant.lease.count; ++i) leased.insert(grant.lease.first + i);
  }
  EXPECT_EQ(leased, (std::set<Element>{6, 7})) << "the rest of the second block";
  ASSERT_EQ(actions.measurements.size(), 1U);
  EXPECT_EQ(actions.measurements[0].element, 4U) << "the first one was deleted";
}

// A worker that comes back holds what this coordinator would not have begun.
TEST(DiskLimit, LeasesOfAnEarlierCoordinatorCount) {
  Scheduler scheduler(simulations(40, kBlock * kSize), 2);
  scheduler.start();
  Lease held;
  held.id = 7;
  held.first = 9;
  held.count = 1;
  scheduler.worker_joined("w", {16}, {held});
  scheduler.handed_over("w");
  scheduler.assign(1);
  std::set<Element> leased;
  for (const GrantLease& grant : scheduler.take_actions().grants) {
    for (std::uint64_t i = 0; i < grant.lease.count; ++i) leased.insert(grant.lease.first + i);
  }
  EXPECT_EQ(leased, (std::set<Element>{8, 10, 11}));
}

TEST(DiskLimit, WhatWasDeletedIsMadeAgainForARetry) {
  Campaign campaign(simulations(16, kBlock * kSize), 16);
  campaign.run([](const Lease& lease) { return lease.array == 0 && lease.first == 6; });
  EXPECT_TRUE(campaign.scheduler().ended());
  EXPECT_EQ(campaign.total(1, ElementState::done), 4U);
  EXPECT_EQ(campaign.scheduler().retry_failed(0, {6, 6}), 1U);
  EXPECT_EQ(campaign.scheduler().take_made_again(), 3U);
  std::set<Element> again;
  campaign.run([&](const Lease& lease) {
    if (lease.array == 0) again.insert(lease.first);
    return false;
  });
  EXPECT_EQ(again, (std::set<Element>{4, 5, 6, 7}));
  EXPECT_TRUE(campaign.scheduler().ended());
  EXPECT_EQ(campaign.total(1, ElementState::done), 4U);
  EXPECT_EQ(campaign.scheduler().disk().used_bytes(), 0);
}

// The second block's conversion was cancelled when some of its simulations had run with the first one's
// bundles.
TEST(DiskLimit, ConversionsThatRunAgainDoNotHoldTheirOwnSimulations) {
  Campaign campaign(simulations(12, kSize, 3), 16);
  campaign.take();
  EXPECT_EQ(campaign.leased.size(), 6U);
  campaign.scheduler().cancel(0, {6, 11});
  campaign.scheduler().cancel(1, {1, 2});
  campaign.run();
  ASSERT_TRUE(campaign.scheduler().ended());
  campaign.scheduler().retry_failed({{0, {6, 11}}, {1, {1, 2}}});
  campaign.run();
  EXPECT_TRUE(campaign.scheduler().ended());
  EXPECT_EQ(campaign.total(0, ElementState::done), 12U);
  EXPECT_EQ(campaign.total(1, ElementState::done), 3U);
}

TEST(DiskLimit, WhatDoesNotRunBelowLeavesItAsItIs) {
  Campaign campaign(simulations(16, kBlock * kSize), 16);
  campaign.run();
  EXPECT_EQ(campaign.scheduler().run_again({{0, {6, 6}}}, false), 1U);
  EXPECT_EQ(campaign.scheduler().take_made_again(), 0U);
  campaign.run();
  EXPECT_TRUE(campaign.scheduler().ended());
}

}  // namespace
}  // namespace wflow::engine
