// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/outer_step.h"

#include <nlohmann/json.hpp>

namespace wflow::trainer {

void outer_step(const OuterConfig& config, std::span<float> anchor, std::span<float> momentum,
                std::span<float> mean) {
  if (config.is_mean()) return;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const double moved = static_cast<double>(anchor[i]) - static_cast<double>(mean[i]);
    double direction = moved;
    if (!momentum.empty()) {
      momentum[i] = static_cast<float>(config.momentum * static_cast<double>(momentum[i]) + moved);
      direction += config.momentum * static_cast<double>(momentum[i]);
    }
    mean[i] = static_cast<float>(static_cast<double>(anchor[i]) - config.rate * direction);
    anchor[i] = mean[i];
  }
}

nlohmann::json OuterRecord::to_json() const {
  return {{"steps", steps}, {"left_out", left_out}};
}

OuterRecord OuterRecord::from_json(const nlohmann::json& json) {
  return {json.at("steps").get<std::int64_t>(), json.at("left_out").get<std::int64_t>()};
}

}  // namespace wflow::trainer
