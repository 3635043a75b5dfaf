// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/process.h"
#include "base/yaml.h"
#include "specs/study/blocks.h"
#include "steps/step.h"
#include "steps/test_samples.h"

namespace wflow::steps {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;

// A program named wflow-convert in PATH, so that the real one need not be built.
class ConvertTest : public ::testing::Test {
 protected:
  ConvertTest() {
    std::ofstream(directory_.path() + "/wflow-convert") << "#!/bin/sh\n";
    std::filesystem::permissions(directory_.path() + "/wflow-convert", std::filesystem::perms::owner_all);
    path_ = std::getenv("PATH");
    ::setenv("PATH", (directory_.path() + ":" + path_).c_str(), 1);
  }
  ~ConvertTest() override { ::setenv("PATH", path_.c_str(), 1); }

  static specs::Block conversion(const std::string& text) {
    yaml::Diagnostics diagnostics("");
    const yaml::Node node = yaml::parse(text, diagnostics);
    specs::Block block = specs::read_block(specs::StepKind::convert, node, diagnostics);
    if (diagnostics.has_errors()) return specs::UnreadBlock{node, diagnostics.to_string()};
    return block;
  }

  static specs::TaskTemplate blocks() {
    specs::TaskTemplate t;
    t.step = "data";
    t.kind = specs::StepKind::convert;
    t.workspace = "/campaign/data";
    t.settings = conversion("from: simulate\nfile: out/cube.h5\ntargets: [x]\n");
    t.sample_count = 30;
    t.block_samples = 8;
    t.source_workspace = "/campaign/simulate";
    return t;
  }

  TemporaryDirectory directory_;
  std::string path_;
  TestSamples samples_{30};
};

TEST_F(ConvertTest, FindsSamplesInTheDirectoriesOfBundles) {
  auto t = blocks();
  t.settings = conversion("from: simulate\nfile: u.npy\nstacked: true\nbundle: 3\ntargets: [x]\n");
  const PreparedTask stacked = make_step(t, &samples_)->prepare({1, 0, false});
  EXPECT_THAT(stacked.files.at(0).text, ::testing::StartsWith("id,file,row,x\n"
                                                              "8,/campaign/simulate/02/u.npy,2,80\n"
                                                              "9,/campaign/simulate/03/u.npy,0,90\n"));
  t.settings = conversion("from: simulate\nfile: u_$(MERLIN_SAMPLE_ID).h5\nbundle: 3\ntargets: [x]\n");
  const PreparedTask single = make_step(t, &samples_)->prepare({1, 0, false});
  EXPECT_THAT(single.files.at(0).text,
              ::testing::StartsWith(
                  "id,file,x\n8,/campaign/simulate/02/u_8.h5,80\n9,/campaign/simulate/03/u_9.h5,90\n"));
}

// The campaign's states decide, not the files: the reason for leaving out a sample goes with its row.
TEST_F(ConvertTest, RowsSayWhichSamplesAreLeftOut) {
  const auto t = blocks();
  Execution execution{1, 0, false};
  execution.left_out = {{2, 8, "its task of simulate failed"}, {12, 1, "its task of measure failed"}};
  const std::string text = make_step(t, &samples_)->prepare(execution).files.at(0).text;
  EXPECT_THAT(text,
              ::testing::StartsWith("id,file,wflow:left_out,x\n"
                                    "8,/campaign/simulate/00/08/out/cube.h5,its task of simulate failed,80\n"
                                    "9,/campaign/simulate/00/09/out/cube.h5,its task of simulate failed,90\n"
                                    "10,/campaign/simulate/00/10/out/cube.h5,,100\n"));
  EXPECT_THAT(text, ::testing::HasSubstr(
                        "\n12,/campaign/simulate/00/12/out/cube.h5,its task of measure failed,120\n"));
  execution.left_out = {{0, 8, "its task of simulate failed"}};
  EXPECT_THAT(make_step(t, &samples_)->prepare(execution).files.at(0).text,
              ::testing::StartsWith("id,file,x\n8,"));
}

// Fields name files in the samples' directories, and the rows have the columns that they and the split need.
TEST_F(ConvertTest, HandsOverDirectoriesToFields) {
  auto t = blocks();
  t.settings = conversion(
      "from: simulate\ninputs: {k: {parameter: x}}\ntargets: {u: {file: u.npy}, e: {file: log, regex: 'E = "
      "(.*)'}}\n"
      "split: {train: 0.8, group_by: name}\n");
  EXPECT_THAT(make_step(t, &samples_)->prepare({0, 0, false}).files.at(0).text,
              ::testing::StartsWith("id,directory,x,name\n0,/campaign/simulate/00/00,0,"));
  t.settings = conversion(
      "from: simulate\nfile: cube.h5\ninputs: {u: {dataset: /u}}\ntargets: {e: {file: log, regex: 'E = "
      "(.*)'}}\n");
  EXPECT_THAT(make_step(t, &samples_)->prepare({0, 0, false}).files.at(0).text,
              ::testing::StartsWith(
                  "id,directory,file\n0,/campaign/simulate/00/00,/campaign/simulate/00/00/cube.h5\n"));
}

// Every spelling of a value that validation takes means the same here.
TEST_F(ConvertTest, ReadsTheBlockAsValidationDoes) {
  auto t = blocks();
  for (const char* yes : {"yes", "True", "on", "true"}) {
    t.settings =
        conversion(std::string("from: simulate\nfile: u.npy\nbundle: 3\ntargets: x\nstacked: ") + yes + "\n");
    EXPECT_THAT(make_step(t, &samples_)->prepare({1, 0, false}).files.at(0).text,
                ::testing::StartsWith("id,file,row,x\n8,/campaign/simulate/02/u.npy,2,80\n"))
        << yes;
  }
  t.settings = conversion("from: simulate\nfile: u.npy\nstacked: perhaps\n");
  EXPECT_THROW(make_step(t, &samples_), Error);
}

TEST_F(ConvertTest, SharesTheConfiguration) {
  const auto t = blocks();
  const ArraySetup setup = make_step(t, &samples_)->setup();
  EXPECT_THAT(setup.directories, ElementsAre("/campaign/data/logs", "/campaign/data/.wflow-convert"));
  ASSERT_EQ(setup.files.size(), 1U);
  EXPECT_EQ(setup.files[0].path, "/campaign/data/.wflow-convert/config.yaml");
  EXPECT_EQ(setup.files[0].text, yaml::emit(specs::to_yaml(t.settings)));
  EXPECT_EQ(std::get<converters::ConvertConfig>(conversion(setup.files[0].text)),
            std::get<converters::ConvertConfig>(t.settings))
      << "the program reads what the study says";
}

TEST_F(ConvertTest, ConvertsABlock) {
  const auto t = blocks();
  const PreparedTask task = make_step(t, &samples_)->prepare({3, 0, false});
  EXPECT_THAT(task.argv,
              ElementsAre(EndsWith("/wflow-convert"), "/campaign/data/.wflow-convert/config.yaml", "--block",
                          "3", "--samples", "/campaign/data/.wflow-convert/rows-00003.csv"));
  EXPECT_EQ(task.directory, "/campaign/data");
  EXPECT_EQ(task.out_file, "logs/block-00003.out");
  EXPECT_EQ(task.err_file, "logs/block-00003.err");
  ASSERT_EQ(task.files.size(), 1U);
  // The last block is shorter: samples 24 to 29.
  EXPECT_EQ(task.files[0].text,
            "id,file,x\n"
            "24,/campaign/simulate/00/24/out/cube.h5,240\n"
            "25,/campaign/simulate/01/00/out/cube.h5,250\n"
            "26,/campaign/simulate/01/01/out/cube.h5,260\n"
            "27,/campaign/simulate/01/02/out/cube.h5,270\n"
            "28,/campaign/simulate/01/03/out/cube.h5,280\n"
            "29,/campaign/simulate/01/04/out/cube.h5,290\n");
}

TEST_F(ConvertTest, TakesAllColumnsWhereNoTargetsAreNamedAndQuotesThem) {
  auto t = blocks();
  t.settings = conversion("from: simulate\nfile: cube.h5\n");
  t.block_samples = 1;
  const PreparedTask task = make_step(t, &samples_)->prepare({2, 0, false});
  EXPECT_EQ(task.files.at(0).text, "id,file,x,name\n2,/campaign/simulate/00/02/cube.h5,20,\"a,\"\"2\"\"\"\n");
}

TEST_F(ConvertTest, ClosesTheDataSet) {
  auto t = blocks();
  t.block_samples = 0;
  const PreparedTask task = make_step(t, &samples_)->prepare({0, 0, false});
  EXPECT_THAT(task.argv, ElementsAre(EndsWith("/wflow-convert"), "/campaign/data/.wflow-convert/config.yaml",
                                     "--finish"));
  EXPECT_EQ(task.out_file, "logs/finish.out");
  EXPECT_THAT(task.files, IsEmpty());
}

TEST_F(ConvertTest, RefusesUnknownTargetsAndMissingFile) {
  auto t = blocks();
  t.settings = conversion("from: s\nfile: a\ntargets: [y]\n");
  EXPECT_THROW(make_step(t, &samples_), Error);
  t.settings = conversion("from: s\ntargets: [x]\n");
  EXPECT_THROW(make_step(t, &samples_), Error);
}

}  // namespace
}  // namespace wflow::steps
