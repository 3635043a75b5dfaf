// SPDX-License-Identifier: Apache-2.0
// Finds the traces of faulty memory, processors or ranks in a training, so that it can go back to a
// checkpoint of before. A silent error in weights or activations shows in the loss of the next step in most
// cases that harm the training at all (Zhang, Huang, Huang, Xu, Katz 2019, "Quantifying the impact of memory
// errors in deep learning", IEEE Cluster); what differs between ranks shows in a hash of their states.
//
// Training is deterministic: after the rollback a transient error is gone, and the result is that of a run
// without it, bit by bit. What comes again with the same loss is the training's own (its data, its learning
// rate) and is taken as it is.
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

// The same calls with the same values on every rank give the same answers on every rank. No I/O.
class Guard {
 public:
  explicit Guard(const GuardConfig& config) : config_(config) {}

  // Before the update of step `step` (from 0): what is wrong with its loss (mean over the global batch), or
  // with the largest absolute value of its gradient; empty where nothing is, or where the same came again
  // after a rollback.
  std::string look_at_loss(std::int64_t step, double loss);
  std::string look_at_gradient(std::int64_t step, double largest);
  // A sentence for people where what a rollback was asked for has come again: once in a training.
  std::string take_note() { return std::exchange(note_, {}); }
  // The same where it has not: the steps gave something else when they were computed again.
  std::string take_warning() { return std::exchange(warning_, {}); }

 private:
  // Step and value of what a rollback was asked for.
  using Suspects = std::map<std::int64_t, double>;
  bool came_again(Suspects& suspects, std::int64_t step, double value, const char* what);
  void look_back(Suspects& suspects, std::int64_t step, double value, const char* what);
  bool is_spike(double loss) const;

  GuardConfig config_;
  double mean_ = 0;       // of the last losses, decaying
  double deviation_ = 0;  // mean absolute one
  std::int64_t losses_seen_ = 0;
  std::deque<double> recent_;  // the last losses
  double gradient_ = 0;  // of the largest values
  std::int64_t gradients_seen_ = 0;
  double raised_ = 1;  // grows with each false alarm, so that a noisy training loses a bounded time to them
  bool noted_ = false;
  std::string note_;
  std::string warning_;
  Suspects losses_;
  Suspects gradients_;
};

// The largest absolute value; infinity where one is not finite.
double largest_of(std::span<const float> values);

// Of each rank the hash of its state: the ranks that differ from most others, in order; empty if none does.
// Of two ranks, or halves, that differ none is known to be right: all are named.
std::vector<int> disagreeing(const std::vector<std::string>& hashes);

// --inject-bit-flips: an error on purpose, to prove the guard. "weights,step=50,bit=30,seed=7,rank=0"; these
// are the defaults but for the step and the seed, which are 0 and 1.
//   weights      before the forward pass
//   activations  of the outputs, before the loss
//   gradients    of the outputs, before the backward pass
//   optimizer    of its last array (Adam: the second moment), before its update
struct BitFlip {
  enum class Where : std::uint8_t { weights, activations, gradients, optimizer };
  Where where = Where::weights;
  std::int64_t step = 0;   // of the training, from 0
  int bit = 30;            // of an IEEE 754 single: 31 sign, 30 to 23 exponent
  std::uint64_t seed = 1;  // which value
  int rank = 0;
};
// Error{usage} for anything else.
BitFlip read_bit_flip(const std::string& text);
// Flips the bit of one of the values and says which: "weights[1234]: 0.01 -> 3.4e36".
std::string flip(const BitFlip& what, std::span<float> values);

}  // namespace wflow::trainer
