// SPDX-License-Identifier: Apache-2.0
// Detects traces of faulty memory, processors or ranks in a training, so that it can go back to an earlier
// checkpoint. A silent error in weights or activations shows in the loss of the next step in most
// cases that harm the training at all (Zhang, Huang, Huang, Xu, Katz 2019, "Quantifying the impact of memory
// errors in deep learning", IEEE Cluster); a difference between ranks shows in a hash of their states.
//
// Training is deterministic: after the rollback a transient error is gone, and the result is that of a run
// without it, bit by bit. If the same loss comes again, the training itself is the cause (its data, its
// learning rate), and the loss is accepted.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config.h"

namespace wflow::trainer {

// Deterministic and without I/O: the same calls with the same values give the same results on every rank.
class Guard {
 public:
  explicit Guard(const GuardConfig& config) : config_(config) {}

  // To be called before the update of step `step` (from 0). Describes what is wrong with its loss (mean over
  // the global batch) or with the largest absolute value of its gradient; empty if nothing is, or if the same
  // value came again after a rollback.
  std::string look_at_loss(std::int64_t step, double loss);
  std::string look_at_gradient(std::int64_t step, double largest);
  // A sentence if the cause of a rollback has come again; at most once in a training.
  std::string take_note() { return std::exchange(note_, {}); }
  // A sentence if it has not: the step had another result when it was computed again.
  std::string take_warning() { return std::exchange(warning_, {}); }

 private:
  // Step and value of each alarm that led to a rollback.
  using Alarms = std::map<std::int64_t, double>;
  bool came_again(Alarms& alarms, std::int64_t step, double value, const char* what);
  void look_back(Alarms& alarms, std::int64_t step, double value, const char* what);
  bool is_spike(double loss) const;

  GuardConfig config_;
  double mean_ = 0;       // decaying mean of the losses
  double deviation_ = 0;  // decaying mean absolute deviation
  std::int64_t losses_seen_ = 0;
  std::deque<double> recent_;  // the last losses
  double gradient_ = 0;        // decaying mean of the largest values
  std::int64_t gradients_seen_ = 0;
  double raised_ = 1;  // grows with each false alarm, to bound the time that they cost in a noisy training
  bool noted_ = false;
  std::string note_;
  std::string warning_;
  Alarms losses_;
  Alarms gradients_;
};

// The largest absolute value; infinity if a value is not finite.
double largest_of(std::span<const float> values);

// `hashes`: one per rank. Returns the ranks that differ from the majority, in order; empty if all agree. If
// two ranks, or two halves, differ, none is known to be right, and all are returned.
std::vector<int> disagreeing(const std::vector<std::string>& hashes);

// --inject-bit-flips: a deliberate error, to test the guard. "weights,step=50,bit=30,seed=7,rank=0"; the
// defaults are the same, but step 0 and seed 1.
//   weights      before the forward pass
//   activations  the outputs, before the loss
//   gradients    gradients of the outputs, before the backward pass
//   optimizer    its last array (Adam: the second moment), before its update
struct BitFlip {
  enum class Where : std::uint8_t { weights, activations, gradients, optimizer };
  Where where = Where::weights;
  std::int64_t step = 0;   // step of the training, from 0
  int bit = 30;            // bit of an IEEE 754 single: 31 sign, 30 to 23 exponent
  std::uint64_t seed = 1;  // selects the value
  int rank = 0;
};
// Error{usage} for any other text.
BitFlip read_bit_flip(const std::string& text);
// Flips the bit of one of the values and describes it: "weights[1234]: 0.01 -> 3.4e36".
std::string flip(const BitFlip& what, std::span<float> values);

}  // namespace wflow::trainer
