// SPDX-License-Identifier: Apache-2.0
#include "base/control_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/file.h"
#include "base/process.h"

namespace wflow {
namespace {

namespace fs = std::filesystem;

// A process in a group of its own, and one that it has started in a new session without an environment.
struct Worker {
  pid_t pid = 0, hidden = 0;
  fs::path group;
};

[[noreturn]] void be_worker(const ProcessIdentity& other, const ControlGroups& groups, int out) {
  const std::string group = groups.enter(other).string();
  const pid_t hidden = ::fork();
  if (hidden == 0) {
    ::setsid();
    ::close(out);
    ::execle("/bin/sleep", "sleep", "1000", nullptr, std::array<char*, 1>{nullptr}.data());
    ::_exit(1);
  }
  const std::string said = std::to_string(hidden) + " " + group;
  if (::write(out, said.data(), said.size()) != static_cast<ssize_t>(said.size())) ::_exit(1);
  ::close(out);
  while (true) ::pause();
}

Worker start_worker(const ProcessIdentity& other, const ControlGroups& groups) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  Worker worker;
  worker.pid = ::fork();
  if (worker.pid == 0) be_worker(other, groups, pipe[1]);
  ::close(pipe[1]);
  std::array<char, 4096> text{};
  std::string said;
  for (ssize_t got = 0; (got = ::read(pipe[0], text.data(), text.size())) > 0;)
    said.append(text.data(), static_cast<std::size_t>(got));
  ::close(pipe[0]);
  worker.hidden = static_cast<pid_t>(std::stol(said));
  worker.group = said.substr(said.find(' ') + 1);
  return worker;
}

ProcessIdentity ended_process() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::pause();
    ::_exit(0);
  }
  const ProcessIdentity identity = identify(pid);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return identity;
}

void wait_for_end(pid_t pid) {
  const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return;
  pollfd end{process.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&end, 1, 20'000), 1);
}

class ControlGroup : public testing::Test {
 protected:
  void SetUp() override {
    if (folder_.empty()) GTEST_SKIP() << "this user may make no control groups here";
  }

  void expect_found_after_kill(const Worker& worker) const {
    ::kill(worker.pid, SIGKILL);
    ::waitpid(worker.pid, nullptr, 0);
    EXPECT_EQ(groups_.end_abandoned(), std::vector<pid_t>{worker.hidden});
    wait_for_end(worker.hidden);
    groups_.end_abandoned();
    EXPECT_FALSE(fs::exists(worker.group));
  }

  const fs::path folder_ = group_folder();
  const ControlGroups groups_{"/tmp/a-campaign", folder_};
};

TEST_F(ControlGroup, FindsWhatHidAndNobodyIsLeftToEnd) {
  const Worker worker = start_worker(ended_process(), groups_);
  ASSERT_TRUE(fs::exists(worker.group));
  EXPECT_TRUE(groups_.end_abandoned().empty()) << "one of its owners lives";
  expect_found_after_kill(worker);
}

TEST_F(ControlGroup, TheCallerMayEndItsOwn) {
  const Worker worker = start_worker(own_identity(), groups_);
  EXPECT_TRUE(groups_.end_abandoned().empty());
  expect_found_after_kill(worker);
}

TEST_F(ControlGroup, IsLeftAsItWasFound) {
  const pid_t child = ::fork();
  if (child == 0) {
    const fs::path group = groups_.enter(own_identity());
    const bool made = fs::exists(group) && group_folder() == folder_;
    leave_group(group);
    ::_exit(made && !fs::exists(group) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(ControlGroup, JudgesNoOwnerOfAnotherTable) {
  const ProcessIdentity dead = ended_process();
  const fs::path own = groups_.enter(dead);
  const std::string name = own.filename().string();
  leave_group(own);
  // The same name except for the PID namespace, which precedes the owners.
  const std::size_t owners = name.rfind('-', name.rfind('-') - 1);
  const fs::path group = folder_ / (name.substr(0, owners) + "1" + fmt::format("-{0}.1-{0}.1", dead.pid));
  fs::create_directory(group);
  EXPECT_TRUE(groups_.end_abandoned().empty());
  EXPECT_TRUE(fs::exists(group));
  ::rmdir(group.c_str());
}

TEST_F(ControlGroup, LeavesOtherCampaignsAlone) {
  const Worker worker = start_worker(ended_process(), groups_);
  ::kill(worker.pid, SIGKILL);
  ::waitpid(worker.pid, nullptr, 0);
  const ControlGroups others("/tmp/another-campaign", folder_);
  EXPECT_TRUE(others.end_abandoned().empty());
  EXPECT_TRUE(fs::exists(worker.group));
  ::kill(worker.hidden, SIGKILL);
  wait_for_end(worker.hidden);
  others.end_abandoned();
  EXPECT_FALSE(fs::exists(worker.group)) << "empty";
}

TEST(ControlGroups, WhereThereAreNoneNothingHappens) {
  const ControlGroups none("/tmp/a-campaign", {});
  EXPECT_TRUE(none.enter(own_identity()).empty());
  EXPECT_TRUE(none.end_abandoned().empty());
  leave_group({});
}

}  // namespace
}  // namespace wflow
