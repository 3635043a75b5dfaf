// SPDX-License-Identifier: Apache-2.0
// The rounds of one trainer of a tournament: it exchanges models with its partner, judges both on its own
// held-out samples and goes on with the better one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/training/common_guard.h"
#include "trainer/training/contest.h"
#include "trainer/training/evaluation.h"
#include "trainer/training/run_report.h"
#include "trainer/training/session.h"
#include "trainer/training/tournament.h"
#include "trainer/training/training_loop.h"
#include "trainer/training/training_state.h"
#include "trainer/training/updates.h"

namespace wflow::trainer {

class Rounds {
 public:
  // After start_training(). CommonError{spec} if `exchange` names a part that the network does not have.
  Rounds(Contest& contest, Session& session, TrainingState& state, Updates& updates, Evaluator& evaluator,
         CommonGuard& guard, RunReport& report);

  // True where the next round takes place at this step.
  bool is_due() const;
  // A collective call of all trainers. In a task of a tournament, a call of its ranks: stop, and
  // part_ended(), where the next task holds the round.
  AfterRound hold();
  bool part_ended() const { return part_ended_; }

  // The training can't go on with its model: it waits for the next round.
  void lose(const std::string& reason);
  // Moves the counters to the step of the next round; `epoch_passed` moves them to the next epoch. False if
  // there is no further round.
  template <typename EpochPassed>
  bool skip_to_next(const EpochPassed& epoch_passed) {
    if (record().rounds >= contest_.rounds()) return false;
    const std::int64_t step = plan_.step(record().rounds + 1);
    TrainingCounters& counters = state_.counters;
    while (session_.plan.first_step(counters.epoch + 1) < step) epoch_passed();
    counters.step = step;
    counters.step_of_epoch = step - session_.plan.first_step(counters.epoch);
    return true;
  }

 private:
  struct Message;  // of a trainer at the beginning of a round
  struct Partner;  // its message, and its model
  using Views = std::vector<std::span<float>>;

  TournamentRecord& record() { return state_.counters.tournament; }
  const TournamentRecord& record() const { return state_.counters.tournament; }
  std::vector<Message> meet(std::int64_t round);
  std::optional<Partner> partner_in(std::int64_t round, int number);
  std::unique_ptr<TrainingState> read_partner(std::int64_t round, int number);
  void play(const Partner& partner, Bout& bout);
  void take(const Message& partner, bool with_optimizer);
  std::vector<double> judged();
  Views exchanged(TrainingState& state, bool whole) const;
  void exchange(const Views& own, std::span<float> partners, int number);
  void swap(const Views& own, std::span<float> partners);
  void begin_optimizer_anew();

  Contest& contest_;
  Session& session_;
  TrainingState& state_;
  Updates& updates_;
  Evaluator& evaluator_;
  CommonGuard& guard_;
  RunReport& report_;
  const std::vector<MetricName> metrics_;
  const RoundPlan plan_;
  bool part_ended_ = false;
};

}  // namespace wflow::trainer
