// SPDX-License-Identifier: Apache-2.0
#include "cli/view/display.h"

#include <gmock/gmock.h>

namespace wflow::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Epochs 1 to `epochs` of a metric whose value is the epoch.
engine::MetricCurve curve(const std::string& name, std::uint64_t epochs, specs::Element element = 0) {
  engine::MetricCurve made;
  made.element = element;
  made.task = "train/" + std::to_string(element);
  made.name = name;
  for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch)
    made.points.push_back({epoch, 10 * epoch, static_cast<double>(epoch)});
  return made;
}

engine::CampaignStatus status_of(std::vector<engine::MetricCurve> curves) {
  engine::CampaignStatus status;
  status.metrics = std::move(curves);
  return status;
}

class Lines : public testing::Test {
 protected:
  Lines() { lines_.take({}, 100, false); }
  std::vector<std::string> take(std::vector<engine::MetricCurve> curves, bool all = false) {
    return lines_.take(status_of(std::move(curves)), 60, all);
  }
  TrainingLines lines_;
};

TEST_F(Lines, NoEpochIsSkipped) {
  EXPECT_THAT(take({curve("train_loss", 4)}),
              ElementsAre("epoch 1: train_loss 1", "epoch 2: train_loss 2", "epoch 3: train_loss 3"));
  EXPECT_THAT(take({curve("train_loss", 6)}, true),
              ElementsAre("epoch 4: train_loss 4", "epoch 5: train_loss 5", "epoch 6: train_loss 6"));
  EXPECT_THAT(take({curve("train_loss", 6)}, true), IsEmpty());
}

TEST_F(Lines, AnEpochWhoseMetricsStillArriveWaits) {
  EXPECT_THAT(take({curve("train_loss", 1)}), IsEmpty());
  EXPECT_THAT(take({curve("train_loss", 1), curve("validation_loss", 1)}), IsEmpty());
  EXPECT_THAT(take({curve("train_loss", 1), curve("validation_loss", 1)}),
              ElementsAre("epoch 1: train_loss 1, validation_loss 1"));
}

TEST_F(Lines, TheLossesComeFirstAndALongLineIsCounted) {
  const std::vector<engine::MetricCurve> curves = {curve("a_metric_with_a_long_name", 1),
                                                   curve("learning_rate", 1), curve("train_loss", 1),
                                                   curve("validation_loss", 1)};
  EXPECT_THAT(take(curves, true), ElementsAre("epoch 1: train_loss 1, validation_loss 1, and 2 more"));
}

TEST_F(Lines, SeveralTrainingsSayWhichOne) {
  EXPECT_THAT(take({curve("train_loss", 1, 0), curve("train_loss", 2, 7)}, true),
              ElementsAre("train/0 epoch 1: train_loss 1", "train/7 epoch 1: train_loss 1",
                          "train/7 epoch 2: train_loss 2"));
}

TEST(TrainingLines, WhatWasThereBeforeIsNotGiven) {
  TrainingLines lines;
  EXPECT_THAT(lines.take(status_of({curve("train_loss", 5)}), 60, false), IsEmpty());
  EXPECT_THAT(lines.take(status_of({curve("train_loss", 6)}), 60, true),
              ElementsAre("epoch 6: train_loss 6"));
}

engine::CampaignStatus status_at(double seconds, std::uint64_t done) {
  engine::CampaignStatus status;
  status.name = "study";
  status.time_s = 1e9 + seconds;
  status.elapsed_s = seconds;
  engine::StepStatus& step = status.steps.emplace_back();
  step.name = "simulate";
  step.elements = 4096;
  step.counts[static_cast<std::size_t>(engine::ElementState::done)] = done;
  step.counts[static_cast<std::size_t>(engine::ElementState::blocked)] = 4096 - done;
  return status;
}

// The test's output is no terminal.
std::string printed(Display& display, const engine::CampaignStatus& status, bool last = false) {
  testing::internal::CaptureStdout();
  last ? display.finish(status) : display.show(status);
  return testing::internal::GetCapturedStdout();
}

TEST(Display, APipeGetsALineAtOnceAndOneAtLeastEveryHalfMinute) {
  Display display(false, Display::Interrupt::ends_campaign);
  EXPECT_EQ(printed(display, status_at(0, 0)), "[0 ms] 0 % done: simulate 0/4,096\n");
  EXPECT_EQ(printed(display, status_at(29, 10)), "");
  EXPECT_EQ(printed(display, status_at(30, 20)), "[30.0 s] 0 % done: simulate 20/4,096\n");
  EXPECT_EQ(printed(display, status_at(45, 410)), "[45.0 s] simulate: 410/4,096\n");
  EXPECT_EQ(printed(display, status_at(70, 411)), "");
  EXPECT_EQ(printed(display, status_at(75, 412)), "[1 min 15 s] 10 % done: simulate 412/4,096\n");
}

TEST(Display, ACampaignThatGoesOnHasTheTimeOfTheCommandBesideItsOwn) {
  Display display(false, Display::Interrupt::ends_campaign);
  printed(display, status_at(3600, 100));
  EXPECT_THAT(printed(display, status_at(3785, 4096), true),
              testing::HasSubstr("100 % done  1 h 03 min, 3 min 05 s of it in this command"));
}

TEST(Display, TheLastTasksAreCounted) {
  EXPECT_EQ(progress_line(status_at(0, 4055), 100), "98 % done: simulate 4,055/4,096");
  EXPECT_EQ(progress_line(status_at(0, 4095), 100), "1 of 4,096 tasks left: simulate 4,095/4,096");
}

TEST(Display, ProgressOfManyStepsFitsTheLine) {
  engine::CampaignStatus status = status_at(0, 5);
  status.steps.resize(30, status.steps[0]);
  const std::string line = progress_line(status, 60);
  EXPECT_LE(line.size(), 60U);
  EXPECT_THAT(line, testing::EndsWith(", ..."));
}

}  // namespace
}  // namespace wflow::cli
