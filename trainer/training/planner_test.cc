// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "trainer/model/step_memory.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kProgram = 150 * kMiB;

ModelGraph network(std::int64_t cells) {
  ModelConfig model = default_model(ModelName::mlperf);
  model.width = 16;
  return build_model(model, {4, {cells, cells, cells}}, 2);
}

TrainConfig config_of(std::int64_t batch, GridChoice choice, std::int64_t memory) {
  TrainConfig config;
  config.batch = batch;
  config.grid.choice = choice;
  config.memory = memory;
  return config;
}

TEST(Planner, CountsWhatTheKernelsKeep) {
  // Measured with `wflow_network_steps mlperf 16 4 128 1 1 5 fastest` and a grid, without sums over ranks:
  // 251, 160 and 100 MiB, of which 38 are gradients and the optimizer's moments.
  const ModelGraph graph = network(128);
  const auto mib = [&](const SpaceGrid& grid) {
    const Distribution distribution = distribute(graph, grid);
    return static_cast<double>(step_bytes(graph, grid.ranks() == 1 ? nullptr : &distribution, 0)) / kMiB;
  };
  EXPECT_NEAR(mib({}), 213, 15);
  EXPECT_NEAR(mib({{2, 1, 1}}), 122, 8);
  EXPECT_NEAR(mib({{2, 2, 1}}), 62, 5);
}

TEST(Planner, ListsGridsOfAllRanksThatDivide) {
  const ModelGraph graph = network(64);
  const TrainConfig config = config_of(2, GridChoice::fastest, 0);
  const std::vector<GridPlan> grids = possible_grids({config, graph, 1, std::nullopt, 4}, kProgram);
  // Four ranks can't have whole samples: there are two.
  ASSERT_EQ(grids.size(), 6U);
  for (std::size_t i = 0; i < grids.size(); ++i) {
    EXPECT_EQ(grids[i].grid.ranks(), i < 3 ? 2 : 4);
    EXPECT_EQ(grids[i].samples, i < 3 ? 1 : 2);
    EXPECT_TRUE(grids[i].fits);
    EXPECT_GT(grids[i].memory.step, 0);
  }
}

TEST(Planner, KnowsWhichGridsFit) {
  const ModelGraph graph = network(64);
  // Each rank computes one sample, or a quarter of one, at once.
  TrainConfig open = config_of(4, GridChoice::fit, 0);
  open.accumulate = 4;
  const std::vector<GridPlan> all = possible_grids({open, graph, 1, std::nullopt, 4}, kProgram);
  ASSERT_EQ(all.front().grid, SpaceGrid{});
  // One byte less than whole samples need.
  TrainConfig config = open;
  config.memory = all.front().memory.total() - 1;
  const std::vector<GridPlan> grids = possible_grids({config, graph, 1, std::nullopt, 4}, kProgram);
  EXPECT_FALSE(grids.front().fits);
  EXPECT_TRUE(grids.back().fits);
}

TEST(Planner, PlansOnOneRankAndRefusesWithNumbers) {
  char name[] = "test";
  char* arguments[] = {name, nullptr};
  int count = 1;
  char** argv = arguments;
  Communicator alone(count, argv);
  const ModelGraph graph = network(32);
  const TrainConfig config = config_of(1, GridChoice::fastest, 0);
  const TrainingPlan plan = plan_training({config, graph, 1, std::nullopt, 1}, alone);
  ASSERT_EQ(plan.grids.size(), 1U);
  EXPECT_GT(plan.choice().compute_seconds, 0);
  EXPECT_EQ(plan.choice().wire_seconds, 0);

  const TrainConfig little = config_of(1, GridChoice::given, kMiB);
  try {
    plan_training({little, graph, 1, std::nullopt, 1}, alone);
    FAIL();
  } catch (const CommonError& error) {
    EXPECT_EQ(error.code(), ExitCode::spec);
    EXPECT_THAT(error.what(), testing::ContainsRegex("'memory' \\(1.0 MiB\\) allows: with whole samples, .* "
                                                     "activations, .* start more ranks"));
  }
}

TEST(Planner, PlansAreKeptWhole) {
  TrainingPlan plan;
  plan.limit = 7;
  plan.grids = {{{}, 3, {1, 2, 3, 4}, false, 0, 0}, {{{2, 1, 1}}, 6, {5, 6, 7, 8}, true, 0.5, 0.25}};
  plan.chosen = 1;
  const std::optional<TrainingPlan> read = plan_from_json(to_json(plan));
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), to_json(plan));
  EXPECT_EQ(read->choice().memory.total(), 26);
  EXPECT_FALSE(plan_from_json({{"grids", 3}}));
}

}  // namespace
}  // namespace wflow::trainer
