// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shared_chunks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

namespace wflow::converters {
namespace {

using Found = SharedChunks::Found;

TEST(SharedChunks, OneFillsAndAllRead) {
  const auto own = SharedChunks::make(2, 100);
  ASSERT_NE(own, nullptr);
  const auto other = SharedChunks::open(own->name());
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(other->slots(), 2U);
  EXPECT_EQ(other->slot_bytes(), 100U);
  SharedChunks::Chunk filled;
  SharedChunks::Chunk read;
  ASSERT_EQ(own->take(7, 100, filled), Found::empty);
  ASSERT_EQ(filled.bytes().size(), 100U);
  EXPECT_EQ(other->take(7, 100, read), Found::busy);
  std::ranges::fill(filled.bytes(), std::uint8_t{5});
  filled.fill();
  ASSERT_EQ(other->take(7, 100, read), Found::decoded);
  EXPECT_EQ(std::ranges::count(read.bytes(), 5), 100);
  EXPECT_EQ(other->take(8, 101, read), Found::full) << "larger than a slot";
}

TEST(SharedChunks, TheLeastRecentGivesItsPlace) {
  const auto chunks = SharedChunks::make(2, 1);
  const auto fill = [&](std::uint64_t key) {
    SharedChunks::Chunk chunk;
    ASSERT_EQ(chunks->take(key, 1, chunk), Found::empty) << key;
    chunk.bytes()[0] = static_cast<std::uint8_t>(key);
    chunk.fill();
  };
  fill(1);
  fill(2);
  SharedChunks::Chunk first;
  ASSERT_EQ(chunks->take(1, 1, first), Found::decoded);
  fill(3);  // in the place of 2
  SharedChunks::Chunk more;
  EXPECT_EQ(chunks->take(2, 1, more), Found::empty) << "in the place of 3";
  SharedChunks::Chunk none;
  EXPECT_EQ(chunks->take(3, 1, none), Found::full) << "both are in use";
  EXPECT_EQ(first.bytes()[0], 1);
  first = std::move(more);
  EXPECT_EQ(chunks->take(3, 1, none), Found::empty);
}

TEST(SharedChunks, WhatIsNotFilledIsForgotten) {
  const auto chunks = SharedChunks::make(1, 1);
  SharedChunks::Chunk chunk;
  EXPECT_EQ(chunks->take(4, 1, chunk), Found::empty);
  chunk = SharedChunks::Chunk();
  EXPECT_EQ(chunks->take(4, 1, chunk), Found::empty);
}

TEST(SharedChunks, OtherProcessesOpenItByName) {
  const auto chunks = SharedChunks::make(1, 3);
  const std::string name = chunks->name();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto opened = SharedChunks::open(name);
    SharedChunks::Chunk chunk;
    if (!opened || opened->take(9, 3, chunk) != Found::empty) ::_exit(1);
    std::ranges::fill(chunk.bytes(), std::uint8_t{6});
    chunk.fill();
    ::_exit(SharedChunks::open(name + "1") ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  // The child ended with the chunk in its hands: it stays.
  SharedChunks::Chunk chunk;
  ASSERT_EQ(chunks->take(9, 3, chunk), Found::decoded);
  EXPECT_EQ(chunk.bytes()[2], 6);
  for (const char* wrong : {"", "1", "1/2", "x/1/2", "1/9999/5"})
    EXPECT_EQ(SharedChunks::open(wrong), nullptr) << wrong;
}

}  // namespace
}  // namespace wflow::converters
