// SPDX-License-Identifier: Apache-2.0
// The steps of one group of ranks between two outer steps, and the outer step of all groups (`groups`).
//
// After an outer step all ranks have the same state: the weights that follow from the mean of the groups'
// weights (optimizer.h), the means of the norms' statistics, of averaged weights and of the optimizers'
// states (Wang et al. 2020, "SlowMo", section 4, "average"). So a checkpoint there has one state, whatever
// the number of groups, and a restart goes on with the same bits. Between outer steps there are no
// checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/data_loader.h"
#include "trainer/training/common_guard.h"
#include "trainer/training/run_report.h"
#include "trainer/training/session.h"
#include "trainer/training/training_state.h"
#include "trainer/training/training_step.h"
#include "trainer/training/updates.h"

namespace wflow::trainer {

class LocalSteps {
 public:
  // `session` has groups. After start_training().
  LocalSteps(Session& session, TrainingState& state, Updates& updates, CommonGuard& guard, RunReport& report);

  // When the loop starts, also after a step back: the state is that of an outer step.
  void begin();

  // A step of this group, in place of TrainingStep::take(). After one that the guard refuses or whose loss is
  // not finite, the group makes no further steps until the outer step.
  void take(TrainingStep& step, const Batch& batch);

  // True where the outer step takes place: after every `steps` steps of an epoch, and at its end.
  bool is_due() const;
  // stop: some rank is to stop, and so do all. unsound: the guard of some group wants a step back.
  enum class After { go_on, stop, unsound };
  // A collective call of all ranks. Averages the groups whose loss is finite. Every group, also one that was
  // left out of the average, continues with it. Throws NotFinite if no group has a finite loss.
  After outer_step();

  double seconds() const { return seconds_; }  // of this rank, in outer steps and waiting for them

 private:
  enum class Trouble { none, unsound, not_finite };
  struct Message;  // of a rank at an outer step
  Message own_message() const;
  std::vector<Message> meet();
  bool leads_group() const { return session_.local->ranks->rank() == 0; }
  void leave_out(const std::vector<Message>& groups);
  void take_sums(const std::vector<Message>& groups);
  std::vector<std::span<float>> summed_arrays();
  void average(std::size_t groups, bool contributes);

  Session& session_;
  TrainingState& state_;
  Updates& updates_;
  CommonGuard& guard_;
  RunReport& report_;
  std::vector<std::pair<std::int64_t, std::int64_t>> learning_;  // ranges of the weights that are not frozen
  std::vector<float> anchor_;                                    // weights of the last outer step
  Trouble trouble_ = Trouble::none;
  std::string reason_;
  bool stops_ = false;
  double loss_before_ = 0;  // of the epoch, up to the last outer step
  std::int64_t samples_before_ = 0;
  double seconds_ = 0;
};

}  // namespace wflow::trainer
