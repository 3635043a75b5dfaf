// SPDX-License-Identifier: Apache-2.0
// The gradient noise scale (McCandlish et al. 2018, "An empirical model of large-batch training", appendix
// A.1): the batch above which a larger one saves few steps. It is the trace of the covariance of one sample's
// gradient over the square of the true gradient; the squares of two gradients, of a small and of a large
// batch, give both.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>

namespace wflow::trainer {

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
