// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/process_end.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <utility>

#include "workers/execute/slot_table.h"

namespace wflow::workers {
namespace {

// A child that says when it is ready; it is reaped with the object.
class Child {
 public:
  explicit Child(const std::function<void()>& prepare, const std::function<void()>& go_on) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      prepare();
      EXPECT_EQ(::write(ends[1], "r", 1), 1);
      go_on();
      ::_exit(0);
    }
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  // Does not reap it.
  siginfo_t end() const {
    siginfo_t info{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT), 0);
    return info;
  }
  bool ended_by_itself(const SlotRecord& slot, bool dropped = false) const {
    const siginfo_t info = end();
    return workers::ended_by_itself(slot, dropped, pid_, info.si_code, info.si_status);
  }

 private:
  pid_t pid_ = -1;
};

void nothing() {}
void wait_for_ever() {
  while (true) ::pause();
}
void exit_well(int) {
  ::_exit(0);
}
void handle() {
  ::signal(SIGTERM, exit_well);
}
void ignore() {
  ::signal(SIGTERM, SIG_IGN);
}
void block() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
}
// The child must not inherit the signal settings of the test runner's parent.
void plain() {
  ::signal(SIGTERM, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The records hold atomics: made in place.
struct Terminated : SlotRecord {
  Terminated() : SlotRecord() {
    returned = true;
    terminated = true;
  }
};

TEST(ProcessEnd, AnExitBeforeTheSignalIsTheProcesssOwn) {
  const Child child(plain, nothing);
  child.end();
  child.signal(SIGTERM);
  EXPECT_TRUE(child.ended_by_itself(Terminated()));
}

TEST(ProcessEnd, ADeathByTheSignalIsNot) {
  const Child child(plain, wait_for_ever);
  child.signal(SIGTERM);
  EXPECT_FALSE(child.ended_by_itself(Terminated()));
}

TEST(ProcessEnd, AHandlerMayAnswerWithAnyExitCode) {
  const Child child(handle, wait_for_ever);
  child.signal(SIGTERM);
  EXPECT_EQ(child.end().si_code, CLD_EXITED);
  EXPECT_FALSE(child.ended_by_itself(Terminated())) << "its state is read after its end, too";
  Terminated ours;
  ours.own_program = true;
  EXPECT_TRUE(child.ended_by_itself(ours));
}

TEST(ProcessEnd, OneThatIgnoresTheSignalHasItsOwnSuccess) {
  for (const auto& [code, own] : {std::pair{0, true}, {104, true}, {3, false}}) {
    const Child child(ignore, [code = code] { ::_exit(code); });
    child.signal(SIGTERM);
    EXPECT_EQ(child.ended_by_itself(Terminated()), own) << code;
  }
}

// A shell blocks all signals while it starts a program (dash: vfork). The look before the signal may see
// that.
TEST(ProcessEnd, ABlockOfAMomentIsNoHandler) {
  const Child child(ignore, nothing);
  child.end();
  Terminated seen;
  seen.blocks_term = true;
  EXPECT_TRUE(child.ended_by_itself(seen));
}

// A signal that is still pending at the end has had no effect; one that was taken may have been its cause.
TEST(ProcessEnd, OneThatBlocksTheSignalHasItsOwnSuccessUnlessItTookTheSignal) {
  for (const auto& [code, own] : {std::pair{0, true}, {104, true}, {3, false}}) {
    const Child child(block, [code = code] {
      ::usleep(20000);
      ::_exit(code);
    });
    Terminated seen;
    seen.blocks_term = true;
    child.signal(SIGTERM);
    EXPECT_EQ(child.ended_by_itself(seen), own) << code;
  }
  for (const bool unblocks : {false, true}) {
    const Child child(block, [unblocks] {
      sigset_t set;
      ::sigemptyset(&set);
      ::sigaddset(&set, SIGTERM);
      sigset_t pending;
      // A program with an event loop does the same (signalfd); sigwait() would unblock the signal while it
      // waits.
      do {
        ::usleep(1000);
        ::sigpending(&pending);
      } while (::sigismember(&pending, SIGTERM) == 0);
      ::sigwaitinfo(&set, nullptr);
      if (unblocks) plain();
      ::_exit(0);
    });
    Terminated seen;
    seen.blocks_term = settled_term_disposition(child.pid()).blocks;
    child.signal(SIGTERM);
    EXPECT_FALSE(child.ended_by_itself(seen)) << unblocks;
  }
}

TEST(ProcessEnd, NoExitCodeComesFromSigkill) {
  const Child before(plain, [] { ::_exit(3); });
  before.end();
  before.signal(SIGKILL);
  EXPECT_TRUE(before.ended_by_itself(SlotRecord(), true));
  const Child after(plain, wait_for_ever);
  after.signal(SIGKILL);
  EXPECT_FALSE(after.ended_by_itself(SlotRecord(), true));
  EXPECT_TRUE(after.ended_by_itself(SlotRecord())) << "nobody here has sent it";
}

TEST(ProcessEnd, ReadsWhatAProcessDoesOnSigterm) {
  EXPECT_TRUE(term_disposition(Child(handle, wait_for_ever).pid()).catches);
  EXPECT_TRUE(term_disposition(Child(block, wait_for_ever).pid()).blocks);
  EXPECT_TRUE(term_disposition(Child(ignore, wait_for_ever).pid()).ignores);
  const Child other(plain, wait_for_ever);
  EXPECT_FALSE(term_disposition(other.pid()).catches);
  EXPECT_FALSE(term_disposition(other.pid()).blocks);
  EXPECT_FALSE(term_disposition(other.pid()).ignores);
  EXPECT_FALSE(is_exiting(other.pid()));
  EXPECT_FALSE(has_ended(other.pid()));
  other.signal(SIGKILL);
  other.end();
  EXPECT_TRUE(is_exiting(other.pid()));
  EXPECT_TRUE(has_ended(other.pid()));
}

}  // namespace
}  // namespace wflow::workers
