// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/staging.h"

#include <gtest/gtest.h>

#include <numeric>

namespace wflow::trainer {
namespace {

using Numbers = std::vector<std::size_t>;

TEST(Staging, GroupsAreHostsOrPartsOfThem) {
  const std::vector<std::string> hosts = {"a", "a", "b", "a", "b"};
  EXPECT_EQ(groups_of(hosts, 0), (Numbers{0, 0, 1, 0, 1}));
  EXPECT_EQ(groups_of(hosts, 2), (Numbers{0, 0, 1, 2, 1}));
  EXPECT_EQ(groups_of(hosts, 1), (Numbers{0, 1, 2, 3, 4}));
  EXPECT_EQ(groups_of(std::vector<std::string>{"a"}, 0), Numbers{0});
}

TEST(Staging, ShardsAreSpreadOverNodesFirst) {
  const Numbers two_nodes = {0, 0, 1, 1};
  EXPECT_EQ(owners_of(std::vector<std::uint64_t>{5, 5, 5, 5}, two_nodes), (Numbers{0, 2, 1, 3}));
  EXPECT_EQ(owners_of(std::vector<std::uint64_t>{9, 3, 3, 3}, two_nodes), (Numbers{0, 2, 3, 2}));
  EXPECT_EQ(owners_of(std::vector<std::uint64_t>{}, two_nodes), Numbers{});
}

TEST(Staging, ShardsOfEqualSizeAreSpreadEvenly) {
  const std::vector<std::uint64_t> shards(103, 512);
  Numbers groups(24);
  for (std::size_t rank = 0; rank < groups.size(); ++rank) groups[rank] = rank / 4;
  Numbers count(groups.size(), 0);
  for (const std::size_t owner : owners_of(shards, groups)) ++count[owner];
  EXPECT_EQ(std::accumulate(count.begin(), count.end(), std::size_t{0}), shards.size());
  for (const std::size_t shards_of_rank : count) {
    EXPECT_GE(shards_of_rank, 4U);
    EXPECT_LE(shards_of_rank, 5U);
  }
}

}  // namespace
}  // namespace wflow::trainer
