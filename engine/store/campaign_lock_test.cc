// SPDX-License-Identifier: Apache-2.0
// Who coordinates a campaign, with real processes and real fcntl locks. What another host would write into
// the record is written by the test, because there the lock's record is all that there is.
#include "engine/store/campaign_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "engine/store/store_fixture.h"

namespace wflow::engine::store {
namespace {

class Lock : public StoreFixture {
 protected:
  static LockTiming quick() { return {0.05, 0.3, 0.6, 0.15}; }

  // Writes the record of a coordinator on another host.
  void write_record(const std::string& host, std::uint64_t beats, double time_s, HolderState state) {
    nlohmann::json value = {
        {"host", host}, {"boot", "another"}, {"namespace", "pid:[1]"}, {"pid", 4711}, {"start", 12}};
    value["state"] = static_cast<int>(state);
    value["number"] = 41;
    value["beats"] = beats;
    value["time_s"] = time_s;
    std::string text = value.dump();
    text.resize(1024 - 34, ' ');
    text += "\n" + hash_bytes(text) + "\n";
    const FileDescriptor file = open_file(file_path(), O_RDWR | O_CREAT, 0600);
    ASSERT_EQ(::pwrite(file.get(), text.data(), text.size(), 0), 1024);
  }
  std::filesystem::path file_path() const { return campaign_ / ".wflow" / "coordinator.lock"; }

  static bool is_lost(CampaignLock& lock) {
    try {
      lock.check();
    } catch (const Error&) {
      return true;
    }
    return false;
  }

  std::string refusal() {
    try {
      const CampaignLock lock(campaign_, quick());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::busy);
      return error.what();
    }
    return {};
  }
};

TEST_F(Lock, TheSecondOneIsRefusedWithASentence) {
  CampaignLock lock(campaign_, quick());
  EXPECT_TRUE(is_held(campaign_));
  const std::string sentence = refusal();
  EXPECT_NE(sentence.find("another coordinator runs this campaign, on "), std::string::npos) << sentence;
  EXPECT_NE(sentence.find(std::to_string(::getpid())), std::string::npos) << sentence;
}

TEST_F(Lock, HowItEndedStaysInTheRecord) {
  {
    CampaignLock lock(campaign_, quick());
    lock.end(HolderState::released);
  }
  EXPECT_EQ(read_lock(campaign_)->state, HolderState::released);
  EXPECT_FALSE(is_held(campaign_));
  { CampaignLock lock(campaign_, quick()); }
  EXPECT_EQ(read_lock(campaign_)->state, HolderState::handed_over) << "it could not go on";
  EXPECT_EQ(read_lock(campaign_)->number, 2U);
}

TEST_F(Lock, AKilledHolderOfThisHostIsSucceededAtOnce) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const CampaignLock lock(campaign_);
    [[maybe_unused]] const ssize_t put = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(is_held(campaign_));
  EXPECT_THROW(refuse_if_held(campaign_), Error);
  EXPECT_THROW(Store{campaign_}, Error) << "the record alone keeps others out";
  // Frozen, it still has the lock, however old its heartbeat is.
  ::kill(child, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * quick().dead_s));
  EXPECT_FALSE(refusal().empty());
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(is_held(campaign_)) << "it has ended, though its parent has not asked for its exit code";
  const double began_s = steady_now_s();
  EXPECT_EQ(refusal(), "");
  EXPECT_LT(steady_now_s() - began_s, quick().dead_s);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(Lock, AnotherHostsRecordMustStandStill) {
  write_record("elsewhere", 7, unix_now_s() - 1000, HolderState::held);
  const double began_s = steady_now_s();
  EXPECT_EQ(refusal(), "");
  EXPECT_GE(steady_now_s() - began_s, quick().dead_s) << "whatever its clock says";
}

TEST_F(Lock, AnotherHostsHeartbeatRefuses) {
  write_record("elsewhere", 7, unix_now_s(), HolderState::held);
  EXPECT_TRUE(is_held(campaign_));
  std::thread other([this] {
    std::this_thread::sleep_for(std::chrono::duration<double>(0.2));
    write_record("elsewhere", 8, unix_now_s(), HolderState::held);
  });
  const std::string sentence = refusal();
  other.join();
  EXPECT_NE(sentence.find("on elsewhere (pid 4711)"), std::string::npos) << sentence;
}

TEST_F(Lock, WhatWasHandedOverIsTakenAtOnce) {
  write_record("elsewhere", 7, unix_now_s(), HolderState::handed_over);
  const double began_s = steady_now_s();
  EXPECT_EQ(refusal(), "");
  EXPECT_LT(steady_now_s() - began_s, quick().dead_s);
}

// A coordinator on another host that stands still may go on with its log: SQLite would remove it with the
// last connection.
TEST_F(Lock, ACommandLeavesTheLogOfAHolderElsewhere) {
  const auto log = [this] { return read_file(database_path(campaign_).string() + "-wal"); };
  const pid_t holder = ::fork();
  if (holder == 0) {
    CampaignLock lock(campaign_, quick());
    Store store(campaign_, {.vfs = {}, .accept_loss = false, .lock = &lock});
    store.next_epoch();
    ::_exit(0);  // as if it were frozen: the database stays open
  }
  int status = 0;
  ASSERT_EQ(::waitpid(holder, &status, 0), holder);
  write_record("elsewhere", 7, unix_now_s() - 1000, HolderState::held);
  const std::string before = log();
  ASSERT_FALSE(before.empty());
  EXPECT_EQ(Store(campaign_).restore().ends.size(), 0U);
  EXPECT_EQ(log(), before);
  write_record("elsewhere", 7, unix_now_s() - 1000, HolderState::released);
  EXPECT_EQ(Store(campaign_).restore().ends.size(), 0U);
  EXPECT_FALSE(std::filesystem::exists(database_path(campaign_).string() + "-wal"));
}

// A file system that keeps locks to one host lets another host write its record over this one.
TEST_F(Lock, AHolderThatLostItCommitsNothing) {
  CampaignLock lock(campaign_, quick());
  Store store(campaign_, {.vfs = {}, .accept_loss = false, .lock = &lock});
  const std::uint64_t epoch = store.next_epoch();
  EXPECT_GT(epoch, 0U);
  // A heartbeat that looked before this write may write over it; the other process would see that, and try
  // again. check() waits for the end of a heartbeat.
  for (int tries = 0; tries < 100 && !is_lost(lock); ++tries)
    write_record("elsewhere", 1, unix_now_s(), HolderState::held);
  try {
    store.next_epoch();
    FAIL() << "it commits";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::busy);
    EXPECT_NE(std::string(error.what()).find("has lost the campaign and ends"), std::string::npos);
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(4 * quick().beat_s));
  EXPECT_EQ(read_lock(campaign_)->process.host, "elsewhere")
      << "its heartbeat does not write over the other's";
  lock.end(HolderState::released);
  EXPECT_EQ(read_lock(campaign_)->state, HolderState::held) << "nor does its end";
}

TEST_F(Lock, TheHeartbeatIsRenewed) {
  CampaignLock lock(campaign_, quick());
  const std::uint64_t before = read_lock(campaign_)->beats;
  const double until_s = steady_now_s() + 20;
  while (read_lock(campaign_)->beats < before + 3 && steady_now_s() < until_s)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(read_lock(campaign_)->beats, before + 3);
}

TEST_F(Lock, ADamagedRecordKeepsNobodyOut) {
  { CampaignLock lock(campaign_, quick()); }
  for (std::uintmax_t size : {0, 1, 500, 1023}) {
    std::filesystem::resize_file(file_path(), size);
    EXPECT_FALSE(read_lock(campaign_)) << size;
    EXPECT_EQ(refusal(), "") << size;
  }
}

}  // namespace
}  // namespace wflow::engine::store
