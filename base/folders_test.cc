// SPDX-License-Identifier: Apache-2.0
#include "base/folders.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iterator>
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

std::string distrust(const fs::path& path) {
  try {
    require_trusted_folder(path, "they could run commands as you");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::system);
    return error.what();
  }
  return {};
}

TEST_F(PrivateFiles, AFolderIsTrustedWhereNobodyElseCanWriteToItOrToItsParents) {
  const fs::path parent = folder_ / "parent";
  const fs::path own = parent / "own";
  make_directories(own);
  EXPECT_EQ(distrust(own), "");
  EXPECT_EQ(distrust(own / "none" / "yet"), "");
  ::chmod(parent.c_str(), 0777);
  EXPECT_NE(
      distrust(own).find(parent.string() + " (mode 0777): they could run commands as you; chmod o-w it"),
      std::string::npos)
      << distrust(own);
  EXPECT_NE(distrust(own / "none"), "");
  ::chmod(parent.c_str(), 01777);
  EXPECT_EQ(distrust(own), "") << "as /tmp";
  ::chmod(own.c_str(), 01777);
  EXPECT_NE(distrust(own), "") << "others can add files to it";
  ::chmod(own.c_str(), 0775);
  EXPECT_EQ(distrust(own), "") << "a group that the user is in";
  fs::create_directory_symlink(parent, folder_ / "link");
  ::chmod(parent.c_str(), 0777);
  EXPECT_NE(distrust(folder_ / "link" / "own"), "") << "what it points to counts";
  ::setenv("WFLOW_TRUST", ("/none:" + parent.string()).c_str(), 1);
  EXPECT_EQ(distrust(own), "");
  EXPECT_EQ(distrust(folder_), "");
  ::setenv("WFLOW_TRUST", own.c_str(), 1);
  EXPECT_NE(distrust(parent), "");
  ::unsetenv("WFLOW_TRUST");
}

TEST_F(PrivateFiles, AFolderOfAnotherUserOrGroupIsNotTrusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs to become another user";
  const fs::path own = folder_ / "parent" / "own";
  make_directories(own);
  ASSERT_EQ(::chown(own.c_str(), 65534, 65534), 0);
  EXPECT_NE(distrust(own).find("belongs to another user (uid 65534)"), std::string::npos)
      << "the superuser, too";
  ASSERT_EQ(::chown(own.c_str(), 0, 65534), 0);
  ::chmod(own.c_str(), 0775);
  EXPECT_NE(distrust(own).find("chmod g-w it"), std::string::npos);
  ::chmod(own.c_str(), 0755);
  ASSERT_EQ(::chown(own.parent_path().c_str(), 65534, 65534), 0);
  EXPECT_NE(distrust(own), "") << "its parent's owner can replace it";
  ::chmod(folder_.c_str(), 0755);
  ASSERT_EQ(::chown(own.c_str(), 65534, 65534), 0);
  ASSERT_EQ(::seteuid(65534), 0);
  const std::string sentence = distrust(own);
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_EQ(sentence, "") << "parents of the superuser are trusted";
}

}  // namespace

namespace {

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
