// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace wflow::trainer {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kThreeNodes = {"n1", "n1", "n2", "n2", "n3", "n3"};

// Six ranks on three nodes that compute for 2 s and wait for data for 0.2 s an epoch.
std::vector<RankTime> even() {
  return std::vector<RankTime>(6, {2, 0.2, 0.1, 100});
}

TEST(Stragglers, TheSlowestRankNamesItsNode) {
  std::vector<RankTime> ranks = even();
  ranks[5] = {2.9, 0.2, 0, 100};
  const std::vector<SlowNode> nodes = compare_nodes(ranks, kThreeNodes);
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[0].node, "n3");
  EXPECT_EQ(nodes[0].rank, 5U);
  EXPECT_DOUBLE_EQ(nodes[0].factor, 3.1 / 2.2);
  EXPECT_EQ(
      nodes[0].sentence(),
      "node n3 takes 1.4 times as long as the others (rank 5: 3.1 s of an epoch against 2.2 s, computing)");
  EXPECT_DOUBLE_EQ(nodes[1].factor, 1);
  ranks[5] = {2, 1.1, 0, 100};
  EXPECT_THAT(compare_nodes(ranks, kThreeNodes)[0].sentence(), HasSubstr("2.2 s, waiting for data)"));
}

// The waits for other ranks say nothing about the rank itself.
TEST(Stragglers, WaitsForOthersDoNotCount) {
  std::vector<RankTime> ranks = even();
  ranks[0].rank_wait = 50;
  EXPECT_DOUBLE_EQ(compare_nodes(ranks, kThreeNodes)[0].factor, 1);
}

TEST(Stragglers, OneNodeOrOneRank) {
  std::vector<RankTime> ranks = {{1, 0, 0, 10}, {1, 0, 0, 10}, {1.5, 0, 0, 10}};
  const std::vector<SlowNode> nodes = compare_nodes(ranks, std::vector<std::string>(3, "n1"));
  EXPECT_EQ(
      nodes[0].sentence(),
      "rank 2 of node n1 takes 1.5 times as long as the others (1.5 s of an epoch against 1 s, computing)");
  EXPECT_TRUE(compare_nodes(std::vector<RankTime>{{1, 0, 0, 10}}, std::vector<std::string>{"n1"}).empty());
  // Half of the ranks are slow: of two, the other one is the measure.
  const std::vector<RankTime> two = {{1, 0, 0, 10}, {3, 0, 0, 10}};
  EXPECT_DOUBLE_EQ(compare_nodes(two, std::vector<std::string>{"n1", "n2"})[0].factor, 3);
}

// A rank with twice the samples may take twice as long, and one with half of them is not slow by its fixed
// costs.
TEST(Stragglers, UnevenPartsAreNoSlowNodes) {
  std::vector<RankTime> ranks = even();
  ranks[5] = {4, 0.4, 0, 200};
  EXPECT_DOUBLE_EQ(compare_nodes(ranks, kThreeNodes)[0].factor, 1);
  ranks[5] = {1.3, 0.2, 0, 50};
  EXPECT_LT(compare_nodes(ranks, kThreeNodes)[0].factor, 1.01);
  ranks[5] = {9, 0.2, 0, 0};  // a rank without samples
  EXPECT_LT(compare_nodes(ranks, kThreeNodes)[0].factor, 1.01);
}

TEST(Stragglers, SaysEachNodeOnceAndAgainWhereItChanges) {
  SlowNodeNews finder(kThreeNodes);
  const auto with = [](double seconds) {
    std::vector<RankTime> ranks = even();
    ranks[4].computing = seconds;
    return ranks;
  };
  EXPECT_TRUE(finder.add(even()).empty());
  EXPECT_TRUE(finder.add(with(2.4)).empty());  // 2.6 / 2.2: below the threshold
  const auto first = finder.add(with(3));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].node.node, "n3");
  EXPECT_TRUE(finder.add(with(3.2)).empty());
  EXPECT_THAT(finder.add(with(6)).at(0).sentence(), HasSubstr("node n3 takes 2.8 times as long"));
  EXPECT_TRUE(finder.add(with(5.8)).empty());
  const auto recovered = finder.add(even());
  ASSERT_EQ(recovered.size(), 1U);
  EXPECT_EQ(recovered[0].sentence(), "node n3 is as fast as the others again");
  EXPECT_TRUE(finder.add(even()).empty());
  EXPECT_EQ(finder.add(with(3)).size(), 1U);
}

// Epochs of a few milliseconds are judged together.
TEST(Stragglers, JudgesASecondOfWork) {
  SlowNodeNews finder({"n1", "n2"});
  const std::vector<RankTime> ranks = {{0.15, 0, 0, 10}, {0.3, 0, 0, 10}};
  for (int epoch = 1; epoch <= 3; ++epoch) EXPECT_TRUE(finder.add(ranks).empty());
  const auto news = finder.add(ranks);
  ASSERT_EQ(news.size(), 1U);
  EXPECT_THAT(news[0].sentence(), HasSubstr("0.3 s of an epoch against 0.15 s"));
}

TEST(Stragglers, SpreadsGoThroughJson) {
  std::vector<RankTime> ranks = even();
  ranks[1].computing = 5;
  const RankTimes times = RankTimes::of(ranks, kThreeNodes);
  EXPECT_EQ(times.computing.least, 2);
  EXPECT_EQ(times.computing.median, 2);
  EXPECT_EQ(times.computing.most, 5);
  EXPECT_EQ(times.slowest, "node n1");
  EXPECT_THAT(times.slow, HasSubstr("node n1 takes 2.4 times as long"));
  EXPECT_EQ(RankTimes::of(even(), kThreeNodes).slow, "");
  const RankTimes back = RankTimes::from_json(times.to_json());
  EXPECT_EQ(back.to_json(), times.to_json());
  EXPECT_EQ(back.to_json()["slowest"]["rank"], 1);
  EXPECT_EQ(Spread::of({4, 1, 2, 3}).median, 2.5);
}

TEST(Stragglers, ReadsInjectedDelays) {
  const SlowRank slow = read_slow_rank("rank=2,seconds=0.05");
  EXPECT_EQ(slow.rank, 2);
  EXPECT_EQ(slow.seconds, 0.05);
  EXPECT_EQ(read_slow_rank("host=n3,seconds=1").host, "n3");
  EXPECT_TRUE(slow.sleeps(2, "n1", 7));
  EXPECT_FALSE(slow.sleeps(1, "n1", 7));
  EXPECT_TRUE(read_slow_rank("host=n3,seconds=1").sleeps(5, "n3", 0));
  const SlowRank some = read_slow_rank("seconds=0.2,share=0.02");
  int stalls = 0;
  for (int rank = 0; rank < 16; ++rank)
    for (std::int64_t step = 0; step < 1000; ++step) stalls += some.sleeps(rank, "n", step) ? 1 : 0;
  EXPECT_NEAR(stalls, 320, 60);
  for (const char* wrong : {"", "rank=1", "share=0.5", "seconds=1,share=2", "seconds=0", "rank=-1,seconds=1",
                            "rank=1,seconds=1,x=2"})
    EXPECT_THROW(read_slow_rank(wrong), Error) << wrong;
}

}  // namespace
}  // namespace wflow::trainer
