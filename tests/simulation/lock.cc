// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/disk.h"

#include "tests/simulation/surroundings.h"

namespace wflow::simulation {

namespace {

engine::store::LockTiming timing_of(Planted planted) {
  engine::store::LockTiming timing = kLockTiming;
  if (planted == Planted::take_a_live_lock) timing.dead_s = 0;
  return timing;
}

}  // namespace

CoordinatorLock::CoordinatorLock(Surroundings& around, const Process& self)
    : around_(around),
      self_(self),
      rules_(*this, around.study.plan.campaign(), self.identity(), timing_of(around.planted)) {}

void CoordinatorLock::check() {
  if (around_.planted != Planted::ignore_a_lost_lock) rules_.check();
}

// The kernel frees the lock of a process that has ended.
bool CoordinatorLock::try_lock() {
  const auto [at, is_new] = around_.lock_file.holders.try_emplace(around_.lock_file.scope_of(self_.host()));
  const bool shared = around_.planted == Planted::share_the_lock;
  const bool taken =
      !is_new && !shared && at->second != self_.identity() && around_.hosts.find(at->second) != nullptr;
  if (!taken) at->second = self_.identity();
  return !taken;
}

std::optional<engine::store::LockRecord> CoordinatorLock::read() {
  return around_.lock_file.record;
}

bool CoordinatorLock::write(const engine::store::LockRecord& record) {
  around_.lock_file.record = record;
  return true;
}

engine::store::ProcessLife CoordinatorLock::life_of(const ProcessIdentity& process) {
  using engine::store::ProcessLife;
  if (around_.planted == Planted::share_the_lock) return ProcessLife::ended;
  if (process.same_table(self_.identity()))
    return around_.hosts.find(process) != nullptr ? ProcessLife::lives : ProcessLife::ended;
  return process.host == self_.identity().host && process.boot != self_.identity().boot
             ? ProcessLife::ended
             : ProcessLife::unknown;
}

Now CoordinatorLock::now() {
  return self_.host().at(around_.timeline.now_s());
}

}  // namespace wflow::simulation
