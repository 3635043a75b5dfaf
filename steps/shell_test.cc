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

specs::TaskTemplate bundled() {
  specs::TaskTemplate t = plain();
  t.sample_dependent = true;
  t.sample_count = 30;
  t.bundle = 8;
  t.command = {literal("fast "), token(Kind::samples_file), literal(" "), token(Kind::first_sample),
               literal(" "),     token(Kind::sample_count)};
  return t;
}

TEST(Shell, GivesABundleItsRowsInAFile) {
  const auto t = bundled();
  const TestSamples samples(30);
  const PreparedTask task = make_step(t, &samples)->prepare({24, 0, false, 6});
  EXPECT_EQ(task.directory, "/campaign/simulate/03");
  EXPECT_THAT(task.argv, ElementsAre("/bin/bash", "/campaign/simulate/03/simulate.sh"));
  ASSERT_EQ(task.files.size(), 2U);
  EXPECT_EQ(task.files[0].path, "/campaign/simulate/03/samples.csv");
  EXPECT_THAT(task.files[0].text,
              StartsWith("MERLIN_SAMPLE_ID,x,name\n24,240,\"a,\"\"24\"\"\"\n25,250,\"a,\"\"25\"\"\"\n"));
  EXPECT_EQ(task.files[1].text, "#!/bin/bash\n\nfast /campaign/simulate/03/samples.csv 24 6\n");
  EXPECT_THAT(task.environment, Contains("WFLOW_FIRST=24"));
  EXPECT_THAT(task.environment, Contains("WFLOW_COUNT=6"));
  EXPECT_THAT(task.environment, Contains("WFLOW_SAMPLES_FILE=/campaign/simulate/03/samples.csv"));
}

TEST(Shell, PartsOfABundleKeepTheirFilesApart) {
  const auto t = bundled();
  const TestSamples samples(30);
  const PreparedTask task = make_step(t, &samples)->prepare({17, 1, false, 2});
  EXPECT_EQ(task.directory, "/campaign/simulate/02");
  EXPECT_EQ(task.files[0].path, "/campaign/simulate/02/samples-17-2.csv");
  EXPECT_EQ(task.files[1].path, "/campaign/simulate/02/simulate-17-2.sh");
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
  EXPECT_EQ(task.files.at(0).path, "/campaign/simulate/00/03/simulate_OMEGA.0.3.restart.sh");
  EXPECT_EQ(task.files.at(0).text, "#!/bin/bash\n\nagain 3\n");
  EXPECT_EQ(task.out_file, "simulate_OMEGA.0.3.restart.out");
  EXPECT_EQ(task.err_file, "simulate_OMEGA.0.3.restart.err");
  t.label = "A=1,b/c d";
  EXPECT_EQ(make_step(t, &samples)->prepare({3, 1, true}).out_file, "simulate_A=1,bc_d.restart.out");
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

// ---- without a shell

const std::vector<std::string> kPath = {"PATH=/usr/bin:/bin"};

TEST(DirectShell, StartsAPlainCommandWithoutItsScript) {
  auto t = plain();
  t.command = {literal("env -u 'A B' x=1\n")};
  const auto step = make_step(t, nullptr, kPath);
  const ArraySetup setup = step->setup();
  ASSERT_EQ(setup.files.size(), 1U) << "for the user";
  EXPECT_EQ(setup.files[0].path, "/campaign/simulate/simulate.sh");
  const PreparedTask task = step->prepare({0, 0, false});
  EXPECT_TRUE(task.direct);
  EXPECT_EQ(task.program, "/usr/bin/env");
  EXPECT_THAT(task.argv, ElementsAre("env", "-u", "A B", "x=1"));
  EXPECT_EQ(task.out_file, "simulate.out");
  EXPECT_EQ(task.finished_marker, "/campaign/simulate/MERLIN_FINISHED");
  // The shell reports the program that has been removed meanwhile.
  const PreparedTask shell = step->prepare({0, 0, false, 1, true});
  EXPECT_FALSE(shell.direct);
  EXPECT_THAT(shell.argv,
              ElementsAre("/bin/bash", "-c", "env -u 'A B' x=1\n", "/campaign/simulate/simulate.sh"));
}

TEST(DirectShell, LeavesTheRestToTheShell) {
  const auto direct = [](specs::TaskTemplate t) { return make_step(t, nullptr, kPath)->prepare({}).direct; };
  auto t = plain();
  for (const char* command :
       {"env; env", "env\nenv", "echo a", "no-such-program", "X=1 env", "env > file", "env $HOME"}) {
    t.command = {literal(command)};
    EXPECT_FALSE(direct(t)) << command;
  }
  t.command = {literal("true")};
  EXPECT_TRUE(direct(t));
  t.shell_given = true;
  EXPECT_FALSE(direct(t));
  t.shell_given = false;
  t.shell = "/usr/bin/python3";
  EXPECT_FALSE(direct(t));
  t.shell = "/bin/bash -e";
  EXPECT_FALSE(direct(t));
}

TEST(DirectShell, DecidesByTheCellsOfEverySample) {
  auto t = sampled();
  t.command = {literal("env "), token(Kind::column, 0), literal(" '"), token(Kind::column, 1), literal("'")};
  const TestSamples samples(30);
  PreparedTask task = make_step(t, &samples, kPath)->prepare({26, 0, false});
  EXPECT_TRUE(task.direct);
  EXPECT_THAT(task.argv, ElementsAre("env", "260", "a,\"26\""));
  EXPECT_THAT(task.files, IsEmpty());

  class Nasty final : public specs::SampleTable {
   public:
    std::uint64_t count() const override { return 2; }
    const std::vector<std::string>& columns() const override { return columns_; }
    std::string text(std::uint64_t row, std::size_t) const override { return row == 0 ? "1.5" : "$(reboot)"; }

   private:
    std::vector<std::string> columns_ = {"x"};
  } nasty;
  t.sample_count = 2;
  t.command = {literal("env "), token(Kind::column, 0)};
  const auto step = make_step(t, &nasty, kPath);
  EXPECT_TRUE(step->prepare({0, 0, false}).direct);
  task = step->prepare({1, 0, false});
  EXPECT_FALSE(task.direct);
  EXPECT_EQ(task.files.at(0).text, "#!/bin/bash\n\nenv $(reboot)\n");
  // A program that differs from sample to sample.
  t.command = {token(Kind::column, 0), literal(" a")};
  EXPECT_FALSE(make_step(t, &nasty, kPath)->prepare({0, 0, false}).direct);
  t.command = {literal("env"), token(Kind::column, 0)};
  EXPECT_FALSE(make_step(t, &nasty, kPath)->prepare({0, 0, false}).direct);
}

TEST(Shell, AQuotedCellIsOneWordWhateverIsInIt) {
  class Cells final : public specs::SampleTable {
   public:
    std::uint64_t count() const override { return cells_.size(); }
    const std::vector<std::string>& columns() const override { return columns_; }
    std::string text(std::uint64_t row, std::size_t) const override { return cells_.at(row); }

   private:
    std::vector<std::string> columns_ = {"x"};
    std::vector<std::string> cells_ = {"1.5", "$(reboot)", "it's", ""};
  } cells;
  auto t = sampled();
  t.sample_count = cells.count();
  t.command = {literal("env "), token(Kind::quoted_column, 0)};
  const auto words = [&](std::uint64_t row) {
    return make_step(t, &cells, kPath)->prepare({row, 0, false}).argv;
  };
  EXPECT_THAT(words(0), ElementsAre("env", "1.5"));
  EXPECT_THAT(words(1), ElementsAre("env", "$(reboot)"));
  EXPECT_THAT(words(3), ElementsAre("env", ""));
  t.shell_given = true;
  EXPECT_EQ(make_step(t, &cells, kPath)->prepare({2, 0, false}).files.at(0).text,
            "#!/bin/bash\n\nenv 'it'\\''s'\n");
}

// ---- output: packed

TEST(PackedShell, NeedsNeitherScriptNorDirectoryNorOutputFiles) {
  auto t = sampled();
  t.output = specs::OutputMode::packed;
  t.command = {literal("run "), token(Kind::column, 0), literal(" | tee x")};
  const TestSamples samples(30);
  const PreparedTask task = make_step(t, &samples, kPath)->prepare({26, 0, false});
  EXPECT_TRUE(task.packed);
  EXPECT_TRUE(task.directory_on_demand);
  EXPECT_EQ(task.directory, "/campaign/simulate/01/01");
  EXPECT_THAT(task.argv,
              ElementsAre("/bin/bash", "-c", "run 260 | tee x", "/campaign/simulate/01/01/simulate.sh"));
  EXPECT_THAT(task.files, IsEmpty());
  EXPECT_EQ(task.out_file + task.err_file + task.finished_marker, "");
}

TEST(PackedShell, StartsInTheDirectoryThatTheCommandEnters) {
  auto t = sampled();
  t.output = specs::OutputMode::packed;
  t.command = {literal("cd '/a b' && env "), token(Kind::quoted_column, 0)};
  const TestSamples samples(30);
  PreparedTask task = make_step(t, &samples, kPath)->prepare({26, 0, false});
  EXPECT_TRUE(task.direct);
  EXPECT_EQ(task.program, "/usr/bin/env");
  EXPECT_THAT(task.argv, ElementsAre("env", "260"));
  EXPECT_EQ(task.starts_in, "/a b");
  EXPECT_EQ(task.directory, "/campaign/simulate/01/01");
  // The shell gets all of it.
  EXPECT_EQ(make_step(t, &samples, kPath)->prepare({26, 0, false, 1, true}).argv.at(2),
            "cd '/a b' && env 260");
  for (const char* command :
       {"cd relative && env ", "cd /a b && env ", "cd /a; env ", "cd $HOME && env ", "cd /a && env | "}) {
    t.command = {literal(command), token(Kind::column, 0)};
    EXPECT_FALSE(make_step(t, &samples, kPath)->prepare({26, 0, false}).direct) << command;
  }
  // Its output has names in the working directory.
  t.command = {literal("cd /a && env")};
  t.output = specs::OutputMode::files;
  EXPECT_FALSE(make_step(t, &samples, kPath)->prepare({26, 0, false}).direct);
}

TEST(PackedShell, MakesTheDirectoryThatACommandNames) {
  auto t = sampled();
  t.output = specs::OutputMode::packed;
  const TestSamples samples(30);
  EXPECT_FALSE(make_step(t, &samples, kPath)->prepare({26, 0, false}).directory_on_demand);
  t.command = {literal("run")};
  t.restart = {literal("ls /campaign/simulate/"), token(Kind::sample_path)};
  EXPECT_FALSE(make_step(t, &samples, kPath)->prepare({26, 0, false}).directory_on_demand);
  t.restart.clear();
  EXPECT_TRUE(make_step(t, &samples, kPath)->prepare({26, 0, false}).directory_on_demand);
}

TEST(PackedShell, WritesAScriptForOtherInterpretersAndLongTexts) {
  auto t = sampled();
  t.output = specs::OutputMode::packed;
  t.shell = "/usr/bin/python3";
  t.command = {literal("print("), token(Kind::column, 0), literal(")")};
  const TestSamples samples(30);
  PreparedTask task = make_step(t, &samples, kPath)->prepare({26, 0, false});
  EXPECT_FALSE(task.directory_on_demand);
  EXPECT_EQ(task.files.at(0).path, "/campaign/simulate/01/01/simulate.sh");
  t.shell = "/bin/bash";
  t.command = {literal(std::string(130'000, '#')), token(Kind::column, 0)};
  task = make_step(t, &samples, kPath)->prepare({26, 0, false});
  EXPECT_FALSE(task.directory_on_demand);
  EXPECT_EQ(task.files.size(), 1U);
}

TEST(Shell, PutsTheSchedulersNameIntoItsFiles) {
  auto t = plain();
  t.suffix = ".slurm";
  t.restart = {literal("echo again")};
  const auto step = make_step(t, nullptr);
  EXPECT_EQ(step->prepare({}).argv.back(), "/campaign/simulate/simulate.slurm.sh");
  EXPECT_EQ(step->prepare({}).out_file, "simulate.slurm.out");
  EXPECT_EQ(step->prepare({0, 1, true}).argv.back(), "/campaign/simulate/simulate.restart.slurm.sh");
  EXPECT_EQ(step->prepare({0, 1, true}).err_file, "simulate.restart.slurm.err");
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
