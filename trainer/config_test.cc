// SPDX-License-Identifier: Apache-2.0
#include "trainer/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "trainer/search_config.h"

namespace wflow::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct ReadResult {
  TrainConfig config;
  std::string messages;
};

ReadResult read(const std::string& text) {
  yaml::Diagnostics diagnostics("train.yaml");
  const yaml::Node root = yaml::parse(text, diagnostics);
  ReadResult result;
  result.config = read_train_config(root, diagnostics);
  result.messages = diagnostics.to_string();
  return result;
}

TEST(TrainConfig, NeedsOnlyData) {
  const ReadResult result = read("data: shards\n");
  EXPECT_EQ(result.messages, "");
  EXPECT_EQ(result.config.data, "shards");
  EXPECT_EQ(result.config.output, "training");
  EXPECT_EQ(result.config.model.name, ModelName::automatic);  // chosen later, by the data's shape
  EXPECT_EQ(result.config.optimizer.weight_decay, 1e-2);
}

TEST(TrainConfig, ATournamentReadsBackEqual) {
  const ReadResult result = read(
      "data: d\nranks: 8\nepochs: 9\nmetric: r2\n"
      "tournament:\n"
      "  trainers: 4\n  every: 2 epochs\n  rounds: 3\n  metrics: [loss, mae_ratio/y]\n  fraction: 0.2\n"
      "  data: shared\n  exchange: all\n  perturb: {optimizer.learning_rate: [0.8, 1.25]}\n");
  EXPECT_EQ(result.messages, "");
  const TournamentConfig& tournament = result.config.tournament;
  EXPECT_EQ(tournament.trainers, 4);
  EXPECT_EQ(tournament.every_epochs, 2);
  EXPECT_EQ(tournament.rounds, 3);
  EXPECT_EQ(tournament.data, TournamentData::shared);
  EXPECT_EQ(tournament.exchange, ModelExchange::all);
  EXPECT_EQ(tournament.perturb.front().factors, (std::vector<double>{0.8, 1.25}));
  EXPECT_EQ(tournament_metrics(result.config).back().target, "y");
  for (const char* text :
       {"{trainers: 4, every: 2 epochs, rounds: 3, exchange: all}", "{trainers: 2, every: 200}", "1",
        "{trainers: 2, exchange: [a, b], every: 7 steps}"}) {
    const ReadResult one = read(fmt::format("{{data: d, ranks: 4, tournament: {}}}", text));
    EXPECT_EQ(one.messages, "") << text;
    yaml::Diagnostics diagnostics("");
    EXPECT_EQ(read_train_config(to_yaml(one.config), diagnostics), one.config) << text;
  }
  const ReadResult plain = read("{data: d}");
  EXPECT_FALSE(plain.config.tournament.on());
  EXPECT_THAT(yaml::emit(to_yaml(plain.config)), Not(HasSubstr("tournament")));
  EXPECT_EQ(tournament_metrics(read("{data: d, metric: r2, tournament: 1}").config).front().name, "r2");
  EXPECT_EQ(read("{data: d, ranks: 8, batch: 4, tournament: 2}").messages, "") << "a batch of each trainer";
}

TEST(TrainConfig, WrongTournamentsAreRefused) {
  const auto messages = [](const std::string& keys) { return read("{data: d, " + keys + "}").messages; };
  EXPECT_THAT(messages("ranks: 6, tournament: 4"),
              HasSubstr("'ranks' (6) must be a multiple of 'trainers' (4)"));
  EXPECT_THAT(messages("tournament: {every: 1 epoch}"), HasSubstr("trainers"));
  EXPECT_THAT(messages("ranks: 2, batch: 16, tournament: {trainers: 2, metrics: acuracy}"),
              HasSubstr("found 'acuracy'; did you mean 'accuracy'?"));
  EXPECT_THAT(messages("ranks: 2, tournament: {trainers: 2, metrics: accuracy}"),
              HasSubstr("'accuracy' is for classes, and the loss mse learns numbers"));
  EXPECT_THAT(
      messages(
          "ranks: 2, tournament: {trainers: 2, exchange: [generator]}, model: {layers: [{dense: 1, part: "
          "generater}]}"),
      HasSubstr("'exchange' names 'generator', which is no part of the network; did you mean 'generater'?"));
  EXPECT_THAT(messages("ranks: 2, tournament: {trainers: 2, exchange: some}"),
              HasSubstr("a list of the network's parts"));
  EXPECT_THAT(messages("ranks: 2, tournament: {trainers: 2, perturb: {batch: [0.5, 2]}}"),
              HasSubstr("'perturb' can't change 'batch' in the middle of a training; it can change "
                        "optimizer.learning_rate"));
  EXPECT_THAT(
      messages("ranks: 2, optimizer: sgd, tournament: {trainers: 2, perturb: {optimizer.weight_decay: 2}}"),
      HasSubstr("'perturb' multiplies optimizer.weight_decay, which is 0: set optimizer.weight_decay"));
  EXPECT_THAT(messages("ranks: 2, tournament: {trainers: 2, perturb: {optimizer.learning_rate: [0, 2]}}"),
              HasSubstr("must be factors from 0.001 to 1000"));
  for (const char* every : {"0", "0 epochs", "1 day", "often", "-3"})
    EXPECT_THAT(messages(fmt::format("ranks: 2, tournament: {{trainers: 2, every: {}}}", every)),
                HasSubstr("'every' is the time between two rounds"))
        << every;
  EXPECT_THAT(messages("ranks: 2, epochs: 3, tournament: {trainers: 2, every: 3 epochs}"),
              HasSubstr("no round takes place: 'every' (3 epochs) must be less than the 3 epochs"));
  EXPECT_THAT(messages("ranks: 2, epochs: 6, tournament: {trainers: 2, every: 2 epochs, rounds: 3}"),
              HasSubstr("'rounds' (3) must be at most 2"));
  for (const char* other : {"members: 2", "early_stop: 2", "shard: optimizer", "stage: memory", "grid: auto",
                            "search: {rungs: [1, 2]}, epochs: 2"})
    EXPECT_THAT(messages(fmt::format("ranks: 2, tournament: 2, {}", other)), HasSubstr("do not go together"))
        << other;
  EXPECT_THAT(messages("ranks: 2, tournament: 2, optimizer: {name: sgd, lag: 1}"),
              HasSubstr("'lag: 1' do not go"));
}

TEST(TrainConfig, GroupsReadBackEqual) {
  const ReadResult result =
      read("data: d\nranks: 8\ngroups: {count: 4, steps: 20, outer: {rate: 0.7, momentum: 0.9}}\n");
  EXPECT_EQ(result.messages, "");
  EXPECT_EQ(result.config.groups, (GroupsConfig{4, 20, {0.7, 0.9}}));
  for (const char* text : {"{steps: 5}", "{count: nodes, steps: 5}", "{count: 2, steps: 1}"}) {
    const ReadResult one = read(fmt::format("{{data: d, ranks: 4, groups: {}}}", text));
    EXPECT_EQ(one.messages, "") << text;
    EXPECT_TRUE(one.config.groups.outer.is_mean());
    yaml::Diagnostics diagnostics("");
    EXPECT_EQ(read_train_config(to_yaml(one.config), diagnostics), one.config) << text;
  }
  EXPECT_FALSE(read("{data: d}").config.groups.on());
}

TEST(TrainConfig, WrongGroupsAreRefused) {
  const auto messages = [](const std::string& keys) { return read("{data: d, " + keys + "}").messages; };
  EXPECT_THAT(messages("ranks: 6, groups: {count: 4, steps: 5}"),
              HasSubstr("'ranks' (6) must be a multiple of 'count' (4) of 'groups'"));
  EXPECT_THAT(
      messages("ranks: 6, grid: 3, groups: {count: 4, steps: 5}"),
      HasSubstr("'ranks' (6) must be a multiple of 12: 4 groups, and 3 ranks that share each sample"));
  EXPECT_THAT(messages("groups: {count: 1}"), HasSubstr("steps"));
  EXPECT_THAT(messages("groups: {count: 0, steps: 5}"), HasSubstr("'count'"));
  EXPECT_THAT(messages("groups: {count: some, steps: 5}"), HasSubstr("'count'"));
  EXPECT_THAT(messages("groups: {steps: 5, outer: {momentum: 1}}"), HasSubstr("'momentum'"));
  for (const char* other : {"tournament: 2", "shard: optimizer", "optimizer: {name: sgd, lag: 1}",
                            "noise_scale: 5", "grid: auto", "deterministic: grid"})
    EXPECT_THAT(messages(fmt::format("ranks: 2, groups: {{count: 2, steps: 5}}, {}", other)),
                HasSubstr("'groups' and"))
        << other;
}

TEST(TrainConfig, ATrainingThatFollowsReadsBackEqual) {
  EXPECT_EQ(read("{data: d, follow: true}").config.follow.stages, kUsualStages);
  EXPECT_FALSE(read("{data: d, follow: false}").config.follow.on());
  for (const char* keys :
       {"follow: true", "follow: {stages: 3, epochs: 7}", "follow: true, until: validation_error < 0.05",
        "follow: true, until: validation_r2 > 0.9", "follow: true, until: 'mae_ratio/y < 0.2'",
        "follow: {stages: 3, stage: 2, folders: [a, b], blocks: 5, source: data}"}) {
    const ReadResult one = read(fmt::format("{{data: d, {}}}", keys));
    EXPECT_EQ(one.messages, "") << keys;
    EXPECT_TRUE(one.config.follow.on());
    yaml::Diagnostics diagnostics("");
    EXPECT_EQ(read_train_config(to_yaml(one.config), diagnostics), one.config) << keys;
  }
  const GoalConfig goal = read("{data: d, follow: true, until: validation_error < 0.05}").config.until;
  EXPECT_EQ(goal.text(), "validation_mae_ratio < 0.05");
  EXPECT_TRUE(goal.is_met(0.04));
  EXPECT_FALSE(goal.is_met(0.05));
  EXPECT_FALSE(goal.is_met(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_TRUE(read("{data: d, follow: true, until: r2 > 0.9}").config.until.is_met(0.95));
}

TEST(TrainConfig, WrongFollowsAreRefused) {
  const auto messages = [](const std::string& keys) { return read("{data: d, " + keys + "}").messages; };
  EXPECT_THAT(messages("until: r2 > 0.9"), HasSubstr("'until' needs 'follow: true'"));
  for (const char* goal : {"soon", "mae_ratio", "mae_ratio < low", "speed < 3", "[1, 2]"})
    EXPECT_THAT(messages(fmt::format("follow: true, until: {}", goal)),
                HasSubstr("'until' must compare a metric in validation with a number"))
        << goal;
  EXPECT_THAT(messages("follow: {stages: 0}"), HasSubstr("'stages'"));
  EXPECT_THAT(messages("follow: {epochs: 0}"), HasSubstr("'epochs'"));
  EXPECT_THAT(messages("follow: perhaps"), HasSubstr("follow"));
  for (const char* other : {"members: 2", "tournament: 2", "init_from: last", "search: {rungs: [1, 2]}"})
    EXPECT_THAT(messages(fmt::format("ranks: 2, follow: true, {}", other)), HasSubstr("'follow' and"))
        << other;
}

std::vector<std::string> texts_of(const std::vector<yaml::Node>& nodes) {
  std::vector<std::string> texts;
  for (const yaml::Node& node : nodes) texts.push_back(node.text);
  return texts;
}

TEST(TrainConfig, AModelMayBeATorchScriptFile) {
  for (const char* text : {"{data: d, model: nets/my.pt}", "{data: d, model: {file: nets/my.pt}}"}) {
    const auto result = read(text);
    EXPECT_EQ(result.messages, "");
    EXPECT_EQ(result.config.model.name, ModelName::module);
    EXPECT_EQ(result.config.model.file, "nets/my.pt");
    yaml::Diagnostics diagnostics("");
    EXPECT_EQ(read_train_config(to_yaml(result.config), diagnostics), result.config);
    const yaml::Node block = yaml::parse(text, diagnostics);
    EXPECT_THAT(texts_of(module_files(block)), ElementsAre("nets/my.pt"));
  }
  yaml::Diagnostics diagnostics("");
  EXPECT_THAT(module_files(yaml::parse("{data: d, model: $(NET).pt}", diagnostics)), IsEmpty())
      << "not known yet";
  EXPECT_THAT(texts_of(module_files(yaml::parse("{data: d, model: cosmoflow}", diagnostics))), IsEmpty());
  EXPECT_THAT(read("{data: d, model: {file: a.pt, width: 3}}").messages, HasSubstr("width"));
}

TEST(TrainConfig, ALossAndMetricsMayBeTorchScriptFiles) {
  const char* text =
      "{data: d, loss: {file: loss.pt}, metrics: {spectrum: spectrum.pt, sum: \"prediction - target\"}}";
  const auto result = read(text);
  EXPECT_EQ(result.messages, "");
  EXPECT_EQ(result.config.loss.name, LossName::module);
  EXPECT_EQ(result.config.metrics.front().file, "spectrum.pt");
  yaml::Diagnostics diagnostics("");
  EXPECT_EQ(read_train_config(to_yaml(result.config), diagnostics), result.config);
  EXPECT_THAT(texts_of(module_files(yaml::parse(text, diagnostics))), ElementsAre("loss.pt", "spectrum.pt"));
  EXPECT_THAT(texts_of(module_files(yaml::parse(
                  "{data: d, heads: [{name: a, targets: [x], loss: {file: a.pt}}]}", diagnostics))),
              ElementsAre("a.pt"));
  EXPECT_THAT(read("{data: d, loss: module}").messages, HasSubstr("needs the key 'file'"));
  EXPECT_THAT(read("{data: d, loss: {name: mae, file: a.pt}}").messages, HasSubstr("leave out 'name'"));
  EXPECT_THAT(read("{data: d, loss: {formula: \"abs(target)\", file: a.pt}}").messages,
              HasSubstr("not both"));
}

TEST(TrainConfig, DefaultsFollowTheModelAndTheOptimizer) {
  const ReadResult result = read("{data: d, model: mlperf, optimizer: {name: sgd}, schedule: linear}");
  EXPECT_EQ(result.messages, "");
  EXPECT_EQ(result.config.model.width, 32);
  EXPECT_EQ(result.config.model.dropout, 0.5);
  EXPECT_EQ(result.config.model.norm, Norm::none);
  EXPECT_EQ(result.config.optimizer.learning_rate, 1e-2);
  EXPECT_EQ(result.config.optimizer.weight_decay, 0);
  EXPECT_EQ(result.config.schedule.decay, Decay::linear);
}

TEST(TrainConfig, ReportsAllErrorsAtOnceWithPlacesAndSuggestions) {
  const std::string messages = read(
                                   "data: d\n"
                                   "epohcs: 3\n"
                                   "batch: many\n"
                                   "model: {name: cosmflow, widht: 3}\n"
                                   "augment: [shift, filp]\n"
                                   "transform: lgo1p\n"
                                   "schedule: {decay: step}\n"
                                   "optimizer: {learning_rate: -1}\n")
                                   .messages;
  EXPECT_THAT(
      messages,
      HasSubstr("train.yaml:2:1: error: unknown key 'epohcs' in the train: block; did you mean 'epochs'?"));
  EXPECT_THAT(messages, HasSubstr("train.yaml:3:8: error: 'batch' must be a whole number"));
  EXPECT_THAT(messages, HasSubstr("did you mean 'cosmoflow'?"));
  EXPECT_THAT(messages, HasSubstr("unknown key 'widht' in the model: block; did you mean 'width'?"));
  EXPECT_THAT(
      messages,
      HasSubstr(
          "'augment' is a list of shift, flip, permute, {noise: NUMBER}; found the text 'filp'; did you "
          "mean 'flip'?"));
  EXPECT_THAT(messages, HasSubstr("did you mean 'log1p'?"));
  EXPECT_THAT(messages, HasSubstr("decay: step needs 'step_epochs'"));
  EXPECT_THAT(messages, HasSubstr("'learning_rate' must be between"));
}

TEST(TrainConfig, AGridIsANumberOrPartsOfEachAxis) {
  EXPECT_EQ(read("{data: d, ranks: 4, grid: 2}").config.grid.space, std::vector<std::int64_t>{2});
  EXPECT_EQ(read("{data: d, ranks: 4, grid: [2, 1, 2]}").config.grid.ranks(), 4);
  EXPECT_EQ(read("{data: d, ranks: 32, batch: 4, grid: {space: [2, 2, 2]}}").config.grid.ranks(), 8);
  EXPECT_EQ(read("{data: d}").config.grid.ranks(), 1);
  EXPECT_EQ(read("{data: d, ranks: 64, grid: auto}").config.grid.choice, GridChoice::fastest);
  EXPECT_EQ(read("{data: d, ranks: 4, grid: {space: fit}, memory: 3GiB}").config.grid.choice,
            GridChoice::fit);
  EXPECT_EQ(read("{data: d, deterministic: grid}").config.cuts, (SampleCuts{true, {}}));
  EXPECT_EQ(read("{data: d, deterministic: {parts: [8, 1, 1]}}").config.cuts, (SampleCuts{true, {8, 1, 1}}));
  EXPECT_EQ(read("{data: d, deterministic: {}}").config.cuts, (SampleCuts{true, {}}));
  EXPECT_FALSE(read("{data: d, deterministic: false}").config.deterministic);
  EXPECT_FALSE(read("{data: d, deterministic: true}").config.cuts.on);
  EXPECT_THAT(read("{data: d, deterministic: girds}").messages, HasSubstr("deterministic"));
  EXPECT_THAT(read("{data: d, deterministic: {parts: 4}}").messages, HasSubstr("'parts' has 1 numbers"));
  EXPECT_THAT(read("{data: d, deterministic: grid, shard: weights}").messages,
              HasSubstr("'deterministic: grid' and 'shard' do not go together: exact sums need"));
  for (const char* text : {"{data: d, deterministic: grid}", "{data: d, deterministic: {parts: [8, 1, 1]}}"})
    EXPECT_EQ(read(yaml::emit(to_yaml(read(text).config))).config, read(text).config);
  EXPECT_THAT(read("{data: d, ranks: 4, grid: fit}").messages, HasSubstr("such as 'memory: 3GiB'"));
  EXPECT_THAT(read("{data: d, ranks: 2, grid: [2, 1]}").messages, HasSubstr("'space' has 2 numbers"));
  EXPECT_THAT(read("{data: d, ranks: 6, grid: 4}").messages,
              HasSubstr("4 ranks share each sample, so that 'ranks' (6) must be a multiple of 4"));
  EXPECT_THAT(read("{data: d, ranks: 8, batch: 3, grid: 2}").messages,
              HasSubstr("'ranks' (8) are 4 groups, and 'batch' has 3 samples"));
  EXPECT_THAT(read("{data: d, ranks: 2, grid: 2, noise_scale: 5}").messages,
              HasSubstr("'grid' and 'noise_scale' do not go together"));
}

TEST(TrainConfig, RefusesContradictions) {
  EXPECT_THAT(read("{data: d, ranks: 8, batch: 4}").messages,
              HasSubstr("'ranks' (8) must not be more than 'batch' (4)"));
  EXPECT_THAT(read("{data: d, epochs: 2, schedule: {warmup_epochs: 2}}").messages,
              HasSubstr("'warmup_epochs'"));
  EXPECT_THAT(read("{data: d, epochs: 9, schedule: {batch_epochs: [4, 4]}}").messages,
              HasSubstr("'batch_epochs' must rise"));
  EXPECT_THAT(read("{data: d, epochs: 9, schedule: {batch_epochs: [4, 9]}}").messages,
              HasSubstr("'batch_epochs' must be less than epochs (9)"));
  EXPECT_THAT(read("{data: d, early_stop: 5, schedule: plateau}").messages,
              HasSubstr("must be more than 'plateau_epochs' (5)"));
  EXPECT_EQ(read("{data: d, early_stop: 6, schedule: plateau}").messages, "");
  EXPECT_THAT(read("{data: d, noise_scale: 5, optimizer: {lag: 1}}").messages,
              HasSubstr("leave out one of them"));
  EXPECT_THAT(read("{}").messages, HasSubstr("needs the key 'data'"));
  EXPECT_THAT(read("[1, 2]").messages, HasSubstr("the train: block must be a mapping"));
  EXPECT_THAT(read("{data: d, augment: {noise: 0.1}, normalise: false}").messages,
              HasSubstr("is in deviations of normalised fields, and 'normalise' is false"));
  EXPECT_THAT(read("{data: d, augment: [flip, noise]}").messages, HasSubstr("as in {noise: 0.01}"));
  EXPECT_THAT(read("{data: d, stage: lokal}").messages, HasSubstr("did you mean 'local'?"));
  EXPECT_THAT(read("{data: d, stage: {memory: /x}}").messages, HasSubstr("needs the key 'local'"));
  EXPECT_THAT(read("{data: d, stage: {subset: 0}}").messages, HasSubstr("'subset' must be"));
  EXPECT_THAT(read("{data: d, stage: {subset: 4, memory: 1}}").messages, HasSubstr("'memory'"));
  EXPECT_THAT(read("{data: d, ranks: 3, batch: 8, stage: {subset: 4}}").messages,
              HasSubstr("needs a 'batch' that is a multiple of 'ranks'"));
  EXPECT_THAT(read("{data: d, ranks: 2, grid: {space: 2}, stage: {subset: 4}}").messages,
              HasSubstr("with 'grid' several ranks share a sample"));
  EXPECT_THAT(read("{data: d, batch_by: [type], stage: {subset: 4}}").messages,
              HasSubstr("'batch_by' orders the samples of the whole data set"));
  EXPECT_THAT(read("{data: d, memory: 1 GiB, stage: {subset: 4}}").messages,
              HasSubstr("leave out one of them"));
  EXPECT_THAT(read("{data: d, exclude_slow: 1.1}").messages, HasSubstr("'exclude_slow' is 1.1"));
  EXPECT_THAT(read("{data: d, transform: {lag: 1}}").messages, HasSubstr("needs the key 'log'"));
  EXPECT_THAT(read("{data: d, gradients: {wire: quarter}}").messages, HasSubstr("'wire'"));
  EXPECT_THAT(read("{data: d, members: 2, search: {rungs: [1, 2]}}").messages,
              HasSubstr("'members' and 'search' do not go together"));
  EXPECT_THAT(read("{data: d, members: 2, seed: 9223372036854775807}").messages,
              HasSubstr("'seed' is too large"));
  EXPECT_EQ(read("{data: d, seed: 9223372036854775807}").messages, "");
  for (const char* wrong : {"0", "101", "-1", "1.5", "many"})
    EXPECT_THAT(read(fmt::format("{{data: d, members: {}}}", wrong)).messages,
                HasSubstr("'members' must be"));
}

// A training without newer keys keeps its configuration file, and in a campaign its hash.
TEST(TrainConfig, NewerKeysAreNotWrittenWithoutAValue) {
  const std::string text = yaml::emit(to_yaml(read("{data: d}").config));
  for (const char* key :
       {"plateau_epochs", "batch_epochs", "batch_factor", "noise_scale", "exclude_slow", "fold"})
    EXPECT_THAT(text, Not(HasSubstr(key)));
}

TEST(TrainConfig, OneMemberIsNotWritten) {
  EXPECT_THAT(yaml::emit(to_yaml(read("{data: d}").config)), Not(HasSubstr("members")));
  EXPECT_EQ(read("{data: d, members: 1}").config, read("{data: d}").config);
  EXPECT_THAT(yaml::emit(to_yaml(read("{data: d, members: 5}").config)), HasSubstr("members: 5"));
}

TEST(TrainConfig, AFoldIsOneOfThem) {
  const ReadResult folded = read("{data: d, folds: 5, fold: 2}");
  EXPECT_EQ(folded.messages, "");
  EXPECT_EQ(read(yaml::emit(to_yaml(folded.config))).config, folded.config);
  EXPECT_THAT(read("{data: d, folds: 2, fold: 3}").messages,
              HasSubstr("'fold' is 3, and there are 2 ('folds')"));
}

TEST(TrainConfig, ReadsBackEqual) {
  const ReadResult first = read(
      "{data: shards, output: out, targets: [omega_m, 'yes'], seed: 7, members: 3, epochs: 12, batch: 32, "
      "batch_by: [type, length], batch_run: 8, "
      "ranks: 2, "
      "threads: 3,"
      " cache: 1 GiB, model: {name: sc18, width: 8, dropout: 0.1, norm: batch, dense: [10], activation: "
      "silu}, inputs: [x, omega_b],"
      " accumulate: 2, ema: 0.99,"
      " transform: {log: 0.1}, augment: [permute, shift], stage: {local: /scratch},"
      " loss: {name: huber, delta: 0.5},"
      " normalise: false,"
      " optimizer: {name: adam, learning_rate: 3e-4, clip_norm: 1, larc_trust: 0.002, lag: 1}, gradients: "
      "{wire: half},"
      " schedule: {warmup_epochs: 1.5, decay: step, step_epochs: [4, 8], step_factor: 0.25},"
      " checkpoint: {every_steps: 5, every_seconds: 10 min, keep: 3}, select: best, early_stop: 4, "
      "min_improvement: 0.01,"
      " shuffle_labels: true, deterministic: false, backend: onednn, precision: bf16, max_seconds: 1 h}");
  EXPECT_EQ(first.messages, "");
  EXPECT_EQ(first.config.max_seconds, 3600);
  const ReadResult second = read(yaml::emit(to_yaml(first.config)));
  EXPECT_EQ(second.messages, "");
  EXPECT_EQ(first.config, second.config);
  const ReadResult noisy = read("{data: d, augment: [flip, {noise: 0.02}], stage: memory}");
  EXPECT_EQ(noisy.config.augment.noise, 0.02);
  EXPECT_EQ(noisy.config.stage, Stage::memory);
  EXPECT_EQ(read(yaml::emit(to_yaml(noisy.config))).config, noisy.config);
  const ReadResult drawn = read("{data: d, ranks: 4, batch: 8, stage: {subset: 100}, exclude_slow: 1.5}");
  EXPECT_EQ(drawn.messages, "");
  EXPECT_EQ(drawn.config.stage, Stage::memory);
  EXPECT_EQ(drawn.config.stage_subset, 100);
  EXPECT_EQ(read(yaml::emit(to_yaml(drawn.config))).config, drawn.config);
  const ReadResult on_disk = read("{data: d, stage: {subset: 100, local: /scratch}}");
  EXPECT_EQ(on_disk.config.stage, Stage::local);
  EXPECT_EQ(read(yaml::emit(to_yaml(on_disk.config))).config, on_disk.config);
  const ReadResult rung =
      read("{data: d, search: {rungs: [2, 6], rung: 2, trainings: [a], folders: [/f, /g]}}");
  EXPECT_EQ(rung.config.search.rung, 2);
  EXPECT_EQ(read(yaml::emit(to_yaml(rung.config))).config, rung.config);
  const ReadResult defaults = read("data: d");
  EXPECT_EQ(read(yaml::emit(to_yaml(defaults.config))).config, defaults.config);
}

TEST(TrainConfig, ReadsListsOfLayers) {
  const ReadResult first = read(
      "{data: d, model: {layers: [{convolution: 8, stride: 2}, relu, {max_pool: 2, name: p}, {global_mean: "
      "p},"
      " {dense: 4}, {dropout: 0.1}, {reshape: [4, 1]}, flatten, {add: [flatten1, dense1]}, {dense: 2, name: "
      "out}],"
      " outputs: [out]}}");
  EXPECT_EQ(first.messages, "");
  ASSERT_EQ(first.config.model.layers.size(), 10U);
  EXPECT_EQ(first.config.model.layers[0].from, std::vector<std::string>{"x"});
  EXPECT_EQ(first.config.model.layers[8].from, (std::vector<std::string>{"flatten1", "dense1"}));
  const ReadResult second = read(yaml::emit(to_yaml(first.config)));
  EXPECT_EQ(second.messages, "");
  EXPECT_EQ(first.config, second.config);
}

TEST(TrainConfig, ReadsWhatFollowsAKindOfLayer) {
  const ReadResult first = read(
      "{data: d, inputs: [x, kind], model: {layers: [{embedding: 4, classes: 3, from: kind}, {convolution: "
      "8, from: x, "
      "groups: 2, dilation: 3}, {resize: 1.5}, {resize: [8, 9]}, resize, {slice: [0, 4]}, {slice: [1, 5], "
      "axis: "
      "width}, {gather: [3, 0]}, pixel_shuffle, instance_norm, {concatenate: [instance_norm1, "
      "embedding1]}]}}");
  EXPECT_EQ(first.messages, "");
  const std::vector<LayerConfig>& layers = first.config.model.layers;
  ASSERT_EQ(layers.size(), 11U);
  EXPECT_EQ(layers[0].classes, 3);
  EXPECT_EQ(layers[1].groups, 2);
  EXPECT_EQ(layers[1].dilation, 3);
  EXPECT_EQ(layers[2].value, 1.5);
  EXPECT_EQ(layers[3].shape, (std::vector<std::int64_t>{8, 9}));
  EXPECT_EQ(layers[4].value, 2);
  EXPECT_EQ(layers[6].axis, LayerAxis::width);
  EXPECT_EQ(layers[7].shape, (std::vector<std::int64_t>{3, 0}));
  EXPECT_TRUE(reads_class_numbers(layers, "kind"));
  EXPECT_FALSE(reads_class_numbers(layers, "x"));
  const ReadResult second = read(yaml::emit(to_yaml(first.config)));
  EXPECT_EQ(second.messages, "");
  EXPECT_EQ(first.config, second.config);
  const std::string messages = read(
                                   "data: d\n"
                                   "model:\n"
                                   "  layers:\n"
                                   "    - {embedding: 4}\n"
                                   "    - {slice: [3, 3]}\n"
                                   "    - slice\n"
                                   "    - gather\n"
                                   "    - {resize: [1, 2, 3, 4]}\n"
                                   "    - {slice: [0, 1], axis: wdith}\n"
                                   "    - {dense: 2, groups: 2}\n")
                                   .messages;
  EXPECT_THAT(messages, HasSubstr("layer 1 (embedding) needs the key 'classes'"));
  EXPECT_THAT(messages, HasSubstr("a slice is a pair [first, end] such as [0, 4], which takes 0 to 3"));
  EXPECT_THAT(messages, HasSubstr("the layer slice needs its range: {slice: [0, 4]}"));
  EXPECT_THAT(messages, HasSubstr("the layer gather needs its channels: {gather: [0, 2]}"));
  EXPECT_THAT(messages, HasSubstr("'resize' is a factor, or the cells of one to three axes"));
  EXPECT_THAT(messages, HasSubstr("did you mean 'width'?"));
  EXPECT_THAT(messages, HasSubstr("unknown key 'groups' in layer 7 (dense)"));
}

TEST(TrainConfig, NetworksWithShortcutsHaveDefaultsOfTheirOwn) {
  for (const char* text :
       {"resnet", "deeplab", "tiramisu", "{name: resnet, blocks: 2, pre_activation: true}",
        "{name: deeplab, dilations: [2, 4], depth: 1}", "{name: tiramisu, growth: 8, blocks: 2}"}) {
    const ReadResult first = read(std::string("{data: d, model: ") + text + "}");
    EXPECT_EQ(first.messages, "");
    EXPECT_EQ(first.config.model.norm, Norm::batch);
    EXPECT_GT(first.config.model.blocks, 0);
    EXPECT_EQ(read(yaml::emit(to_yaml(first.config))).config, first.config) << text;
  }
  // Configurations of other networks keep their text, which checkpoints compare.
  EXPECT_EQ(yaml::emit(to_yaml(read("{data: d, model: unet}").config)).find("blocks"), std::string::npos);
}

TEST(TrainConfig, ReadsPeriodicPadding) {
  const ReadResult list = read(
      "{data: d, model: {layers: [{convolution: 8, padding: periodic}, {convolution: 4, padding: valid}, "
      "flatten, {dense: 2}]}}");
  EXPECT_EQ(list.messages, "");
  ASSERT_EQ(list.config.model.layers.size(), 4U);
  EXPECT_EQ(list.config.model.layers[0].padding, Padding::periodic);
  EXPECT_EQ(list.config.model.layers[1].padding, Padding::valid);
  EXPECT_EQ(read(yaml::emit(to_yaml(list.config))).config, list.config);
  for (const char* name : {"cosmoflow", "mlperf", "resnet", "unet", "autoencoder", "gan"}) {
    const ReadResult network = read(fmt::format("{{data: d, model: {{name: {}, padding: periodic}}}}", name));
    EXPECT_EQ(network.messages, "");
    EXPECT_EQ(network.config.model.padding, Padding::periodic);
    EXPECT_EQ(read(yaml::emit(to_yaml(network.config))).config, network.config);
  }
  // Configurations without it keep their text, which checkpoints compare.
  EXPECT_EQ(yaml::emit(to_yaml(read("{data: d, model: unet}").config)).find("padding"), std::string::npos);

  EXPECT_THAT(read("{data: d, model: {name: deeplab, padding: periodic}}").messages,
              HasSubstr("'padding: periodic' is for cosmoflow, sc18, mlperf, cnn, unet, resnet, decoder, "
                        "autoencoder, vae, gan, wae, cycle, semi_supervised, inference, and the network is "
                        "'deeplab'"));
  EXPECT_THAT(
      read("{data: d, model: {layers: [{transposed_convolution: 8, padding: periodic}, flatten]}}").messages,
      HasSubstr("a transposed convolution can't be periodic"));
}

TEST(TrainConfig, ReadsRecurrentAttentionAndSpectralLayers) {
  const ReadResult first = read(
      "{data: d, inputs: [s, s_mask], model: {layers: [{lstm: 8, from: [s, s_mask], bidirectional: true, "
      "output: "
      "sequence}, positions, {positions: , learned: true}, {attention: 4, from: [positions2, s_mask]}, "
      "coordinates, {spectral_convolution: 3}, {spectral_convolution: 3, modes: 5}, {gru: 4}, {dense: 2}]}}");
  EXPECT_EQ(first.messages, "");
  const std::vector<LayerConfig>& layers = first.config.model.layers;
  ASSERT_EQ(layers.size(), 9U);
  EXPECT_EQ(layers[0].from, (std::vector<std::string>{"s", "s_mask"}));
  EXPECT_TRUE(layers[0].bidirectional);
  EXPECT_EQ(layers[0].output, StepOutput::sequence);
  EXPECT_EQ(layers[7].output, StepOutput::last);
  EXPECT_FALSE(layers[1].learned);
  EXPECT_TRUE(layers[2].learned);
  EXPECT_EQ(layers[5].modes, 12);
  EXPECT_EQ(layers[6].modes, 5);
  EXPECT_EQ(first.config, read(yaml::emit(to_yaml(first.config))).config);
  EXPECT_THAT(read("{data: d, model: {layers: [{lstm: 4, from: [x, x, x]}]}}").messages,
              HasSubstr("the layer 'lstm1' (lstm) reads one or two values, and 'from' names 3"));
  EXPECT_THAT(read("{data: d, model: {layers: [{dense: 4, modes: 3}]}}").messages, HasSubstr("modes"));
  EXPECT_EQ(read("{data: d, model: fno}").config.model.modes, 12);
}

TEST(TrainConfig, ReportsWhatIsWrongInAListOfLayers) {
  const std::string messages = read(
                                   "data: d\n"
                                   "model:\n"
                                   "  layers:\n"
                                   "    - {convolutoin: 8}\n"
                                   "    - {convolution: 8, kernle: 3}\n"
                                   "    - convolution\n"
                                   "    - {relu: later}\n"
                                   "    - {add: [x]}\n"
                                   "    - {dense: 4, max_pool: 2}\n"
                                   "    - {relu: x, name: later}\n"
                                   "    - {relu: x, name: later}\n"
                                   "  outputs: [latr]\n")
                                   .messages;
  EXPECT_THAT(messages,
              HasSubstr("4:7: error: 'convolutoin' is no kind of layer; did you mean 'convolution'?"));
  EXPECT_THAT(messages, HasSubstr("unknown key 'kernle' in layer 1 (convolution); did you mean 'kernel'?"));
  EXPECT_THAT(messages, HasSubstr("the layer convolution needs its size: {convolution: 16}"));
  EXPECT_THAT(messages, HasSubstr("reads 'later', which is neither an input nor an earlier layer"));
  EXPECT_THAT(messages, HasSubstr("the layer 'add1' (add) reads two or more values, and 'from' names 1"));
  EXPECT_THAT(messages, HasSubstr("one layer can't be both dense and max_pool"));
  EXPECT_THAT(messages, HasSubstr("'later' can't be the name of layer"));
  EXPECT_THAT(messages, HasSubstr("'outputs' names 'latr', which is no layer; did you mean 'later'?"));
  EXPECT_THAT(read("{data: d, model: {layers: []}}").messages,
              HasSubstr("'layers' must be a list of layers"));
  EXPECT_THAT(read("{data: d, model: layers}").messages, HasSubstr("needs 'layers'"));
}

TEST(TrainConfig, ASearchHasItsRungs) {
  const ReadResult result = read("{data: d, search: {keep: 1/4, rungs: [2, 6, 18]}}");
  EXPECT_EQ(result.messages, "");
  EXPECT_EQ(result.config.epochs, 18) << "the schedule is that of a full training";
  EXPECT_EQ(read("{data: d, epochs: 6, search: {keep: 0.5, rungs: [2, 6]}}").messages, "");
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"{rungs: [2]}", "'rungs' must be two or more numbers of epochs that rise, such as [2, 6, 18]"},
      {"{rungs: [2, 6, 6]}", "'rungs' must be two or more numbers of epochs that rise"},
      {"{keep: 1/3}", "needs the key 'rungs'"},
      {"{rungs: [2, 6], keep: 3}", "'keep' must be a part between 0 and 1, such as 1/3"},
      {"{rungs: [2, 6], keep: most}", "'keep' must be a part between 0 and 1, such as 1/3"},
      {"{rungs: [2, 6], metric: validation_los}", "did you mean 'validation_loss'?"},
  };
  for (const auto& [search, message] : wrong)
    EXPECT_THAT(read("{data: d, search: " + search + "}").messages, HasSubstr(message)) << search;
  EXPECT_THAT(read("{data: d, epochs: 10, search: {rungs: [2, 6]}}").messages,
              HasSubstr("'epochs' is 10 and the last of the rungs 6; leave out 'epochs'"));
  EXPECT_THAT(read("{data: d, init_from: last, search: {rungs: [2, 6]}}").messages,
              HasSubstr("leave out one"));
  EXPECT_EQ(read("{data: d, metrics: {own: prediction}, search: {rungs: [2, 6], metric: own/y}}").messages,
            "");
  EXPECT_THAT(read("{data: d, metrics: {own: prediction}, search: {rungs: [2, 6], metric: won}}").messages,
              HasSubstr("did you mean 'own'"));
  yaml::Diagnostics diagnostics("train.yaml");
  const auto search = [&](const std::string& text) {
    return read_search(yaml::parse(text, diagnostics), diagnostics);
  };
  const SearchConfig full =
      search("{keep: 1/3, rungs: [2, 6], rung: 2, folders: [/c.rung_1, /c], trainings: [a, b], training: 1}");
  EXPECT_EQ(full.keep, 1.0 / 3);
  EXPECT_EQ(search(yaml::emit(to_yaml(full))), full);
  EXPECT_FALSE(diagnostics.has_errors());
}

TEST(TrainConfig, EarlierRevisionsWordForTheNorm) {
  EXPECT_EQ(read("{data: d, model: {batch_norm: true}}").config.model.norm, Norm::batch);
  EXPECT_EQ(read("{data: d, model: {name: unet, batch_norm: false}}").config.model.norm, Norm::none);
  EXPECT_THAT(read("{data: d, checkpoint: {keep: 1, keep_last: 2}}").messages, HasSubstr("keep 'keep_last'"));
  EXPECT_EQ(read("{data: d, checkpoint: {keep: 5, keep_best: 3}}").config.checkpoint.keep_last, 5);
  EXPECT_THAT(read("{data: d, model: {batch_norm: true, norm: none}}").messages, HasSubstr("keep 'norm'"));
}

TEST(TrainConfig, InitialWeights) {
  const auto initial = [](const std::string& model) {
    const ReadResult result = read("{data: d, model: " + model + "}");
    EXPECT_EQ(result.messages, "") << model;
    EXPECT_EQ(read(yaml::emit(to_yaml(result.config))).config, result.config) << model;
    return result.config.model;
  };
  EXPECT_EQ(initial("mlp").initial, InitialWeights::automatic);
  EXPECT_EQ(initial("cosmoflow").initial, InitialWeights::data);
  for (const char* family : {"mlperf", "unet", "autoencoder", "vae"})
    EXPECT_EQ(initial(family).initial, InitialWeights::torch) << family;
  EXPECT_EQ(initial("{name: cnn, init: torch}").initial, InitialWeights::torch);
  EXPECT_EQ(initial("{name: cosmoflow, initial: random}").initial, InitialWeights::automatic);
  EXPECT_EQ(initial("{name: cnn, initial: data}").initial, InitialWeights::data);
  const ModelConfig layers = initial("{layers: [{dense: 3, init: zero}, {dense: 2}], init: he}");
  EXPECT_EQ(layers.initial, InitialWeights::he);
  EXPECT_EQ(layers.layers[0].init, LayerInit::zero);
  EXPECT_EQ(layers.layers[1].init, LayerInit::automatic);
  EXPECT_THAT(read("{data: d, model: {name: mlp, initial: data, init: he}}").messages,
              HasSubstr("keep 'init'"));
  EXPECT_THAT(read("{data: d, model: {layers: [{relu: , init: he}, {dense: 2}]}}").messages,
              HasSubstr("unknown key 'init'"));
}

// model_graph_test.cc has the keys of model:.
TEST(TrainConfig, KeysWithoutEffectAreWarnedOf) {
  const auto warned = [](const std::string& keys) {
    const ReadResult result = read("{data: d, " + keys + "}");
    EXPECT_EQ(read(yaml::emit(to_yaml(read("{data: d}").config))).messages, "");
    return result.messages;
  };
  EXPECT_EQ(
      warned("optimizer: {name: adam, momentum: 0.5}"),
      "train.yaml:1:45: warning: 'momentum' has no effect in the optimizer: block: it is a key of sgd, lars, "
      "larc; remove it");
  EXPECT_EQ(warned("optimizer: {name: sgd, momentum: 0.5}"), "");
  EXPECT_THAT(warned("optimizer: {name: sgd, lars_trust: 0.5}"), HasSubstr("'lars_trust' has no effect"));
  EXPECT_THAT(warned("schedule: {decay: cosine, rise: 0.5}"), HasSubstr("'rise' has no effect"));
  EXPECT_THAT(warned("schedule: {decay: none, final_factor: 0.5}"),
              HasSubstr("'final_factor' has no effect"));
  EXPECT_THAT(warned("schedule: {batch_factor: 4}"), HasSubstr("a key of schedules with 'batch_epochs'"));
  EXPECT_THAT(warned("loss: {name: mae, delta: 2}"), HasSubstr("a key of huber;"));
  EXPECT_THAT(warned("loss: {name: mae, class_weights: [1, 2]}"), HasSubstr("'class_weights' has no effect"));
  EXPECT_THAT(warned("model: gan, inputs: [x], targets: [t]"), HasSubstr("'targets' has no effect"));
  EXPECT_THAT(warned("model: cycle, inputs: [x], targets: [t], loss: mae"),
              HasSubstr("the loss mae has no effect"));
}

TEST(TrainConfig, LossesAndOptimizersHaveTheirDefaults) {
  const ReadResult result = read(
      "{data: d, loss: {name: cross_entropy, class_weights: [1, 2, 3]}, optimizer: larc, schedule: "
      "one_cycle}");
  EXPECT_EQ(result.messages, "");
  EXPECT_EQ(result.config.loss.classes, 3);
  EXPECT_EQ(result.config.optimizer.larc_trust, 0.02);
  EXPECT_EQ(read("{data: d, optimizer: lars}").config.optimizer.learning_rate, 0.01);
  EXPECT_EQ(read("{data: d, optimizer: lars}").config.optimizer.lars_trust, 0.1);
  // The value that checkpoints of other methods have recorded.
  EXPECT_EQ(read("{data: d, optimizer: sgd}").config.optimizer.lars_trust, 0.001);
  EXPECT_EQ(read("{data: d, optimizer: lamb}").config.optimizer.weight_decay, 0.01);
  const TrainConfig own = read("{data: d, loss: {formula: abs(prediction - target)}}").config;
  EXPECT_EQ(own.loss.name, LossName::formula);
  EXPECT_EQ(read(yaml::emit(to_yaml(own))).config, own);
  EXPECT_THAT(read("{data: d, loss: formula}").messages, HasSubstr("needs the key 'formula'"));
  EXPECT_THAT(read("{data: d, loss: {name: mae, formula: prediction}}").messages,
              HasSubstr("leave out 'name'"));
  EXPECT_THAT(read("{data: d, loss: {formula: prediction - truth}}").messages,
              HasSubstr("train.yaml:1:27: error: 'formula', character 14: 'truth' is unknown"));
  EXPECT_THAT(read("{data: d, loss: {name: dice, classes: 2, class_weights: [1, 2, 3]}}").messages,
              HasSubstr("'class_weights' has 3 numbers and 'classes' is 2"));
}

TEST(TrainConfig, ClassWeightsAreWordsOrNumbers) {
  const ReadResult inverse = read("{data: d, loss: {name: focal, gamma: 1.5, class_weights: inverse_root}}");
  EXPECT_EQ(inverse.messages, "");
  EXPECT_EQ(inverse.config.loss.class_weighting, ClassWeighting::inverse_root);
  EXPECT_EQ(inverse.config.loss.gamma, 1.5);
  EXPECT_EQ(read(yaml::emit(to_yaml(inverse.config))).config, inverse.config);
  EXPECT_EQ(read("{data: d, loss: {name: dice, class_weights: [1, 2]}}").config.loss.class_weighting,
            ClassWeighting::listed);
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"{name: cross_entropy, class_weights: invers}", "did you mean 'inverse'?"},
      {"{name: mse, class_weights: inverse}", "the loss mse has none"},
      {"{name: cross_entropy, gamma: 2}", "unknown key 'gamma'"},
      {"{name: quantile, quantiles: [0.5, 0.1]}", "'quantiles' must be numbers between 0 and 1 that rise"},
      {"{name: quantile, quantiles: [0, 0.5]}", "'quantiles' must be numbers between 0 and 1 that rise"},
  };
  for (const auto& [loss, message] : wrong)
    EXPECT_THAT(read("{data: d, loss: " + loss + "}").messages, HasSubstr(message)) << loss;
  EXPECT_THAT(read("{data: d, members: 2, loss: quantile}").messages, HasSubstr("leave 'members' out"));
}

TEST(TrainConfig, ADetectionHasWeightsAndRefusesWhatMovesBoxes) {
  const ReadResult result = read(
      "{data: d, loss: {name: detection, classes: 3, box_weight: 2, class_weights: [1, 2, 3]}, metric: "
      "ap_2}");
  EXPECT_EQ(result.messages, "");
  EXPECT_EQ(result.config.loss.box_weight, 2);
  EXPECT_EQ(result.config.loss.empty_weight, 0.5);
  EXPECT_EQ(read(yaml::emit(to_yaml(result.config))).config, result.config);
  for (const auto& [more, message] : std::vector<std::pair<std::string, std::string>>{
           {"augment: [flip]", "'flip' and 'permute'"},
           {"augment: permute", "'flip' and 'permute'"},
           {"members: 2", "leave 'members' out"},
           {"model: {name: unet, tanh_output: true}", "'tanh_output'"},
           {"metric: mean_iou",
            "is for classes, and the loss detection learns objects; choose a metric such as map"}})
    EXPECT_THAT(read("{data: d, loss: detection, " + more + "}").messages, HasSubstr(message)) << more;
  EXPECT_EQ(read("{data: d, loss: detection, augment: [shift, {noise: 0.1}], metric: r2/storms4}").messages,
            "");
  EXPECT_THAT(read("{data: d, loss: {name: mse, box_weight: 2}}").messages,
              HasSubstr("unknown key 'box_weight'"));
  EXPECT_THAT(read("{data: d, heads: [{name: a, targets: [t], loss: detection}], augment: flip}").messages,
              HasSubstr("'flip' and 'permute'"));
}

TEST(TrainConfig, MetricsOfTheUserAreFormulas) {
  const ReadResult result = read(
      "{data: d, metrics: {relative: abs(prediction - target) / target, sum: prediction.a + target.b}, "
      "metric: relative/b, select: best}");
  EXPECT_EQ(result.messages, "");
  EXPECT_EQ(result.config.metric.text(), "relative/b");
  EXPECT_EQ(result.config.metrics.back(), (MetricConfig{"sum", "prediction.a + target.b"}));
  EXPECT_EQ(read(yaml::emit(to_yaml(result.config))).config, result.config);
  for (const auto& [keys, message] : std::vector<std::pair<std::string, std::string>>{
           {"metrics: {m: prediction - truth}",
            "train.yaml:1:24: error: the metric 'm', character 14: 'truth' is unknown"},
           {"metrics: {m: target}", "the metric does not depend on the prediction"},
           {"metrics: {rmse: prediction}", "'rmse' is a metric of wflow"},
           {"metrics: {iou_1: prediction}", "'iou_1' is a metric of wflow"},
           {"metrics: {a b: prediction}", "must be of letters, digits and '_'"},
           {"metrics: {within_68: prediction}", "must not begin with within_"},
           {"metrics: {m: [1]}", "the metric 'm' is a formula"},
           {"metrics: prediction", "'metrics' is a mapping of names to formulas"},
           {"metrics: {relative: prediction}, metric: relativ", "did you mean 'relative'?"},
           {"metrics: {m: prediction}, loss: dice", "the loss dice learns classes: leave 'metrics' out"}})
    EXPECT_THAT(read("{data: d, " + keys + "}").messages, HasSubstr(message)) << keys;
}

TEST(TrainConfig, AMetricFitsTheLoss) {
  const ReadResult result = read("{data: d, loss: dice, metric: iou_1/kind, select: best}");
  EXPECT_EQ(result.messages, "");
  EXPECT_EQ(result.config.metric.text(), "iou_1/kind");
  EXPECT_EQ(read(yaml::emit(to_yaml(result.config))).config, result.config);
  EXPECT_THAT(read("{data: d, metric: mean_iuo}").messages, HasSubstr("did you mean 'mean_iou'?"));
  EXPECT_THAT(read("{data: d, metric: mean_iou}").messages,
              HasSubstr("is for classes, and the loss mse learns numbers"));
  EXPECT_THAT(read("{data: d, loss: dice, metric: r2}").messages,
              HasSubstr("is for numbers or objects, and the loss dice learns classes"));
  EXPECT_EQ(read("{data: d, search: {rungs: [1, 2], metric: validation_mean_iou}}").messages, "");
}

}  // namespace
}  // namespace wflow::trainer
