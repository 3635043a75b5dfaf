// SPDX-License-Identifier: Apache-2.0
#include "engine/usage/step_usage.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace wflow::engine {
namespace {

TaskUsage usage(std::uint64_t i) {
  TaskUsage used;
  used.lease = 77;
  used.array = 3;
  used.first = 1'000'000 + i + hash64(1, i) % 4;
  used.started_s = 1.76e9 + static_cast<double>(i) * 0.125;
  used.duration_s = 1.5 + 0.25 * unit_real(hash64(2, i));
  used.cpu_s = 2.5;
  used.peak_bytes = (800 << 20) + hash64(3, i) % (20 << 20);
  used.written_bytes = 34 << 20;
  return used;
}

void expect_same(const TaskUsage& read, const TaskUsage& written) {
  EXPECT_EQ(read.array, written.array);
  EXPECT_EQ(read.first, written.first);
  EXPECT_EQ(read.count, written.count);
  EXPECT_EQ(read.attempt, written.attempt);
  EXPECT_NEAR(read.started_s, written.started_s, 1e-3);
  EXPECT_NEAR(read.duration_s, written.duration_s, 1e-6);
  EXPECT_NEAR(read.cpu_s, written.cpu_s, 1e-6);
  EXPECT_NEAR(static_cast<double>(read.peak_bytes), static_cast<double>(written.peak_bytes), 1024);
  EXPECT_NEAR(static_cast<double>(read.read_bytes), static_cast<double>(written.read_bytes), 1024);
  EXPECT_NEAR(static_cast<double>(read.written_bytes), static_cast<double>(written.written_bytes), 1024);
}

TEST(UsageBlock, ReadsWhatWasAddedInFewBytes) {
  constexpr std::uint64_t kRecords = 128;
  UsageBlock block;
  for (std::uint64_t i = 0; i < kRecords; ++i) block.add(usage(i), i % 2 + 1);
  EXPECT_EQ(block.records(), kRecords);
  EXPECT_LE(block.bytes().size(), 24 * kRecords);  // the limit per task (issue 12)
  const auto records = UsageBlock::read(3, block.bytes());
  ASSERT_EQ(records.size(), kRecords);
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    expect_same(records[i].usage, usage(i));
    EXPECT_EQ(records[i].worker, i % 2 + 1);
  }
}

TEST(UsageBlock, KeepsBundlesAttemptsAndOrder) {
  TaskUsage bundle = usage(0);
  bundle.count = 1000;
  bundle.attempt = 2;
  bundle.read_bytes = 5 << 20;
  TaskUsage earlier = usage(1);
  earlier.first = 5;
  earlier.started_s = 12;
  UsageBlock block;
  block.add(bundle, 9);
  block.add(earlier, 9);
  EXPECT_EQ(block.first(), 5U);
  EXPECT_EQ(block.last(), bundle.first + 999);
  const auto records = UsageBlock::read(3, block.bytes());
  ASSERT_EQ(records.size(), 2U);
  expect_same(records[0].usage, bundle);
  expect_same(records[1].usage, earlier);
  EXPECT_EQ(records[1].worker, 9U);
}

TEST(UsageBlock, GivesWhatIsWholeOfDamagedBytes) {
  UsageBlock block;
  for (std::uint64_t i = 0; i < 10; ++i) block.add(usage(i), 1);
  for (std::size_t size = 0; size < block.bytes().size(); ++size)
    EXPECT_LT(UsageBlock::read(3, std::string_view(block.bytes()).substr(0, size)).size(), 10U);
}

TEST(StepUsage, ReadsWhatItWrote) {
  StepUsage step;
  for (std::uint64_t i = 0; i < 100; ++i) step.add(usage(i));
  EXPECT_EQ(StepUsage::from_bytes(step.bytes()), step);
  EXPECT_EQ(step.executions(), 100U);
  EXPECT_NEAR(step.cpu_s.sum(), 250, 1e-9);
  EXPECT_EQ(StepUsage::from_bytes("damaged").executions(), 0U);
}

}  // namespace
}  // namespace wflow::engine
