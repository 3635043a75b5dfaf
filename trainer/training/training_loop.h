// SPDX-License-Identifier: Apache-2.0
// The steps of the epochs, from where the counters stand to the end of the plan.
#pragma once

#include <functional>
#include <vector>

#include "trainer/data/data_loader.h"
#include "trainer/training/common_guard.h"
#include "trainer/training/local_steps.h"
#include "trainer/training/session.h"
#include "trainer/training/training_state.h"
#include "trainer/training/training_step.h"

namespace wflow::trainer {

// How a training goes on after a round: `lost`, without a model that can be trained.
enum class AfterRound { go_on, stop, lost };

// Called by the loop, on every rank at the same step.
struct LoopHooks {
  std::function<void()> step_done;
  // After step_done, where the guard has found nothing and all ranks have one state: the place for
  // checkpoints within an epoch.
  std::function<void()> step_sound;
  // A row without validation. The hook moves the counters on to the next epoch, or sets stopped_early.
  std::function<void(EpochRow row)> epoch_done;
  // In a tournament: before the next step, or behind the last one of an epoch.
  std::function<bool()> round_is_due = {};
  std::function<AfterRound()> hold_round = {};
  // After epoch_done, where a node has become slow, or is no longer.
  std::function<void(const SlowNodeNews::News& news)> node_slow = [](const SlowNodeNews::News&) {};
};

class TrainingLoop {
 public:
  // unsound: the guard wants a step back; run() may be called again after it. lost: AfterRound::lost.
  enum class End { complete, interrupted, unsound, lost };

  // `loss_terms`: Heads::terms(). `local`: where there are groups of ranks; else nullptr.
  TrainingLoop(Session& session, std::size_t loss_terms, TrainingState& state, TrainingStep& step,
               CommonGuard& guard, LocalSteps* local, LoopHooks hooks)
      : session_(session),
        loss_terms_(loss_terms),
        state_(state),
        step_(step),
        guard_(guard),
        local_(local),
        hooks_(std::move(hooks)),
        stragglers_(session.communicator) {}

  // Collective calls, also the constructor.
  End run();
  double data_wait_seconds() const { return data_wait_seconds_; }
  // The median of the last steps of this rank, without validations and checkpoints; 0: there was none.
  double step_seconds() const { return median_of(step_seconds_); }
  // The work and the waits of all ranks in an epoch, the mean over those so far.
  RankTimes rank_times() const { return stragglers_.mean(); }

 private:
  End run_epoch(DataLoader& loader);
  End hold_round();  // if one is due; complete: the training goes on
  // After a step: what ends the loop, or complete.
  End after_step();
  End after_local_step();
  bool ranks_agree();
  bool ranks_agree_after(std::int64_t step);
  DataLoader::Plan batches();
  void slow_down() const;
  EpochRow finished_epoch(double waited_seconds);

  Session& session_;
  const std::size_t loss_terms_;
  TrainingState& state_;
  TrainingStep& step_;
  CommonGuard& guard_;
  LocalSteps* const local_;
  std::int64_t outer_step_ = 0;  // steps before the last outer step
  const LoopHooks hooks_;
  double data_wait_seconds_ = 0;
  std::vector<double> step_seconds_;  // of the last steps, in any order
  RankTime epoch_time_;               // of this rank in the current epoch
  StragglerWatch stragglers_;
};

}  // namespace wflow::trainer
