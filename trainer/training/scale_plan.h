// SPDX-License-Identifier: Apache-2.0
// Learning rate, warm-up and batch of a large run, predicted from finished small ones (McCandlish et al.
// 2018, "An empirical model of large-batch training", sections 2.2 and 3.3).
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
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

// The gradient noise scale (McCandlish et al. 2018, "An empirical model of large-batch training", appendix
// A.1): the batch above which a larger one saves few steps. It is the trace of the covariance of one sample's
// gradient over the square of the true gradient; the squares of two gradients, of a small and of a large
// batch, give both.

// The mean gradient of a part of the batch, or the mean over parts of several ranks.
struct SmallGradient {
  double square = 0;   // |g|^2
  double inverse = 0;  // 1 / samples
};

// Sums of measurements. Each by itself is far off and may be negative; their ratio is close.
struct NoiseSums {
  double trace = 0;
  double square = 0;
  std::int64_t count = 0;

  // `big_square`: of the mean gradient of the whole batch. A part as large as the batch tells nothing, and
  // gradients that overflow neither: they are left out.
  void add(const SmallGradient& small, double big_square, double batch);
  // In samples. No value without measurements, or with so few that an estimate is not positive.
  std::optional<double> scale() const;
  nlohmann::json to_json() const;
  static NoiseSums from_json(const nlohmann::json& json);
};

double square_of(std::span<const float> values);

}  // namespace wflow::trainer
