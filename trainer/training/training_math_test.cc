// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/expression.h"
#include "base/random.h"
#include "trainer/data/roles.h"
#include "trainer/formula.h"
#include "trainer/model/layout.h"
#include "trainer/training/gradients.h"
#include "trainer/training/heads.h"
#include "trainer/training/objective.h"
#include "trainer/training/part_optimizers.h"
#include "trainer/training/prediction_file.h"
#include "trainer/training/rate_finder.h"
#include "trainer/training/report.h"
#include "trainer/training/scale_plan.h"
#include "trainer/training/step_plan.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {
namespace {

using ::testing::HasSubstr;

TEST(Schedule, WarmsUpThenFallsToNothing) {
  ScheduleConfig schedule;
  schedule.warmup_epochs = 1;
  const auto at = [&](double step) { return learning_rate_factor(schedule, {step, 10}, 5); };
  EXPECT_NEAR(at(0), 1.0 / 11, 1e-12);
  EXPECT_LT(at(9), 1);
  EXPECT_EQ(at(10), 1);
  EXPECT_NEAR(at(30), 0.5, 1e-12);
  EXPECT_LT(at(49), 0.01);
  for (double step = 11; step < 50; ++step) EXPECT_LT(at(step), at(step - 1));
}

TEST(Schedule, OtherDecays) {
  ScheduleConfig schedule;
  schedule.decay = Decay::none;
  EXPECT_EQ(learning_rate_factor(schedule, {49, 10}, 5), 1);
  schedule.decay = Decay::linear;
  schedule.final_factor = 0.5;
  EXPECT_NEAR(learning_rate_factor(schedule, {25, 10}, 5), 0.75, 1e-12);
  schedule.decay = Decay::polynomial;
  schedule.power = 2;
  EXPECT_NEAR(learning_rate_factor(schedule, {25, 10}, 5), 0.625, 1e-12);
  schedule.decay = Decay::step;
  schedule.step_epochs = {2, 4};
  schedule.step_factor = 0.1;
  EXPECT_EQ(learning_rate_factor(schedule, {19, 10}, 5), 1);
  EXPECT_NEAR(learning_rate_factor(schedule, {20, 10}, 5), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate_factor(schedule, {40, 10}, 5), 0.01, 1e-12);
}

TEST(Schedule, OneCycleRisesAndFalls) {
  ScheduleConfig schedule;
  schedule.decay = Decay::one_cycle;
  const auto at = [&](double step) { return learning_rate_factor(schedule, {step, 10}, 10); };
  EXPECT_NEAR(at(0), 0.04, 1e-12);
  EXPECT_NEAR(at(15), 0.52, 1e-12);
  EXPECT_NEAR(at(30), 1, 1e-12);
  EXPECT_NEAR(at(65), 0.5, 1e-12);
  EXPECT_LT(at(99), 0.01);
}

TEST(Schedule, APlateauLowersTheRateDownToALimit) {
  ScheduleConfig schedule;
  schedule.decay = Decay::plateau;
  schedule.step_factor = 0.5;
  schedule.final_factor = 0.2;
  const auto after = [&](std::int64_t plateaus) {
    return learning_rate_factor(schedule, {30, 10, plateaus}, 5);
  };
  EXPECT_EQ(after(0), 1);
  EXPECT_EQ(after(1), 0.5);
  EXPECT_EQ(after(2), 0.25);
  EXPECT_EQ(after(3), 0.2);
}

std::vector<EpochRow> epochs_with(const std::vector<double>& losses) {
  std::vector<EpochRow> rows(losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) rows[i].train_loss = losses[i];
  return rows;
}

TEST(Plateaus, CountEpochsWithoutABetterLoss) {
  EXPECT_EQ(plateaus_in(epochs_with({5, 4, 4}), {2, 0}), 0);
  EXPECT_EQ(plateaus_in(epochs_with({5, 4, 4, 4}), {2, 0}), 1);
  // The next plateau begins after the first; the best loss stays the one to beat.
  EXPECT_EQ(plateaus_in(epochs_with({5, 4, 4, 4, 4.5}), {2, 0}), 1);
  EXPECT_EQ(plateaus_in(epochs_with({5, 4, 4, 4, 4.5, 4.2}), {2, 0}), 2);
  EXPECT_EQ(plateaus_in(epochs_with({5, 4, 4, 4, 3, 4.2}), {2, 0}), 1);
  // 3.9 is lower by less than a tenth of 4.
  EXPECT_EQ(plateaus_in(epochs_with({5, 4, 3.9, 3.9}), {2, 0.1}), 1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(plateaus_in(epochs_with({5, nan, nan}), {2, 0}), 1);
}

TEST(StepPlan, OfOneBatchIsTheSameInEveryEpoch) {
  const StepPlan plan({1, 100, 8, 0, 1}, {}, 4);
  EXPECT_EQ(plan.total_steps(), 52);
  EXPECT_EQ(plan.first_step(3), 39);
  const SchedulePoint point = plan.point({2, 5}, 0);
  EXPECT_EQ(point.step, 31);
  EXPECT_EQ(point.steps_per_epoch, 13);
}

TEST(StepPlan, ABatchGrowsAtItsEpochs) {
  ScheduleConfig schedule;
  schedule.batch_epochs = {2, 3, 9};
  schedule.batch_factor = 4;
  const StepPlan plan({1, 100, 8, 0, 1}, schedule, 5);
  EXPECT_EQ(plan.order_in(1).batch, 8U);
  EXPECT_EQ(plan.order_in(2).batch, 32U);
  EXPECT_EQ(plan.order_in(4).batch, 100U);  // no more than all samples
  EXPECT_EQ(plan.growth(1), 1);
  EXPECT_EQ(plan.growth(2), 4);
  EXPECT_EQ(plan.growth(4), 13);
  EXPECT_EQ(plan.total_steps(), 13 + 13 + 4 + 1 + 1);
  // Every step has one place, and every place one step.
  for (std::int64_t step = 0; step < plan.total_steps(); ++step) {
    const StepPlan::Place place = plan.place(step);
    EXPECT_LT(place.step_of_epoch, plan.steps(place.epoch));
    EXPECT_EQ(plan.first_step(place.epoch) + place.step_of_epoch, step);
  }
  // The schedule of the rate goes by epochs: half of epoch 2 is 2.5 epochs.
  EXPECT_EQ(plan.point({2, 2}, 0).step, 2.5 * 13);
}

TEST(StepPlan, TheRateStaysWhereTheBatchGrows) {
  TrainConfig config;
  config.batch = 8;
  config.optimizer.reference_batch = 4;
  config.optimizer.learning_rate = 0.5;
  config.schedule.decay = Decay::none;
  config.schedule.batch_epochs = {2};
  const StepPlan plan({1, 100, 8, 0, 1}, config.schedule, 5);
  EXPECT_EQ(learning_rate(config, plan.point({0, 0}, 0)), 1);
  EXPECT_EQ(learning_rate(config, plan.point({3, 0}, 0)), 1);
}

TEST(NoiseScale, OfKnownGradientsIsExact) {
  // True gradient of square 4, trace 60: a batch of b has the expected square 4 + 60 / b.
  NoiseSums sums;
  sums.add({4 + 60.0 / 8, 1.0 / 8}, 4 + 60.0 / 32, 32);
  ASSERT_TRUE(sums.scale().has_value());
  EXPECT_NEAR(*sums.scale(), 15, 1e-9);
  const NoiseSums again = NoiseSums::from_json(sums.to_json());
  EXPECT_EQ(again.scale(), sums.scale());
  EXPECT_EQ(again.count, 1);
}

TEST(NoiseScale, HasNoValueWhereNothingWasMeasured) {
  NoiseSums sums;
  EXPECT_FALSE(sums.scale().has_value());
  sums.add({5, 1.0 / 32}, 4, 32);  // both batches are the same
  sums.add({std::numeric_limits<double>::infinity(), 1.0 / 8}, 4, 32);
  EXPECT_EQ(sums.count, 0);
  sums.add({1, 1.0 / 8}, 4, 32);  // the trace would be negative
  EXPECT_EQ(sums.count, 1);
  EXPECT_FALSE(sums.scale().has_value());
}

SmallRun small_run(OptimizerName name, double warmup_epochs) {
  SmallRun run;
  run.config.optimizer.name = name;
  run.config.optimizer.learning_rate = 0.01;
  run.config.batch = 10;
  run.config.schedule.warmup_epochs = warmup_epochs;
  return run;
}

TEST(ScaledRun, FollowsTheBatchFarBelowTheNoiseScale) {
  const ScaledRun sgd = scaled_run(small_run(OptimizerName::sgd, 0), 1e7, 40, 36);
  EXPECT_NEAR(sgd.learning_rate, 0.04, 1e-6);
  EXPECT_NEAR(sgd.warmup_epochs, 2, 1e-12);  // 5 of 90 epochs
  const ScaledRun adam = scaled_run(small_run(OptimizerName::adamw, 0), 1e7, 40, 36);
  EXPECT_NEAR(adam.learning_rate, 0.02, 1e-6);
  EXPECT_EQ(adam.warmup_epochs, 0);  // the rate does not more than double
}

TEST(ScaledRun, FollowsNothingFarAboveIt) {
  const ScaledRun run = scaled_run(small_run(OptimizerName::sgd, 1), 1e-3, 40, 36);
  EXPECT_NEAR(run.learning_rate, 0.01, 1e-6);
  EXPECT_EQ(run.warmup_epochs, 4);  // as many steps
  EXPECT_EQ(scaled_run(small_run(OptimizerName::sgd, 1), 1e-3, 4000, 36).warmup_epochs, 9);
}

TEST(ScaledRun, AtTheNoiseScaleTakesTwiceTheStepsAndTheSamples) {
  const ScaledRun run = scaled_run(small_run(OptimizerName::sgd, 0), 90, 90, 36);
  EXPECT_EQ(run.steps, 2);
  EXPECT_EQ(run.samples, 2);
  EXPECT_NEAR(run.learning_rate, 0.05, 1e-12);  // (1 + 9) / (1 + 1)
}

TEST(ScaledRun, BeginsWithTheRateThatTheSmallRunHad) {
  SmallRun run = small_run(OptimizerName::sgd, 0);
  run.config.optimizer.reference_batch = 5;
  EXPECT_NEAR(scaled_run(run, 90, 10, 36).learning_rate, 0.02, 1e-12);
}

// The value of a formula and its derivatives by every name, which are compared with differences.
double checked(const char* text, const std::vector<double>& values) {
  const Formula formula(text);
  Formula::Scratch scratch;
  std::vector<double> slopes(values.size());
  std::vector<double> ignored(values.size());
  const double value = formula.evaluate(values, slopes, scratch);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::vector<double> moved = values;
    moved[i] += 1e-6;
    const double more = formula.evaluate(moved, ignored, scratch);
    moved[i] -= 2e-6;
    const double less = formula.evaluate(moved, ignored, scratch);
    EXPECT_NEAR(slopes[i], (more - less) / 2e-6, 1e-5 * (1 + std::abs(slopes[i]))) << text << " name " << i;
  }
  return value;
}

TEST(Formula, HasValuesAndDerivatives) {
  EXPECT_EQ(checked("1 + 2 * 3", {}), 7);
  EXPECT_EQ(checked("(1 + 2) * 3 - 4 / 8", {}), 8.5);
  EXPECT_EQ(checked("-2 ^ 2", {}), -4);
  EXPECT_EQ(checked("2 ^ 3 ^ 2", {}), 512);
  EXPECT_EQ(checked("2^-1 + 1.5e1 + .5E-0", {}), 16);
  EXPECT_EQ(checked("a - b - a", {3, 5}), -5);
  EXPECT_EQ(checked("a / b / 2 * a", {3, 5}), 3 / 5.0 / 2 * 3);
  EXPECT_EQ(checked("abs(a) * min(a, b) + max(a, 2 * b)", {-3, 5}), 1);
  EXPECT_NEAR(checked("exp(-a^2) + log(b) + sqrt(a * b) - tanh(a - b)", {0.5, 2}),
              std::exp(-0.25) + std::log(2) + 1 + std::tanh(1.5), 1e-12);
  EXPECT_NEAR(checked("(a - b)^2 + a ^ b", {1.5, 2.5}), 1 + std::pow(1.5, 2.5), 1e-12);
}

TEST(Formula, RefusesWhatItCannotRead) {
  const auto error = [](const std::string& text) {
    try {
      target_formula(text, "loss");
    } catch (const ExpressionError& error) {
      return fmt::format("{}: {}", error.offset, error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(error("prediction - target"), "none");
  EXPECT_EQ(error("abs(prediction.a) * target.b"), "none");
  EXPECT_THAT(error("prediction -"), HasSubstr("12: a number, a name or '(' is expected"));
  EXPECT_THAT(error("(prediction"), HasSubstr("11: ')' is expected"));
  EXPECT_THAT(error("prediction target"), HasSubstr("11: an operator"));
  EXPECT_THAT(error("max(prediction)"), HasSubstr("14: ',' is expected"));
  EXPECT_THAT(error("cube(prediction)"), HasSubstr("0: 'cube' is no function"));
  EXPECT_THAT(error("prediction + 1.2.3"), HasSubstr("13: this is no number"));
  EXPECT_THAT(error("prediction - truth"), HasSubstr("13: 'truth' is unknown"));
  EXPECT_THAT(error("target ^ 2"), HasSubstr("does not depend on the prediction"));
  EXPECT_THAT(error("prediction - target.a"), HasSubstr("either of each 'prediction' by itself"));
  EXPECT_THAT(error(std::string(200, '(') + "prediction"), HasSubstr("too many parentheses"));
  EXPECT_THAT(error(std::string(200, '-') + "prediction"), HasSubstr("too many signs"));
}

// Losses 1 up to a rate of 1e-3, then falling to 0.2 at 1e-1, then rising tenfold a decade.
RateCurve range_test(std::size_t trials) {
  RateCurve curve;
  for (std::size_t i = 0; i < trials && !curve.diverged(); ++i) {
    const double exponent = -6 + static_cast<double>(i) / 10;
    const double fall = std::clamp((exponent + 3) / 2, 0.0, 1.0);
    const double rise = std::max(0.0, exponent + 1);
    curve.add(std::pow(10, exponent), (1 - 0.8 * fall) * std::pow(10, rise));
  }
  return curve;
}

TEST(RateCurve, SuggestsWhereTheLossFalls) {
  const RateCurve curve = range_test(100);
  EXPECT_TRUE(curve.diverged());
  ASSERT_TRUE(curve.halfway().has_value());
  EXPECT_GT(*curve.halfway(), 1e-3);
  EXPECT_LT(*curve.halfway(), 2e-1);
  ASSERT_TRUE(curve.tenth_of_divergence().has_value());
  EXPECT_GT(*curve.tenth_of_divergence(), 1e-1);
  EXPECT_EQ(curve.suggested(), curve.halfway());
}

TEST(RateCurve, WithoutADivergenceGoesByTheDescent) {
  const RateCurve curve = range_test(45);
  EXPECT_FALSE(curve.diverged());
  EXPECT_FALSE(curve.tenth_of_divergence().has_value());
  EXPECT_EQ(curve.suggested(), curve.halfway());
}

TEST(RateCurve, ScatterIsNoDescent) {
  RateCurve curve;
  for (int i = 0; i < 60; ++i) curve.add(std::pow(10, i / 15.0), i % 2 == 0 ? 1 : 1.5);
  EXPECT_FALSE(curve.diverged());
  EXPECT_FALSE(curve.suggested().has_value());
}

TEST(RateCurve, OfALossThatOnlyRisesHasATenthOfTheDivergence) {
  RateCurve curve;
  for (double loss = 1, rate = 1e-3; !curve.diverged(); loss *= 2, rate *= 2) curve.add(rate, loss);
  EXPECT_FALSE(curve.halfway().has_value());
  EXPECT_EQ(*curve.suggested(), curve.trials().back().rate / 10);
}

TEST(RateCurve, NoNumberIsADivergence) {
  RateCurve curve;
  curve.add(1e-3, 1);
  curve.add(1e-2, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(curve.diverged());
  EXPECT_THAT(curve.plot(), HasSubstr(" >"));
  EXPECT_THAT(curve.csv(), HasSubstr("1,0.001,1,1\n"));
}

float wave(std::size_t i) {
  return static_cast<float>(std::sin(1.7 * static_cast<double>(i) + 0.3));
}

// Compares gradients with differences of the loss, for every output of two samples.
void expect_slopes(const Objective& objective, const std::vector<float>& truths) {
  std::vector<float> outputs(2 * objective.all_output_count());
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] = 2 * wave(i);
  std::vector<float> gradient(outputs.size());
  std::vector<float> ignored(outputs.size());
  objective.loss_and_gradient(outputs, truths, 2, 0.5, gradient);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const float h = 1.0F / 1024;
    std::vector<float> moved = outputs;
    moved[i] = outputs[i] + h;
    const double more = objective.loss_and_gradient(moved, truths, 2, 1, ignored);
    moved[i] = outputs[i] - h;
    const double less = objective.loss_and_gradient(moved, truths, 2, 1, ignored);
    EXPECT_NEAR(gradient[i], 0.5 * (more - less) / (2 * h), 1e-3)
        << name_of(objective.name()) << " output " << i;
  }
}

TEST(Loss, GradientsAreTheSlopes) {
  TargetShape numbers;
  numbers.labels = {"a", "b", "c"};
  const std::vector<float> truths = {0.125F, -3, 0.5F, 4, 0.25F, -0.75F};
  for (const LossName name :
       {LossName::mse, LossName::mae, LossName::huber, LossName::gaussian, LossName::quantile}) {
    LossConfig config;
    config.name = name;
    config.delta = 0.7;
    expect_slopes(Objective(config, numbers), truths);
  }
  LossConfig mixture;
  mixture.name = LossName::mixture;
  for (const std::int64_t components : {1, 2, 5}) {
    mixture.components = components;
    expect_slopes(Objective(mixture, numbers), {0.125F, -0.5F, 0.5F, 1, 0.25F, -0.75F});
  }
  TargetShape cells;
  cells.labels = {"kind"};
  cells.cells = 5;
  cells.classes = 3;
  for (const LossName name : {LossName::cross_entropy, LossName::dice, LossName::focal}) {
    LossConfig config;
    config.name = name;
    expect_slopes(Objective(config, cells), {0, 1, 2, 1, 1, 2, 2, 0, 0, 1});
    config.class_weights = {0.25, 1, 4};
    expect_slopes(Objective(config, cells), {0, 1, 2, 1, 1, 2, 2, 0, 0, 1});
  }
  TargetShape variational;
  variational.labels = {"x"};
  variational.cells = 4;
  variational.latent = 3;
  LossConfig config;
  config.kl_weight = 0.3;
  expect_slopes(Objective(config, variational), {1, 2, 3, 4, 5, 6, 7, 8});
}

std::vector<double> values_of_a_density(std::size_t components, std::size_t numbers) {
  std::vector<double> values(MixtureDensity::value_count(components, numbers));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = wave(i);
  return values;
}

TEST(MixtureDensity, IntegratesToOneWithItsMeanAndDeviations) {
  const MixtureDensity density(values_of_a_density(3, 2), 3, 2);
  const double step = 0.05;
  double sum = 0;
  std::vector<double> mean(2, 0.0);
  std::vector<double> square(2, 0.0);
  double below = 0;
  for (double x = -15; x < 15; x += step) {
    for (double y = -15; y < 15; y += step) {
      const std::vector<double> at = {x + step / 2, y + step / 2};
      const double share = std::exp(density.log_density(at)) * step * step;
      sum += share;
      for (std::size_t i = 0; i < 2; ++i) {
        mean[i] += share * at[i];
        square[i] += share * at[i] * at[i];
      }
      if (y < 0.3 - step / 2) below += share;
    }
  }
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_NEAR(density.below(1, 0.3), below, 1e-3);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(density.mean()[i], mean[i], 1e-6);
    EXPECT_NEAR(density.mean()[i], wave(i), 1e-6) << "the first values are the mean";
    EXPECT_NEAR(density.deviations()[i], std::sqrt(square[i] - mean[i] * mean[i]), 1e-3);
  }
}

TEST(MixtureDensity, DrawsHaveItsMomentsAndCorrelation) {
  // One component: L = [[2, 0], [1, 0.5]], and so the covariance (L L^T)^-1 = [[1.25, -2], [-2, 4]].
  const std::vector<double> values = {1, -2, 0, 0, 0, std::log(2.0), std::log(0.5), 1};
  const MixtureDensity density(values, 1, 2);
  EXPECT_NEAR(density.deviations()[0], std::sqrt(1.25), 1e-6);
  EXPECT_NEAR(density.deviations()[1], 2, 1e-6);
  double covariance = 0;
  std::vector<double> mean(2, 0.0);
  constexpr std::size_t kDraws = 40000;
  for (std::size_t n = 0; n < kDraws; ++n) {
    const std::vector<double> normal = {normal_real(1, 2 * n), normal_real(1, 2 * n + 1)};
    const std::vector<double> y = density.draw(0.5, normal);
    for (std::size_t i = 0; i < 2; ++i) mean[i] += y[i] / kDraws;
    covariance += (y[0] - 1) * (y[1] + 2) / kDraws;
  }
  EXPECT_NEAR(mean[0], 1, 0.03);
  EXPECT_NEAR(mean[1], -2, 0.05);
  EXPECT_NEAR(covariance, -2, 0.08);
}

TEST(MixtureDensity, TheFirstDrawnComponentIsThatOfTheWeight) {
  const std::vector<double> values = {0, std::log(0.25), std::log(0.75), -10, 10, 5, 5};
  const MixtureDensity density(values, 2, 1);
  const std::vector<double> none = {0};
  EXPECT_NEAR(density.draw(0.24, none)[0], density.mean_of(0)[0], 1e-12);
  EXPECT_NEAR(density.draw(0.26, none)[0], density.mean_of(1)[0], 1e-12);
  EXPECT_NEAR(density.mean_of(1)[0] - density.mean_of(0)[0], 20, 1e-6);
  EXPECT_NEAR(density.mean()[0], 0, 1e-6);
}

TEST(MixtureDensity, KeepsItsProbabilitiesInOtherUnits) {
  const std::vector<double> values = values_of_a_density(4, 3);
  const MixtureDensity density(values, 4, 3);
  OutputUnits units;
  units.mean = {10, -3, 0.5};
  units.deviation = {2, 0.125, 100};
  units.use_density(4);
  std::vector<double> physical;
  for (std::size_t i = 0; i < values.size(); ++i)
    physical.push_back(values[i] * units.deviation[i] + units.mean[i]);
  const MixtureDensity scaled(physical, 4, 3);
  const std::vector<double> y = {0.3, -0.2, 0.9};
  const std::vector<double> at = {10.6, -3.025, 90.5};
  EXPECT_NEAR(scaled.log_density(at), density.log_density(y) - std::log(2 * 0.125 * 100), 1e-4);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(scaled.below(i, at[i]), density.below(i, y[i]), 1e-5);
    EXPECT_NEAR(scaled.deviations()[i] / (density.deviations()[i] * units.deviation[i]), 1, 1e-5);
  }
}

TEST(Loss, OfADensityNeedsAllTargets) {
  TargetShape shape;
  shape.labels = {"a", "b"};
  LossConfig config;
  config.name = LossName::mixture;
  config.components = 2;
  const Objective objective(config, shape);
  EXPECT_EQ(objective.terms(), 1U);
  std::vector<float> gradient(objective.output_count(), 1.0F);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(objective.loss_and_gradient(gradient, std::vector<float>{1, nan}, 1, 1, gradient), 0);
  EXPECT_THAT(gradient, testing::Each(0.0F));
}

TEST(Loss, OfAFormula) {
  TargetShape shape;
  shape.labels = {"a", "b"};
  shape.cells = 2;
  LossConfig config;
  config.name = LossName::formula;
  const std::vector<float> truths = {0.125F, -3, 0.5F, 4, 0.25F, -0.75F, 2, 1.5F};
  for (const char* formula :
       {"abs(prediction - target)^1.5 + 0.1 * prediction^2", "exp(0.5 * prediction) - target",
        "(prediction.a - target.a)^2 + (prediction.a * prediction.b - target.b)^2"}) {
    config.formula = formula;
    expect_slopes(Objective(config, shape), truths);
  }
  // The mean of a formula of two targets is that of the formula, and padding counts nowhere.
  config.formula = "prediction.a + 2 * prediction.b";
  const Objective joint(config, shape);
  std::vector<float> gradient(4);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> outputs = {1, 2, 3, 4};
  EXPECT_EQ(joint.loss_and_gradient(outputs, std::vector<float>(4, 0.0F), 1, 1, gradient) / joint.terms(),
            (1 + 6 + 2 + 8) / 2.0);
  EXPECT_EQ(gradient, (std::vector<float>{2, 2, 4, 4}));
  EXPECT_EQ(
      joint.loss_and_gradient(outputs, std::vector<float>{0, nan, 0, nan}, 1, 1, gradient) / joint.terms(),
      7);
  EXPECT_EQ(gradient, (std::vector<float>{4, 0, 8, 0}));
  config.formula = "prediction.a - target.c";
  EXPECT_THROW(Objective(config, shape), Error);
}

TEST(Metric, OfTheUserIsAMeanOfPhysicalValues) {
  TargetShape shape;
  shape.labels = {"a", "b"};
  shape.cells = 2;
  const std::vector<MetricConfig> metrics = {{"relative", "abs(prediction - target) / target"},
                                             {"product", "prediction.a * target.b"}};
  const Objective objective({}, shape, metrics);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // Two samples, [target, cell] each; normalised values are physical ones over 10.
  const std::vector<float> outputs = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> truths = {2, 1, 3, nan, 4, nan, 5, 8};
  std::vector<double> records;
  const auto physical = [](double value, std::size_t) { return 10 * value; };
  objective.record(outputs, truths, 2, records, physical);
  ASSERT_EQ(records.size(), 2 * objective.record_size());
  const Evaluation result = evaluate(objective, std::vector<double>{1, 1}, records);
  using Named = std::vector<NamedMetric>;
  // a: 1/2, 1, 1/4; b: 0, 2/5, 0. The cells that have truths of a and b: 10 * 30 and 50 * 50.
  EXPECT_EQ(result.targets[0].more, (Named{{"relative", 1.75 / 3}, {"product", (300 + 2500) / 2.0}}));
  EXPECT_EQ(result.targets[1].more, (Named{{"relative", 0.4 / 3}}));
  const std::vector<std::string> own = {"relative", "product"};
  const auto value = [&](const char* name) { return metric_of(result, own_metric_named(name, own).value()); };
  EXPECT_DOUBLE_EQ(value("relative").value(), (1.75 + 0.4) / 6);
  EXPECT_DOUBLE_EQ(value("relative/b").value(), 0.4 / 3);
  EXPECT_DOUBLE_EQ(value("product").value(), 1400);
  EXPECT_EQ(own_metric_named("other", own), std::nullopt);
  EXPECT_EQ(own_metric_named("relative/", own), std::nullopt);
  EXPECT_FALSE(own_metric_named("relative", own)->larger_is_better());
  // A division by 0 is no value.
  std::vector<double> zero;
  objective.record(std::vector<float>(4, 1), std::vector<float>(4, 0), 1, zero, physical);
  EXPECT_EQ(evaluate(objective, std::vector<double>{1, 1}, zero).targets[1].more, (Named{{"relative", {}}}));
  EXPECT_THROW(Objective({}, shape, std::vector<MetricConfig>{{"m", "prediction.c"}}), Error);
}

TEST(Loss, KnownValues) {
  std::vector<float> gradient(4);
  TargetShape two;
  two.labels = {"kind"};
  two.classes = 2;
  LossConfig config;
  config.name = LossName::cross_entropy;
  // Equal outputs: each class has probability 1/2.
  EXPECT_NEAR(Objective(config, two)
                  .loss_and_gradient(std::vector<float>{3, 3}, std::vector<float>{1}, 1, 1,
                                     std::span(gradient).first(2)),
              std::log(2.0), 1e-6);
  // A perfect segmentation has Dice loss 0, up to the smoothing.
  config.name = LossName::dice;
  two.cells = 2;
  EXPECT_NEAR(
      Objective(config, two)
          .loss_and_gradient(std::vector<float>{40, -40, -40, 40}, std::vector<float>{0, 1}, 1, 1, gradient),
      0, 1e-6);
  EXPECT_NEAR(kl_divergence(std::vector<float>{0}, std::vector<float>{0}, 1, std::span(gradient).first(1),
                            std::span(gradient).first(1)),
              0, 1e-12);
  EXPECT_NEAR(kl_divergence(std::vector<float>{2}, std::vector<float>{0}, 1, std::span(gradient).first(1),
                            std::span(gradient).first(1)),
              2, 1e-12);
}

TEST(Loss, FocalIsCrossEntropyTimesThePowerOfTheMiss) {
  TargetShape two;
  two.labels = {"kind"};
  two.classes = 2;
  LossConfig config;
  config.name = LossName::focal;
  config.gamma = 3;
  std::vector<float> gradient(2);
  const auto loss_of = [&] {
    return Objective(config, two)
        .loss_and_gradient(std::vector<float>{0, std::log(3.0F)}, std::vector<float>{1}, 1, 1, gradient);
  };
  EXPECT_NEAR(loss_of(), -std::pow(0.25, 3) * std::log(0.75), 1e-6);
  config.gamma = 0;
  EXPECT_NEAR(loss_of(), -std::log(0.75), 1e-6);
}

TEST(Loss, OfQuantilesWeighsTheSides) {
  TargetShape shape;
  shape.labels = {"y"};
  LossConfig config;
  config.name = LossName::quantile;
  config.quantiles = {0.1, 0.5, 0.9};
  const Objective objective(config, shape);
  EXPECT_EQ(objective.output_channels(), 3);
  EXPECT_EQ(objective.prediction_channel(), 1U);
  std::vector<float> gradient(3);
  // Truth 1, predicted 0, 2 and 1: 0.1 * 1 + (0.5 - 1) * -1 + 0.
  EXPECT_NEAR(objective.loss_and_gradient(std::vector<float>{0, 2, 1}, std::vector<float>{1}, 1, 1, gradient),
              0.6, 1e-6);
  EXPECT_THAT(gradient, testing::Pointwise(testing::FloatNear(1e-6F), {-0.1F, 0.5F, 0.0F}));
}

TEST(ClassWeights, FollowFromTheSharesOfTheClasses) {
  const std::vector<std::uint64_t> counts = {98, 0, 2};
  const std::vector<double> inverse = weights_of_classes(ClassWeighting::inverse, counts);
  EXPECT_NEAR(inverse[2] / inverse[0], 49, 1e-9);
  EXPECT_EQ(inverse[1], 0);
  EXPECT_NEAR(0.98 * inverse[0] + 0.02 * inverse[2], 1, 1e-12) << "the mean over the cells is 1";
  const std::vector<double> root = weights_of_classes(ClassWeighting::inverse_root, counts);
  EXPECT_NEAR(root[2] / root[0], 7, 1e-9);
  // They reach the loss.
  TargetShape shape;
  shape.labels = {"kind"};
  shape.classes = 3;
  shape.class_counts = counts;
  LossConfig config;
  config.name = LossName::cross_entropy;
  config.class_weighting = ClassWeighting::inverse;
  std::vector<float> gradient(3);
  EXPECT_NEAR(Objective(config, shape)
                  .loss_and_gradient(std::vector<float>{0, 0, 0}, std::vector<float>{2}, 1, 1, gradient),
              inverse[2] * std::log(3.0), 1e-5);
}

TEST(Loss, RefusesWhatIsNoClass) {
  TargetShape shape;
  shape.labels = {"kind"};
  shape.classes = 3;
  LossConfig config;
  config.name = LossName::cross_entropy;
  std::vector<float> gradient(3);
  for (const float truth : {3.0F, -1.0F, 0.5F}) {
    EXPECT_THROW(
        Objective(config, shape)
            .loss_and_gradient(std::vector<float>{1, 2, 3}, std::vector<float>{truth}, 1, 1, gradient),
        Error);
  }
}

TEST(Evaluation, IsInPhysicalUnits) {
  TargetShape shape;
  shape.labels = {"a", "b"};
  const Objective objective({}, shape);
  // a has mean 10 and deviation 2, b 0 and 1; truths 12 and 1 are both 1 when normalised.
  const std::vector<float> outputs = {0, 0, 1, 1};
  const std::vector<float> truths = {1, 1, 1, 1};
  std::vector<double> records;
  objective.record(outputs, truths, 2, records);
  const Evaluation result = evaluate(objective, std::vector<double>{2, 1}, records);
  EXPECT_DOUBLE_EQ(result.targets[0].mae, 1);
  EXPECT_DOUBLE_EQ(result.targets[0].mse, 2);
  EXPECT_DOUBLE_EQ(result.targets[0].ratio().value(), 0.5);
  EXPECT_DOUBLE_EQ(result.targets[1].mae, 0.5);
  EXPECT_DOUBLE_EQ(result.loss, 0.5);
  EXPECT_DOUBLE_EQ(result.mean_ratio().value(), 0.5);
  EXPECT_DOUBLE_EQ(result.targets[0].rmse(), std::sqrt(2.0));
  EXPECT_FALSE(result.targets[0].r2().has_value());  // both truths are the same
}

TEST(Evaluation, OfATransformedFieldIsInPhysicalUnits) {
  TargetShape shape;
  shape.labels = {"field"};
  shape.cells = 2;
  const Objective objective({}, shape);
  std::vector<double> records;
  const auto physical = [](double value, std::size_t) { return std::exp(value + 1); };
  objective.record(std::vector<float>{0, 1}, std::vector<float>{1, 1}, 1, records, physical);
  const Evaluation result = evaluate(objective, std::vector<double>{1}, records);
  const double e = std::exp(1.0);
  EXPECT_DOUBLE_EQ(result.loss, 0.5);  // the loss stays that of normalised values
  EXPECT_NEAR(result.targets[0].mae, (e * e - e) / 2, 1e-12);
  EXPECT_NEAR(result.targets[0].mean_guess_mae, e * e - e, 1e-12);
}

TEST(Evaluation, ExplainedVarianceIsOfTheEvaluatedSamples) {
  TargetShape shape;
  shape.labels = {"a"};
  const Objective objective({}, shape);
  const std::vector<float> truths = {1, 3, 5};
  const auto r2_of = [&](const std::vector<float>& outputs) {
    std::vector<double> records;
    objective.record(outputs, truths, 3, records);
    return evaluate(objective, std::vector<double>{7}, records).targets[0].r2();
  };
  EXPECT_DOUBLE_EQ(r2_of({1, 3, 5}).value(), 1);
  EXPECT_DOUBLE_EQ(r2_of({3, 3, 3}).value(), 0);  // predicts the mean
  EXPECT_DOUBLE_EQ(r2_of({2, 3, 4}).value(), 0.75);
}

TEST(Evaluation, OfClassesIsAnErrorRate) {
  TargetShape shape;
  shape.labels = {"kind"};
  shape.classes = 4;
  LossConfig config;
  config.name = LossName::cross_entropy;
  shape.usual_class = 1;
  const Objective objective(config, shape);
  std::vector<double> records;
  objective.record(std::vector<float>{0, 9, 0, 0, 9, 0, 0, 0}, std::vector<float>{1, 2}, 2, records);
  const Evaluation result = evaluate(objective, std::vector<double>{1}, records);
  EXPECT_DOUBLE_EQ(result.targets[0].mae, 0.5);
  EXPECT_DOUBLE_EQ(result.targets[0].mean_guess_mae, 0.5) << "always 1, the most frequent one in training";
  EXPECT_NE(test_lines(result).find("most common class"), std::string::npos);
}

// Six cells; truths 0 0 0 1 1 2, predictions 0 0 1 1 0 1.
TEST(Evaluation, OfClassesHasTheUsualMetrics) {
  TargetShape shape;
  shape.labels = {"kind"};
  shape.cells = 6;
  shape.classes = 3;
  LossConfig config;
  config.name = LossName::cross_entropy;
  const Objective objective(config, shape);
  const std::vector<float> outputs = {9, 5, 2, 2, 5, 0,  //
                                      0, 0, 3, 5, 3, 8,  //
                                      0, 0, 0, 0, 0, 1};
  const std::vector<float> truths = {0, 0, 0, 1, 1, 2};
  std::vector<double> records;
  std::vector<std::uint64_t> counts(objective.count_size(), 0);
  objective.record(outputs, truths, 1, records, {}, counts);
  const Evaluation result = evaluate(objective, std::vector<double>{1}, records, counts);
  const Classification& all = result.targets[0].classification.value();
  EXPECT_EQ(all.confusion, (std::vector<std::uint64_t>{2, 1, 0, 1, 1, 0, 0, 1, 0}));
  EXPECT_DOUBLE_EQ(all.accuracy().value(), 0.5);
  EXPECT_DOUBLE_EQ(all.classes[0].iou().value(), 2.0 / 4);
  EXPECT_DOUBLE_EQ(all.classes[1].iou().value(), 1.0 / 4);
  EXPECT_DOUBLE_EQ(all.classes[2].iou().value(), 0);
  EXPECT_DOUBLE_EQ(all.mean_iou().value(), 0.25);
  EXPECT_DOUBLE_EQ(all.classes[0].dice().value(), 4.0 / 6);
  EXPECT_DOUBLE_EQ(all.classes[1].precision().value(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(all.classes[1].recall().value(), 0.5);
  EXPECT_EQ(all.classes[2].precision(), std::nullopt) << "no cell is predicted as 2";
  // Class 0 has the higher probability in its own cell for 8 of 9 pairs of cells.
  EXPECT_NEAR(all.classes[0].auc.value(), 8.0 / 9, 1e-12);
  EXPECT_DOUBLE_EQ(metric_of(result, metric_named("mean_iou").value()).value(), 0.25);
  EXPECT_DOUBLE_EQ(metric_of(result, metric_named("recall_1/kind").value()).value(), 0.5);
  EXPECT_EQ(metric_of(result, metric_named("recall_1/other").value()), std::nullopt);
  EXPECT_NE(test_lines(result).find("ROC AUC"), std::string::npos);
  EXPECT_EQ(to_json(result)["targets"]["kind"]["confusion"][1][0], 1);
  EpochRow row;
  row.validation = result;
  const std::string line = metrics_jsonl({row});
  EXPECT_NE(line.find("\"mean_iou\":0.25"), std::string::npos) << line;
  EXPECT_NE(metrics_csv({"kind"}, {row}).find("validation_mean_iou/kind"), std::string::npos);
}

// Many samples of random scores: the area under the curve from bins is that of all pairs but for ties.
TEST(Evaluation, AreaUnderRocIsThatOfAllPairs) {
  std::vector<std::uint64_t> counts(class_count_size(2), 0);
  std::vector<std::pair<double, bool>> scores;
  for (std::size_t i = 0; i < 400; ++i) {
    const bool truth = i % 5 == 0;
    const double p = 1 / (1 + std::exp(-3.0 * wave(i) + (truth ? 0 : 4)));
    scores.emplace_back(p, truth);
    count_class(truth ? 1 : 0, std::vector<double>{1 - p, p}, counts);
  }
  double higher = 0;
  double pairs = 0;
  for (const auto& [p, positive] : scores) {
    for (const auto& [q, other] : scores) {
      if (!positive || other) continue;
      higher += p > q ? 1 : p == q ? 0.5 : 0;
      ++pairs;
    }
  }
  const Classification found = classification_of(2, counts);
  EXPECT_NEAR(found.classes[1].auc.value(), higher / pairs, 2e-3);
  EXPECT_DOUBLE_EQ(found.classes[0].auc.value(), found.classes[1].auc.value());
}

// Many classes have no confusion matrix, and the same metrics.
TEST(Evaluation, OfManyClassesCountsTheMargins) {
  const std::size_t classes = kMostDetailedClasses + 1;
  std::vector<std::uint64_t> counts(class_count_size(classes), 0);
  std::vector<double> p(classes, 0.0);
  p[70 % classes] = 1;
  count_class(5, p, counts);
  count_class(64, p, counts);
  p[64] = 2;
  count_class(64, p, counts);
  const Classification all = classification_of(classes, counts);
  EXPECT_TRUE(all.confusion.empty());
  EXPECT_DOUBLE_EQ(all.accuracy().value(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(all.classes[5].iou().value(), 0.5);
  EXPECT_DOUBLE_EQ(all.classes[64].iou().value(), 0.5);
}

TEST(Evaluation, OfGaussianAndQuantileHeadsHasTheCoverage) {
  TargetShape shape;
  shape.labels = {"a", "b"};
  LossConfig config;
  config.name = LossName::gaussian;
  const auto shares = [&](const std::vector<float>& outputs, const std::vector<float>& truths) {
    const Objective objective(config, shape);
    std::vector<double> records;
    std::vector<std::uint64_t> counts(objective.count_size(), 0);
    objective.record(outputs, truths, truths.size() / 2, records, {}, counts);
    return evaluate(objective, std::vector<double>{3, 1}, records, counts).targets;
  };
  // Deviations 1 and e; distances 0.9 and 1.5 in the first sample, 3 and 7 in the second.
  std::vector<TargetErrors> found = shares({0, 0, 0, 2, 0, 0, 0, 2}, {0.9F, 1.5F, 3, 7});
  using Shares = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(found[0].calibration, (Shares{{"within_68", 0.5}, {"within_95", 0.5}}));
  EXPECT_EQ(found[1].calibration, (Shares{{"within_68", 0.5}, {"within_95", 0.5}}));
  config.name = LossName::quantile;
  config.quantiles = {0.25, 0.5};
  // [quantile, target] for each of two samples.
  found = shares({0, 0, 1, 1, 0, 0, 1, 1}, {0.5F, -1, 2, 0.5F});
  EXPECT_EQ(found[0].calibration, (Shares{{"below_0.25", 0}, {"below_0.5", 0.5}}));
  EXPECT_EQ(found[1].calibration, (Shares{{"below_0.25", 0.5}, {"below_0.5", 1}}));
}

TargetShape detection_shape() {
  TargetShape shape;
  shape.labels = {"event", "kind", "y", "x", "height", "width"};
  shape.classes = 2;
  shape.grid = {2, 3};
  shape.cells = 6;
  return shape;
}

LossConfig detection_loss() {
  LossConfig config;
  config.name = LossName::detection;
  config.box_weight = 2;
  config.empty_weight = 0.25;
  return config;
}

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

// An object of class 1 in cell 1, one of class 0 in cell 4; it is not known what is in cell 5.
std::vector<float> two_objects() {
  return {0, 1,     0, 0, 1,     kUnknown,  // there is an object
          0, 1,     0, 0, 0,     0,         // its class
          0, 0.25F, 0, 0, 0.5F,  0,         // its centre
          0, 0.5F,  0, 0, 0.75F, 0,         //
          0, 1,     0, 0, 2,     0,         // its lengths
          0, 2,     0, 0, 0.5F,  0};
}

TEST(Detection, GradientsAreTheSlopes) {
  LossConfig config = detection_loss();
  std::vector<float> truths = two_objects();
  const std::vector<float> nothing(36, 0.0F);
  truths.insert(truths.end(), nothing.begin(), nothing.end());
  expect_slopes(Objective(config, detection_shape()), truths);
  config.class_weights = {1, 3};
  expect_slopes(Objective(config, detection_shape()), truths);
}

TEST(Detection, LossIsTheMeanOverTheKnownCells) {
  const Objective objective(detection_loss(), detection_shape());
  EXPECT_EQ(objective.output_channels(), 7);
  EXPECT_EQ(objective.terms(), 6U);
  const std::vector<float> outputs(42, 0.0F);
  std::vector<float> gradient(42);
  const double loss = objective.loss_and_gradient(outputs, two_objects(), 1, 1, gradient) / 6;
  // Two objects and three cells without; probabilities are 1/2, boxes of one cell in the middle of theirs.
  const double boxes = 0.5 * 0.25 * 0.25 + 0.5 * std::pow(std::log(2), 2)         // of cell 1
                       + 0.5 * 0.25 * 0.25 + 2 * 0.5 * std::pow(std::log(2), 2);  // of cell 4
  EXPECT_NEAR(loss, ((2 + 3 * 0.25 + 2) * std::log(2) + 2 * boxes) / 5, 1e-6);
  for (std::size_t k = 0; k < 7; ++k)
    EXPECT_EQ(gradient[k * 6 + 5], 0) << "nothing is known of the last cell";
  for (std::size_t k = 1; k < 7; ++k)
    EXPECT_EQ(gradient[k * 6 + 2], 0) << "without an object there is no box";
}

TEST(Detection, RefusesWhatIsNoTarget) {
  const Objective objective(detection_loss(), detection_shape());
  const std::vector<float> outputs(42, 0.0F);
  std::vector<float> gradient(42);
  const auto message_of = [&](std::size_t place, float value) -> std::string {
    std::vector<float> truths = two_objects();
    truths[place] = value;
    try {
      objective.loss_and_gradient(outputs, truths, 1, 1, gradient);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message_of(0, 0.5F), HasSubstr("'event' is 0.5"));
  EXPECT_THAT(message_of(7, 2), HasSubstr("whole class numbers from 0 to 1"));
  EXPECT_THAT(message_of(25, 0), HasSubstr("must be above 0"));
  EXPECT_EQ(message_of(6, 7), "") << "the class of a cell without an object does not count";
  EXPECT_EQ(message_of(25, kUnknown), "") << "an object whose box is not known counts nowhere";
}

TEST(Detection, AveragePrecisionIsTheAreaUnderTheCurve) {
  EXPECT_DOUBLE_EQ(average_precision({true, true}, 2), 1);
  EXPECT_DOUBLE_EQ(average_precision({true, true}, 4), 0.5);
  EXPECT_DOUBLE_EQ(average_precision({}, 3), 0);
  EXPECT_DOUBLE_EQ(average_precision({false, true}, 1), 0.5);
  // Precisions 1, 2/3 and 3/5 at the boxes that are right.
  EXPECT_DOUBLE_EQ(average_precision({true, false, true, false, true}, 3), (1 + 2.0 / 3 + 3.0 / 5) / 3);
  // 1/2, then 2/3: the higher precision at a higher recall counts.
  EXPECT_DOUBLE_EQ(average_precision({false, true, true}, 2), 2.0 / 3);
}

// The output of a cell: log-odds of an object, of its classes, centre less 0.5, logarithms of lengths.
void put(std::vector<float>& outputs, std::size_t cell, const std::vector<float>& values) {
  for (std::size_t k = 0; k < values.size(); ++k) outputs[k * 6 + cell] = values[k];
}

TEST(Detection, MetricsOfAHandMadeExample) {
  const Objective objective(detection_loss(), detection_shape());
  std::vector<float> outputs(42, 0.0F);
  for (std::size_t cell = 0; cell < 6; ++cell) outputs[cell] = -9;
  const float two = std::log(2.0F);
  // The object of cell 1 with confidence 0.9, and again from cell 0, with 0.95 but a box of other lengths.
  put(outputs, 1, {std::log(9.0F), 0, 4, -0.25F, 0, 0, two});
  put(outputs, 0, {std::log(19.0F), 0, 4, 0.25F, 0.25F, 0, 0});
  // The object of cell 4 is found with 0.6, as of the wrong class; the unknown cell is the most confident
  // one.
  put(outputs, 4, {std::log(1.5F), 0, 4, 0, 0.25F, two, -two});
  put(outputs, 5, {8, 0, 4, 0, 0, 0, 0});
  std::vector<double> records;
  std::vector<std::uint64_t> counts(objective.count_size(), 0);
  objective.record(outputs, two_objects(), 1, records, {}, counts);
  ASSERT_EQ(records.size(), objective.record_size());
  EXPECT_EQ(counts, (std::vector<std::uint64_t>{1, 1}));
  const Evaluation result = evaluate(objective, std::vector<double>(6, 1.0), records, counts);
  const auto metric = [&](const char* name) { return metric_of(result, metric_named(name).value()); };
  // Class 1: a wrong box, the right one, and that of the other class. Class 0 is never found.
  EXPECT_DOUBLE_EQ(metric("ap_1").value(), 0.5);
  EXPECT_DOUBLE_EQ(metric("ap_0").value(), 0);
  EXPECT_DOUBLE_EQ(metric("map").value(), 0.25);
  EXPECT_DOUBLE_EQ(metric("precision_1").value(), 0.5) << "of two boxes with at least 0.8";
  EXPECT_EQ(metric("precision_0"), std::nullopt);
  EXPECT_DOUBLE_EQ(metric("recall_1").value(), 1);
  EXPECT_DOUBLE_EQ(metric("mean_recall/event").value(), 0.5);
  EXPECT_EQ(metric("map/kind"), std::nullopt);
  EXPECT_DOUBLE_EQ(result.targets[1].mae, 0.5) << "one class of two objects is wrong";
  EXPECT_NEAR(result.targets[4].mae, 0, 1e-6);
  EXPECT_DOUBLE_EQ(result.targets[0].mean_guess_mae, 2.0 / 5) << "the guess is that there is no object";
  // An exported model gives the same records.
  std::vector<double> again;
  std::vector<std::uint64_t> counts_again(counts.size(), 0);
  const std::vector<float> truths = two_objects();
  objective.record_detected(objective.detection()->physical(outputs),
                            std::vector<double>(truths.begin(), truths.end()), again, counts_again);
  EXPECT_THAT(std::span(again).subspan(1), testing::ElementsAreArray(std::span(records).subspan(1)));
  EXPECT_EQ(counts_again, counts);
  EXPECT_THAT(test_lines(result), HasSubstr("event: map 0.2500, mean_precision 0.5000"));
  EXPECT_EQ(to_json(result)["targets"]["event"]["metrics"]["ap_1"], 0.5);
  EpochRow row;
  row.validation = result;
  EXPECT_THAT(metrics_jsonl({row}), HasSubstr("\"map\":0.25"));
  EXPECT_THAT(metrics_csv({"event", "kind", "y", "x", "height", "width"}, {row}),
              HasSubstr("validation_ap_1/event"));
}

// A box takes the nearest object that no box of a higher confidence has taken; a box without one is wrong.
TEST(Detection, OneBoxAnObject) {
  TargetShape shape = detection_shape();
  shape.classes = 1;
  shape.grid = {1, 6};
  const Objective objective(detection_loss(), shape);
  std::vector<float> truths(36, 0.0F);
  for (const std::size_t cell : {2U, 3U}) {
    truths[cell] = 1;
    truths[12 + cell] = truths[18 + cell] = 0.5F;
    truths[24 + cell] = 1;
    truths[30 + cell] = 3;
  }
  std::vector<float> outputs(36, 0.0F);
  const float three = std::log(3.0F);
  for (std::size_t cell = 0; cell < 6; ++cell) put(outputs, cell, {-9, 0, 0, 0, 0, three});
  const auto average = [&] {
    std::vector<double> records;
    std::vector<std::uint64_t> counts(1, 0);
    objective.record(outputs, truths, 1, records, {}, counts);
    return *evaluate(objective, std::vector<double>(6, 1.0), records, counts).targets.front().more[0].value;
  };
  // The most confident box overlaps both objects by more than half; the other overlaps one of them alone.
  put(outputs, 3, {4, 0, 0, -0.2F, 0, three});
  put(outputs, 2, {2, 0, 0, -0.2F, 0, three});
  EXPECT_DOUBLE_EQ(average(), 1);
  // Another box around the same object, between them in confidence.
  put(outputs, 4, {3, 0, 0, -0.8F, 0, three});
  EXPECT_DOUBLE_EQ(average(), (1 + 2.0 / 3) / 2);
}

TEST(Metric, NamesAreReadAndWritten) {
  for (const char* name :
       {"loss", "mean_iou", "iou_2", "auc_0/kind", "r2/a_b", "mae", "map", "ap_3/event", "mean_recall"})
    EXPECT_EQ(metric_named(name).value().text(), name);
  for (const char* name : {"", "iou", "iou_x", "iou_-1", "loss/y", "mean_iou/", "r3", "ap", "map_1"})
    EXPECT_EQ(metric_named(name), std::nullopt) << name;
  EXPECT_TRUE(metric_named("iou_1")->larger_is_better());
  EXPECT_FALSE(metric_named("rmse")->larger_is_better());
}

TEST(Metric, OfWhichLargerIsBetterOrdersEpochs) {
  MetricName metric;
  metric.name = "r2";
  std::vector<EpochRow> history(3);
  Progress progress({2, 0.5, metric});
  for (std::size_t i = 0; i < 3; ++i) {
    history[i].step = static_cast<std::int64_t>(i + 1);
    TargetErrors& errors = history[i].validation.targets.emplace_back();
    errors.variance = 1;
    errors.mse = std::vector<double>{0.5, 0.3, 0.4}[i];
    progress.add(value_of(history[i], metric));
  }
  EXPECT_EQ(best_steps(history, 2, metric), (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(is_better(0.7, 0.6, true));
  EXPECT_FALSE(is_better(std::nan(""), -5, true));
  EXPECT_TRUE(progress.has_stopped()) << "0.7 is not half as much again as 0.5";
  metric.name = "mean_iou";
  EXPECT_TRUE(std::isnan(value_of(history[0], metric)));
}

TEST(Evaluation, HasNoRatioWhereTheGuessIsRight) {
  TargetShape shape;
  shape.labels = {"constant"};
  const Objective objective({}, shape);
  std::vector<double> records;
  objective.record(std::vector<float>{0.5, 0.5}, std::vector<float>{0, 1e-12F}, 2, records);
  const Evaluation result = evaluate(objective, std::vector<double>{1}, records);
  EXPECT_EQ(result.targets[0].ratio(), std::nullopt);
  EXPECT_EQ(result.mean_ratio(), std::nullopt);
  EXPECT_EQ(ratio_text(result.targets[0]), "-");
  EXPECT_TRUE(to_json(result)["targets"]["constant"]["mae_ratio"].is_null());
}

TEST(Evaluation, OfNoSampleHasNoLoss) {
  TargetShape shape;
  shape.labels = {"a"};
  const Evaluation nothing = evaluate(Objective({}, shape), std::vector<double>{1}, {});
  EXPECT_TRUE(nothing.targets.empty());
  EXPECT_TRUE(to_json(nothing)["loss"].is_null());
  EXPECT_TRUE(to_json(nothing)["mean_mae_ratio"].is_null());
  EpochRow row;
  row.epoch = row.step = 1;
  EXPECT_EQ(metrics_csv({"a"}, {row}).substr(metrics_csv({"a"}, {}).size()), "1,1,0,0,,,,,0.0,0.000,\n");
}

// Padding adds no loss, no gradient and no error, whatever the network predicts there.
TEST(Loss, CountsNoPadding) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  for (const LossName name : {LossName::mse, LossName::mae, LossName::huber, LossName::gaussian,
                              LossName::cross_entropy, LossName::dice, LossName::focal, LossName::quantile}) {
    LossConfig config;
    config.name = name;
    TargetShape shape;
    shape.labels = {"f"};
    shape.cells = 3;
    shape.classes = 2;
    const Objective objective(config, shape);
    const std::size_t channels = objective.output_count() / 3;
    std::vector<float> outputs(objective.output_count(), 0.25F);
    const std::vector<float> truths = {1, none, 0};
    const auto losses = [&](float padding) {
      for (std::size_t c = 0; c < channels; ++c) outputs[c * 3 + 1] = padding * static_cast<float>(c + 1);
      std::vector<float> gradient(outputs.size());
      std::vector<double> all = {objective.loss_and_gradient(outputs, truths, 1, 1, gradient)};
      for (std::size_t c = 0; c < channels; ++c) EXPECT_EQ(gradient[c * 3 + 1], 0) << name_of(name);
      objective.record(outputs, truths, 1, all);
      const Evaluation errors = evaluate(objective, std::vector<double>{1}, std::span(all).subspan(1));
      all.push_back(errors.targets[0].mae);
      return all;
    };
    EXPECT_EQ(losses(0), losses(50)) << name_of(name);
    EXPECT_TRUE(std::isfinite(losses(0)[0])) << name_of(name);
  }
}

// Two samples of three cells. Where a cell counts, outputs and truths differ by 1 and 3 in the first sample
// and by 2 in the second; all expected numbers are worked out by hand.
class PaddedLoss : public testing::Test {
 protected:
  void expect(const LossConfig& config, const TargetShape& shape, const std::vector<float>& outputs,
              double loss, const std::vector<float>& gradient) {
    const Objective objective(config, shape);
    std::vector<float> found(outputs.size());
    const double scale = 1 / static_cast<double>(2 * objective.terms());
    EXPECT_NEAR(objective.loss_and_gradient(outputs, truths_, 2, scale, found) * scale, loss, 1e-6)
        << name_of(config.name);
    EXPECT_THAT(found, testing::Pointwise(testing::FloatNear(1e-6F), gradient)) << name_of(config.name);
    if (shape.latent > 0) return;
    std::vector<double> records;
    objective.record(outputs, truths_, 2, records);
    const Evaluation errors = evaluate(objective, std::vector<double>{1}, records);
    EXPECT_NEAR(errors.loss, loss, 1e-6) << name_of(config.name);
    if (errors.classes) return;
    EXPECT_NEAR(errors.targets[0].mae, 2, 1e-6) << "over the three cells of both samples";
  }
  void expect(LossName name, const std::vector<float>& outputs, double loss,
              const std::vector<float>& gradient) {
    LossConfig config;
    config.name = name;
    config.delta = 2;
    expect(config, shape_, outputs, loss, gradient);
  }

  static constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> truths_ = {1, kNone, 0, kNone, 2, kNone};
  const std::vector<float> outputs_ = {2, 9, 3, 9, 4, 9};
  TargetShape shape_{.labels = {"f"}, .cells = 3};
};

TEST_F(PaddedLoss, IsTheMeanOfTheCellsThatCount) {
  expect(LossName::mse, outputs_, (10.0 / 2 + 4) / 2, {0.5F, 0, 1.5F, 0, 2, 0});
  expect(LossName::mae, outputs_, (4.0 / 2 + 2) / 2, {0.25F, 0, 0.25F, 0, 0.5F, 0});
  expect(LossName::huber, outputs_, (4.5 / 2 + 2) / 2, {0.25F, 0, 0.5F, 0, 1, 0});
  expect(LossName::gaussian, {2, 9, 3, 0, 0, 0, 9, 4, 9, 0, 0, 0}, (5.0 / 2 + 2) / 2,
         {0.25F, 0, 0.75F, 0, 0, -1, 0, 1, 0, 0, -0.75F, 0});
}

TEST_F(PaddedLoss, OfClassesAndLatentDistributions) {
  shape_.classes = 3;
  // Equal outputs: each class has probability 1/3.
  const float miss = 1.0F / 12, hit = -2.0F / 12;
  expect(LossName::cross_entropy, std::vector<float>(18, 0), std::log(3.0),
         {miss, 0, hit, hit, 0, miss, miss, 0, miss, 0, 2 * miss, 0, 0, 2 * miss, 0, 0, 2 * hit, 0});
  // The KL divergence of a latent mean of 2 is 2; it stands beside the sum over the cells.
  shape_.classes = 0;
  shape_.latent = 1;
  LossConfig config;
  config.kl_weight = 1;
  std::vector<float> outputs = outputs_;
  outputs.insert(outputs.end(), {2, 0, 0, 0});
  expect(config, shape_, outputs, ((10.0 + 2) / 2 + 4) / 2, {0.5F, 0, 1.5F, 0, 2, 0, 0.5F, 0, 0, 0});
}

TEST(BestSteps, AreOfTheBestValidation) {
  std::vector<EpochRow> history(3);
  for (std::size_t i = 0; i < 3; ++i) {
    history[i].step = static_cast<std::int64_t>(10 * (i + 1));
    history[i].validation.targets.resize(1);
    history[i].validation.loss = std::abs(static_cast<double>(i) - 1.2);
  }
  EXPECT_EQ(best_steps(history, 2), (std::vector<std::int64_t>{20, 30}));
  EXPECT_EQ(best_steps(history, 9).size(), 3U);
  EXPECT_TRUE(best_steps(history, 0).empty());
  history[1].validation.loss = std::nan("");
  EXPECT_EQ(best_steps(history, 2), (std::vector<std::int64_t>{30, 10}));
}

TEST(BestSteps, NoNumberIsWorseThanAny) {
  const double nothing = std::nan("");
  EXPECT_TRUE(is_better(1, 2));
  EXPECT_FALSE(is_better(2, 2));
  EXPECT_FALSE(is_better(nothing, 2));
  EXPECT_TRUE(is_better(2, nothing));
  EXPECT_FALSE(is_better(nothing, nothing));
  // A checkpoint keeps neither of them apart from NaN.
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(is_better(-infinity, 2));
  EXPECT_TRUE(is_better(2, -infinity));
  EXPECT_FALSE(is_better(-infinity, infinity));
}

// The table of two heads, one of them with a gaussian loss.
TEST(Report, CsvQuotesWhatNeedsItAndHasTheColumnsOfEveryHead) {
  LossConfig gaussian;
  gaussian.name = LossName::gaussian;
  TargetShape one;
  one.labels = {"a,b"};
  TargetShape other;
  other.labels = {"a"};
  const Heads heads({{"one", Objective({}, one)}, {"other", Objective(gaussian, other)}});
  const std::vector<OutputUnits> units = {{"one", LossName::mse, false, {"a,b"}, {10}, {2}},
                                          {"other", LossName::gaussian, false, {"a"}, {10}, {2}}};
  PredictionFileDescription description;
  description.truths = {{0.1}, {0.1}};
  const std::vector<std::int64_t> ids = {4};
  PredictionFile file(testing::TempDir() + "wflow-predictions.h5", heads, units, description, ids);
  file.write(0, 0, std::vector<float>{0}, std::vector<float>{0.5});
  file.write(1, 0, std::vector<float>{0}, std::vector<float>{0.5, 0});
  EXPECT_EQ(file.table(), "id,\"a,b\",\"a,b_predicted\",a,a_predicted,a_deviation\n4,0.1,11,0.1,11,2\n");
}

// Losses of heads with different numbers of values, against the sum of their means.
TEST(Heads, TheLossIsTheWeightedSumOfTheMeans) {
  TargetShape numbers;
  numbers.labels = {"a", "b"};
  TargetShape field;
  field.labels = {"f"};
  field.cells = 4;
  LossConfig mae;
  mae.name = LossName::mae;
  const Heads heads({{"numbers", Objective({}, numbers), 2}, {"field", Objective(mae, field), 0.5}});
  const std::vector<float> outputs = {1, 2, 3, 4, /* field */ 1, 1, 1, 1, 2, 2, 2, 2};
  const float nothing = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> truth_numbers = {0, 0, nothing, nothing};  // the second sample has none
  const std::vector<float> truth_field = {0, 0, 0, 0, 0, 0, 0, 0};
  const std::vector<std::span<const float>> truths = {truth_numbers, truth_field};
  std::vector<float> gradient(outputs.size());
  const double scale = 1.0 / static_cast<double>(2 * heads.terms());
  const double sum = heads.loss_and_gradient(outputs, truths, 2, scale, gradient);
  EXPECT_DOUBLE_EQ(sum * scale, 2 * ((1 + 4) / 2.0 + 0) / 2 + 0.5 * (1 + 2) / 2);
  EXPECT_FLOAT_EQ(gradient[1], 2 * (2 * 2) / 2.0 / 2);
  EXPECT_EQ(gradient[2], 0);
  EXPECT_FLOAT_EQ(gradient[4], 0.5F / 4 / 2);

  std::vector<double> records;
  heads.record(outputs, truths, 2, records, std::vector<Objective::Physical>(2));
  const Evaluation all = evaluate(heads, std::vector<double>{1, 1, 1}, records);
  EXPECT_DOUBLE_EQ(all.loss, sum * scale);
  ASSERT_EQ(all.heads.size(), 2U);
  EXPECT_EQ(all.heads[1].name, "field");
  EXPECT_DOUBLE_EQ(all.heads[1].loss, 1.5);
  EXPECT_EQ(all.by_head()[1].second.targets.front().label, "f");
  EXPECT_DOUBLE_EQ(all.targets[1].mae, 2);
}

// Three arrays of three parts: one frozen, one with the common optimiser, one with its own.
TEST(PartOptimizers, EachPartTakesTheStepsOfItsOwnOptimizer) {
  const auto spec = [](const char* name, const char* part, bool frozen) {
    return ParameterSpec{name, {5}, Initial::zero, 1, true, part, frozen};
  };
  const FlatLayout layout(
      {spec("a", "encoder", true), spec("b", "decoder", false), spec("c", "head", false)});
  OptimizerConfig adam;
  PartConfig frozen;
  frozen.name = "encoder";
  frozen.freeze = true;
  PartConfig head;
  head.name = "head";
  head.own_optimizer = true;
  head.optimizer.name = OptimizerName::sgd;
  head.optimizer.learning_rate = 0.1;
  head.rate = 0.5;
  const std::vector<PartConfig> parts = {frozen, head};
  PartOptimizers all(adam, parts, layout);
  ASSERT_EQ(all.slots().size(), 3U);  // two moments and a momentum

  const FlatLayout alone({spec("x", "", false)});
  Optimizer of_decoder(adam, alone);
  Optimizer of_head(head.optimizer, alone);
  std::vector<float> values(static_cast<std::size_t>(layout.size), 1.0F);
  std::vector<float> decoder(static_cast<std::size_t>(alone.size), 1.0F);
  std::vector<float> own(static_cast<std::size_t>(alone.size), 1.0F);
  for (int step = 0; step < 3; ++step) {
    std::vector<float> gradients(values.size());
    for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = 0.1F * static_cast<float>(i % 7);
    const auto part = [&](std::size_t k) {
      const auto begin = gradients.begin() + layout.entries[k].offset;
      std::vector<float> gradient(begin, begin + 5);
      gradient.resize(static_cast<std::size_t>(alone.size));
      return gradient;
    };
    std::vector<float> second = part(1);
    std::vector<float> third = part(2);
    all.step(values, gradients, adam.learning_rate);
    of_decoder.step(decoder, second, adam.learning_rate);
    of_head.step(own, third, 0.5 * 0.1);
  }
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(values[static_cast<std::size_t>(layout.entries[0].offset) + i], 1.0F);
    EXPECT_EQ(values[static_cast<std::size_t>(layout.entries[1].offset) + i], decoder[i]);
    EXPECT_FLOAT_EQ(values[static_cast<std::size_t>(layout.entries[2].offset) + i], own[i]);
  }
  EXPECT_EQ(all.steps(), (std::vector<std::int64_t>(all.steps().size(), 3)));
}

// One step of an optimiser on weights (3, 4) and a bias 1.
std::vector<float> after_one_step(const OptimizerConfig& config, const std::vector<float>& gradient,
                                  double learning_rate, double decay_factor = 1) {
  const FlatLayout layout({{"w", {2}, Initial::zero, 1, true}, {"b", {1}, Initial::zero, 1, false}});
  std::vector<float> values(static_cast<std::size_t>(layout.size), 0.0F);
  std::vector<float> gradients(values.size(), 0.0F);
  values[0] = 3;
  values[1] = 4;
  values[16] = 1;
  gradients[0] = gradient[0];
  gradients[1] = gradient[1];
  gradients[16] = gradient[2];
  Optimizer optimizer(config, layout);
  optimizer.set_decay_factor(decay_factor);
  optimizer.step(values, gradients, learning_rate);
  return {values[0], values[1], values[16]};
}

TEST(Optimizer, AFactorOnTheDecayIsThatDecay) {
  for (const OptimizerName name : {OptimizerName::sgd, OptimizerName::adamw, OptimizerName::lars,
                                   OptimizerName::larc, OptimizerName::lamb}) {
    OptimizerConfig config;
    config.name = name;
    config.weight_decay = 0.25;
    const std::vector<float> quartered = after_one_step(config, {0, 2, 1}, 0.5, 0.25);
    EXPECT_NE(quartered, after_one_step(config, {0, 2, 1}, 0.5)) << name_of(name);
    config.weight_decay = 0.0625;
    EXPECT_EQ(quartered, after_one_step(config, {0, 2, 1}, 0.5)) << name_of(name);
  }
}

TEST(Optimizer, LarsStepsAreProportionalToTheWeights) {
  OptimizerConfig config;
  config.name = OptimizerName::lars;
  config.weight_decay = 0.1;
  // 0.001 * 5 / (2 + 0.1 * 5) = 0.002 times (0.3, 2 + 0.4); the bias has the plain rate.
  const std::vector<float> after = after_one_step(config, {0, 2, 1}, 0.5);
  EXPECT_FLOAT_EQ(after[0], 3 - 0.0003F);
  EXPECT_FLOAT_EQ(after[1], 4 - 0.0024F);
  EXPECT_FLOAT_EQ(after[2], 1 - 0.5F);
}

// A layer-wise rate is proportional to the weights: from zeros they would never move.
TEST(Optimizer, WeightsOfZeroHaveThePlainRateInEachLayerWiseMethod) {
  for (const OptimizerName name : {OptimizerName::lars, OptimizerName::larc, OptimizerName::lamb}) {
    OptimizerConfig config;
    config.name = name;
    config.larc_trust = name == OptimizerName::larc ? 0.02 : 0;
    const FlatLayout layout({{"w", {2}, Initial::zero, 1, true}});
    std::vector<float> values(static_cast<std::size_t>(layout.size), 0.0F);
    std::vector<float> gradients(values.size(), 0.0F);
    gradients[1] = 2;
    Optimizer(config, layout).step(values, gradients, 0.25);
    EXPECT_EQ(values[0], 0) << name_of(name);
    EXPECT_NEAR(values[1], name == OptimizerName::lamb ? -0.25 : -0.5, 1e-5) << name_of(name);
  }
}

TEST(Optimizer, LarcIsLimitedByTheCommonRate) {
  OptimizerConfig config;
  config.name = OptimizerName::larc;
  config.larc_trust = 0.02;
  // 0.02 * 5 / 2 = 0.05: below a rate of 0.1, above one of 0.01.
  EXPECT_FLOAT_EQ(after_one_step(config, {0, 2, 1}, 0.1)[1], 4 - 0.05F * 2);
  EXPECT_FLOAT_EQ(after_one_step(config, {0, 2, 1}, 0.01)[1], 4 - 0.01F * 2);
  EXPECT_FLOAT_EQ(after_one_step(config, {0, 2, 1}, 0.1)[2], 1 - 0.1F);
}

TEST(Optimizer, LambStepsAreAsLongAsRateTimesWeights) {
  OptimizerConfig config;
  config.name = OptimizerName::lamb;
  config.weight_decay = 0.1;
  // Adam's first direction is the gradient's sign: (1 + 0.3, -1 + 0.4), stretched to the length 0.01 * 5.
  const std::vector<float> after = after_one_step(config, {1, -2, 5}, 0.01);
  const double length = std::sqrt(1.3 * 1.3 + 0.6 * 0.6);
  EXPECT_NEAR(after[0], 3 - 0.05 * 1.3 / length, 1e-5);
  EXPECT_NEAR(after[1], 4 + 0.05 * 0.6 / length, 1e-5);
  EXPECT_NEAR(after[2], 1 - 0.01, 1e-6);  // Adam's step
}

TEST(Accumulated, AddsEachPlaceOnce) {
  Accumulated accumulated;
  std::vector<float> exchange(40, 1.0F);
  accumulated.add_to(exchange, 16);  // nothing was accumulated
  EXPECT_EQ(exchange, std::vector<float>(40, 1.0F));
  for (int step = 0; step < 2; ++step) {
    accumulated.add(std::vector<float>(40, 2.0F));
    accumulated.add(std::vector<float>(40, 3.0F));
    exchange.assign(40, 1.0F);
    for (const std::int64_t from : {32, 20, 16}) accumulated.add_to(exchange, from);
    for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(exchange[i], i < 16 ? 1.0F : 6.0F);
  }
}

TEST(WeightAverage, ForgetsTheBeginningAndComesBack) {
  const FlatLayout layout({{"w", {1}, Initial::zero, 1, true}});
  WeightAverage average(0.9, layout);
  std::vector<float> values(static_cast<std::size_t>(layout.size), 5.0F);
  average.update(values, 1);
  EXPECT_FLOAT_EQ(average.values()[0], 5.0F);  // not 0.5: the first step is all of the average
  values[0] = 6;
  for (std::int64_t step = 2; step < 200; ++step) average.update(values, step);
  EXPECT_NEAR(average.values()[0], 6, 1e-4);
  values[0] = 7;
  average.swap(values);
  EXPECT_NEAR(values[0], 6, 1e-4);
  average.swap(values);
  EXPECT_FLOAT_EQ(values[0], 7);
}

TEST(NormStatistics, AreThoseOfAllSamples) {
  // Two batches with means 1 and 3 and variance 2 each: together mean 2.5 (weights 1 and 3), variance 2 +
  // 0.75.
  const FlatLayout layout({{"m", {1}, Initial::zero, 1, false}, {"v", {1}, Initial::one, 1, false}});
  NormStatistics here(layout);
  NormStatistics there(layout);
  std::vector<float> batch(static_cast<std::size_t>(layout.size), 0.0F);
  batch[0] = 1;
  batch[16] = 2;
  here.add(batch, 1);
  batch[0] = 9;
  batch[16] = 6;
  there.add(batch, 3);
  here.add(there.take());
  std::vector<float> buffers(batch.size(), 0.0F);
  here.write(buffers);
  EXPECT_FLOAT_EQ(buffers[0], 2.5F);
  EXPECT_FLOAT_EQ(buffers[16], 2.75F);
}

TEST(StateShards, CoverEachArrayInWholeBlocks) {
  EXPECT_EQ(block_of(1), 4096);
  EXPECT_EQ(block_of(1024 * 4096), 4096);
  EXPECT_EQ(block_of(1024 * 4096 + 1), 8192);
  const FlatLayout layout({{"a", {5}, Initial::zero, 1, true},
                           {"b", {100 * 4096 + 1}, Initial::zero, 1, true},
                           {"c", {4096}, Initial::zero, 1, true},
                           {"d", {3, 4097}, Initial::zero, 1, true}});
  for (const int ranks : {1, 2, 3, 7}) {
    std::vector<int> covered(static_cast<std::size_t>(layout.size), 0);
    std::vector<std::int64_t> sizes;
    for (int rank = 0; rank < ranks; ++rank) {
      const StateShards shards(layout, ranks, rank);
      EXPECT_EQ(shards.active(), ranks > 1);
      std::vector<float> kept(static_cast<std::size_t>(shards.own_size()));
      std::int64_t size = 0;
      for (std::size_t array = 0; array < layout.entries.size(); ++array) {
        const Range own = shards.own(array);
        EXPECT_EQ(own, shards.of(array, rank));
        EXPECT_TRUE(own.empty() || (own.begin - layout.entries[array].offset) % 4096 == 0);
        for (std::int64_t i = own.begin; i < own.end; ++i) ++covered[static_cast<std::size_t>(i)];
        EXPECT_EQ(shards.kept(array, std::span(kept)).size(), static_cast<std::size_t>(own.count()));
        size += own.count();
      }
      sizes.push_back(size);
    }
    for (const FlatEntry& entry : layout.entries)
      for (std::int64_t i = entry.offset; i < entry.offset + entry.count; ++i)
        EXPECT_EQ(covered[static_cast<std::size_t>(i)], 1);
    const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
    EXPECT_LE(*most - *least, 3 * 4096);
  }
}

TEST(StateShards, NameTheOwnersOfAPieceOfTheFlatArray) {
  const FlatLayout layout({{"a", {3 * 4096}, Initial::zero, 1, true}, {"b", {10}, Initial::zero, 1, true}});
  const StateShards shards(layout, 3, 0);
  const OwnedParts parts = shards.owners(4000, layout.size);
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[0].begin, 0U);
  EXPECT_EQ(parts[0].end, 96U);
  EXPECT_EQ(parts[0].rank, 0);
  EXPECT_EQ(parts[2].end, 3U * 4096 - 4000);
  EXPECT_EQ(parts[3].end - parts[3].begin, 10U);
  EXPECT_TRUE(shards.owners(4000, 4000).empty());
}

// Whatever the shares, the bits are those of one rank.
TEST(Optimizer, SharesHaveTheBitsOfTheWhole) {
  const FlatLayout layout({{"w", {3, 4100}, Initial::zero, 1, true}, {"b", {40}, Initial::zero, 1, false}});
  const auto number = [](std::size_t i, double size) {
    return static_cast<float>(size * (unit_real(hash64(5, i)) - 0.4));
  };
  for (const OptimizerName name : {OptimizerName::sgd, OptimizerName::adamw, OptimizerName::lars,
                                   OptimizerName::larc, OptimizerName::lamb}) {
    OptimizerConfig config;
    config.name = name;
    config.clip_norm = 0.5;
    config.larc_trust = name == OptimizerName::larc ? 0.02 : 0;
    std::vector<float> values(static_cast<std::size_t>(layout.size));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = number(i, 1);
    std::vector<float> gradients(values.size());
    for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = number(i + values.size(), 0.1);
    std::vector<float> whole = values;
    std::vector<float> changed = gradients;
    Optimizer(config, layout).step(whole, changed, 0.1);
    // The ranks' block sums, of each collective call: first each rank records its own.
    constexpr int kRanks = 3;
    std::vector<std::vector<double>> sums;
    for (int round = 0; round < 4; ++round) {  // as many calls at most
      std::vector<std::vector<double>> found;
      for (int rank = 0; rank < kRanks; ++rank) {
        std::size_t call = 0;
        const auto add_up = [&](std::span<double> blocks) {
          if (found.size() <= call) found.resize(call + 1, std::vector<double>(blocks.size(), 0.0));
          for (std::size_t i = 0; i < blocks.size(); ++i) found[call][i] += blocks[i];
          if (call < sums.size()) std::ranges::copy(sums[call], blocks.begin());
          ++call;
        };
        std::vector<float> own = values;
        std::vector<float> own_gradients = gradients;
        const StateShards shards(layout, kRanks, rank);
        Optimizer(config, layout, shards, add_up).step(own, own_gradients, 0.1);
        if (round < 3) continue;
        for (std::size_t array = 0; array < layout.entries.size(); ++array)
          for (std::int64_t i = shards.own(array).begin; i < shards.own(array).end; ++i)
            ASSERT_EQ(own[static_cast<std::size_t>(i)], whole[static_cast<std::size_t>(i)]) << name_of(name);
      }
      sums = found;
    }
  }
}

TEST(TrainingState, GoesThroughACheckpointUnchanged) {
  const ModelGraph graph = build_model(default_model(ModelName::cosmoflow), {1, {8, 8, 8}}, 2);
  TrainingState state(graph, {}, 0.5, nullptr);
  state.flat.fill_initial_values(3);
  for (float& g : state.flat.gradients()) g = 0.25F;
  state.optimizer.step(state.flat.values(), state.flat.gradients(), 1e-3);
  state.average.update(state.flat.values(), 1);
  TrainingCounters& counters = state.counters;
  counters.epoch = 2;
  counters.step = 11;
  counters.epoch_loss = 1.0 / 3;
  EpochRow row;
  row.epoch = 1;
  row.train_loss = 0.1;
  row.validation.targets.push_back({"a", 0.1, 0.2, 0.3});
  counters.history.push_back(row);
  row.epoch = 2;
  row.train_loss = row.validation.loss = row.validation.targets[0].mse = std::nan("");
  counters.history.push_back(row);
  counters.best_value = std::nan("");
  state.lagged.exchange(state.flat.exchange(), {7, 0.5, 0.25});
  const Normalisation normalisation = {{1.0 / 3}, {2}, {3, 4}, {5, 6}, {7}, {8}};
  const SnapshotCopy saved(snapshot(state, normalisation, {{"seed", "1"}}));
  std::string folder = (std::filesystem::temp_directory_path() / "wflow-state-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  write_checkpoint(folder + "/x.wfck", saved.get());

  TrainingState state2(graph, {}, 0.5, nullptr);
  const Normalisation normalisation2 = restore_checkpoint(CheckpointFile(folder + "/x.wfck"), state2);
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(std::ranges::equal(state.flat.values(), state2.flat.values()));
  EXPECT_EQ(normalisation, normalisation2);
  EXPECT_EQ(state2.lagged.step().value().samples, 7);
  EXPECT_TRUE(std::ranges::equal(state.lagged.sums(), state2.lagged.sums()));
  EXPECT_EQ(state2.optimizer.steps(), std::vector<std::int64_t>{1});
  const Snapshot again = snapshot(state2, normalisation2, {{"seed", "1"}});
  EXPECT_EQ(again.header.dump(), saved.get().header.dump());
  for (std::size_t i = 0; i < again.arrays.size(); ++i)
    EXPECT_TRUE(std::ranges::equal(again.arrays[i].values, saved.get().arrays[i].values)) << i;
}

TEST(ComposedModels, KeepTheRuleOfInitialWeights) {
  DatasetInfo info;
  DataField image;
  image.name = "image";
  image.shape = {1, {1, 16, 16}};
  info.fields = {image};
  for (const ModelName name : {ModelName::gan, ModelName::wae}) {
    TrainConfig config;
    config.data = "d";
    config.inputs = {"image"};
    config.model = default_model(name);
    for (const InitialWeights rule : {InitialWeights::automatic, InitialWeights::torch}) {
      config.model.initial = rule;
      EXPECT_EQ(expanded(config, info).model.initial, rule) << name_of(name);
    }
  }
}

TEST(TrainingState, FingerprintNamesWhatDiffers) {
  TrainConfig config;
  config.model = default_model(ModelName::cosmoflow);
  config.data = "a";
  DatasetInfo data;
  data.hash = "h";
  const nlohmann::json before = fingerprint(config, data);
  config.data = "elsewhere";
  config.ranks = 4;
  config.threads = 2;
  config.checkpoint.keep_last = 9;
  EXPECT_EQ(fingerprint_differences(before, fingerprint(config, data)), "");
  config.model.width = 8;
  config.seed = 3;
  EXPECT_EQ(fingerprint_differences(before, fingerprint(config, data)),
            "'model.width' was 4 and is 8, 'seed' was 1 and is 3");
  data.hash = "i";
  EXPECT_THAT(fingerprint_differences(before, fingerprint(config, data)), testing::HasSubstr("data_hash"));
}

// Fingerprint of a revision in which norms had no names and losses no keys (docs/formats/checkpoints.md,
// 2026-11-21).
TEST(TrainingState, FingerprintsOfEarlierRevisionsAreUnderstood) {
  const nlohmann::json before = nlohmann::json::parse(R"({
    "augment": ["flip"], "batch": "7", "data_hash": "h", "deterministic": "true", "early_stop": "0", "epochs": "4",
    "loss": "huber",
    "model": {"batch_norm": "true", "dense": ["64", "32"], "dropout": "0", "leaky_slope": "0.01", "name": "cosmoflow",
              "tanh_output": "false", "width": "3"},
    "normalise": "true",
    "optimizer": {"beta1": "0.9", "beta2": "0.999", "clip_norm": "0", "epsilon": "1e-08", "larc_trust": "0",
                  "learning_rate": "0.01", "momentum": "0.9", "name": "adamw", "nesterov": "false",
                  "weight_decay": "0.01"},
    "schedule": {"decay": "cosine", "final_factor": "0", "power": "1", "step_epochs": [], "step_factor": "0.1",
                 "warmup_epochs": "0"},
    "seed": "1", "select": "last", "shuffle_labels": "false", "targets": [], "transform": {"log": "0.1"}})");
  TrainConfig config;
  config.batch = 7;
  config.epochs = 4;
  config.model = default_model(ModelName::cosmoflow);
  config.model.width = 3;
  config.model.norm = Norm::batch;
  config.model.leaky_slope = 0.01;
  config.model.level_means = false;
  config.loss.name = LossName::huber;
  config.augment.flip = true;
  config.transform.name = TransformName::log;
  config.optimizer.learning_rate = 0.01;
  config.optimizer.weight_decay = 0.01;
  config.inputs = {kField};
  DatasetInfo data;
  data.hash = "h";
  EXPECT_EQ(fingerprint_differences(upgraded_fingerprint(before), fingerprint(config, data)), "");
  config.model.norm = Norm::none;
  EXPECT_EQ(fingerprint_differences(upgraded_fingerprint(before), fingerprint(config, data)),
            "'model.norm' was batch and is none");
}

// Fingerprint of a revision with `initial` (2026-11-23): its checkpoints continue, though new trainings begin
// differently.
TEST(TrainingState, FingerprintsFromBeforeInitAreUnderstood) {
  for (const ModelName name : {ModelName::cosmoflow, ModelName::mlp, ModelName::cnn}) {
    TrainConfig config;
    config.model = default_model(name);
    config.inputs = {kField};
    DatasetInfo data;
    data.hash = "h";
    nlohmann::json before = fingerprint(config, data);
    before["model"].erase("init");
    before["model"]["initial"] = name == ModelName::cosmoflow ? "data" : "random";
    EXPECT_EQ(fingerprint_differences(upgraded_fingerprint(before), fingerprint(config, data)), "");
    config.model.initial = InitialWeights::torch;
    EXPECT_THAT(fingerprint_differences(upgraded_fingerprint(before), fingerprint(config, data)),
                testing::HasSubstr("and is torch"));
  }
}

}  // namespace
TEST(LossScale, HalvesAtAnOverflowAndGrowsAfterManyGoodSteps) {
  LossScale scale = LossScale::begun();
  EXPECT_FALSE(scale.takes(false));
  EXPECT_EQ(scale.value, LossScale::kFirst / 2);
  for (std::int64_t i = 1; i < LossScale::kGrowsAfter; ++i) ASSERT_TRUE(scale.takes(true));
  EXPECT_EQ(scale.value, LossScale::kFirst / 2);
  EXPECT_TRUE(scale.takes(true));
  EXPECT_EQ(scale.value, LossScale::kFirst);
  while (scale.value > 1) EXPECT_FALSE(scale.takes(false));
  EXPECT_TRUE(scale.takes(false)) << "no scale helps";
  EXPECT_TRUE(LossScale().takes(false)) << "off";
  EXPECT_EQ(LossScale().value, 1);
}

}  // namespace wflow::trainer
