// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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

constexpr std::array<float, 6> kMoments = {0, 0, 0, 0, 0, 1e-30F};

// An array longer than a piece, and one without values.
struct Example {
  explicit Example(int step) : weights(kPieceFloats + 6, static_cast<float>(step)) {
    weights[kPieceFloats] = 0.5F;
    snapshot.header = {{"step", step}, {"note", "ö"}};
    snapshot.arrays.push_back(
        {"parameter", "conv1.weight", {static_cast<std::int64_t>(weights.size())}, weights, {}});
    snapshot.arrays.push_back({"first_moment", "conv1.weight", {2, 3}, kMoments, {}});
    snapshot.arrays.push_back({"buffer", "empty", {0}, {}, {}});
  }
  std::vector<float> weights;
  Snapshot snapshot;
};

// The values of an array.
std::vector<float> values_of(const CheckpointReader& checkpoint, const char* kind, const char* name) {
  const CheckpointReader::Entry* entry = checkpoint.find(kind, name);
  if (entry == nullptr) return {};
  std::vector<float> values(entry->count);
  checkpoint.read(*entry, 0, values);
  return values;
}

TEST_F(CheckpointTest, ReadsBackEqual) {
  const Example before(7);
  const std::string hash = write_checkpoint(directory_ / "x.wfck", before.snapshot);
  EXPECT_THAT(read_file(directory_ / "x.wfck"), testing::EndsWith(hash));
  const CheckpointFile after(directory_ / "x.wfck");
  EXPECT_EQ(after.header(), before.snapshot.header);
  EXPECT_EQ(after.entries().size(), 3U);
  EXPECT_EQ(values_of(after, "parameter", "conv1.weight"), before.weights);
  EXPECT_TRUE(std::ranges::equal(values_of(after, "first_moment", "conv1.weight"), kMoments));
  EXPECT_EQ(after.find("first_moment", "conv1.weight")->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(after.find("first_moment", "conv2.weight"), nullptr);
}

// The file of version 1: no checksums of the arrays, and another number in the place of the version.
TEST_F(CheckpointTest, ReadsVersion1) {
  const Example before(7);
  write_checkpoint(directory_ / "x.wfck", before.snapshot);
  std::string bytes = read_file(directory_ / "x.wfck");
  bytes.resize(bytes.size() - 4 * kHashLength);
  bytes[8] = 1;
  write_file_durably(directory_ / "x.wfck", bytes + hash_bytes(bytes));
  EXPECT_EQ(values_of(CheckpointFile(directory_ / "x.wfck"), "parameter", "conv1.weight"), before.weights);
}

TEST_F(CheckpointTest, EveryCutAndEveryFlippedByteIsFound) {
  const fs::path path = directory_ / "x.wfck";
  Snapshot small = Example(7).snapshot;
  small.arrays.erase(small.arrays.begin());
  write_checkpoint(path, small);
  const std::string whole = read_file(path);
  const auto refuses = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    EXPECT_THROW(CheckpointFile{path}, Error) << bytes.size();
  };
  for (std::size_t length = 0; length < whole.size(); ++length) refuses(whole.substr(0, length));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string broken = whole;
    broken[at] = static_cast<char>(broken[at] ^ 0x10);
    refuses(broken);
  }
}

// The file is read twice: as a whole when it is opened, and then array by array.
TEST_F(CheckpointTest, AnArrayThatChangesAfterwardsIsFound) {
  const fs::path path = directory_ / "x.wfck";
  const Example before(7);
  write_checkpoint(path, before.snapshot);
  const CheckpointFile open(path);
  const CheckpointReader::Entry& entry = *open.find("parameter", "conv1.weight");
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(entry.position + entry.count * sizeof(float) - 1));
    file.put('!');
  }
  std::vector<float> values(entry.count);
  try {
    open.read(entry, 0, values);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("is damaged: the checksum of parameter 'conv1.weight' does not match"));
  }
}

TEST_F(CheckpointTest, RefusesANewerFormat) {
  const fs::path path = directory_ / "x.wfck";
  write_checkpoint(path, Example(7).snapshot);
  std::string bytes = read_file(path);
  bytes[8] = 3;
  write_file_durably(path, bytes);
  try {
    const CheckpointFile file(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::version);
    EXPECT_THAT(error.what(), HasSubstr("has format 3, this wflow-train knows 2"));
  }
}

TEST_F(CheckpointTest, KeepsTheLastFew) {
  CheckpointDirectory checkpoints(directory_ / "c", 2);
  for (const int step : {1, 20, 3}) checkpoints.write(step, Example(step).snapshot);
  checkpoints.write_best(Example(1).snapshot);
  EXPECT_FALSE(fs::exists(directory_ / "c/step-000000000001.wfck"));
  const auto found = checkpoints.newest([](const std::string&) { FAIL(); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path().filename(), "step-000000000020.wfck");
  EXPECT_TRUE(checkpoints.best([](const std::string&) {}));
  checkpoints.clear();
  EXPECT_FALSE(checkpoints.newest([](const std::string&) {}));
}

TEST_F(CheckpointTest, KeepsTheStepsThatAreAskedFor) {
  const CheckpointDirectory checkpoints(directory_, 1);
  for (const int step : {1, 2, 3, 4})
    checkpoints.write(step, Example(step).snapshot, std::vector<std::int64_t>{2});
  EXPECT_FALSE(fs::exists(directory_ / "step-000000000001.wfck"));
  EXPECT_TRUE(fs::exists(directory_ / "step-000000000002.wfck"));
  EXPECT_FALSE(fs::exists(directory_ / "step-000000000003.wfck"));
  EXPECT_TRUE(fs::exists(directory_ / "step-000000000004.wfck"));
}

// Copied for the thread, and written in place.
TEST_F(CheckpointTest, AreWrittenInOrder) {
  for (const std::size_t most_copied : {CheckpointWriter::kMostCopiedBytes, std::size_t{0}}) {
    const CheckpointDirectory checkpoints(directory_, 2);
    std::vector<std::string> hashes;
    CheckpointWriter writer(checkpoints, most_copied);
    for (const int step : {1, 2, 3, 4, 5}) {
      writer.write(step, Example(step).snapshot, {},
                   [&](const CheckpointDirectory::Written& written) { hashes.push_back(written.hash); });
    }
    writer.write_best(Example(3).snapshot);
    writer.finish();
    EXPECT_EQ(hashes.size(), 5U);
    const auto found = checkpoints.newest([](const std::string&) { FAIL(); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->header().at("step"), 5);
    EXPECT_EQ(values_of(*found, "parameter", "conv1.weight"), Example(5).weights);
    EXPECT_THAT(read_file(found->path()), testing::EndsWith(hashes.back()));
    const auto best = checkpoints.best([](const std::string&) { FAIL(); });
    ASSERT_TRUE(best);
    EXPECT_EQ(best->header().at("step"), 3);
  }
}

TEST_F(CheckpointTest, AnErrorOfTheThreadReachesTheTraining) {
  std::ofstream(directory_ / "file") << "in the way";
  const CheckpointDirectory checkpoints(directory_ / "file", 2);
  CheckpointWriter writer(checkpoints);
  writer.write(1, Example(1).snapshot, {}, [](const CheckpointDirectory::Written&) { FAIL(); });
  EXPECT_THROW(writer.finish(), Error);
  writer.finish();  // the error was thrown once
}

TEST_F(CheckpointTest, FallsBackToTheOneBeforeADamagedOne) {
  CheckpointDirectory checkpoints(directory_, 2);
  checkpoints.write(1, Example(1).snapshot);
  checkpoints.write(2, Example(2).snapshot);
  fs::resize_file(directory_ / "step-000000000002.wfck", 100);
  std::string said;
  const auto found = checkpoints.newest([&](const std::string& sentence) { said += sentence; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->header().at("step"), 1);
  EXPECT_THAT(
      said,
      HasSubstr("step-000000000002.wfck is damaged: its checksum does not match; trying the one before"));
  checkpoints.write(2, Example(2).snapshot);
  EXPECT_EQ(checkpoints.newest([](const std::string&) { FAIL(); })->header().at("step"), 2);
}

}  // namespace
}  // namespace wflow::trainer
