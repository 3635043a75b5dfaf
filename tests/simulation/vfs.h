// SPDX-License-Identifier: Apache-2.0
// SQLite's view of the simulated disk, registered as the VFS "simulation". The real store writes through it.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tests/simulation/disk.h"

namespace wflow::simulation {

// The open files of a process; they end with it.
struct DiskUser {
  std::string host;
  bool dead = false;                                  // every call fails from now on
  bool ignores_locks = false, ignores_syncs = false;  // planted bugs
  // It dies before its so many-th change of the disk from now: a kill in the middle of a transaction.
  std::optional<std::uint64_t> changes_left;

  // False: it is dead.
  bool may_change();
};

class Vfs {
 public:
  static constexpr const char* kName = "simulation";

  Vfs();
  Vfs(const Vfs&) = delete;
  Vfs& operator=(const Vfs&) = delete;
  ~Vfs();

  // A schedule begins: SQLite's random numbers start anew.
  void restart(std::uint64_t seed);
  // Files are opened on this disk by this process until the next call.
  void use(Disk* disk, std::shared_ptr<DiskUser> user);

  // For the functions that SQLite calls.
  Disk& disk() { return *disk_; }
  const std::shared_ptr<DiskUser>& user() const { return user_; }
  std::uint64_t next_owner() { return ++owners_; }
  std::uint64_t next_random() { return hash64(random_seed_, randoms_++); }

 private:
  Disk* disk_ = nullptr;
  std::shared_ptr<DiskUser> user_;
  std::uint64_t owners_ = 0;
  std::uint64_t random_seed_ = 0;
  std::uint64_t randoms_ = 0;
  std::unique_ptr<sqlite3_vfs> vfs_;
};

}  // namespace wflow::simulation
