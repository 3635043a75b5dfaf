// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/blocks.h"

namespace wflow {
namespace {

using Starts = std::vector<std::uint64_t>;

TEST(Blocks, equal_without_places) {
  const Blocks blocks(64, {});
  EXPECT_EQ(blocks.count(0), 0U);
  EXPECT_EQ(blocks.count(1), 1U);
  EXPECT_EQ(blocks.count(200), 4U);
  EXPECT_EQ(blocks.block_of(63), 0U);
  EXPECT_EQ(blocks.block_of(64), 1U);
  EXPECT_EQ(blocks.items(3, 200).first, 192U);
  EXPECT_EQ(blocks.items(3, 200).end, 200U);
  EXPECT_EQ(blocks.items(4, 200).size(), 0U);
}

// The short last block of the first 200 stays unchanged when there are more.
TEST(Blocks, earlier_blocks_never_change) {
  const Starts starts{200, 201, 330};
  const Blocks grown(64, starts);
  for (std::uint64_t block = 0; block < 4; ++block) {
    EXPECT_EQ(grown.items(block, 1000).first, Blocks(64, {}).items(block, 200).first);
    EXPECT_EQ(grown.items(block, 1000).end, Blocks(64, {}).items(block, 200).end);
  }
  EXPECT_EQ(grown.items(4, 1000).first, 200U);
  EXPECT_EQ(grown.items(4, 1000).size(), 1U);
  EXPECT_EQ(grown.items(5, 1000).first, 201U);
  EXPECT_EQ(grown.count(200), 4U);
  EXPECT_EQ(grown.count(201), 5U);
}

// Compares with a list of all items.
TEST(Blocks, agree_with_a_walk_over_all_items) {
  for (const Starts& starts : {Starts{}, Starts{1}, Starts{5, 7}, Starts{3, 8, 9, 30}, Starts{12, 40}}) {
    for (const std::uint64_t size : {1, 2, 5, 8, 100}) {
      for (const std::uint64_t count : {1, 4, 9, 25, 31}) {
        const Blocks blocks(size, starts);
        std::vector<BlockRange> expected;
        for (std::uint64_t item = 0; item < count; ++item) {
          const bool begins = std::find(starts.begin(), starts.end(), item) != starts.end();
          if (expected.empty() || begins || expected.back().size() == size) expected.push_back({item, item});
          expected.back().end = item + 1;
          EXPECT_EQ(blocks.block_of(item), expected.size() - 1) << item << " of " << count << " by " << size;
        }
        EXPECT_EQ(blocks.count(count), expected.size());
        for (std::size_t block = 0; block < expected.size(); ++block) {
          const BlockRange found = blocks.items(block, count);
          EXPECT_EQ(found.first, expected[block].first);
          EXPECT_EQ(found.end, expected[block].end);
          for (std::uint64_t item = found.first; item < found.end; ++item) {
            EXPECT_EQ(blocks.around(item, count).first, found.first);
            EXPECT_EQ(blocks.around(item, count).end, found.end);
          }
        }
        EXPECT_EQ(blocks.items(expected.size(), count).size(), 0U);
      }
    }
  }
}

}  // namespace

namespace {

TEST(Permutation, IsABijectionForEverySmallCount) {
  for (std::uint64_t count = 1; count < 200; ++count) {
    const Permutation permutation(count, count * 7);
    std::vector<bool> seen(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t image = permutation(i);
      ASSERT_LT(image, count);
      ASSERT_FALSE(seen[image]);
      seen[image] = true;
    }
  }
}

TEST(Permutation, DependsOnTheKeyOnly) {
  const Permutation a(1000, 1);
  const Permutation b(1000, 2);
  int equal = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a(i), Permutation(1000, 1)(i));
    equal += a(i) == b(i);
  }
  EXPECT_LT(equal, 20);
}

TEST(Hash64, UnitRealsAreUniform) {
  double sum = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double u = unit_real(hash64(5, i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.01);
}

}  // namespace

}  // namespace wflow
