// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/tournament.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "trainer/data/trainer_part.h"
#include "trainer/training/report.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Tournament, PairsAreMutualAndOneOfAnOddNumberStaysAlone) {
  for (const int trainers : {1, 2, 3, 4, 5, 8, 9}) {
    for (std::int64_t round = 1; round <= 20; ++round) {
      const auto partners = partners_in(7, round, trainers);
      ASSERT_EQ(partners.size(), static_cast<std::size_t>(trainers));
      int alone = 0;
      for (int k = 0; k < trainers; ++k) {
        const auto partner = partners[static_cast<std::size_t>(k)];
        if (!partner) {
          ++alone;
          continue;
        }
        EXPECT_NE(*partner, k);
        EXPECT_EQ(partners[static_cast<std::size_t>(*partner)], k);
      }
      EXPECT_EQ(alone, trainers % 2);
    }
  }
}

TEST(Tournament, PairsDependOnSeedAndRoundAloneAndAllAreAsLikely) {
  EXPECT_EQ(partners_in(7, 3, 8), partners_in(7, 3, 8));
  EXPECT_NE(partners_in(7, 3, 8), partners_in(7, 4, 8));
  EXPECT_NE(partners_in(7, 3, 8), partners_in(8, 3, 8));
  std::map<int, int> of_first;
  std::map<int, int> alone;
  for (std::int64_t round = 1; round <= 3000; ++round) {
    ++of_first[partners_in(1, round, 4).front().value()];
    const auto odd = partners_in(2, round, 3);
    for (int k = 0; k < 3; ++k)
      if (!odd[static_cast<std::size_t>(k)]) ++alone[k];
  }
  for (const int k : {1, 2, 3}) EXPECT_NEAR(of_first[k], 1000, 100) << k;
  for (const int k : {0, 1, 2}) EXPECT_NEAR(alone[k], 1000, 100) << k;
}

TEST(Tournament, ThePartnerMustWinEveryMetric) {
  const MetricName loss;
  const MetricName r2 = metric_named("r2").value();
  const std::vector<MetricName> one = {loss};
  const std::vector<MetricName> two = {loss, r2};
  const auto takes = [](std::vector<double> own, std::vector<double> partners,
                        const std::vector<MetricName>& metrics) {
    return takes_partner(own, partners, metrics);
  };
  EXPECT_TRUE(takes({2}, {1}, one));
  EXPECT_FALSE(takes({1}, {2}, one));
  EXPECT_FALSE(takes({1}, {1}, one)) << "a tie stays";
  EXPECT_TRUE(takes({2, 0.5}, {1, 0.6}, two)) << "r2 is better if it is larger";
  EXPECT_FALSE(takes({2, 0.5}, {1, 0.4}, two));
  EXPECT_FALSE(takes({2, 0.5}, {1, 0.5}, two)) << "a tie in one metric stays";
}

TEST(Tournament, ModelsThatDivergedAlwaysLose) {
  const std::vector<MetricName> two = {MetricName(), metric_named("r2").value()};
  const auto takes = [&](std::vector<double> own, std::vector<double> partners) {
    return takes_partner(own, partners, two);
  };
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    EXPECT_FALSE(takes({1, 0.5}, {bad, 0.9}));
    EXPECT_FALSE(takes({1, 0.5}, {0.5, bad}));
    EXPECT_TRUE(takes({bad, 0.5}, {9, 0.1})) << "although r2 is worse";
    EXPECT_TRUE(takes({1, bad}, {9, 0.1}));
    EXPECT_FALSE(takes({bad, bad}, {bad, bad})) << "both keep their own";
    EXPECT_FALSE(takes({bad, 0.5}, {bad, 0.9}));
  }
}

TEST(Tournament, FactorsAreDrawnByRoundAndTrainer) {
  const std::vector<PerturbConfig> perturb = {{kPerturbedRate, {0.8, 1.25}}, {kPerturbedDecay, {0.5, 2}}};
  const auto drawn_in = [&](std::int64_t round, int trainer) {
    PerturbFactors factors;
    factors.draw(perturb, 3, round, trainer);
    return factors;
  };
  std::map<std::pair<double, double>, int> drawn;
  for (std::int64_t round = 1; round <= 500; ++round) {
    for (int trainer = 0; trainer < 4; ++trainer) {
      const PerturbFactors factors = drawn_in(round, trainer);
      ++drawn[{factors.rate, factors.weight_decay}];
    }
  }
  EXPECT_EQ(drawn.size(), 4U) << "the two are drawn independently";
  for (const auto& [factors, count] : drawn) EXPECT_NEAR(count, 500, 75);
  EXPECT_EQ(drawn_in(5, 1), drawn_in(5, 1));
}

StepPlan plan_of(std::size_t samples, std::size_t batch, std::int64_t epochs) {
  TrainingOrder order;
  order.samples = samples;
  order.batch = batch;
  return {order, {}, epochs};
}

TEST(Tournament, TrainersWithUnequalDataHaveEquallyManyRoundsByEpoch) {
  TournamentConfig config;
  config.trainers = 2;
  config.every_epochs = 2;
  const StepPlan small = plan_of(10, 4, 7);  // 3 steps an epoch
  const StepPlan large = plan_of(30, 4, 7);  // 8
  EXPECT_EQ(RoundPlan(config, small).most_rounds(), 3);
  EXPECT_EQ(RoundPlan(config, large).most_rounds(), 3);
  EXPECT_EQ(RoundPlan(config, small).step(2), 12);
  EXPECT_EQ(RoundPlan(config, large).step(2), 32);
  const StepPlan even = plan_of(10, 4, 6);
  EXPECT_EQ(RoundPlan(config, even).most_rounds(), 2) << "training follows the last round";
  config.trainers = 1;
  EXPECT_EQ(RoundPlan(config, large).most_rounds(), 0);
}

TEST(Tournament, RoundsBySteps) {
  TournamentConfig config;
  config.trainers = 2;
  config.every_epochs = 0;
  config.every_steps = 7;
  const StepPlan plan = plan_of(10, 4, 7);  // 21 steps
  EXPECT_EQ(RoundPlan(config, plan).most_rounds(), 2);
  EXPECT_EQ(RoundPlan(config, plan).step(2), 14);
  config.every_steps = 21;
  EXPECT_EQ(RoundPlan(config, plan).most_rounds(), 0);
}

TEST(Tournament, TheRecordComesBackFromACheckpoint) {
  TournamentRecord record;
  record.rounds = 2;
  record.diverged = true;
  record.factors = {0.1 * 3, 1.25};
  record.bouts.push_back({1, 1, 4, 2, 3, {{"loss", 0.1, 0.3}, {"r2", kNan, 0.2}}, false, true, {0.8, 1}});
  record.bouts.push_back({2, 2, 8, 2, 0, {}, true, false, {0.8, 1}});
  const auto again = TournamentRecord::from_json(nlohmann::json::parse(record.to_json().dump()));
  EXPECT_EQ(again.to_json().dump(), record.to_json().dump());
  EXPECT_EQ(again.factors, record.factors);
  EXPECT_TRUE(std::isnan(again.bouts.front().scores.back().own));
  EXPECT_EQ(describe(again.bouts.front()),
            "takes the model of trainer 3 (loss 0.3 against 0.1, r2 0.2 against nan)");
  EXPECT_EQ(describe(again.bouts.back()), "has diverged and finds no model: no partner");
}

TEST(Tournament, AnEarlierFingerprintIsCompletedWithoutItsRanks) {
  yaml::Diagnostics diagnostics("train.yaml");
  const yaml::Node block =
      yaml::parse("{data: d, ranks: 8, tournament: {trainers: 4, every: 7}}", diagnostics);
  const TrainConfig config = read_train_config(block, diagnostics);
  ASSERT_FALSE(diagnostics.has_errors());
  nlohmann::json now = fingerprint(config, DatasetInfo());
  nlohmann::json before = now;
  before.erase("batch");  // as if the key was new
  EXPECT_THAT(fingerprint_differences(before, now), HasSubstr("'batch'"));
  nlohmann::json upgraded = upgraded_fingerprint(before);
  for (nlohmann::json* one : {&upgraded, &now}) one->erase("inputs");
  EXPECT_EQ(fingerprint_differences(upgraded, now), "");
}

TEST(Tournament, MetricsHaveTheRoundsOfTheirEpoch) {
  EpochRow first;
  first.epoch = 1;
  EpochRow second;
  second.epoch = 2;
  const std::vector<Bout> bouts = {{1, 2, 9, 1, 2, {{"loss", 0.5, 0.4}}, false, true, {1}}};
  const std::string lines = metrics_jsonl({first, second}, bouts);
  const std::string line = lines.substr(lines.find('\n') + 1);
  EXPECT_THAT(line, HasSubstr("\"rounds\":[{"));
  const nlohmann::json round = nlohmann::json::parse(line).at("rounds").at(0);
  EXPECT_EQ(round.at("partner"), 2);
  EXPECT_EQ(round.at("took"), true);
  EXPECT_EQ(round.at("scores").at(0).at("partner"), 0.4);
  EXPECT_FALSE(nlohmann::json::parse(lines.substr(0, lines.find('\n'))).contains("rounds"));
}

TEST(TrainerPart, DisjointPartsCoverAllSamplesOnce) {
  constexpr int kTrainers = 4;
  std::map<SamplePlace, int> places;
  std::vector<int> parts(kTrainers);
  for (std::int64_t id = 0; id < 8000; ++id) {
    int owners = 0;
    for (int trainer = 0; trainer < kTrainers; ++trainer) {
      const SamplePlace place = place_of(id, {11, trainer, kTrainers, 0.1, true});
      if (place == SamplePlace::other_trainer) continue;
      ++owners;
      ++places[place];
      ++parts[static_cast<std::size_t>(trainer)];
    }
    ASSERT_EQ(owners, 1);
  }
  EXPECT_NEAR(places[SamplePlace::held_out], 800, 90);
  for (const int samples : parts) EXPECT_NEAR(samples, 2000, 150);
}

TEST(TrainerPart, SharedSamplesAreHeldOutByAll) {
  for (std::int64_t id = 0; id < 500; ++id) {
    std::set<SamplePlace> places;
    for (int trainer = 0; trainer < 3; ++trainer) places.insert(place_of(id, {11, trainer, 3, 0.2, false}));
    ASSERT_EQ(places.size(), 1U);
    EXPECT_FALSE(places.contains(SamplePlace::other_trainer));
  }
  EXPECT_EQ(place_of(5, {11, 0, 1, 0.5, true}), SamplePlace::training) << "one trainer has all samples";
}

class Numbers final : public SampleSource {
 public:
  explicit Numbers(std::size_t size) : values_(size) {
    for (std::size_t i = 0; i < size; ++i) values_[i] = static_cast<double>(i);
  }
  std::size_t size() const override { return values_.size(); }
  std::int64_t id(std::size_t i) const override { return static_cast<std::int64_t>(i) + 1000; }
  std::span<const double> targets(std::size_t i) const override { return {&values_[i], 1}; }
  void read_scaled(std::size_t, std::span<const std::size_t> indices, std::span<const std::span<float>> to,
                   std::span<const ChannelScale>, converters::MemoryBudget*) const override {
    for (std::size_t k = 0; k < indices.size(); ++k) to[k][0] = static_cast<float>(values_[indices[k]]);
  }
  std::int64_t compressed_bytes(std::size_t) const override { return 1000; }

 private:
  std::vector<double> values_;
};

TEST(TrainerPart, ATrainerReadsItsOwnSamples) {
  std::unique_ptr<SampleSource> training = std::make_unique<Numbers>(200);
  const TrainerPart part = {11, 1, 3, 0.25, true};
  const SamplesBeside beside = take_part(training, &part);
  EXPECT_EQ(beside.all->size(), 200U);
  EXPECT_LT(training->size() + beside.held_out->size(), 120U);
  for (std::size_t i = 0; i < training->size(); ++i) {
    const std::int64_t id = training->id(i);
    EXPECT_EQ(place_of(id, part), SamplePlace::training);
    EXPECT_EQ(training->targets(i).front(), static_cast<double>(id - 1000));
    float value = 0;
    const std::span<float> to(&value, 1);
    training->read_scaled(0, {&i, 1}, {&to, 1}, {}, nullptr);
    EXPECT_EQ(value, static_cast<float>(id - 1000));
  }
  for (std::size_t i = 0; i < beside.held_out->size(); ++i)
    EXPECT_EQ(place_of(beside.held_out->id(i), part), SamplePlace::held_out);

  std::unique_ptr<SampleSource> whole = std::make_unique<Numbers>(200);
  EXPECT_EQ(take_part(whole, nullptr).all, nullptr);
  const TrainerPart alone = {11, 0, 1, 0.25, true};
  EXPECT_EQ(take_part(whole, &alone).held_out, nullptr);
  EXPECT_EQ(whole->size(), 200U);
}

TEST(TrainerPart, TooFewSamplesAreRefused) {
  std::unique_ptr<SampleSource> training = std::make_unique<Numbers>(5);
  const TrainerPart part = {11, 2, 64, 0.1, true};
  try {
    take_part(training, &part);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("5 training samples are too few for 64 trainers: trainer 3 has"));
  }
}

}  // namespace
}  // namespace wflow::trainer
