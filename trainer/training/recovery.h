// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a training: the start from one, writing them beside the training, the step back to one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/training/checkpoint.h"
#include "trainer/training/checkpoint_writer.h"
#include "trainer/training/common_guard.h"
#include "trainer/training/run_report.h"
#include "trainer/training/session.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {

// Puts the training where its newest checkpoint stands. Without one it begins: with the weights of
// `init_from` or random ones, in which case the data's normalisation is computed. Rank 0 reads the files and
// broadcasts them: the other nodes need not see them. A collective call.
void start_training(Session& session, TrainingState& state, const CheckpointDirectory& checkpoints,
                    RunReport& report);

// The beginning alone, whatever checkpoints there are. A collective call.
void begin_training(Session& session, TrainingState& state, RunReport& report);

// The guard has gone back too often, or can't go back.
class GuardGaveUp : public CommonError {
 public:
  using CommonError::CommonError;
};

// Every call but find_best() is made on all ranks; rank 0 writes.
class Recovery {
 public:
  // After start_training(). With the guard on, rank 0 keeps the state in beginning.wfck until there are two
  // checkpoints.
  // `begin`: of this run of the program, from which the time to the first checkpoint counts.
  Recovery(Session& session, TrainingState& state, const CheckpointDirectory& checkpoints, RunReport& report,
           Clock::time_point begin);

  // By steps since the last call, or by time.
  bool is_due();
  void write();
  void write_best();
  // Returns when all checkpoints are durable.
  void wait() { writer_.finish(); }
  // The same, at the end.
  void finish();

  // Collective: restores the newest checkpoint that the error cannot have touched. GuardGaveUp where there is
  // none, or after too many steps back. Never goes back before a round of a tournament.
  void go_back(CommonGuard& guard);

  double seconds() const { return seconds_; }  // for which the training stood still

 private:
  std::vector<std::int64_t> kept_steps() const;
  std::unique_ptr<CheckpointFile> file_before(const CommonGuard& guard, std::int64_t from) const;
  Snapshot snapshot_now();
  PieceSource source();
  void send_shares();

  Session& session_;
  TrainingState& state_;
  const CheckpointDirectory& checkpoints_;
  RunReport& report_;
  CheckpointWriter writer_;
  std::int64_t written_ = 0;
  std::int64_t asked_step_;   // of the last is_due()
  std::vector<float> piece_;  // of source()
  Clock::time_point last_;    // the last checkpoint
  double seconds_ = 0;
};

}  // namespace wflow::trainer
