// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/git_dependency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "specs/study/test_study.h"

namespace wflow::specs {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class GitDependencyTest : public testing::Test {
 protected:
  GitDependencyTest() : path_(std::getenv("PATH")) {}
  ~GitDependencyTest() override { ::setenv("PATH", path_.c_str(), 1); }

  // A repository of two commits, the first of them tagged.
  fs::path repository() {
    const fs::path path = folder_.path() / "origin";
    fs::create_directories(path);
    const std::vector<std::vector<std::string>> commands = {
        {"init", "--quiet"}, {"add", "."}, {"commit", "--quiet", "-m", "1"}, {"tag", "v1"}};
    std::ofstream(path / "file") << "one\n";
    for (const auto& command : commands) git(path, command);
    std::ofstream(path / "file") << "two\n";
    git(path, {"commit", "--quiet", "-am", "2"});
    return path;
  }

  // The first program in PATH that is called git.
  void pretend(const std::string& script) {
    const fs::path program = folder_.write("git", "#!/bin/sh\n" + script);
    fs::permissions(program, fs::perms::owner_all);
    ::setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
  }

  GitDependency dependency(const std::string& url, const std::string& tag = {}) {
    return {"code", (folder_.path() / "deps").string(), url, tag};
  }
  fs::path target() const { return folder_.path() / "deps/code"; }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_.path() / "deps"), {}));
  }

  static void git(const fs::path& directory, std::vector<std::string> arguments) {
    SpawnRequest request;
    request.argv = {"git", "-C", directory.string(), "-c", "user.name=n", "-c", "user.email=e"};
    request.argv.insert(request.argv.end(), arguments.begin(), arguments.end());
    const CommandResult result = run_command(request);
    ASSERT_EQ(result.status, 0) << result.err;
  }

  TemporaryFolder folder_;
  std::string path_;
};

TEST_F(GitDependencyTest, IsClonedOnceAtItsTag) {
  const std::string url = repository().string();
  clone_dependency(dependency(url, "v1"));
  EXPECT_EQ(read_file(target() / "file"), "one\n");
  clone_dependency(dependency(url));  // it is there: left as it is
  EXPECT_EQ(read_file(target() / "file"), "one\n");
  EXPECT_EQ(entries(), 1U);
  fs::remove_all(target());
  clone_dependency(dependency(url));
  EXPECT_EQ(read_file(target() / "file"), "two\n");
}

// A clone that was killed counted as complete.
TEST_F(GitDependencyTest, ACutCloneDoesNotCount) {
  const std::string url = repository().string();
  pretend("for last; do :; done; mkdir -p \"$last\"; echo half > \"$last/file\"; kill -9 $$\n");
  EXPECT_THROW(clone_dependency(dependency(url)), Error);
  EXPECT_FALSE(fs::exists(target()));
  EXPECT_EQ(entries(), 0U);
  ::setenv("PATH", path_.c_str(), 1);
  EXPECT_THROW(clone_dependency(dependency(url, "no-such-tag")), Error);
  EXPECT_FALSE(fs::exists(target()));
  clone_dependency(dependency(url));
  EXPECT_EQ(read_file(target() / "file"), "two\n");
}

TEST_F(GitDependencyTest, ACloneThatAnotherCampaignFinishedFirstIsKept) {
  pretend("for last; do :; done; mkdir -p \"$last\" '" + target().string() +
          "'; echo mine > \"$last/file\"; echo theirs > '" + target().string() + "/file'\n");
  clone_dependency(dependency("anything"));
  EXPECT_EQ(read_file(target() / "file"), "theirs\n");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(GitDependencyTest, AUrlIsNeverAnOption) {
  pretend("for word; do echo \"$word\"; done > '" + folder_.path().string() + "/words'; exit 1\n");
  EXPECT_THROW(clone_dependency(dependency("--upload-pack=touch x")), Error);
  EXPECT_THAT(read_file(folder_.path() / "words"), HasSubstr("--\n--upload-pack=touch x\n"));
}

TEST(GitDependency, UrlsAndTagsThatLookLikeOptionsAreRefused) {
  const auto error = [](const std::string& entry) {
    return StudyText("description: {name: n}\nenv: {dependencies: {git: [{name: code, path: deps, " + entry +
                     "}]}}\nstudy: [{name: s, run: {cmd: echo}}]\n")
        .error();
  };
  EXPECT_THAT(error("url: --upload-pack=x"),
              HasSubstr("study.yaml:2:58: error: the url of the dependency 'code' begins with '-'"));
  EXPECT_THAT(error("url: u, tag: -f"), HasSubstr("the tag of the dependency 'code' begins with '-'"));
  EXPECT_EQ(error("url: u, hash: f00"), "");
}

}  // namespace
}  // namespace wflow::specs
