// SPDX-License-Identifier: Apache-2.0
// Who coordinates a campaign: at most one process, on any host. Two things say so, both in the file
// <campaign>/.wflow/coordinator.lock:
//   - an fcntl lock, which the kernel (or the file server) takes back when its holder dies;
//   - a record of the holder (host, boot, pid, start time), with a heartbeat that it renews every beat_s.
// A lock that is held is never broken. One that is free is not enough where file systems keep locks to one
// host: a record of another host must have stood still for dead_s, on the own clock, before its holder counts
// as gone. The holder for its part commits nothing once its own heartbeat is older than valid_s and the
// record is not its own any more. So valid_s plus the time of one commit must stay below dead_s.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/file.h"
#include "base/plain_types.h"

namespace wflow::engine::store {

enum class HolderState : std::uint8_t {
  held,
  handed_over,  // whoever waits may take it and go on
  released,     // the campaign has ended, or was asked to: nobody goes on by itself
};

struct LockRecord {
  ProcessIdentity process;
  HolderState state = HolderState::held;
  std::uint64_t number = 0;  // grows with every holder
  std::uint64_t beats = 0;
  double time_s = 0;  // Unix time of the last beat, by the holder's clock
};

struct LockTiming {
  double beat_s = 2;
  double valid_s = 8;
  double dead_s = 15;
  double settle_s = 1;  // after taking over from another host: whoever wrote last has it
};

// Nothing where there is none, or where it does not read.
std::optional<LockRecord> read_lock(const std::filesystem::path& campaign);
// Whether its holder lives, as far as can be seen without a wait: by the process table where that is the own
// one, else by a heartbeat of the last seconds. A database that is open has SQLite's own lock, too.
bool is_held(const std::filesystem::path& campaign);
// Error{busy} with a sentence where another process holds it. For whoever only reads the record.
void refuse_if_held(const std::filesystem::path& campaign);

class CampaignLock {
 public:
  // Error{busy} with a sentence where another process holds it. Waits up to dead_s for one of another host
  // whose fcntl lock is free.
  explicit CampaignLock(const std::filesystem::path& campaign, LockTiming timing = {});
  // Frees the lock. Without a call of end() the campaign is handed over: this process could not go on.
  ~CampaignLock();
  CampaignLock(const CampaignLock&) = delete;
  CampaignLock& operator=(const CampaignLock&) = delete;

  // Before each commit, from any thread. Error{busy} where another process has taken the campaign.
  void check();
  // The same where the own heartbeat is older than valid_s, which is what a process sees that was frozen: before it
  // does anything else. About once a second; costs nothing otherwise.
  void check_if_late();
  // Error{system} where the campaign's directory is not in its place any more: it was moved or removed. About once a
  // second; costs nothing otherwise.
  void check_place();
  // How the holder ends; the fcntl lock stays until the destructor.
  void end(HolderState state);

 private:
  void check_record();
  void acquire();
  void watch(const LockRecord& other) const;
  bool mine(const std::optional<LockRecord>& record) const;
  void write();
  void keep_beating();
  [[noreturn]] void refuse(const std::optional<LockRecord>& record) const;

  std::filesystem::path campaign_;
  LockTiming timing_;
  FileDescriptor file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  LockRecord record_;
  double last_beat_s_ = 0;  // steady
  double late_check_s_ = 0;
  double place_check_s_ = 0;
  bool ended_ = false;
  std::thread beats_;
};

}  // namespace wflow::engine::store
