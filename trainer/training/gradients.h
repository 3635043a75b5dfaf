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

// Gradients and batch statistics of the earlier passes of a step (`accumulate`), until they are added to the
// last one's while that is exchanged.
class Accumulated {
 public:
  void add(std::span<const float> exchange) {
    sums_.resize(exchange.size(), 0.0F);
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += exchange[i];
    end_ = sums_.size();
  }
  // Adds what lies from place `from` on and has not been added yet. Does nothing where nothing was
  // accumulated.
  void add_to(std::span<float> exchange, std::int64_t from) {
    for (std::size_t i = static_cast<std::size_t>(from); i < end_; ++i) {
      exchange[i] += sums_[i];
      sums_[i] = 0;
    }
    if (end_ > 0) end_ = static_cast<std::size_t>(from);
  }

 private:
  std::vector<float> sums_;
  std::size_t end_ = 0;  // places from here on have been added
};

// Numbers of 16 bits (`precision: fp16`) end at 6e-8, where gradients are: the loss is multiplied before the
// backward pass and the gradients are divided after it, by a power of two that grows while nothing overflows
// (Micikevicius et al. 2018, "Mixed precision training", section 3.2).
//
// A part of the training's state. The same calls on every rank give the same answers: they depend on sums
// over all ranks alone.
struct LossScale {
  double value = 1;
  std::int64_t good_steps = 0;  // since the value has changed
  bool on = false;

  static constexpr double kFirst = 65536;
  static constexpr std::int64_t kGrowsAfter = 2000;

  static LossScale begun() { return {kFirst, 0, true}; }

  // After a step; `finite`: all of its gradients are. False: the step is left out, and the scale is half of
  // what it was. At a scale of 1 an overflow is the training's own, and the step is not left out.
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

// Gradients that are applied a step later (`optimizer: {lag: 1}`): the sum over the ranks has the whole next
// step to hide behind, where the first layers' gradients, which are final last, otherwise have nothing (Kurth
// et al. 2018, "Exascale deep learning for climate analytics", section V-B, gradient lag).
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
