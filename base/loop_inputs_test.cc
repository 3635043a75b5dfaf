// SPDX-License-Identifier: Apache-2.0
#include "base/loop_inputs.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <future>
#include <optional>

namespace wflow {
namespace {

bool readable(const SideThread& thread, int timeout_ms) {
  pollfd item{thread.descriptor(), POLLIN, 0};
  return ::poll(&item, 1, timeout_ms) == 1;
}

// The caller goes on while the work is blocked, and runs what follows from it on its own thread.
TEST(SideThread, TheCallerIsNotHeldUpByWorkThatBlocks) {
  std::promise<void> disk;
  const auto caller = std::this_thread::get_id();
  std::thread::id ran_on, followed_on;
  SideThread side;
  side.call([&]() -> SideThread::OnLoop {
    disk.get_future().wait();
    ran_on = std::this_thread::get_id();
    return [&] { followed_on = std::this_thread::get_id(); };
  });
  EXPECT_FALSE(readable(side, 20));
  EXPECT_TRUE(side.take().empty());
  disk.set_value();
  ASSERT_TRUE(readable(side, 60'000));
  for (const SideThread::OnLoop& then : side.take()) then();
  EXPECT_NE(ran_on, caller);
  EXPECT_EQ(followed_on, caller);
}

TEST(SideThread, ItsEndWaitsForAllWork) {
  int done = 0;
  {
    SideThread side;
    for (int i = 0; i < 100; ++i) {
      side.call([&]() -> SideThread::OnLoop {
        ++done;
        return {};
      });
    }
  }
  EXPECT_EQ(done, 100);
}

// A signal that the inner queue took and had no use for is not lost to the outer one.
TEST(SignalQueue, GivesASignalBackToTheQueueAroundIt) {
  SignalQueue outer({SIGINT, SIGTERM});
  {
    SignalQueue inner({SIGINT, SIGTERM, SIGHUP});
    ::kill(::getpid(), SIGINT);
    EXPECT_EQ(inner.take(), SIGINT);
    EXPECT_EQ(inner.take(), std::nullopt);
    inner.give_back(SIGINT);
  }
  EXPECT_EQ(outer.take(), SIGINT);
  outer.give_back(SIGINT);  // there is no queue around it
  EXPECT_EQ(outer.take(), std::nullopt);
}

}  // namespace
}  // namespace wflow
