// SPDX-License-Identifier: Apache-2.0
// The campaign's file system: what processes see, and what a crash of a host leaves of it. A process that
// dies loses nothing that it has written. A host that crashes loses any part of what was not synced, in
// // pieces of 512 bytes.
//
// After an fsync that fails, pages that were not written count as written, as on Linux: processes see them
// until the host crashes, and the next fsync succeeds without them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/store/campaign_lock.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/hosts.h"
#include "tests/simulation/timeline.h"

namespace wflow::simulation {

class Disk;

// Calls that may fail for a while.
enum class DiskCall : std::uint8_t { sync, truncate, lock };
inline constexpr std::size_t kDiskCalls = 3;
constexpr std::string_view name_of(DiskCall call) {
  return std::array<std::string_view, kDiskCalls>{"fsync", "ftruncate",
                                                  "a lock"}[static_cast<std::size_t>(call)];
}

class File {
 public:
  File(Disk& disk, std::string creator, double time_s)
      : disk_(disk), creator_(std::move(creator)), created_s_(time_s) {}

  const std::string& bytes() const { return bytes_; }
  // Gives how much the disk took: less than all of it when it is full. `host`: whose page cache it is in.
  std::size_t write(const std::string& host, std::uint64_t offset, std::string_view bytes);
  // Both return false where the disk fails.
  [[nodiscard]] bool truncate(const std::string& host, std::uint64_t size);
  [[nodiscard]] bool sync();
  // The contents that another host than the writer's may see: without the last unsynced changes.
  const std::string& synced_bytes() const { return synced_; }
  bool has_unsynced() const { return !changes_.empty() || !dropped_.empty(); }

  // SQLite's locks. Gives false when another owner's forbids it.
  bool lock(const std::string& host, std::uint64_t owner, int level);
  void unlock(std::uint64_t owner, int level);
  bool reserved() const;

 private:
  friend class Disk;
  struct Change {
    std::string host;
    double time_s = 0;
    std::uint64_t offset = 0;
    std::string bytes;
    bool truncates = false;  // to `offset`
  };
  void apply(const Change& change, std::string& image) const;
  void apply_torn(const Change& change, std::string& image, Draw& draw) const;
  void crash(const std::string& host, double flushed_s, Draw& draw, FaultCounts& faults);
  void drop_changes();
  void write_page(std::uint64_t page);
  static std::set<std::uint64_t> pages_of(const Change& change);

  Disk& disk_;
  std::string creator_;
  double created_s_ = 0;
  bool entry_synced_ = false;
  std::string bytes_;
  std::string synced_;
  std::vector<Change> changes_;  // since the last sync, in order
  std::map<std::uint64_t, std::string>
      dropped_;  // pages that a failed sync has not written, and whose cache has them
  struct Lock {
    std::string host;
    int level = 0;
  };
  std::map<std::uint64_t, Lock> locks_;  // by owner
};

class Disk {
 public:
  Disk(const double& now_s, Draw draw, FaultCounts& faults) : now_s_(now_s), draw_(draw), faults_(faults) {}

  std::shared_ptr<File> find(const std::string& path) const;
  std::shared_ptr<File> create(const std::string& path, const std::string& host);
  // A file that was there from the beginning.
  void put(const std::string& path, std::string_view bytes);
  // `synced`: a crash does not bring it back.
  void remove(const std::string& path, const std::string& host, bool synced);
  std::vector<std::string> list(std::string_view prefix) const;
  void metadata_synced();

  // Locks reach the processes of one host alone.
  void keep_locks_to_hosts() { locks_on_one_host_ = true; }
  void set_full(bool full) { full_ = full; }
  bool full() const { return full_; }
  // Most of these calls fail until then.
  void fail(DiskCall call, double until_s) { failing_until_s_[static_cast<std::size_t>(call)] = until_s; }
  void mend() { failing_until_s_.fill(0); }
  bool fails(DiskCall call);
  // How often it was full, or has failed, when it was called.
  std::uint64_t refusals() const { return refusals_; }
  double now_s() const { return now_s_; }

  // The host's page cache is lost, but for what the kernel had written by itself.
  void crash(const std::string& host, Draw& draw, FaultCounts& faults);

 private:
  struct Removed {
    std::string path, host;
    double time_s = 0;
    std::shared_ptr<File> file;
  };

  friend class File;
  const double& now_s_;
  Draw draw_;
  FaultCounts& faults_;
  std::array<double, kDiskCalls> failing_until_s_{};
  std::uint64_t refusals_ = 0;
  std::map<std::string, std::shared_ptr<File>> files_;
  std::vector<Removed> removed_;  // and not synced
  bool full_ = false;
  bool locks_on_one_host_ = false;
};

// The lock of the campaign's coordinator: its rules as they are in production, on a simulated file.

struct Surroundings;

// <campaign>/.wflow/coordinator.lock. Its record has the same contents on every host.
struct LockFile {
  bool one_host = false;  // the file system keeps locks to one host
  std::optional<engine::store::LockRecord> record;
  std::map<std::string, ProcessIdentity> holders;  // of the fcntl lock: by host, or one for all

  std::string scope_of(const Host& host) const { return one_host ? host.name : ""; }
};

// Scaled down, as the other times of a schedule.
inline constexpr engine::store::LockTiming kLockTiming{0.5, 2, 4, 0.25};
inline constexpr double kLockLook_s = 0.1;

class CoordinatorLock final : public engine::store::LockPlace, public engine::store::CommitGuard {
 public:
  CoordinatorLock(Surroundings& around, const Process& self);

  engine::store::LockRules& rules() { return rules_; }
  void check() override;

  bool try_lock() override;
  std::optional<engine::store::LockRecord> read() override;
  bool write(const engine::store::LockRecord& record) override;
  engine::store::ProcessLife life_of(const ProcessIdentity& process) override;
  Now now() override;

 private:
  Surroundings& around_;
  const Process& self_;
  engine::store::LockRules rules_;
};

}  // namespace wflow::simulation
