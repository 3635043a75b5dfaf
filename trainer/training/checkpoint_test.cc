// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "trainer/training/checkpoint_writer.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "wflow-checkpoint-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }
  fs::path directory_;
};

Checkpoint example(int step) {
  Checkpoint checkpoint;
  checkpoint.header = {{"step", step}, {"note", "ö"}};
  checkpoint.arrays.push_back(
      {"parameter", "conv1.weight", {2, 3}, {1, 2, 3, 4, 5, static_cast<float>(step)}});
  checkpoint.arrays.push_back({"first_moment", "conv1.weight", {2, 3}, {0, 0, 0, 0, 0, 1e-30F}});
  checkpoint.arrays.push_back({"buffer", "empty", {0}, {}});
  return checkpoint;
}

TEST_F(CheckpointTest, ReadsBackEqual) {
  const Checkpoint before = example(7);
  const Checkpoint after = decode_checkpoint(encode_checkpoint(before), "x");
  EXPECT_EQ(after.header, before.header);
  EXPECT_EQ(after.arrays, before.arrays);
  ASSERT_NE(after.find("first_moment", "conv1.weight"), nullptr);
  EXPECT_EQ(after.find("first_moment", "conv2.weight"), nullptr);
}

TEST_F(CheckpointTest, EveryCutAndEveryFlippedByteIsFound) {
  const std::string whole = encode_checkpoint(example(7));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(decode_checkpoint(std::string_view(whole).substr(0, length), "x"), Error) << length;
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string broken = whole;
    broken[at] = static_cast<char>(broken[at] ^ 0x10);
    EXPECT_THROW(decode_checkpoint(broken, "x"), Error) << at;
  }
}

TEST_F(CheckpointTest, RefusesANewerFormat) {
  std::string bytes = encode_checkpoint(example(7));
  bytes[8] = 2;
  try {
    decode_checkpoint(bytes, "x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::version);
    EXPECT_THAT(error.what(), HasSubstr("has format 2, this wflow-train knows 1"));
  }
}

TEST_F(CheckpointTest, KeepsTheLastFew) {
  CheckpointDirectory checkpoints(directory_ / "c", 2);
  for (const int step : {1, 20, 3}) checkpoints.write(step, encode_checkpoint(example(step)));
  checkpoints.write_best(encode_checkpoint(example(1)));
  EXPECT_FALSE(fs::exists(directory_ / "c/step-000000000001.wfck"));
  const auto found = checkpoints.newest([](const std::string&) { FAIL(); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path.filename(), "step-000000000020.wfck");
  EXPECT_FALSE(checkpoints.best_bytes([](const std::string&) {}).empty());
  checkpoints.clear();
  EXPECT_FALSE(checkpoints.newest([](const std::string&) {}));
}

TEST_F(CheckpointTest, KeepsTheStepsThatAreAskedFor) {
  const CheckpointDirectory checkpoints(directory_, 1);
  for (const int step : {1, 2, 3, 4})
    checkpoints.write(step, encode_checkpoint(example(step)), std::vector<std::int64_t>{2});
  EXPECT_FALSE(fs::exists(directory_ / "step-000000000001.wfck"));
  EXPECT_TRUE(fs::exists(directory_ / "step-000000000002.wfck"));
  EXPECT_FALSE(fs::exists(directory_ / "step-000000000003.wfck"));
  EXPECT_TRUE(fs::exists(directory_ / "step-000000000004.wfck"));
}

TEST_F(CheckpointTest, AreWrittenInOrderByTheThread) {
  const CheckpointDirectory checkpoints(directory_, 2);
  std::vector<std::string> hashes;
  {
    CheckpointWriter writer(checkpoints);
    for (const int step : {1, 2, 3, 4, 5}) {
      const Checkpoint one = example(step);
      const std::vector<CheckpointView> views = {
          {one.arrays[0].kind, one.arrays[0].name, one.arrays[0].shape, one.arrays[0].values}};
      writer.write(step, encode_unsealed(one.header, views), {},
                   [&](const CheckpointDirectory::Written& written) { hashes.push_back(written.hash); });
    }
    writer.write_best(encode_unsealed({{"step", 3}}, {}));
    writer.finish();
    EXPECT_EQ(hashes.size(), 5U);
    const auto found = checkpoints.newest([](const std::string&) { FAIL(); });
    ASSERT_TRUE(found);
    EXPECT_EQ(decode_checkpoint(found->bytes, "x").header.at("step"), 5);
    EXPECT_THAT(found->bytes, testing::EndsWith(hashes.back()));
    EXPECT_FALSE(checkpoints.best_bytes([](const std::string&) { FAIL(); }).empty());
  }
}

TEST_F(CheckpointTest, AnErrorOfTheThreadReachesTheTraining) {
  std::ofstream(directory_ / "file") << "in the way";
  const CheckpointDirectory checkpoints(directory_ / "file", 2);
  CheckpointWriter writer(checkpoints);
  writer.write(1, encode_unsealed({{"step", 1}}, {}), {},
               [](const CheckpointDirectory::Written&) { FAIL(); });
  EXPECT_THROW(writer.finish(), Error);
  writer.finish();  // the error was thrown once
}

TEST_F(CheckpointTest, FallsBackToTheOneBeforeADamagedOne) {
  CheckpointDirectory checkpoints(directory_, 2);
  checkpoints.write(1, encode_checkpoint(example(1)));
  checkpoints.write(2, encode_checkpoint(example(2)));
  fs::resize_file(directory_ / "step-000000000002.wfck", 100);
  std::string said;
  const auto found = checkpoints.newest([&](const std::string& sentence) { said += sentence; });
  ASSERT_TRUE(found);
  EXPECT_EQ(decode_checkpoint(found->bytes, "x").header.at("step"), 1);
  EXPECT_THAT(
      said,
      HasSubstr("step-000000000002.wfck is damaged: its checksum does not match; trying the one before"));
  checkpoints.write(2, encode_checkpoint(example(2)));
  EXPECT_EQ(
      decode_checkpoint(checkpoints.newest([](const std::string&) { FAIL(); })->bytes, "x").header.at("step"),
      2);
}

}  // namespace
}  // namespace wflow::trainer
