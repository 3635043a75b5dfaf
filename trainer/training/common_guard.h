// SPDX-License-Identifier: Apache-2.0
// The guard (guard.h) of all ranks together: every rank comes to the same decision at the same step, so that
// all go back or none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/parallel/communicator.h"
#include "trainer/training/guard.h"
#include "trainer/training/run_report.h"

namespace wflow::trainer {

class CommonGuard {
 public:
  // `all`: the ranks that have one state. `summing`: those that sum the gradients of a step, all or one of
  // several groups. `losses`: number of updates in a step; each has a loss of its own.
  CommonGuard(const GuardConfig& config, Communicator& all, const Communicator& summing, RunReport& report,
              std::size_t losses = 1)
      : config_(config),
        communicator_(all),
        summing_(summing),
        report_(report),
        guards_(losses, Guard(config)) {}

  // At the start and after each step back.
  void begin_at(std::int64_t step) {
    agreed_step_ = step;
    own_alarm_.clear();
  }

  // The model is another one now: its losses are not those that were seen.
  void forget() { guards_.assign(guards_.size(), Guard(config_)); }

  // True if the last gradient was wrong on this rank. A gradient is a sum over the ranks, but one rank alone
  // may have a wrong copy in its memory and must not leave the others: it sends this flag with the next step
  // (Scalar::alarm), which the step back undoes.
  bool has_own_alarm() const { return !own_alarm_.empty(); }
  const std::string& own_alarm() const { return own_alarm_; }

  // Before the update of a step: `loss` and `alarm_sent` (some rank had an alarm) are sums over the ranks.
  // `which`: the number of the update.
  bool is_sound(std::int64_t step, double loss, double largest_gradient, bool alarm_sent,
                std::size_t which = 0);

  // The guard of another group of ranks has found a step wrong.
  void adopt(const std::string& reason, bool may_come_again) {
    reason_ = reason;
    may_come_again_ = may_come_again;
  }

  // A collective call after `step` steps: compares the ranks' hashes of their states. True with one rank.
  bool ranks_agree(std::int64_t step, const std::function<std::string()>& hash);

  // After one of the two returned false: the reason, and whether the training itself may be the cause, which
  // shows when the same comes again after the step back.
  const std::string& reason() const { return reason_; }
  bool may_come_again() const { return may_come_again_; }
  // Up to this step the ranks have agreed.
  std::int64_t agreed_step() const { return agreed_step_; }
  bool compares_ranks() const { return config_.agree_every > 0 && communicator_.size() > 1; }

 private:
  const GuardConfig config_;
  Communicator& communicator_;
  const Communicator& summing_;
  RunReport& report_;
  std::vector<Guard> guards_;
  std::string own_alarm_;
  std::string reason_;
  bool may_come_again_ = false;
  std::int64_t agreed_step_ = 0;
};

}  // namespace wflow::trainer
