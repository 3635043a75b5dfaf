// SPDX-License-Identifier: Apache-2.0
// Learning rate, warm-up and batch of a large run, predicted from finished small ones (McCandlish et al.
// 2018, "An empirical model of large-batch training", sections 2.2 and 3.3).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trainer/config.h"

namespace wflow::trainer {

// The results of a finished run that a prediction uses.
struct SmallRun {
  std::string folder;
  TrainConfig config;
  double noise_scale = 0;  // in samples, of the second half of its epochs
  double loss = 0;         // of its validation, or of its training
};

struct ScaledRun {
  std::int64_t batch = 0;
  double learning_rate = 0;
  double warmup_epochs = 0;
  double steps = 0;    // to a loss, over the least number, which is that of an infinite batch
  double samples = 0;  // to a loss, over the least number, which is that of a batch of one
};

// Power of the batch that the rate follows far below the noise scale: 1 for SGD, 1/2 for methods that
// normalise the gradient.
double rate_power(OptimizerName name);

// `small` with another batch, in a run of `epochs`.
ScaledRun scaled_run(const SmallRun& small, double noise_scale, std::int64_t batch, std::int64_t epochs);

// Reads result.json and train.yaml of a training's folder. Error{data} if the noise scale was not measured.
SmallRun read_small_run(const std::filesystem::path& folder);

// The text of --scale-from: the prediction for `large` and what it assumes. The noise scale is the median of
// the runs, and the rate is that of the run with the least loss.
std::string describe_scale(const TrainConfig& large, std::span<const SmallRun> runs);

}  // namespace wflow::trainer
