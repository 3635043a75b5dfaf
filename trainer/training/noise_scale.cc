// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/noise_scale.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace wflow::trainer {

void NoiseSums::add(const SmallGradient& small, double big_square, double batch) {
  const double difference = small.inverse - 1 / batch;
  if (difference <= 0 || !std::isfinite(small.square) || !std::isfinite(big_square)) return;
  // E|g|^2 = |G|^2 + trace / samples, for both batches.
  const double measured = (small.square - big_square) / difference;
  trace += measured;
  square += big_square - measured / batch;
  ++count;
}

std::optional<double> NoiseSums::scale() const {
  if (trace <= 0 || square <= 0) return std::nullopt;
  return trace / square;
}

nlohmann::json NoiseSums::to_json() const {
  return {trace, square, count};
}

NoiseSums NoiseSums::from_json(const nlohmann::json& json) {
  return {json.at(0).get<double>(), json.at(1).get<double>(), json.at(2).get<std::int64_t>()};
}

double square_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

}  // namespace wflow::trainer
