// SPDX-License-Identifier: Apache-2.0
// The lock of a campaign's coordinator: at most one process, on any host. It has two parts, both in the file
// <campaign>/.wflow/coordinator.lock:
//   - an fcntl lock, which the kernel (or the file server) takes back when its holder dies;
//   - a record of the holder (host, boot, pid, start time), with a heartbeat that it renews every beat_s.
// A held lock is never broken. A free lock is not enough, because some file systems keep locks to one host: a record
// of another host must be unchanged for dead_s, on the own clock, before its holder counts as gone. The holder
// commits nothing once its own heartbeat is older than valid_s and the record is no longer its own. So valid_s
// plus the time of one commit must stay below dead_s.
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
  handed_over,  // a waiting process may take it and continue
  released,     // the campaign has ended, or got a stop request: no process continues it by itself
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

// Empty if there is none, or if it cannot be read.
std::optional<LockRecord> read_lock(const std::filesystem::path& campaign);
// True if its holder lives, as far as can be seen without a wait: by the process table if the holder is in this one,
// else by a heartbeat of the last seconds. An open database has SQLite's own lock, too.
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

  // Call it before each commit, from any thread. Error{busy} if another process has taken the campaign.
  void check();
  // The same if the own heartbeat is older than valid_s, for a process that was frozen: call it before anything else.
  // Checks about once a second and is free otherwise.
  void check_if_late();
  // Error{system} if the campaign's directory has been moved or removed. Checks about once a second and is free
  // otherwise.
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
