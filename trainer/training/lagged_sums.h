// SPDX-License-Identifier: Apache-2.0
// Gradients that are applied a step later (`optimizer: {lag: 1}`): the sum over the ranks has the whole next
// step to hide behind, where the first layers' gradients, which are final last, otherwise have nothing (Kurth
// et al. 2018, "Exascale deep learning for climate analytics", section V-B, gradient lag).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

class LaggedSums {
 public:
  // What has to be known of a step when its sums are there.
  struct Step {
    std::int64_t samples = 0;  // of all ranks
    double loss_scale = 1;
    double rate = 0;
  };

  // nullptr: a world of one rank.
  explicit LaggedSums(Communicator* communicator) : communicator_(communicator) {}
  LaggedSums(const LaggedSums&) = delete;
  LaggedSums& operator=(const LaggedSums&) = delete;
  // No rank needs another's next step to come to the end of this one's sums.
  ~LaggedSums() {
    try {
      wait();
    } catch (const Error&) {
      // Whoever ends here without its sums does so for a reason of its own.
    }
  }

  // Begins to sum `values`, which this rank has found in this step, and puts the sums of the step before in
  // their place. Nothing: there was none.
  std::optional<Step> exchange(std::span<float> values, Step now, const Wire& wire = {}) {
    std::optional<Step> before = take(values);
    step_ = now;
    if (communicator_ != nullptr) ticket_ = communicator_->start_all_reduce(sums_, wire);
    return before;
  }

  // The sums of the last step, at the end of an epoch: what is evaluated has all of them.
  std::optional<Step> take(std::span<float> values) {
    wait();
    sums_.resize(values.size());
    std::swap_ranges(values.begin(), values.end(), sums_.begin());
    return std::exchange(step_, std::nullopt);
  }

  void discard() {
    wait();
    step_.reset();
  }

  // For a checkpoint: what has been summed and not applied.
  const std::optional<Step>& step() const { return step_; }
  std::span<float> sums() {
    wait();
    return sums_;
  }
  void restore(const Step& step, std::span<const float> sums) {
    discard();
    step_ = step;
    sums_.assign(sums.begin(), sums.end());
  }

 private:
  void wait() {
    if (ticket_) communicator_->wait(*std::exchange(ticket_, std::nullopt));
  }

  Communicator* communicator_;
  std::vector<float> sums_;
  std::optional<Step> step_;
  std::optional<Communicator::Ticket> ticket_;
};

}  // namespace wflow::trainer
