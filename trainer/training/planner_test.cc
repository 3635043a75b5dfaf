// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "trainer/model/distribution.h"
#include "trainer/model/flat_state.h"
#include "trainer/model/split_network.h"
#include "trainer/training/pass_times.h"

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

TEST(Planner, CountsTheCopiesOfWeightGradients) {
  // The second convolution, from 16 to 32 channels of 64^3 cells. Measured with oneDNN limited to AVX2: a
  // training of one sample takes 72 MiB more.
  ModelConfig model = default_model(ModelName::cosmoflow);
  model.width = 16;
  model.norm = Norm::group;
  const ModelGraph graph = build_model(model, {1, {128, 128, 128}}, 1);
  EXPECT_EQ(step_bytes(graph, nullptr, 0, true) - step_bytes(graph, nullptr, 0), 48 * kMiB);
}

TEST(Planner, CountsWhatInitialWeightsNeed) {
  ModelConfig model = default_model(ModelName::cosmoflow);
  model.width = 16;
  const ModelGraph graph = build_model(model, {1, {128, 128, 128}}, 1);
  TrainConfig config = config_of(1, GridChoice::given, 0);
  const auto step_of = [&](const ModelGraph& network) {
    return memory_of({config, network, 1, std::nullopt, 1}, nullptr, kProgram).step;
  };
  const auto step = [&] { return step_of(graph); };
  config.model.initial = InitialWeights::he;
  const std::int64_t without = step();
  // The first convolution's output is 128 MiB a sample. Measured: 588 MiB in all, 494 with `init: he`.
  config.model.initial = InitialWeights::data;
  EXPECT_EQ(step(), 3 * 128 * kMiB);
  EXPECT_LT(without, 3 * 128 * kMiB);
  // A batch of two needs more than that.
  config.batch = 2;
  EXPECT_EQ(step(), 2 * without);
  // The weights of another training are not measured.
  config.batch = 1;
  config.init_from = "last";
  EXPECT_EQ(step(), without);
  // Convolutions before batch norms have no bias, and are not measured.
  model.norm = Norm::batch;
  const ModelGraph normed = build_model(model, {1, {128, 128, 128}}, 1);
  config.init_from.clear();
  const std::int64_t with_data = step_of(normed);
  config.model.initial = InitialWeights::he;
  EXPECT_EQ(with_data, step_of(normed));
}

TEST(Planner, CountsNoMoreBatchesThanAnEvaluationHas) {
  const ModelGraph graph = network(64);
  const TrainConfig config = config_of(4, GridChoice::given, 0);
  const std::int64_t batch = 2 * (graph.input().count() + 1) * 4;  // two ranks have two samples each
  const auto batches = [&](std::int64_t most_evaluated) {
    return memory_of({config, graph, 1, std::nullopt, 2, most_evaluated}, nullptr, kProgram).samples / batch;
  };
  // Both loaders have one batch as it is stored; that of the training has three more.
  EXPECT_EQ(batches(1000), 8);
  EXPECT_EQ(batches(5), 7);
  EXPECT_EQ(batches(2), 6);
  EXPECT_EQ(batches(0), 5);
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

// A world of one rank.
class World {
 public:
  Communicator& ranks() { return ranks_; }

 private:
  char name_[5] = "test";
  char* arguments_[2] = {name_, nullptr};
  int count_ = 1;
  char** argv_ = arguments_;
  Communicator ranks_ = Communicator(count_, argv_);
};

TEST(Planner, PlansOnOneRankAndRefusesWithNumbers) {
  World world;
  Communicator& alone = world.ranks();
  const ModelGraph graph = network(32);
  const TrainConfig config = config_of(1, GridChoice::fastest, 0);
  const TrainingPlan plan = plan_training({config, graph, 1, std::nullopt, 1}, alone);
  ASSERT_EQ(plan.grids.size(), 1U);
  EXPECT_GT(plan.choice().compute_seconds, 0);
  EXPECT_GT(plan.choice().update_seconds, 0);
  EXPECT_EQ(plan.choice().wire_seconds, 0);
  EXPECT_THAT(plan.remarks, testing::IsEmpty());

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
  plan.grids = {{{}, 3, {1, 2, 3, 4}, false, 0, 0, 0},
                {{{2, 1, 1}}, 6, {5, 6, 7, 8}, true, 0.5, 0.25, 0.125}};
  plan.chosen = 1;
  const std::optional<TrainingPlan> read = plan_from_json(to_json(plan));
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), to_json(plan));
  EXPECT_EQ(read->choice().memory.total(), 26);
  EXPECT_EQ(read->choice().seconds(), 0.875);
  EXPECT_FALSE(plan_from_json({{"grids", 3}}));
}

class KeptTimes : public testing::Test {
 protected:
  KeptTimes() {
    std::string name = (std::filesystem::temp_directory_path() / "wflow-passes-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    config_.optimizer.name = OptimizerName::sgd;
  }
  ~KeptTimes() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path file() const { return folder_ / "wflow" / "passes.json"; }
  TrainingPlan plan(const std::filesystem::path& times) {
    return plan_training({config_, graph_, 1, std::nullopt, 1}, world_.ranks(), times);
  }
  TrainingPlan plan() { return plan(file()); }

  World world_;
  const ModelGraph graph_ = network(16);
  TrainConfig config_ = config_of(1, GridChoice::fastest, 0);
  std::filesystem::path folder_;
};

TEST_F(KeptTimes, ASecondPlanMeasuresNothing) {
  const TrainingPlan first = plan();
  EXPECT_THAT(first.remarks, testing::IsEmpty());
  ASSERT_TRUE(std::filesystem::exists(file()));
  const TrainingPlan second = plan();
  ASSERT_EQ(second.grids.size(), first.grids.size());
  EXPECT_EQ(second.choice().seconds(), first.choice().seconds())
      << "measured times are never the same to the last digit";
  EXPECT_THAT(second.remarks,
              testing::ElementsAre(testing::ContainsRegex(
                  "the times of 1 of 1 grids are those of an earlier plan \\(.*passes.json\\); "
                  "with WFLOW_PASS_TIMES=off all are measured again")));
}

TEST_F(KeptTimes, OtherSettingsAreMeasuredAgain) {
  plan();
  const TrainConfig before = config_;
  config_.threads = 2;
  EXPECT_THAT(plan().remarks, testing::IsEmpty());
  EXPECT_THAT(plan().remarks, testing::SizeIs(1));
  config_ = before;
  config_.batch = 2;
  EXPECT_THAT(plan().remarks, testing::IsEmpty());
  config_ = before;
  config_.backend = Backend::torch;
  EXPECT_THAT(plan().remarks, testing::IsEmpty());
  config_ = before;
  EXPECT_THAT(plan().remarks, testing::SizeIs(1)) << "those of before are still there";
}

TEST_F(KeptTimes, ABrokenFileIsNamedAndReplaced) {
  std::filesystem::create_directories(file().parent_path());
  for (const char* bytes :
       {"", "{", "[1]", R"({"wflow_format": 2, "passes": {}})", R"({"wflow_format": 1})"}) {
    std::ofstream(file()) << bytes;
    EXPECT_THAT(plan().remarks, testing::ElementsAre(testing::ContainsRegex(
                                    "passes.json does not have times that this wflow can "
                                    "read: the plan measures all passes")))
        << bytes;
    EXPECT_THAT(plan().remarks, testing::ElementsAre(testing::HasSubstr("1 of 1 grids")));
  }
}

TEST_F(KeptTimes, AFileThatCantBeWrittenIsNoError) {
  std::ofstream(folder_ / "wflow") << "a file, where the folder would be";
  plan();
  EXPECT_THAT(plan().remarks, testing::IsEmpty());
  EXPECT_THAT(plan({}).remarks, testing::IsEmpty());
}

TEST_F(KeptTimes, WrongNumbersAreLeftOut) {
  const PassSeconds pass = {1, 2, 3, {0.5, 2}};
  EXPECT_EQ(pass_from_json(to_json(pass)), pass);
  for (const char* wrong : {R"({"forward": -1, "backward": 2, "update": 3, "ready": []})",
                            R"({"forward": "1", "backward": 2, "update": 3, "ready": []})",
                            R"({"forward": 1, "backward": 2, "update": 3, "ready": [null]})", "3", "{}"})
    EXPECT_FALSE(pass_from_json(nlohmann::json::parse(wrong))) << wrong;
}

// Two buckets: the last 2^20 numbers, which are summed in 1 s, and the rest.
TEST(PlanSeconds, SumsHideBehindThePassesWhereACoreIsFree) {
  ModelConfig model = default_model(ModelName::mlp);
  model.dense = {1536, 1024};
  const ModelGraph graph = build_model(model, {32, {1, 1, 1}}, 2);
  TrainConfig config = config_of(2, GridChoice::given, 0);
  const PlanTask task = {config, graph, 1, std::nullopt, 2};
  WireSpeed wire;
  wire.sum_seconds = 1.0 / (1 << 20);
  const double first = 1;
  const double all = static_cast<double>(graph.parameter_count()) / (1 << 20);
  const auto seconds = [&](const PassSeconds& pass, double free_cores) {
    wire.free_cores = free_cores;
    GridPlan plan;
    plan.samples = 1;
    set_seconds(task, pass, wire, plan);
    EXPECT_EQ(plan.compute_seconds, pass.forward + pass.backward);
    return plan.wire_seconds;
  };
  ASSERT_GT(all, 1);
  constexpr double kDigits = 1e-3;
  // The first bucket is ready early, and hidden.
  EXPECT_NEAR(seconds({3, 6, 0, {2, 6}}, 1), all - first, kDigits);
  // It is late, and the second one waits for it.
  EXPECT_NEAR(seconds({3, 6, 0, {5.5, 6}}, 1), all - 0.5, kDigits);
  // No core is free.
  EXPECT_NEAR(seconds({3, 6, 0, {2, 6}}, 0), all, kDigits);
  // Several passes a step: the sums are those of the last one.
  config.batch = 8;
  config.accumulate = 4;
  GridPlan plan;
  plan.samples = 1;
  set_seconds(task, {3, 6, 1, {2, 6}, 0.5}, wire, plan);
  EXPECT_EQ(plan.compute_seconds, 9);
  EXPECT_EQ(plan.update_seconds, 1);
  EXPECT_EQ(plan.samples_seconds, 0.5);
  EXPECT_NEAR(plan.wire_seconds, all, kDigits);
}

// All ranks of a group agree on the kernels of its parts, and so must a rank that is measured alone.
TEST(PlanSeconds, AMeasuredPartHasTheKernelsOfTheTraining) {
  World world;
  const ModelGraph graph = network(32);
  const Distribution parts = distribute(graph, {{2, 1, 1}});
  FlatState state(graph);
  const auto alone = world.ranks().without_others(1, 2);
  EXPECT_THAT(make_split_network(graph, state, parts, *alone)->describe(),
              testing::Contains(testing::HasSubstr("conv1 .. conv1.leaky  oneDNN")));
}

TEST(PlanSeconds, AGridAddsItsMessages) {
  const ModelGraph graph = network(32);
  const TrainConfig config = config_of(1, GridChoice::given, 0);
  const PlanTask task = {config, graph, 1, SpaceGrid{{2, 1, 1}}, 2};
  const std::vector<GridPlan> grids = possible_grids(task, kProgram);
  ASSERT_EQ(grids.size(), 1U);
  GridPlan plan = grids.front();
  WireSpeed wire;
  wire.latency = 1;
  wire.bytes_per_second = 1e30;
  set_seconds(task, {}, wire, plan);
  std::size_t messages = plan.parts->switches.size();
  for (const LayerSplit& layer : plan.parts->layers)
    messages += (layer.halo.empty() ? 0U : 1U) + (layer.gradient_halo.empty() ? 0U : 1U);
  EXPECT_EQ(plan.wire_seconds, static_cast<double>(messages));
  wire.bytes_per_second = 1;
  set_seconds(task, {}, wire, plan);
  EXPECT_EQ(plan.wire_seconds,
            static_cast<double>(messages) + static_cast<double>(load_of(graph, *plan.parts, 0).sent_forward));
}

}  // namespace
}  // namespace wflow::trainer
