// SPDX-License-Identifier: Apache-2.0
#include "engine/update/aside.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "engine/wire/temporary_campaign.h"

namespace wflow::engine {
namespace {

namespace fs = std::filesystem;

class AsideTest : public ::testing::Test {
 protected:
  AsideTest() { make_directories(campaign() / ".wflow"); }

  fs::path campaign() const { return directory_.path(); }
  void put(const std::string& path) const {
    make_directories((campaign() / path).parent_path());
    write_file_durably(campaign() / path, path);
  }
  bool there(const std::string& path) const { return fs::exists(campaign() / path); }

  // Samples 0 to 3 in folders of two, and a training.
  Aside list(bool keep) const {
    for (const char* path :
         {"simulate/0/0/u", "simulate/0/1/u", "simulate/1/0/u", "simulate/1/1/u", "train/model"})
      put(path);
    Aside aside;
    aside.name = "3";
    aside.keep = keep;
    aside.parts = {{"simulate", {{1, 2}}, 4, 2, 0}, {"train", {}, 0, 25, 0}};
    return aside;
  }

  wire::TemporaryCampaign directory_;
};

TEST_F(AsideTest, TheListReadsAsItWasWritten) {
  Aside aside = list(true);
  aside.kept = {"train"};
  write_aside(campaign(), aside);
  const auto read = read_aside(campaign());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->name, "3");
  EXPECT_TRUE(read->keep);
  EXPECT_EQ(read->kept, aside.kept);
  ASSERT_EQ(read->parts.size(), 2U);
  EXPECT_EQ(read->parts[0].samples, aside.parts[0].samples);
  EXPECT_EQ(read->parts[0].layout, 4U);
  EXPECT_EQ(read->parts[0].level_max_dirs, 2U);
  remove_aside(campaign());
  EXPECT_FALSE(read_aside(campaign()));
}

TEST_F(AsideTest, WhatIsReplacedGoes) {
  carry_out(campaign(), list(false));
  EXPECT_TRUE(there("simulate/0/0/u") && there("simulate/1/1/u")) << "samples 0 and 3";
  EXPECT_FALSE(there("simulate/0/1") || there("simulate/1/0") || there("train"));
  EXPECT_FALSE(there(".wflow/old/3"));
}

TEST_F(AsideTest, OrIsKeptInTheSameFolders) {
  carry_out(campaign(), list(true));
  EXPECT_FALSE(there("simulate/0/1") || there("train"));
  EXPECT_TRUE(there(".wflow/old/3/simulate/0/1/u") && there(".wflow/old/3/simulate/1/0/u"));
  EXPECT_TRUE(there(".wflow/old/3/train/model"));
}

TEST_F(AsideTest, OnlyTrainingsAreKept) {
  Aside aside = list(false);
  aside.kept = {"train"};
  carry_out(campaign(), aside);
  EXPECT_FALSE(there(".wflow/old/3/simulate/0/1/u"));
  EXPECT_TRUE(there(".wflow/old/3/train/model"));
}

// Killed after any of the moves, the same list is carried out again; what has come since stays.
TEST_F(AsideTest, ARepeatedCarryingOutEndsIt) {
  const Aside aside = list(true);
  write_aside(campaign(), aside);
  Aside half = aside;
  half.parts.pop_back();
  carry_out(campaign(), half);
  carry_out(campaign(), aside);
  EXPECT_TRUE(there(".wflow/old/3/simulate/0/1/u") && there(".wflow/old/3/train/model"));
  EXPECT_FALSE(read_aside(campaign()));
  EXPECT_EQ(new_aside_name(campaign()), "1") << "the first that is free";
}

}  // namespace
}  // namespace wflow::engine
