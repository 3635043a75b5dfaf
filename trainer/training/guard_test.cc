// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/guard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"

namespace wflow::trainer {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The loss of batches of a few samples: falling, with a spread of half its value.
double noisy(std::int64_t step) {
  return (0.1 + std::exp(-static_cast<double>(step) / 200)) *
         (0.5 + unit_real(hash64(5, static_cast<std::uint64_t>(step))));
}

TEST(Guard, QuietOnNoise) {
  Guard guard(GuardConfig{});
  for (std::int64_t step = 0; step < 20'000; ++step)
    EXPECT_EQ(guard.look_at_loss(step, noisy(step)), "") << step;
}

TEST(Guard, SeesSpikesAndWhatIsNotFinite) {
  Guard guard(GuardConfig{});
  EXPECT_NE(guard.look_at_loss(0, kNan), "");
  EXPECT_NE(guard.look_at_gradient(1, std::numeric_limits<double>::infinity()), "");
  EXPECT_NE(guard.look_at_gradient(1, 1e25), "");
  for (std::int64_t step = 2; step < 300; ++step) ASSERT_EQ(guard.look_at_loss(step, noisy(step)), "");
  EXPECT_NE(guard.look_at_loss(300, 30 * noisy(300)), "");
  EXPECT_EQ(guard.take_warning(), "");
  EXPECT_EQ(guard.look_at_loss(300, noisy(300)), "");  // gone after the rollback
  EXPECT_NE(guard.take_warning(), "");
  EXPECT_EQ(guard.take_note(), "");
}

// Noise-free regressions with small batches: the loss of a batch is that of its worst sample and falls by
// orders of magnitude.
TEST(Guard, QuietOnHeavyTails) {
  std::int64_t alarms = 0;
  for (std::uint64_t training = 0; training < 100; ++training) {
    Guard guard(GuardConfig{});
    for (std::int64_t step = 0; step < 2000; ++step) {
      const double u = unit_real(hash64(training, static_cast<std::uint64_t>(step)));
      const double tail = std::pow(1 - u, -0.2);
      alarms += !guard.look_at_loss(step, (1e-3 + std::exp(-static_cast<double>(step) / 100)) * tail).empty();
    }
  }
  EXPECT_LE(alarms, 1);
}

// The likelihood of a normal distribution goes below 0.
TEST(Guard, SeesSpikesOfNegativeLosses) {
  Guard guard(GuardConfig{});
  for (std::int64_t step = 0; step < 300; ++step) ASSERT_EQ(guard.look_at_loss(step, noisy(step) - 3), "");
  EXPECT_NE(guard.look_at_loss(300, 10), "");
}

TEST(Guard, WhatComesAgainIsTheTrainingsOwn) {
  Guard guard(GuardConfig{});
  for (std::int64_t step = 0; step < 300; ++step) ASSERT_EQ(guard.look_at_loss(step, noisy(step)), "");
  EXPECT_NE(guard.look_at_loss(300, 50.0), "");
  for (std::int64_t step = 290; step < 300; ++step) EXPECT_EQ(guard.look_at_loss(step, noisy(step)), "");
  EXPECT_EQ(guard.take_note(), "");
  EXPECT_EQ(guard.look_at_loss(300, 50.0), "");
  EXPECT_NE(guard.take_note(), "");
  EXPECT_EQ(guard.take_note(), "");
  // The limit, which rises with each false alarm, lies above it now.
  EXPECT_EQ(guard.take_warning(), "");
  // A different value each time raises another alarm.
  EXPECT_NE(guard.look_at_loss(301, 5000.0), "");
  EXPECT_NE(guard.look_at_loss(301, 7000.0), "");
  // A loss that is not finite twice is left to the caller.
  EXPECT_NE(guard.look_at_loss(302, kNan), "");
  EXPECT_EQ(guard.look_at_loss(302, kNan), "");
}

// A spike just above the limit lies below it once the limit has risen: the memory is sound.
TEST(Guard, AHardBatchIsNotTakenForFaultyMemory) {
  Guard guard(GuardConfig{});
  for (std::int64_t step = 0; step < 300; ++step) ASSERT_EQ(guard.look_at_loss(step, noisy(step)), "");
  double spike = 1;
  while (Guard(guard).look_at_loss(300, spike).empty()) spike *= 1.1;
  EXPECT_NE(guard.look_at_loss(300, spike), "");
  EXPECT_EQ(guard.look_at_loss(300, spike), "");
  EXPECT_NE(guard.take_note(), "");
  EXPECT_EQ(guard.take_warning(), "");
  EXPECT_EQ(guard.look_at_loss(300, spike), "");  // after another rollback
  EXPECT_EQ(guard.take_warning(), "");
}

TEST(Guard, SeesGradientsThatJump) {
  Guard guard(GuardConfig{});
  for (std::int64_t step = 0; step < 300; ++step)
    ASSERT_EQ(guard.look_at_gradient(step, 50 * noisy(step)), "");
  EXPECT_EQ(guard.look_at_gradient(300, 1e3), "");
  EXPECT_NE(guard.look_at_gradient(301, 1e9), "");
  EXPECT_EQ(guard.look_at_gradient(301, 1e9), "");  // comes again: the training is the cause
  std::vector<float> values(1000, -0.5F);
  EXPECT_EQ(largest_of(values), 0.5);
  values[999] = -3e38F;
  EXPECT_EQ(largest_of(values), static_cast<double>(3e38F));
  values[17] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(largest_of(values), std::numeric_limits<double>::infinity());
  EXPECT_EQ(largest_of({}), 0);
}

TEST(Guard, RanksThatDiffer) {
  EXPECT_TRUE(disagreeing({"a"}).empty());
  EXPECT_TRUE(disagreeing({"a", "a", "a"}).empty());
  EXPECT_EQ(disagreeing({"a", "b", "a"}), std::vector<int>({1}));
  EXPECT_EQ(disagreeing({"a", "b"}), std::vector<int>({0, 1}));
  EXPECT_EQ(disagreeing({"a", "a", "b", "b"}), std::vector<int>({0, 1, 2, 3}));
}

TEST(Guard, FlipsOneBitOfOneValue) {
  const BitFlip what = read_bit_flip("optimizer,step=12,bit=30,seed=4,rank=1");
  EXPECT_EQ(what.where, BitFlip::Where::optimizer);
  EXPECT_EQ(what.step, 12);
  EXPECT_EQ(what.rank, 1);
  std::vector<float> values(100, 0.5F);
  flip(what, values);
  std::size_t others = 0;
  for (const float value : values) others += value == 0.5F ? 0 : 1;
  EXPECT_EQ(others, 1U);
  flip(what, values);
  EXPECT_EQ(values, std::vector<float>(100, 0.5F));
  for (const char* wrong :
       {"", "disk", "weights,step", "weights,step=-1", "weights,bit=32", "weights,when=3"})
    EXPECT_THROW(read_bit_flip(wrong), Error) << wrong;
}

}  // namespace
}  // namespace wflow::trainer
