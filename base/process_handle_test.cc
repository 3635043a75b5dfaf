// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace wflow {
namespace {

// A child that lives until the other end of its pipe closes or it is killed.
class Child {
 public:
  explicit Child(const char* name = nullptr) {
    std::array<int, 2> ready{};
    if (::pipe2(ready.data(), O_CLOEXEC) != 0) ::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (name != nullptr) ::prctl(PR_SET_NAME, name);
      ::close(ready[0]);
      if (::write(ready[1], "r", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    if (::read(ready[0], &byte, 1) != 1) ::abort();
    ::close(ready[0]);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    reap();
  }
  pid_t pid() const { return pid_; }
  int reap() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return status;
  }

 private:
  pid_t pid_ = 0;
};

void wait_for_end(const ProcessHandle& handle) {
  pollfd poll{handle.descriptor(), POLLIN, 0};
  ASSERT_EQ(::poll(&poll, 1, -1), 1);
}

TEST(ProcessIdentity, OfThisProcessAndOfOthers) {
  const ProcessIdentity own = own_identity();
  EXPECT_TRUE(own.known());
  EXPECT_EQ(own.pid, ::getpid());
  EXPECT_GT(own.start_ticks, 0u);
  EXPECT_FALSE(own.host.empty());
  EXPECT_FALSE(own.boot.empty());
  EXPECT_EQ(own, own_identity());
  const Child child;
  const ProcessIdentity other = identify(child.pid());
  EXPECT_EQ(other.pid, child.pid());
  EXPECT_TRUE(other.same_table(own));
  EXPECT_GE(other.start_ticks, own.start_ticks);
  EXPECT_FALSE(identify(0).known());
  EXPECT_FALSE(identify(-1).known());
}

TEST(ProcessIdentity, ANameOfSpacesAndParenthesesDoesNotHideTheStartTime) {
  const Child plain;
  const Child odd("a) R 1 2 (3 4");
  EXPECT_GE(identify(odd.pid()).start_ticks, identify(plain.pid()).start_ticks);
  EXPECT_TRUE(ProcessHandle(identify(odd.pid())).open());
}

TEST(ProcessHandle, SignalsTheProcessAndSeesItsEnd) {
  Child child;
  ProcessHandle handle(identify(child.pid()));
  ASSERT_TRUE(handle.open());
  EXPECT_FALSE(handle.ended());
  EXPECT_TRUE(handle.send_signal(0));
  EXPECT_TRUE(handle.send_signal(SIGKILL));
  wait_for_end(handle);
  EXPECT_TRUE(handle.ended()) << "a zombie has ended";
  EXPECT_TRUE(ProcessHandle(identify(child.pid())).ended());
  EXPECT_EQ(WTERMSIG(child.reap()), SIGKILL);
  EXPECT_TRUE(handle.ended());
  EXPECT_FALSE(handle.send_signal(SIGKILL)) << "its pid may be somebody else's by now";
}

TEST(ProcessHandle, OfOneThatEndedBefore) {
  Child child;
  const ProcessIdentity identity = identify(child.pid());
  ::kill(child.pid(), SIGKILL);
  child.reap();
  const ProcessHandle handle(identity);
  EXPECT_FALSE(handle.open());
  EXPECT_TRUE(handle.ended());
  EXPECT_FALSE(handle.send_signal(SIGKILL));
}

TEST(ProcessHandle, APidThatAnotherProcessHasNowIsNotTouched) {
  const Child child;
  ProcessIdentity earlier = identify(child.pid());
  earlier.start_ticks -= 1;
  const ProcessHandle handle(earlier);
  EXPECT_FALSE(handle.open());
  EXPECT_TRUE(handle.ended()) << "the one that is meant";
  EXPECT_FALSE(handle.send_signal(SIGKILL));
  EXPECT_FALSE(ProcessHandle(identify(child.pid())).ended());
}

TEST(ProcessHandle, NothingIsKnownOfOtherProcessTables) {
  const Child child;
  for (const auto field : {&ProcessIdentity::host, &ProcessIdentity::boot, &ProcessIdentity::namespace_id}) {
    ProcessIdentity elsewhere = identify(child.pid());
    elsewhere.*field += "x";
    const ProcessHandle handle(elsewhere);
    EXPECT_FALSE(handle.open());
    EXPECT_FALSE(handle.ended());
    EXPECT_FALSE(handle.send_signal(SIGKILL));
  }
  const ProcessHandle nobody{ProcessIdentity()};
  EXPECT_FALSE(nobody.open());
  EXPECT_FALSE(nobody.ended());
}

TEST(ProcessHandle, MovesWithItsDescriptor) {
  const Child child;
  ProcessHandle first(identify(child.pid()));
  const int descriptor = first.descriptor();
  ProcessHandle second = std::move(first);
  EXPECT_EQ(second.descriptor(), descriptor);
  EXPECT_FALSE(first.open());
}

}  // namespace
}  // namespace wflow
