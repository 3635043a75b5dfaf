// SPDX-License-Identifier: Apache-2.0
// The outer step of groups of ranks that have trained by themselves since the last one: local SGD (Stich
// 2019, "Local SGD converges fast and communicates little"), with a rate and Nesterov momentum (Wang et al.
// 2020, "SlowMo"; Douillard et al. 2023, "DiLoCo", algorithm 1, lines 11 to 14).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "trainer/groups_config.h"

namespace wflow::trainer {

// With d = anchor - mean, the weights of the last outer step minus the mean of the groups' weights now:
//     momentum = config.momentum * momentum + d
//     mean     = anchor - config.rate * (d + config.momentum * momentum)
// and anchor = mean. All spans have one length; `momentum` is empty where config.momentum is 0. Where
// config.is_mean(), all stay as they are, and `anchor` may be empty.
void outer_step(const OuterConfig& config, std::span<float> anchor, std::span<float> momentum,
                std::span<float> mean);

// Counts of a training's outer steps, in its checkpoints.
struct OuterRecord {
  std::int64_t steps = 0;
  std::int64_t left_out = 0;  // groups without a sound model, over all outer steps

  nlohmann::json to_json() const;
  static OuterRecord from_json(const nlohmann::json& json);
};

}  // namespace wflow::trainer
