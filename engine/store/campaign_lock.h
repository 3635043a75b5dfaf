// SPDX-License-Identifier: Apache-2.0
// The lock of a campaign's coordinator: at most one process, on any host. It has two parts, both in the file
// <campaign>/.wflow/coordinator.lock:
//   - an fcntl lock, which the kernel (or the file server) takes back when its holder dies;
//   - a record of the holder (host, boot, pid, start time), with a heartbeat that it renews every beat_s.
// A held lock is never broken. A free lock is not enough, because some file systems keep locks to one host: a
// record of another host must be unchanged for dead_s, on the own clock, before its holder counts as gone.
// The holder commits nothing once its own heartbeat is older than valid_s and the record is no longer its
// own. So valid_s plus the time of one commit must stay below dead_s.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

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

// True if the holder belongs to another process table and has not released the campaign: it may stand still,
// and go on.
bool may_go_on_elsewhere(const std::optional<LockRecord>& record);

// Empty if there is none, or if it cannot be read.
std::optional<LockRecord> read_lock(const std::filesystem::path& campaign);
// True if its holder lives, as far as can be seen without a wait: by the process table if the holder is in
// this one, else by a heartbeat of the last seconds. An open database has SQLite's own lock, too.
bool is_held(const std::filesystem::path& campaign);
// Error{busy} with a sentence where another process holds it; else the lock's record, read once. For whoever
// only reads the campaign.
std::optional<LockRecord> refuse_if_held(const std::filesystem::path& campaign);

enum class ProcessLife : std::uint8_t { ended, lives, unknown };

// The lock's file, and what is known of other processes. tests/simulation has its own.
class LockPlace {
 public:
  virtual ~LockPlace() = default;
  virtual bool try_lock() = 0;  // false: another process holds the fcntl lock
  virtual std::optional<LockRecord> read() = 0;
  virtual bool write(const LockRecord& record) = 0;
  virtual ProcessLife life_of(const ProcessIdentity& process) = 0;
  virtual Now now() = 0;
};

// The rules of the lock, without a wait.
class LockRules {
 public:
  LockRules(LockPlace& place, const std::filesystem::path& campaign, const ProcessIdentity& self,
            LockTiming timing);
  // True: it is taken. False: call it again in a quarter of a second. Error{busy} where another process holds
  // it.
  bool take();
  // Every beat_s.
  void beat();
  // Error{busy} if another process has taken it.
  void check();
  bool is_late() const { return place_.now().steady_s - last_beat_s_ > timing_.valid_s; }
  void end(HolderState state);

 private:
  bool begin(double now_s);
  bool watch(double now_s);
  bool write_own(bool settle, double now_s);
  bool mine(const std::optional<LockRecord>& record) const;
  void write();
  [[noreturn]] void refuse(const std::optional<LockRecord>& record) const;

  LockPlace& place_;
  std::string campaign_;
  LockTiming timing_;
  enum class Phase : std::uint8_t { free, watching, settling, taken };
  Phase phase_ = Phase::free;
  double until_s_ = 0;
  std::optional<LockRecord> before_;  // what was there
  LockRecord record_;
  double last_beat_s_ = 0;  // steady
};

// Store asks it before each commit whether this process still has the campaign.
class CommitGuard {
 public:
  virtual ~CommitGuard() = default;
  // Error{busy} if another process has taken the campaign. From any thread.
  virtual void check() = 0;
};

class CampaignLock final : public CommitGuard {
 public:
  // Error{busy} with a sentence where another process holds it. Waits up to dead_s for one of another host
  // whose fcntl lock is free.
  explicit CampaignLock(const std::filesystem::path& campaign, LockTiming timing = {});
  // Frees the lock. Without a call of end() the campaign is handed over: this process could not go on.
  ~CampaignLock() override;
  CampaignLock(const CampaignLock&) = delete;
  CampaignLock& operator=(const CampaignLock&) = delete;

  void check() override;
  // The same if the own heartbeat is older than valid_s, for a process that was frozen: call it before
  // anything else. Checks about once a second and is free otherwise.
  void check_if_late();
  // Error{system} if the campaign's directory has been moved or removed. Checks about once a second and is
  // free otherwise.
  void check_place();
  // How the holder ends; the fcntl lock stays until the destructor.
  void end(HolderState state);

 private:
  class File;
  void keep_beating();

  std::filesystem::path campaign_;
  LockTiming timing_;
  std::unique_ptr<File> file_;
  LockRules rules_;
  std::mutex mutex_;
  std::condition_variable changed_;
  double late_check_s_ = 0;
  double place_check_s_ = 0;
  bool ended_ = false;
  std::thread beats_;
};

}  // namespace wflow::engine::store
