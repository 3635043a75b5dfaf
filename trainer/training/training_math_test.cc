// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/training/evaluation.h"
#include "trainer/training/report.h"
#include "trainer/training/schedule.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {
namespace {

TEST(Schedule, WarmsUpThenFallsToNothing) {
  ScheduleConfig schedule;
  schedule.warmup_epochs = 1;
  const auto at = [&](std::int64_t step) { return learning_rate_factor(schedule, step, 10, 5); };
  EXPECT_NEAR(at(0), 1.0 / 11, 1e-12);
  EXPECT_LT(at(9), 1);
  EXPECT_EQ(at(10), 1);
  EXPECT_NEAR(at(30), 0.5, 1e-12);
  EXPECT_LT(at(49), 0.01);
  for (std::int64_t step = 11; step < 50; ++step) EXPECT_LT(at(step), at(step - 1));
}

TEST(Schedule, OtherDecays) {
  ScheduleConfig schedule;
  schedule.decay = Decay::none;
  EXPECT_EQ(learning_rate_factor(schedule, 49, 10, 5), 1);
  schedule.decay = Decay::linear;
  schedule.final_factor = 0.5;
  EXPECT_NEAR(learning_rate_factor(schedule, 25, 10, 5), 0.75, 1e-12);
  schedule.decay = Decay::polynomial;
  schedule.power = 2;
  EXPECT_NEAR(learning_rate_factor(schedule, 25, 10, 5), 0.625, 1e-12);
  schedule.decay = Decay::step;
  schedule.step_epochs = {2, 4};
  schedule.step_factor = 0.1;
  EXPECT_EQ(learning_rate_factor(schedule, 19, 10, 5), 1);
  EXPECT_NEAR(learning_rate_factor(schedule, 20, 10, 5), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate_factor(schedule, 40, 10, 5), 0.01, 1e-12);
}

TEST(Loss, GradientsAreTheSlopes) {
  for (const LossName loss : {LossName::mse, LossName::mae, LossName::huber}) {
    for (const float x : {-3.0F, -0.5F, 0.25F, 2.0F}) {
      const std::vector<float> targets = {0.125F};
      std::vector<float> gradient(1);
      std::vector<float> ignored(1);
      loss_and_gradient(loss, std::vector<float>{x}, targets, 1, gradient);
      const float h = 1.0F / 1024;
      const double slope = (loss_and_gradient(loss, std::vector<float>{x + h}, targets, 1, ignored) -
                            loss_and_gradient(loss, std::vector<float>{x - h}, targets, 1, ignored)) /
                           (2 * h);
      EXPECT_NEAR(gradient[0], slope, 1e-3);
    }
  }
}

TEST(Evaluation, IsInPhysicalUnits) {
  const Normalisation normalisation = {{0}, {1}, {10, 0}, {2, 1}};
  const std::vector<float> outputs = {0, 0, 1, 1};
  const std::vector<double> truths = {12, 1, 12, 1};  // guessing the means errs by 2 and by 1
  const Evaluation result = evaluate(LossName::mse, {"a", "b"}, normalisation, outputs, truths);
  EXPECT_DOUBLE_EQ(result.targets[0].mae, 1);
  EXPECT_DOUBLE_EQ(result.targets[0].mse, 2);
  EXPECT_DOUBLE_EQ(result.targets[0].ratio(), 0.5);
  EXPECT_DOUBLE_EQ(result.targets[1].mae, 0.5);
  EXPECT_DOUBLE_EQ(result.loss, 0.5);
  EXPECT_DOUBLE_EQ(result.mean_ratio(), 0.5);
}

TEST(Report, CsvQuotesWhatNeedsIt) {
  EXPECT_EQ(predictions_csv({"a,b"}, {{0}, {1}, {10}, {2}}, std::vector<std::int64_t>{4},
                            std::vector<double>{0.1}, std::vector<float>{0.5}),
            "id,\"a,b\",\"a,b_predicted\"\n4,0.1,11\n");
}

TEST(TrainingState, GoesThroughACheckpointUnchanged) {
  const ModelGraph graph = build_model(default_model(ModelName::cosmoflow), {1, {8, 8, 8}}, 2);
  FlatState state(graph);
  state.fill_initial_values(3);
  Optimizer optimizer({}, state.parameters());
  for (float& g : state.gradients()) g = 0.25F;
  optimizer.step(state.values(), state.gradients(), 1e-3);
  TrainingCounters counters;
  counters.epoch = 2;
  counters.step = 11;
  counters.epoch_loss = 1.0 / 3;
  EpochRow row;
  row.epoch = 1;
  row.train_loss = 0.1;
  row.validation.targets.push_back({"a", 0.1, 0.2, 0.3});
  counters.history.push_back(row);
  const Normalisation normalisation = {{1.0 / 3}, {2}, {3, 4}, {5, 6}};
  const std::string bytes =
      encode_checkpoint(make_checkpoint(state, optimizer, counters, normalisation, {{"seed", "1"}}));

  FlatState state2(graph);
  Optimizer optimizer2({}, state2.parameters());
  TrainingCounters counters2;
  Normalisation normalisation2;
  restore_checkpoint(decode_checkpoint(bytes, "x"), state2, optimizer2, counters2, normalisation2);
  EXPECT_TRUE(std::equal(state.values().begin(), state.values().end(), state2.values().begin()));
  EXPECT_EQ(normalisation, normalisation2);
  EXPECT_EQ(optimizer2.steps(), 1);
  EXPECT_EQ(bytes, encode_checkpoint(
                       make_checkpoint(state2, optimizer2, counters2, normalisation2, {{"seed", "1"}})));
}

TEST(TrainingState, FingerprintNamesWhatDiffers) {
  TrainConfig config;
  config.data = "a";
  DatasetInfo data;
  data.hash = "h";
  const nlohmann::json before = fingerprint(config, data);
  config.data = "elsewhere";
  config.ranks = 4;
  config.threads = 2;
  config.checkpoint.keep = 9;
  EXPECT_EQ(fingerprint_differences(before, fingerprint(config, data)), "");
  config.model.width = 8;
  config.seed = 3;
  EXPECT_EQ(fingerprint_differences(before, fingerprint(config, data)),
            "'model.width' was 4 and is 8, 'seed' was 1 and is 3");
  data.hash = "i";
  EXPECT_THAT(fingerprint_differences(before, fingerprint(config, data)), testing::HasSubstr("data_hash"));
}

}  // namespace
}  // namespace wflow::trainer
