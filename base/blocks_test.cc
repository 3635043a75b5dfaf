// SPDX-License-Identifier: Apache-2.0
#include "base/blocks.h"

#include <gtest/gtest.h>

#include <vector>

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

// The short last block of the first 200 stays as it is when there are more.
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

// Against a list of all items, one by one.
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
}  // namespace wflow
