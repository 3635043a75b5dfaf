// SPDX-License-Identifier: Apache-2.0
// The heads of a network: an objective for each of the outputs, and the weighted sum of their losses.
//
// The network's outputs are those of the heads, in their order, each [samples, ...]; a variational network
// has the mean and the logarithm of the variance of its latent vector behind the first one. A sample without
// a head's truths (all NaN) counts in the losses of the other heads only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/training/objective.h"

namespace wflow::trainer {

class Heads {
 public:
  struct Head {
    std::string name;  // empty where there is one head only
    Objective objective;
    double weight = 1;
    std::size_t first_target = 0;  // among the targets of all heads; set by the constructor
  };
  // Truths of one head, [samples, targets, cells].
  using Truths = std::span<const std::span<const float>>;

  explicit Heads(std::vector<Head> heads);

  std::span<const Head> all() const { return heads_; }
  std::vector<std::string> labels() const;  // of all heads
  std::size_t all_output_count() const;     // values per sample in all outputs of the network
  // Divisor of the sum of one sample's losses: that of the first head.
  std::size_t terms() const { return heads_.front().objective.terms(); }

  // As Objective::loss_and_gradient(), over all heads. Each head's loss is scaled by
  // terms() over its own number of terms: divided by terms(), the result is the weighted sum of mean losses.
  double loss_and_gradient(std::span<const float> outputs, Truths truths, std::size_t samples, double scale,
                           std::span<float> gradient) const;

  // Sums of one sample for an evaluation: Objective::record() of each head, one behind the other.
  std::size_t record_size() const;
  // Whole numbers that belong to the metrics, of one head behind the other.
  std::size_t count_size() const;
  // `physical`: one for each head. Adds to `counts`, of count_size() numbers, if it is not empty.
  void record(std::span<const float> outputs, Truths truths, std::size_t samples,
              std::vector<double>& records, std::span<const Objective::Physical> physical,
              std::span<std::uint64_t> counts = {}) const;
  // The first value of a head's output in the network's outputs.
  std::size_t output_begin(std::size_t head, std::size_t samples) const;

 private:
  std::vector<Head> heads_;
};

// `records` of all samples and `counts` of all ranks, summed. `deviations` convert the targets of all heads
// to physical units: 1 if the records are physical. With several heads, the loss is the weighted sum, and
// Evaluation::heads has the parts.
Evaluation evaluate(const Heads& heads, std::span<const double> deviations, std::span<const double> records,
                    std::span<const std::uint64_t> counts = {});

}  // namespace wflow::trainer
