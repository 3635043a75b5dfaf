// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "steps/step.h"
#include "steps/test_samples.h"

namespace wflow::steps {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;

class TrainTest : public ::testing::Test {
 protected:
  TrainTest() {
    for (const char* name : {"/wflow", "/wflow-train", "/mpirun.openmpi"}) {
      std::ofstream(directory_.path() + name) << "#!/bin/sh\n";
      std::filesystem::permissions(directory_.path() + name, std::filesystem::perms::owner_all);
    }
    path_ = std::getenv("PATH");
    ::setenv("PATH", (directory_.path() + ":" + path_).c_str(), 1);
    template_.step = "train";
    template_.kind = specs::StepKind::train;
    template_.workspace = "/campaign/train";
    trainer::TrainConfig config;
    config.data = "/campaign/data";
    config.epochs = 3;
    template_.settings = config;
  }
  ~TrainTest() override { ::setenv("PATH", path_.c_str(), 1); }

  TemporaryDirectory directory_;
  std::string path_;
  specs::TaskTemplate template_;
};

TEST_F(TrainTest, RunsOneRankDirectly) {
  const auto step = make_step(template_, nullptr);
  ASSERT_EQ(step->setup().files.size(), 1U);
  EXPECT_EQ(step->setup().files[0].path, "/campaign/train/train.yaml");
  yaml::Diagnostics diagnostics("train.yaml");
  EXPECT_EQ(trainer::read_train_config(yaml::parse(step->setup().files[0].text, diagnostics), diagnostics),
            std::get<trainer::TrainConfig>(template_.settings));
  EXPECT_EQ(diagnostics.to_string(), "");
  const PreparedTask task = step->prepare({0, 1, true});
  EXPECT_THAT(task.argv,
              ElementsAre(EndsWith("/wflow-train"), "/campaign/train/train.yaml", "--fresh-on-new-data"));
  EXPECT_EQ(task.out_file, "train.out");
  EXPECT_EQ(task.err_file, "train.err");
  EXPECT_EQ(task.directory, "/campaign/train");
}

TEST_F(TrainTest, RunsSeveralRanksUnderMpirun) {
  template_.resources.procs = 4;
  const PreparedTask task = make_step(template_, nullptr)->prepare({});
  EXPECT_EQ(task.argv.front(), directory_.path() + "/mpirun.openmpi");
  EXPECT_EQ(task.argv.at(2), "4");
  EXPECT_THAT(task.argv, Contains("--oversubscribe"));
  EXPECT_THAT(task.argv, Contains("none"));
  EXPECT_THAT(task.argv, Contains("/campaign/train/train.yaml"));
  EXPECT_EQ(std::count(task.argv.begin(), task.argv.end(), "--allow-run-as-root"), ::geteuid() == 0 ? 1 : 0);
}

TEST_F(TrainTest, RunsOnSeveralNodesByTheirLauncher) {
  template_.resources.procs = 4;
  template_.resources.nodes = 4;
  Execution execution;
  execution.nodes = {"n1", "n2", "n3"};
  execution.lease = 77;
  const PreparedTask task = make_step(template_, nullptr)->prepare(execution);
  EXPECT_THAT(task.argv.front(), EndsWith("/wflow"));
  EXPECT_EQ(task.argv.at(1), "launch");
  EXPECT_THAT(task.argv, Contains("/campaign/train/train.yaml"));
  EXPECT_THAT(task.environment, Contains("WFLOW_NODES=n1,n2,n3"));
  EXPECT_THAT(task.environment, Contains("WFLOW_WORLD_SIZE=3")) << "one rank a node, and a node less";
  EXPECT_THAT(task.environment, Contains("WFLOW_LEASE=77"));
}

}  // namespace
}  // namespace wflow::steps
