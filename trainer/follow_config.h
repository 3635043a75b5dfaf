// SPDX-License-Identifier: Apache-2.0
// The keys `follow:` and `until:` of `train:`: a training that begins while its samples are still simulated.
// The campaign divides it into stages, one behind the other. A stage trains on the first blocks of the data
// set at a constant rate; the last training, on all blocks, begins with the weights of the last stage and has
// the schedule of the block. So the bits depend on the blocks alone, and not on when they come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/yaml.h"
#include "trainer/metric_name.h"

namespace wflow::config {
template <typename Config>
class Table;
}

namespace wflow::trainer {

struct FollowConfig {
  std::int64_t stages = 0;  // before the last training; 0: off
  std::int64_t epochs = 5;  // of each stage

  // Set by a campaign.
  std::int64_t stage = 0;            // from 1; 0: the last training
  std::vector<std::string> folders;  // outputs of the stages before, in order
  // A stage: of the first blocks of the data set `source`, its task makes the data set that it trains on.
  std::int64_t blocks = 0;
  std::string source;

  bool on() const { return stages > 0; }
  bool is_stage() const { return stage > 0; }
  bool operator==(const FollowConfig&) const = default;
};

// The keys that a campaign sets.
inline constexpr const char* kCampaignFollowKeys[] = {"stage", "folders", "blocks", "source"};
inline constexpr std::int64_t kUsualStages = 4;
inline constexpr std::int64_t kMostStages = 100;

// `until: validation_mae_ratio < 0.05`.
struct GoalConfig {
  MetricName metric;
  double value = 0;
  bool above = false;  // the metric has to be greater than the value
  bool on = false;
  bool is_met(double reached) const { return on && (above ? reached > value : reached < value); }
  std::string text() const;  // "validation_mae_ratio < 0.05"
  bool operator==(const GoalConfig&) const = default;
};

const config::Table<FollowConfig>& follow_table();
// `follow:` is true, false, or a mapping.
FollowConfig read_follow(const yaml::Node& node, yaml::Diagnostics& diagnostics);
GoalConfig read_goal(const yaml::Node& node, yaml::Diagnostics& diagnostics);

}  // namespace wflow::trainer
