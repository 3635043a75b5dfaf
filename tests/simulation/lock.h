// SPDX-License-Identifier: Apache-2.0
// The lock of the campaign's coordinator: its rules as they are in production, on a simulated file.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "engine/store/campaign_lock.h"
#include "tests/simulation/hosts.h"

namespace wflow::simulation {

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
