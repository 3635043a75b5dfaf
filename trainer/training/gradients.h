// SPDX-License-Identifier: Apache-2.0
// Gradients between the backward pass and the update.
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

// Gradients and batch statistics of the earlier passes of a step (`accumulate`), which are added to those
// of the last pass while it is exchanged.
class Accumulated {
 public:
  void add(std::span<const float> exchange) {
    sums_.resize(exchange.size(), 0.0F);
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += exchange[i];
    end_ = sums_.size();
  }
  // Adds the sums from position `from` on that have not been added yet. Does nothing without accumulated
  // passes.
  void add_to(std::span<float> exchange, std::int64_t from) {
    for (std::size_t i = static_cast<std::size_t>(from); i < end_; ++i) {
      exchange[i] += sums_[i];
      sums_[i] = 0;
    }
    if (end_ > 0) end_ = static_cast<std::size_t>(from);
  }

 private:
  std::vector<float> sums_;
  std::size_t end_ = 0;  // positions from here on have been added
};

// The smallest number of 16 bits (`precision: fp16`) is 6e-8, and gradients are often smaller: the loss is
// multiplied before the backward pass and the gradients are divided after it, by a power of two that grows
// while nothing overflows
// (Micikevicius et al. 2018, "Mixed precision training", section 3.2).
//
// A part of the training's state. The results are the same on every rank: they depend only on sums over all
// ranks.
struct LossScale {
  double value = 1;
  std::int64_t good_steps = 0;  // since the last change of the value
  bool on = false;

  static constexpr double kFirst = 65536;
  static constexpr std::int64_t kGrowsAfter = 2000;

  static LossScale begun() { return {kFirst, 0, true}; }

  // To be called after a step; `finite`: all of its gradients are finite. Returns false if the step must be
  // skipped; the scale is then halved. At a scale of 1 the training itself overflows, and no step is skipped.
  bool takes(bool finite) {
    if (!on || (!finite && value <= 1)) return true;
    good_steps = finite ? good_steps + 1 : 0;
    if (!finite) value /= 2;
    if (good_steps == kGrowsAfter) {
      good_steps = 0;
      value *= 2;
    }
    return finite;
  }
};

// Gradients that are applied a step later (`optimizer: {lag: 1}`): the sum over the ranks overlaps with the
// whole next step. Without a lag, the first layers' gradients, which are final last, overlap with nothing
// (Kurth et al. 2018, "Exascale deep learning for climate analytics", section V-B, gradient lag).
class LaggedSums {
 public:
  // Values of a step that are needed when its sums are complete.
  struct Step {
    std::int64_t samples = 0;  // over all ranks
    double loss_scale = 1;
    double rate = 0;
  };

  // nullptr: a world of one rank.
  explicit LaggedSums(Communicator* communicator) : communicator_(communicator) {}
  LaggedSums(const LaggedSums&) = delete;
  LaggedSums& operator=(const LaggedSums&) = delete;
  // The last sums complete without another step of any rank.
  ~LaggedSums() {
    try {
      wait();
    } catch (const Error&) {
      // An exception in flight has the reason; this one would only follow from it.
    }
  }

  // Starts the sum of `values`, this rank's gradients of this step, and replaces them by the sums of the step
  // before. Returns that step; no value if there was none.
  std::optional<Step> exchange(std::span<float> values, Step now, const Wire& wire = {}) {
    std::optional<Step> before = take(values);
    step_ = now;
    if (communicator_ != nullptr) ticket_ = communicator_->start_all_reduce(sums_, wire);
    return before;
  }

  // Replaces `values` by the sums of the last step, at the end of an epoch: an evaluation needs all updates.
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

  // For a checkpoint: the sums that are not applied yet.
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
