// SPDX-License-Identifier: Apache-2.0
// The search: block of train:, successive halving over the trainings of a step (Jamieson and Talwalkar 2016).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/yaml.h"

namespace wflow::config {
template <typename Config>
class Table;
}

namespace wflow::trainer {

inline constexpr std::int64_t kMostEpochs = 100'000'000;

struct SearchConfig {
  std::string metric = "validation_loss";  // by which they are ranked: less is better
  double keep = 1.0 / 3;                   // the part that goes on from a rung to the next, at least one
  std::vector<std::int64_t> rungs;         // epochs at which they are ranked, rising; empty: no search

  // What a campaign adds.
  std::int64_t rung = 0;  // up to which to train, from 1; 0: not in a campaign
  std::vector<std::string>
      folders;  // of the rungs' steps up to this one; not in the first, which ranks nobody
  std::vector<std::string> trainings;  // their outputs, below each of the folders
  std::int64_t training = 0;           // the place of this one among them

  bool on() const { return !rungs.empty(); }
  bool is_last_rung() const { return rung == static_cast<std::int64_t>(rungs.size()); }
  bool operator==(const SearchConfig&) const = default;
};

// The keys that a campaign sets.
inline constexpr const char* kCampaignSearchKeys[] = {"rung", "folders", "trainings", "training"};

// Before a target's name: the error of that target.
inline constexpr std::string_view kRatioMetric = "validation_mae_ratio/";

// What a training reports at the beginning of each rung but the first: 0 if it goes on, else its place in the
// rung that was its last. Of epoch and step 0: where it is ranked anew, the new place takes the old one's.
inline constexpr const char* kSearchStoppedMetric = "search_stopped";

const config::Table<SearchConfig>& search_table();
SearchConfig read_search(const yaml::Node& block, yaml::Diagnostics& diagnostics);
yaml::Node to_yaml(const SearchConfig& search);

// Of `trainings`, how many train in `rung`.
std::size_t trainings_in_rung(const SearchConfig& search, std::size_t trainings, std::size_t rung);

}  // namespace wflow::trainer
