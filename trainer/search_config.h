// SPDX-License-Identifier: Apache-2.0
// The `search:` block of `train:`: successive halving over the trainings of a step (Jamieson and Talwalkar
// 2016).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/yaml.h"
#include "trainer/metric_name.h"

namespace wflow::config {
template <typename Config>
class Table;
}

namespace wflow::trainer {

inline constexpr std::int64_t kMostEpochs = 100'000'000;

struct SearchConfig {
  std::string metric = "validation_loss";  // ranks the trainings
  double keep = 1.0 / 3;            // fraction of the trainings that goes on to the next rung, at least one
  std::vector<std::int64_t> rungs;  // epochs at which they are ranked, ascending; empty: no search

  // Set by a campaign.
  std::int64_t rung = 0;  // the rung to train up to, from 1; 0: not in a campaign
  std::vector<std::string>
      folders;  // folders of the rungs' steps up to this one; none in the first, which has no ranking
  std::vector<std::string> trainings;  // output directories of the trainings, below each of the folders
  std::int64_t training = 0;           // index of this training among them

  bool on() const { return !rungs.empty(); }
  bool is_last_rung() const { return rung == static_cast<std::int64_t>(rungs.size()); }
  bool operator==(const SearchConfig&) const = default;
};

// The keys that a campaign sets.
inline constexpr const char* kCampaignSearchKeys[] = {"rung", "folders", "trainings", "training"};

inline constexpr std::string_view kTrainLoss = "train_loss";

// The metric in validation that `metric:` of a search names: "validation_loss", "validation_mae_ratio/y" or
// "mean_iou". `own`: names of the user's metrics. No value for the training loss.
std::optional<MetricName> search_metric(std::string_view text, std::span<const std::string> own = {});

// Metric that a training reports at the beginning of each rung but the first: 0 if it goes on, else its place
// in its last rung. Epoch and step are 0, so that a new ranking replaces the old one.
inline constexpr const char* kSearchStoppedMetric = "search_stopped";

const config::Table<SearchConfig>& search_table();
SearchConfig read_search(const yaml::Node& block, yaml::Diagnostics& diagnostics);
// Reports a metric that is neither wflow's nor among the user's.
void check_search_metric(const yaml::Node& block, const SearchConfig& search,
                         std::span<const std::string> own, yaml::Diagnostics& diagnostics);
yaml::Node to_yaml(const SearchConfig& search);

// Number of the `trainings` that train in `rung`.
std::size_t trainings_in_rung(const SearchConfig& search, std::size_t trainings, std::size_t rung);

}  // namespace wflow::trainer
