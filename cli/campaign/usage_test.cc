// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace wflow::cli {

namespace {

using engine::StepUsage;
using engine::wire::LostTime;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::int64_t kGiB = 1 << 30;

// `count` executions of the same size, and one that is larger.
StepUsage executions(int count, double seconds, double cores, std::uint64_t bytes) {
  StepUsage used;
  engine::TaskUsage usage;
  usage.duration_s = seconds;
  usage.cpu_s = seconds * cores;
  usage.peak_bytes = bytes;
  for (int i = 0; i < count; ++i) used.add(usage);
  return used;
}

std::vector<std::string> lines_of(const std::vector<Advice>& advice) {
  std::vector<std::string> lines;
  for (const Advice& one : advice) lines.push_back(one.line);
  return lines;
}

TEST(Advice, MemoryThatWasAskedForInVainIsGivenBack) {
  StepAsked asked;
  asked.memory_bytes = 8 * kGiB;
  const auto advice = step_advice(executions(100, 10, 1, 800 * kMiB), asked, {});
  // 1.5 times 800 MiB, in steps of 64.
  ASSERT_THAT(lines_of(advice), ElementsAre("memory: 1216 MiB"));
  EXPECT_THAT(sentence_of(advice[0]), HasSubstr("memory: asked 8.0 GiB, 95 % need"));
  EXPECT_THAT(sentence_of(advice[0]), HasSubstr("; write `memory: 1216 MiB`"));
}

TEST(Advice, WhatFitsIsLeftAlone) {
  StepAsked asked;
  asked.memory_bytes = 2 * kGiB;
  asked.timeout_s = 60;
  asked.cores = 2;
  EXPECT_THAT(step_advice(executions(100, 10, 1.8, 1100 * kMiB), asked, {}), IsEmpty());
  EXPECT_THAT(step_advice(StepUsage(), asked, {}), IsEmpty());
  // The study asks for nothing, and the tasks need little.
  EXPECT_THAT(step_advice(executions(100, 0.1, 1, 20 * kMiB), StepAsked(), {}), IsEmpty());
}

TEST(Advice, TasksThatWereKilledForMemoryNeedMore) {
  StepAsked asked;
  asked.memory_bytes = 2 * kGiB;
  const auto advice =
      step_advice(executions(100, 10, 1, 1900 * kMiB), asked, {{"simulate", "out_of_memory", 3, 30}});
  ASSERT_THAT(lines_of(advice), ElementsAre("memory: 4096 MiB"));
  EXPECT_THAT(advice[0].text, HasSubstr("3 executions killed for memory"));
  const auto without =
      step_advice(executions(100, 10, 1, 512 * kMiB), {}, {{"simulate", "out_of_memory", 1, 3}});
  EXPECT_THAT(lines_of(without), ElementsAre("memory: 768 MiB"));
}

TEST(Advice, CoresThatStandIdleAndCoresThatAreShort) {
  StepAsked asked;
  asked.cores = 8;
  EXPECT_THAT(lines_of(step_advice(executions(10, 60, 1.5, kMiB), asked, {})), ElementsAre("cores: 2"));
  asked.cores = 1;
  EXPECT_THAT(lines_of(step_advice(executions(10, 60, 3.5, kMiB), asked, {})), ElementsAre("cores: 4"));
  // The user chooses the number of processes: no line.
  asked.procs = 16;
  EXPECT_THAT(lines_of(step_advice(executions(10, 60, 2, kMiB), asked, {})), ElementsAre(""));
  // The CPU time of short tasks is the time to start them.
  asked = {};
  asked.cores = 8;
  EXPECT_THAT(step_advice(executions(10, 0.2, 0.5, kMiB), asked, {}), IsEmpty());
}

TEST(Advice, ATimeLimitFarAboveAndOneThatWasReached) {
  StepAsked asked;
  asked.timeout_s = 7200;
  EXPECT_THAT(lines_of(step_advice(executions(100, 60, 1, kMiB), asked, {})), ElementsAre("timeout: 3 min"));
  // Too few executions for an advice.
  EXPECT_THAT(step_advice(executions(3, 60, 1, kMiB), asked, {}), IsEmpty());
  asked.timeout_s = 90;
  EXPECT_THAT(lines_of(step_advice(executions(100, 60, 1, kMiB), asked, {{"simulate", "timed_out", 5, 450}})),
              ElementsAre("timeout: 3 min"));
}

TEST(Advice, AWalltimeOfWhichNoneUsedHalf) {
  engine::wire::AllocationView allocation;
  allocation.pool = "cpu";
  allocation.walltime_s = 4 * 3600;
  allocation.started_s = 1000;
  allocation.ended_s = 1000 + 3000;
  EXPECT_THAT(lines_of(walltime_advice({allocation})), ElementsAre("walltime: \"01:15:00\""));
  engine::wire::AllocationView used = allocation;
  used.ended_s = 1000 + 3 * 3600;
  EXPECT_THAT(walltime_advice({allocation, used}), IsEmpty());
  used.started_s = 0;  // it never began
  used.ended_s = 5;
  EXPECT_THAT(walltime_advice({used}), IsEmpty());
}

TEST(Histogram, CountsEveryPositiveValueOnce) {
  engine::QuantileSketch sketch;
  for (int i = 1; i <= 1000; ++i) sketch.add(i * 0.01);
  sketch.add(0);
  const auto bins = histogram(sketch, 16);
  ASSERT_EQ(bins.size(), 16U);
  const auto sum = [](std::uint64_t before, const HistogramBin& bin) { return before + bin.count; };
  EXPECT_EQ(std::accumulate(bins.begin(), bins.end(), std::uint64_t{0}, sum), 1000U);
  EXPECT_LE(bins.front().from, 0.01);
  EXPECT_GE(bins.back().to, 10);
  for (std::size_t i = 1; i < bins.size(); ++i) EXPECT_DOUBLE_EQ(bins[i].from, bins[i - 1].to);
  // Evenly spread values: each bin has as many as its width on the linear axis, the last one most.
  EXPECT_GT(bins[15].count, bins[8].count);
}

TEST(Histogram, EqualValuesAreOneBarInTheMiddle) {
  engine::QuantileSketch sketch;
  for (int i = 0; i < 5; ++i) sketch.add(3.0);
  Terminal terminal;
  terminal.unicode = true;
  const std::string bars = bars_of(histogram(sketch, 9), terminal);
  EXPECT_EQ(bars, "    █    ");
  terminal.unicode = false;
  EXPECT_EQ(bars_of(histogram(sketch, 9), terminal), "    #    ");
  EXPECT_THAT(histogram(engine::QuantileSketch(), 9), IsEmpty());
}

}  // namespace

}  // namespace wflow::cli
