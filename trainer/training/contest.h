// SPDX-License-Identifier: Apache-2.0
// A trainer's messages to the other trainers of a tournament. All trainers make the same meetings in the same
// order: the start, the common normalisation where they begin anew, each round, and the end. A trainer that
// stops or fails takes part in the next meeting, whichever it is: no trainer waits for one that is not there.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/trainer_part.h"
#include "trainer/parallel/communicator.h"
#include "trainer/training/tournament.h"

namespace wflow::trainer {

// An error that all ranks of all trainers throw at the same meeting.
class ContestOver : public CommonError {
 public:
  using CommonError::CommonError;
};

class Contest {
 public:
  // `config`: of the whole tournament. `trainer`: the ranks of this one; each has as many consecutive ranks.
  Contest(Communicator& world, Communicator& trainer, const TrainConfig& config);
  // One task of a tournament (TournamentForm::tasks): it makes no meetings, and finds what other trainers
  // have left in their folders.
  explicit Contest(const TrainConfig& config);
  bool in_task() const { return world_ == nullptr; }
  // True for the task that only finds the normalisation.
  bool is_beginning() const { return rules_.part == 0; }
  // True in a task that trains up to this round, which the next task holds.
  bool leaves_to_next(std::int64_t round) const { return rules_.part && round >= *rules_.part; }
  bool is_last_part() const { return rules_.part == rounds_ + 1; }

  const TournamentConfig& rules() const { return rules_; }
  int trainer() const { return part_.trainer; }  // from 0
  int trainers() const { return part_.trainers; }
  std::uint64_t seed() const { return part_.seed; }
  const TrainerPart& part() const { return part_; }

  // Collective calls of all ranks of all trainers. A message of each trainer, in their order; `own` is that
  // of the trainer's rank 0. `what` names the meeting. After a meeting in which a trainer stops, stops() is
  // true; the messages of the others are valid. Throws ContestOver if a trainer has failed.
  std::vector<nlohmann::json> meet(const std::string& what, nlohmann::json own);
  bool stops() const { return stops_; }

  // At the start: `offered`, of the trainer's rank 0, are the rounds after which it has checkpoints to
  // continue from; `most`: the rounds that fit in its training. Returns the newest round that all
  // offer; no value: all begin anew. Sets rounds(). In a task: no meeting and no value; throws where the
  // rounds do not fit.
  std::optional<std::int64_t> start(std::span<const std::int64_t> offered, std::int64_t most);
  std::int64_t rounds() const { return rounds_; }  // of the whole tournament

  // In place of the next meeting, by all ranks of a trainer.
  void stop();
  [[noreturn]] void fail(const CommonError& error);

  // The rank of another trainer that has the place of this rank, and the ranks of all.
  int counterpart(int trainer) const { return trainer * ranks_ + world_->rank() % ranks_; }
  Communicator& world() { return *world_; }
  double seconds() const { return seconds_; }  // in meetings and rounds
  void add_seconds(double seconds) { seconds_ += seconds; }
  double waited() const { return waited_; }  // a part of them, until all trainers were at the round
  void add_waited(double seconds) { waited_ += seconds; }

  // Set by the trainer's rank 0 when it has written its results.
  struct End {
    TrainConfig config;          // completed
    nlohmann::json result;       // of result.json
    std::string table;           // errors on the test samples, for the terminal
    std::vector<double> values;  // tournament_metrics() of the exported model, in validation
  };
  std::optional<End> end;
  std::vector<Bout> bouts;  // of the whole training, at its end

 private:
  Communicator* const world_;  // nullptr: in_task()
  const TournamentConfig rules_;
  const int ranks_;  // of a trainer
  const bool leader_;
  TrainerPart part_;
  std::int64_t rounds_ = 0;
  bool stops_ = false;
  double seconds_ = 0;
  double waited_ = 0;
};

}  // namespace wflow::trainer
