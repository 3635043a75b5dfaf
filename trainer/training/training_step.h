// SPDX-License-Identifier: Apache-2.0
// One step of a training: gradients of this rank's part of a batch, their sums over the ranks, the update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trainer/model/network.h"
#include "trainer/parallel/exact_sums.h"
#include "trainer/parallel/gradient_exchange.h"
#include "trainer/training/common_guard.h"
#include "trainer/training/evaluation.h"
#include "trainer/training/gradients.h"
#include "trainer/training/heads.h"
#include "trainer/training/run_report.h"
#include "trainer/training/scale_plan.h"
#include "trainer/training/session.h"
#include "trainer/training/training_state.h"
#include "trainer/training/updates.h"

namespace wflow::trainer {

// A loss or a gradient that is infinite or NaN. A search goes on without such a training.
class NotFinite : public CommonError {
 public:
  using CommonError::CommonError;
};

class TrainingStep {
 public:
  // `heads`: all of the training, `updates`: those of a step. `stop_wanted`: called for each update; where a
  // rank returns true, stopping() is true on all ranks after this step.
  TrainingStep(Session& session, const Heads& heads, TrainingState& state, Updates& updates,
               PassBuffers& buffers, CommonGuard& guard, RunReport& report,
               std::function<bool()> stop_wanted);

  // A collective call. Returns false if the guard finds the step wrong: nothing is updated then.
  bool take(const Batch& batch);
  // With a lag, at the end of an epoch: applies the gradient of the last step. As take() otherwise.
  bool take_lagged();
  bool stopping() const { return stopping_; }
  // The mean loss of the last step that was applied: the sum over its updates.
  double loss() const { return loss_; }
  // A rate in place of the schedule's, for the rate finder.
  void set_rate(double rate) { fixed_rate_ = rate; }

 private:
  // This rank's part of a batch.
  struct Share {
    std::size_t samples = 0;
    std::size_t most_samples = 0;  // of any rank
    std::size_t first = 0;         // position of its first sample in the global batch
    std::size_t global_batch = 0;  // samples of all ranks that sum their gradients
  };
  std::size_t samples_of_step(const TrainingOrder& order, std::uint64_t step_of_epoch) const;
  bool is_due(const Update& update) const { return state_.counters.step % update.every == 0; }
  bool take(const Update& update, const Share& share);
  bool take_by_sample(const Update& update, const Share& share, ExactSums& sums);
  void sit_out(const Update& update, std::size_t passes);
  void clear_exchange();
  // A pass over samples of this rank up to its last backward pass, which is that of `network` for the
  // gradient in output_gradients_.
  struct Pass {
    double loss = 0;  // sum over the samples
    Network* network = nullptr;
  };
  Pass begin_pass(const Update& update, const std::pair<std::size_t, std::size_t>& part, const Share& share);
  double forward(const Update& update, const std::pair<std::size_t, std::size_t>& part, const Share& share);
  double begin_penalty(const Update& update, const std::pair<std::size_t, std::size_t>& part,
                       const Share& share);
  StepKey key_of(const std::pair<std::size_t, std::size_t>& part, const Share& share) const;
  bool apply(const Update& update, const LaggedSums::Step& step,
             const std::optional<SmallGradient>& small = {});
  void finish_step(std::int64_t samples);
  bool measures_noise() const;
  // This rank's gradient in state_.flat, of `samples` of the `global_batch`.
  SmallGradient small_gradient(std::size_t samples, std::size_t global_batch);
  SmallGradient mean_over_ranks(const std::optional<SmallGradient>& own);
  void check_finite(double loss, bool gradient_finite) const;
  void inject(BitFlip::Where where, std::span<float> values);
  double rate() const;
  Wire wire() const;

  Session& session_;
  const Heads& heads_;
  TrainingState& state_;
  Updates& updates_;
  PassBuffers& buffers_;
  CommonGuard& guard_;
  RunReport& report_;
  const std::function<bool()> stop_wanted_;
  std::vector<BitFlip> flips_;  // those to come
  GradientExchange exchange_;
  Accumulated accumulated_;
  std::vector<float> output_gradients_;
  std::vector<float> penalised_values_;
  bool stopping_ = false;
  double loss_ = 0;
  std::optional<double> fixed_rate_;
};

}  // namespace wflow::trainer
