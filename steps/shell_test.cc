// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "steps/step.h"
#include "steps/test_samples.h"

namespace wflow::steps {
namespace {

using Kind = specs::Piece::Kind;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

specs::TaskTemplate plain() {
  specs::TaskTemplate t;
  t.step = "simulate";
  t.workspace = "/campaign/simulate";
  t.script = "simulate";
  t.shell = "/bin/bash";
  t.command = {literal("echo hello")};
  return t;
}

specs::TaskTemplate sampled() {
  specs::TaskTemplate t = plain();
  t.label = "OMEGA.0.3";
  t.sample_dependent = true;
  t.sample_count = 30;
  t.command = {literal("run "), token(Kind::column, 0),   literal(" "), token(Kind::sample_id),
               literal(" "),    token(Kind::sample_path), literal(" "), token(Kind::sample_vector),
               literal("\n")};
  return t;
}

TEST(Shell, RunsOneScriptForAnArrayWithoutSampleTokens) {
  const auto t = plain();
  const auto step = make_step(t, nullptr);
  const ArraySetup setup = step->setup();
  EXPECT_THAT(setup.directories, ElementsAre("/campaign/simulate"));
  ASSERT_FALSE(setup.files.empty());
  EXPECT_EQ(setup.files[0].path, "/campaign/simulate/simulate.sh");
  EXPECT_EQ(setup.files[0].text, "#!/bin/bash\n\necho hello\n");
  const PreparedTask task = step->prepare({0, 0, false});
  EXPECT_THAT(task.argv, ElementsAre("/bin/bash", "/campaign/simulate/simulate.sh"));
  EXPECT_EQ(task.directory, "/campaign/simulate");
  EXPECT_THAT(task.files, IsEmpty());
  EXPECT_EQ(task.out_file, "simulate.out");
  EXPECT_EQ(task.err_file, "simulate.err");
  EXPECT_EQ(task.finished_marker, "/campaign/simulate/MERLIN_FINISHED");
  EXPECT_THAT(task.environment, ElementsAre("WFLOW_TASK=simulate/0", "WFLOW_ATTEMPT=0"));
}

TEST(Shell, PutsASamplesValuesIntoItsScript) {
  const auto t = sampled();
  const TestSamples samples(30);
  const PreparedTask task = make_step(t, &samples)->prepare({26, 2, false});
  EXPECT_EQ(task.directory, "/campaign/simulate/01/01");
  ASSERT_EQ(task.files.size(), 1U);
  EXPECT_EQ(task.files[0].path, "/campaign/simulate/01/01/simulate.sh");
  EXPECT_EQ(task.files[0].text, "#!/bin/bash\n\nrun 260 26 01/01 260 a,\"26\"\n");
  EXPECT_THAT(task.argv, ElementsAre("/bin/bash", "/campaign/simulate/01/01/simulate.sh"));
  EXPECT_THAT(task.environment,
              ElementsAre("WFLOW_TASK=simulate/OMEGA.0.3/26", "WFLOW_ATTEMPT=2", "WFLOW_SAMPLE_ID=26"));
}

TEST(Shell, RunsASingleSampleInTheStepsOwnDirectory) {
  auto t = sampled();
  t.sample_count = 1;
  const TestSamples samples(1);
  EXPECT_EQ(make_step(t, &samples)->prepare({0, 0, false}).directory, "/campaign/simulate");
}

TEST(Shell, RestartsWithTheRestartCommand) {
  auto t = sampled();
  t.restart = {literal("again "), token(Kind::sample_id)};
  const TestSamples samples(30);
  const PreparedTask task = make_step(t, &samples)->prepare({3, 1, true});
  EXPECT_EQ(task.files.at(0).path, "/campaign/simulate/00/03/simulate.restart.sh");
  EXPECT_EQ(task.files.at(0).text, "#!/bin/bash\n\nagain 3\n");
  EXPECT_EQ(task.out_file, "simulate.restart.out");
  EXPECT_EQ(task.err_file, "simulate.restart.err");
}

TEST(Shell, RestartsWithTheCommandWhereThereIsNoOther) {
  const auto t = plain();
  const PreparedTask task = make_step(t, nullptr)->prepare({0, 1, true});
  EXPECT_EQ(task.argv.back(), "/campaign/simulate/simulate.sh");
  EXPECT_EQ(task.out_file, "simulate.out");
}

TEST(Shell, TakesTheInterpreterApartAsTheKernelDoes) {
  auto t = plain();
  t.shell = "/usr/bin/env python3 -u";
  const auto step = make_step(t, nullptr);
  EXPECT_THAT(step->prepare({}).argv,
              ElementsAre("/usr/bin/env", "python3 -u", "/campaign/simulate/simulate.sh"));
  EXPECT_THAT(step->setup().files.at(0).text, StartsWith("#!/usr/bin/env python3 -u\n"));
}

TEST(Shell, RefusesColumnsThatAreNotThere) {
  auto t = sampled();
  EXPECT_THROW(make_step(t, nullptr), Error);
  const TestSamples samples(30);
  t.command = {token(Kind::column, 2)};
  EXPECT_THROW(make_step(t, &samples), Error);
}

}  // namespace
}  // namespace wflow::steps
