// SPDX-License-Identifier: Apache-2.0
// A coordinator that lives in the campaign's allocations: as its own one ends it hands over to the
// coordinator that waits in another. Workers go on meanwhile; they find the next one by its endpoint file.
#include <fmt/format.h>

#include <algorithm>

#include "engine/coordinate/machine_impl.h"

namespace wflow::engine {

bool CoordinatorMachine::Impl::is_at_home() const {
  return pools_ && pools_->home() != nullptr;
}

std::optional<double> CoordinatorMachine::Impl::home_left_s() const {
  if (!leaves_home()) return std::nullopt;
  const batch::Allocation* home = pools_ ? pools_->find(options_.home.allocation) : nullptr;
  const double ends_s = home != nullptr && home->ends_s > 0 ? home->ends_s : options_.home.ends_unix_s;
  return ends_s > 0 ? std::optional(ends_s - now_.unix_s) : std::nullopt;
}

// Steady time at which look_at_home() or may_end_here() has something to see, if nothing happens meanwhile.
double CoordinatorMachine::Impl::home_wake_s() const {
  const auto left_s = home_left_s();
  const bool hands_over = phase_ == Phase::handing_over;
  if (!left_s || (phase_ != Phase::running && phase_ != Phase::draining && !hands_over)) return kNever_s;
  const double in_s = *left_s - options_.timing.leave_home_s / (hands_over ? 2 : 1);
  return in_s > 0 ? now_.steady_s + in_s : kNever_s;
}

void CoordinatorMachine::Impl::look_at_home() {
  if (!options_.home.moves) return;
  const auto left_s = home_left_s();
  if (left_s && *left_s <= options_.timing.leave_home_s) {
    if (phase_ == Phase::running) begin_hand_over("the walltime of its allocation ends");
    if (phase_ == Phase::draining) request_stop("the allocation of the coordinator ends");
  }
  // Elsewhere it is there only for the first allocation to be had.
  const bool submitted = pools_ && !is_at_home() && !retry_due_ && pools_->has_successor(now_);
  if (phase_ == Phase::running && submitted) begin_hand_over("an allocation is on its way");
  if (phase_ != Phase::handing_over || said_alone_ || running_s_ < phase_due_s_) return;
  if (pools_ && pools_->needs_successor(now_)) {
    said_alone_ = true;
    record("note", fmt::format("no further allocation is queued or runs; continue with: wflow resume {}",
                               plan_.campaign().string()));
  }
}

void CoordinatorMachine::Impl::begin_hand_over(const std::string& why) {
  if (phase_ != Phase::running) return;
  move_to(Phase::handing_over);
  phase_due_s_ = running_s_ + options_.timing.succeed_s;
  record("batch", fmt::format("coordinator {} hands over: {}", options_.epoch, why));
  if (!pools_) return;
  pools_->leave_home();
  pools_due_ = true;
  run_pools();
}

// There is somebody to go on, and all that the workers of its own allocation have to say has come.
bool CoordinatorMachine::Impl::may_end_here() const {
  const auto left_s = home_left_s();
  if (running_s_ >= phase_due_s_ || (left_s && *left_s <= options_.timing.leave_home_s / 2)) return true;
  if (pools_ && pools_->needs_successor(now_)) return false;
  return std::none_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    const Worker& worker = entry.second;
    const bool of_home = leaves_home() && worker.allocation == options_.home.allocation;
    return of_home || worker.reading || worker.state == WorkerState::ending;
  });
}

}  // namespace wflow::engine
