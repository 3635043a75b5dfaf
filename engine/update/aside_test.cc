// SPDX-License-Identifier: Apache-2.0
#include "engine/update/aside.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
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
  aside.parts[1].until_step = "train";
  aside.parts[1].until_array = "train/RATE.1";
  aside.parts[1].linked = true;
  write_aside(campaign(), aside);
  const auto read = read_aside(campaign());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->name, "3");
  EXPECT_TRUE(read->keep);
  ASSERT_EQ(read->parts.size(), 2U);
  EXPECT_EQ(read->parts[0].samples, aside.parts[0].samples);
  EXPECT_EQ(read->parts[0].layout, 4U);
  EXPECT_EQ(read->parts[0].level_max_dirs, 2U);
  EXPECT_FALSE(read->parts[0].waits() || read->parts[0].linked);
  EXPECT_EQ(read->parts[1].until_step, "train");
  EXPECT_EQ(read->parts[1].until_array, "train/RATE.1");
  EXPECT_TRUE(read->parts[1].linked);
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

TEST_F(AsideTest, AGoodVersionWaitsForItsSuccessor) {
  Aside aside = list(false);
  aside.parts[1].until_step = aside.parts[1].until_array = "train";
  carry_out(campaign(), aside);
  EXPECT_FALSE(there(".wflow/old/3/simulate/0/1/u"));
  EXPECT_FALSE(there("train"));
  EXPECT_TRUE(there(".wflow/old/3/train/model"));
  const auto kept = kept_versions(campaign());
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].step, "train");
  EXPECT_EQ(kept[0].path, campaign() / ".wflow/old/3/train");
  // A second change, before there is a new one: the last good version is still the first.
  put("train/half");
  Aside next = aside;
  next.name = "4";
  next.parts = {{"train", {}, 0, 25, 0}};
  carry_out(campaign(), next);
  EXPECT_FALSE(there(".wflow/old/4") || there("train"));
  EXPECT_EQ(drop_replaced(campaign(), [](const KeptVersion&) { return false; }).size(), 1U);
  EXPECT_TRUE(there(".wflow/old/3/train/model"));
  EXPECT_TRUE(drop_replaced(campaign(), [](const KeptVersion&) { return true; }).empty());
  EXPECT_FALSE(there(".wflow/old/3"));
}

// Blocks that are made again replace their files in place: the old data set is whole beside the new one.
TEST_F(AsideTest, ADataSetThatIsReplacedInPartsStaysWhole) {
  for (const char* path : {"data/manifest.json", "data/train/shard-00000.h5", "data/train/shard-00001.h5"})
    put(path);
  Aside aside;
  aside.name = "1";
  aside.parts = {{"data", {}, 0, 25, 0, "data.manifest", "data.manifest", true},
                 {"data/manifest.json", {}, 0, 25, 0}};
  for (int time = 0; time < 2; ++time) carry_out(campaign(), aside);  // also where it is repeated
  EXPECT_FALSE(there("data/manifest.json"));
  EXPECT_TRUE(there("data/train/shard-00000.h5"));
  write_file_durably(campaign() / "data/train/shard-00001.h5", "new");
  const fs::path old = campaign() / ".wflow/old/1/data";
  EXPECT_EQ(read_file(old / "manifest.json"), "data/manifest.json");
  EXPECT_EQ(read_file(old / "train/shard-00001.h5"), "data/train/shard-00001.h5");
  EXPECT_EQ(fs::hard_link_count(old / "train/shard-00000.h5"), 2U) << "takes no space twice";
  drop_replaced(campaign(), [](const KeptVersion&) { return true; });
  EXPECT_FALSE(there(".wflow/old/1"));
  EXPECT_EQ(read_file(campaign() / "data/train/shard-00000.h5"), "data/train/shard-00000.h5");
  EXPECT_EQ(read_file(campaign() / "data/train/shard-00001.h5"), "new");
}

// A training's `output:` outside of the campaign moves beside it; nothing is ever deleted under its path.
TEST_F(AsideTest, WhatLiesOutsideIsNotDeleted) {
  const fs::path outside = campaign() / "elsewhere" / "model";
  put("elsewhere/model/model.pt");
  Aside aside;
  aside.name = "2";
  aside.parts = {{outside.string(), {}, 0, 25, 0}};
  carry_out(campaign(), aside);
  EXPECT_TRUE(there("elsewhere/model.old-2/model.pt"));
  EXPECT_FALSE(there("elsewhere/model"));
  // Repeated after a kill, when something is there again.
  put("elsewhere/model/model.pt");
  aside.name = "3";
  aside.parts.push_back({"train", {}, 0, 25, 0, "train", "train", false});
  put("train/model");
  carry_out(campaign(), aside);
  EXPECT_TRUE(there("elsewhere/model.old-2/model.pt") && there("elsewhere/model.old-3/model.pt"));
}

// A step's folder that is a link to another file system, or to a folder of the same one.
class AsideLinkTest : public AsideTest, public ::testing::WithParamInterface<const char*> {
 protected:
  AsideLinkTest() {
    elsewhere_ = fs::path(GetParam()[0] != '\0' ? fs::path(GetParam()) : campaign().parent_path()) /
                 ("wflow-aside-" + std::to_string(::getpid()));
    make_directories(elsewhere_ / "simulate");
    make_directories(elsewhere_ / "train");
    fs::create_directory_symlink(elsewhere_ / "simulate", campaign() / "simulate");
    fs::create_directory_symlink(elsewhere_ / "train", campaign() / "train");
  }
  ~AsideLinkTest() override { fs::remove_all(elsewhere_); }
  fs::path elsewhere_;
};
INSTANTIATE_TEST_SUITE_P(Places, AsideLinkTest, ::testing::Values("", "/dev/shm"));

TEST_P(AsideLinkTest, OutputsMoveWithinTheirFileSystem) {
  Aside aside = list(false);
  aside.parts[1].until_step = aside.parts[1].until_array = "train";
  for (int time = 0; time < 2; ++time) carry_out(campaign(), aside);
  EXPECT_TRUE(there("simulate/0/0/u") && there("simulate/1/1/u"));
  EXPECT_FALSE(there("simulate/0/1") || there("simulate/1/0") || there("train/model"));
  EXPECT_TRUE(fs::is_symlink(campaign() / "simulate") && fs::is_symlink(campaign() / "train"))
      << "the next outputs go there";
  EXPECT_TRUE(there(".wflow/old/3/train/model"));
  EXPECT_FALSE(fs::exists(elsewhere_ / "simulate" / ".wflow-old-3"));
  drop_replaced(campaign(), [](const KeptVersion&) { return true; });
  EXPECT_FALSE(there(".wflow/old/3"));
  EXPECT_TRUE(fs::is_empty(elsewhere_ / "train"));
}

TEST_P(AsideLinkTest, AndAreKeptThere) {
  Aside aside = list(true);
  aside.parts[0].samples.clear();
  carry_out(campaign(), aside);
  EXPECT_FALSE(there("simulate/0") || there("simulate/1") || there("train/model"));
  EXPECT_TRUE(there(".wflow/old/3/simulate/0/1/u") && there(".wflow/old/3/train/model"));
  EXPECT_TRUE(fs::is_symlink(campaign() / "simulate"));
  // And once more: the first ones stay.
  put("simulate/0/0/u");
  aside.name = "4";
  carry_out(campaign(), aside);
  EXPECT_TRUE(there(".wflow/old/3/simulate/0/1/u") && there(".wflow/old/4/simulate/0/0/u"));
}

TEST_F(AsideTest, ALeftBehindListIsRemoved) {
  write_file_durably(campaign() / ".wflow/.aside.json.tmp-12345-0", "{");
  write_aside(campaign(), list(true));
  EXPECT_FALSE(there(".wflow/.aside.json.tmp-12345-0"));
}

// Found before anything is changed, not by every command that follows.
TEST_F(AsideTest, WhatCannotBeMovedIsRefusedAtFirst) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may move everything";
  const Aside aside = list(false);
  require_movable(campaign(), aside);
  fs::permissions(campaign() / "train", fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THROW(require_movable(campaign(), aside), Error);
  fs::permissions(campaign() / "train", fs::perms::owner_all);
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
