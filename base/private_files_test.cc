// SPDX-License-Identifier: Apache-2.0
#include "base/private_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace wflow {
namespace {

namespace fs = std::filesystem;

class PrivateFiles : public ::testing::Test {
 protected:
  PrivateFiles() {
    std::string name = (fs::temp_directory_path() / "wflow-private-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    folder_ = name;
  }
  ~PrivateFiles() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  static std::string refusal(const fs::path& path) {
    try {
      require_private(path, "they could read it");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::system);
      return error.what();
    }
    return {};
  }
  fs::path folder_;
};

TEST_F(PrivateFiles, AFolderIsMadeForTheUserAloneWhateverTheUmaskSays) {
  const mode_t before = ::umask(0);
  make_private_folder(folder_ / "a" / "b");
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat((folder_ / "a" / "b").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
  EXPECT_TRUE(is_private_folder(folder_ / "a" / "b"));
  EXPECT_FALSE(is_private_folder(folder_ / "a"));
  EXPECT_FALSE(is_private_folder(folder_ / "none"));
  make_private_folder(folder_ / "a" / "b");
}

TEST_F(PrivateFiles, WhatOthersMayUseIsRefusedWithTheCommandThatMendsIt) {
  const fs::path file = folder_ / "file";
  write_file_durably(file, "x", 0600);
  EXPECT_EQ(refusal(file), "");
  EXPECT_EQ(refusal(folder_ / "none"), "");
  for (const mode_t mode : {0640, 0604, 0620, 0601}) {
    ::chmod(file.c_str(), mode);
    EXPECT_NE(refusal(file).find("they could read it; chmod 600 it"), std::string::npos) << refusal(file);
  }
  ::chmod(folder_.c_str(), 0755);
  EXPECT_NE(refusal(folder_).find("(mode 0755): they could read it; chmod 700 it"), std::string::npos);
}

TEST_F(PrivateFiles, ALinkIsNoPrivateFolder) {
  write_file_durably(folder_ / "file", "x", 0644);
  fs::create_symlink(folder_ / "file", folder_ / "link");
  EXPECT_NE(refusal(folder_ / "link"), "") << "what it points to counts";
  fs::create_directory_symlink(folder_, folder_ / "folder");
  EXPECT_FALSE(is_private_folder(folder_ / "folder"));
}

TEST_F(PrivateFiles, OfAnotherUserAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs to become another user";
  write_file_durably(folder_ / "file", "x", 0600);
  ::chmod(folder_.c_str(), 0755);
  ASSERT_EQ(::seteuid(65534), 0);
  const std::string sentence = refusal(folder_ / "file");
  const bool own = is_private_folder(folder_);
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_NE(sentence.find("belongs to another user (uid 0)"), std::string::npos);
  EXPECT_FALSE(own);
}

}  // namespace
}  // namespace wflow
