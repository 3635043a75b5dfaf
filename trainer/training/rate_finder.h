// SPDX-License-Identifier: Apache-2.0
// A range test of the learning rate (Smith 2017, "Cyclical learning rates for training neural networks"):
// from the initial weights, each step has a higher rate than the one before. Where the loss falls,
// and where it rises again, bound the rate of the training.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/parallel/communicator.h"
#include "trainer/training/session.h"

namespace wflow::trainer {

struct RateTrial {
  double rate = 0;  // as `learning_rate` of the optimizer: before `reference_batch`
  double loss = 0;  // of the step's batch, before its update
  double smoothed = 0;
};

// Losses of trials with rising rates, in their order.
class RateCurve {
 public:
  void add(double rate, double loss);
  // True once the smoothed loss has risen by three times what it has fallen, or is not finite.
  bool diverged() const { return diverged_; }
  const std::vector<RateTrial>& trials() const { return trials_; }

  // The rate at which the smoothed loss has fallen halfway to its lowest value, near its steepest descent:
  // single slopes scatter with the batches. No value if it does not fall.
  std::optional<double> halfway() const;
  // A tenth of the rate at which the loss diverges; no value if it does not.
  std::optional<double> tenth_of_divergence() const;
  // The smaller of the two: no value without any.
  std::optional<double> suggested() const;

  std::string csv() const;
  // Bars of the smoothed loss over the rate, for a terminal.
  std::string plot() const;

 private:
  std::vector<RateTrial> trials_;
  double average_ = 0;
  double lowest_ = 0;
  bool diverged_ = false;
};

// Tries rates from a ten-thousandth to ten thousand times that of the configuration, prints the curve and the
// suggestion, and writes OUTPUT/find_rate.csv. Checkpoints and results of the training stay as they are. A
// collective call.
void find_rate(const TrainConfig& config, Communicator& communicator, const RunOptions& options);

}  // namespace wflow::trainer
