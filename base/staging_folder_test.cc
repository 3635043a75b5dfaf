// SPDX-License-Identifier: Apache-2.0
#include "base/staging_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iterator>
#include <string>

namespace wflow {
namespace {

namespace fs = std::filesystem;

class StagingFolders : public ::testing::Test {
 protected:
  StagingFolders() {
    std::string name = (fs::temp_directory_path() / "wflow-staging-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    parent_ = name;
  }
  ~StagingFolders() override {
    std::error_code ignored;
    fs::remove_all(parent_, ignored);
  }
  std::ptrdiff_t count() const { return std::distance(fs::directory_iterator(parent_), {}); }
  fs::path parent_;
};

TEST_F(StagingFolders, EachIsItsOwnAndGoesWithItsProcess) {
  {
    const StagingFolder one(parent_, ".new");
    const StagingFolder other(parent_, ".new");
    EXPECT_NE(one.path(), other.path());
    EXPECT_EQ(count(), 2);
  }
  EXPECT_EQ(count(), 0);
}

TEST_F(StagingFolders, OneOfAKilledProcessIsRemovedByTheNext) {
  fs::create_directory(parent_ / "kept");
  const pid_t child = ::fork();
  if (child == 0) {
    const StagingFolder left(parent_, ".new");
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(count(), 2);
  fs::create_directory(parent_ / ".new-of_an_earlier_version");
  const StagingFolder next(parent_, ".new");
  EXPECT_EQ(count(), 2) << "kept/ and the new one";
  EXPECT_TRUE(fs::exists(parent_ / "kept"));
}

}  // namespace
}  // namespace wflow
