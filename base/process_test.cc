// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/error.h"

namespace wflow {
namespace {

CommandResult shell(const std::string& script) {
  SpawnRequest request;
  request.argv = {"sh", "-c", script};
  return run_command(request);
}

TEST(Process, CapturesOutputAndStatus) {
  const CommandResult result = shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
  EXPECT_EQ(result.status, 3);
}

TEST(Process, DeathBySignalIsReportedAsShellsDo) {
  EXPECT_EQ(shell("kill -9 $$").status, 137);
}

TEST(Process, StandardInputIsEmptyUnlessGiven) {
  EXPECT_EQ(shell("cat | wc -c").out, "0\n");
}

TEST(Process, DirectoryAndEnvironment) {
  SpawnRequest request;
  request.argv = {"/bin/sh", "-c", "pwd; echo $A"};
  request.directory = "/usr";
  request.environment = std::vector<std::string>{"A=b"};
  EXPECT_EQ(run_command(request).out, "/usr\nb\n");
}

TEST(Process, MissingProgramOrDirectoryIsAnErrorOfTheCaller) {
  SpawnRequest request;
  request.argv = {"/no/such/program"};
  EXPECT_THROW(spawn(request), Error);
  request.argv = {"no-such-program-in-path"};
  EXPECT_THROW(spawn(request), Error);
  request.argv = {"true"};
  request.directory = "/no/such/directory";
  EXPECT_THROW(spawn(request), Error);
}

TEST(Process, OwnGroupCanBeKilledAsAWhole) {
  SpawnRequest request;
  request.argv = {"sh", "-c", "sleep 1000 & sleep 1000"};
  request.own_group = true;
  const pid_t pid = spawn(request);
  EXPECT_EQ(::kill(-pid, SIGKILL), 0);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(exit_status(status), 137);
}

TEST(Process, BlockedSignalsDoNotReachTheChild) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const CommandResult result = shell("kill -TERM $$; echo survived");
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  EXPECT_EQ(result.status, 128 + SIGTERM);
}

TEST(RunCommand, EndsWhatTakesTooLong) {
  const auto run = [](const std::string& script, double timeout_s) {
    SpawnRequest request;
    request.argv = {"/bin/sh", "-c", script};
    return run_command(request, timeout_s);
  };
  const CommandResult slow = run("echo first; sleep 1000", 0.2);
  EXPECT_TRUE(slow.timed_out);
  EXPECT_EQ(slow.status, 128 + SIGKILL);
  EXPECT_EQ(slow.out, "first\n");
  EXPECT_TRUE(run("sleep 1000 & exit 0", 0.2).timed_out) << "what it started holds its output";
  EXPECT_TRUE(run("exec >&- 2>&-; sleep 1000", 0.2).timed_out) << "it closed its output";
  const CommandResult quick = run("echo out; echo err >&2; exit 3", 1000);
  EXPECT_FALSE(quick.timed_out);
  EXPECT_EQ(quick.status, 3);
  EXPECT_EQ(quick.out, "out\n");
  EXPECT_EQ(quick.err, "err\n");
}

}  // namespace
}  // namespace wflow
