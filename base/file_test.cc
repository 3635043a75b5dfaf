// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace wflow {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(FileTest, DurableWriteReplacesAndLeavesNoTemporary) {
  write_file_durably(folder_ / "a", "one");
  write_file_durably(folder_ / "a", "two");
  EXPECT_EQ(read_file(folder_ / "a"), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(FileTest, UnpublishedTemporaryIsRemoved) {
  {
    DurableFile file(folder_ / "b");
    write_file_durably(file.temporary(), "partial");
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(FileTest, MissingFileIsADataErrorThatNamesIt) {
  try {
    read_file(folder_ / "nowhere");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_NE(std::string(error.what()).find("nowhere"), std::string::npos);
  }
}

TEST_F(FileTest, FullDiskIsASystemError) {
  // /dev/full gives ENOSPC for every write.
  try {
    const FileDescriptor fd = open_file("/dev/full", 1);
    write_all(fd.get(), "x", "/dev/full");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::system);
    EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos);
  }
}

TEST_F(FileTest, HashOfFileAndBytesAgree) {
  const std::string bytes(3 << 20, 'x');
  write_file_durably(folder_ / "c", bytes);
  EXPECT_EQ(hash_file(folder_ / "c"), hash_bytes(bytes));
  EXPECT_EQ(hash_bytes(bytes).size(), 32u);
}

TEST_F(FileTest, LeftoversOfKilledWritersAreRemoved) {
  for (const char* name : {".metrics.csv.tmp-12-3", ".model.pt.tmp-1-1", "a.tmp-1-1", "b"})
    write_file_durably(folder_ / name, "x");
  remove_temporaries(folder_, "metrics.csv");
  EXPECT_FALSE(std::filesystem::exists(folder_ / ".metrics.csv.tmp-12-3"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / ".model.pt.tmp-1-1"));
  remove_temporaries(folder_);
  EXPECT_FALSE(std::filesystem::exists(folder_ / ".model.pt.tmp-1-1"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a.tmp-1-1"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "b"));
}

}  // namespace
}  // namespace wflow
