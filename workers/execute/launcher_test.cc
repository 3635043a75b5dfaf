// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/wire/temporary_campaign.h"

namespace wflow::workers {
namespace {

class LauncherTest : public ::testing::Test {
 protected:
  // The exit status of `sh -c body`.
  int run(const std::string& body) {
    argv_ = {"/bin/sh", "-c", body};
    launcher_.start(request());
    EXPECT_GT(pid_, 0);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    return status;
  }
  LaunchRequest request() {
    return {argv_.front().c_str(), &argv_, &environment_, &directory_, &out_, &err_, -1, -1, nullptr, &pid_};
  }

  engine::wire::TemporaryCampaign place_;
  std::string directory_ = place_.path().string();
  std::string out_ = "t.out";
  std::string err_ = "t.err";
  std::vector<std::string> argv_;
  std::vector<const char*> environment_ = {"GREETING=hello", "PATH=/usr/bin:/bin", nullptr};
  pid_t pid_ = -1;
  Launcher launcher_;
};

TEST_F(LauncherTest, RunsInItsDirectoryWithItsEnvironmentAndAppends) {
  EXPECT_EQ(WEXITSTATUS(run("echo $GREETING; pwd; echo no >&2; exit 3")), 3);
  EXPECT_EQ(WEXITSTATUS(run("echo again")), 0);
  EXPECT_EQ(read_file(place_.path() / "t.out"), "hello\n" + directory_ + "\nagain\n");
  EXPECT_EQ(read_file(place_.path() / "t.err"), "no\n");
}

TEST_F(LauncherTest, GivesTheChildAGroupAndNoForeignDescriptor) {
  const FileDescriptor foreign = open_file(place_.path() / "foreign", O_WRONLY | O_CREAT | O_CLOEXEC);
  run("ls -l /proc/self/fd | grep -c foreign; [ $(cut -d' ' -f5 /proc/$$/stat) = $$ ] && echo leader");
  EXPECT_EQ(read_file(place_.path() / "t.out"), "0\nleader\n");
}

TEST_F(LauncherTest, UnblocksSignals) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const int status = run("kill -TERM $$; sleep 10");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST_F(LauncherTest, SaysWhatCouldNotBeDone) {
  const auto message = [&] {
    try {
      launcher_.start(request());
    } catch (const Error& error) {
      EXPECT_EQ(pid_, 0);
      EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // nothing is left to reap
      return std::string(error.what());
    }
    return std::string();
  };
  argv_ = {"/nonexistent/program"};
  EXPECT_NE(message().find("/nonexistent/program"), std::string::npos);
  argv_ = {"/bin/true"};
  out_ = "no/such/folder.out";
  EXPECT_NE(message().find("no/such/folder.out"), std::string::npos);
  directory_ = "/nonexistent";
  EXPECT_NE(message().find("cannot enter /nonexistent"), std::string::npos);
}

TEST_F(LauncherTest, StartsThousandsWithoutGrowing) {
  argv_ = {"/bin/true"};
  for (int i = 0; i < 2000; ++i) {
    launcher_.start(request());
    int status = -1;
    ASSERT_EQ(::waitpid(pid_, &status, 0), pid_);
    ASSERT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace wflow::workers
