// SPDX-License-Identifier: Apache-2.0
// Which trainings of a search go on, decided by each of them from the metrics files of all: nothing else is
// kept, so that a search that is killed and resumed comes to the same end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/search_config.h"

namespace wflow::trainer {

// What one training has reported.
struct SearchCurve {
  std::vector<double> values;  // of the metric by epoch, from the first on; NaN where it is no number
  bool ended_early = false;    // no better validation in so many epochs: the last value counts in all rungs
};
// `patience`: early_stop of the trainings; 0: none ends early.
SearchCurve search_curve(std::string_view metrics_jsonl, const std::string& metric, std::int64_t patience);

struct SearchStanding {
  std::size_t training = 0;  // its place in SearchConfig::trainings
  std::size_t rung = 0;      // the last one that it trains in, from 1
  std::size_t place = 0;     // among those that trained in it, by the metric at its end; from 1
  std::size_t of = 0;        // so many
  double value = 0;          // of the metric there; NaN: it has not come so far
};

// The best first, those of later rungs before those of earlier ones, as far as the rungs before `rung`
// decide. Trainings that are equal stay in their order.
std::vector<SearchStanding> search_standings(const SearchConfig& search, std::size_t rung,
                                             const std::vector<SearchCurve>& curves);

// As far as the first `rungs` rungs have come.
std::vector<SearchCurve> read_search_curves(const SearchConfig& search, std::size_t rungs,
                                            std::int64_t patience);

// "place 5 of 9 at 2 epochs, validation_loss 0.3".
std::string describe(const SearchConfig& search, const SearchStanding& standing);

// The checkpoints of the rung before, where `checkpoints` has none yet: the training goes on from them. They
// are the same files where the file system has hard links, and stay in the rung before for the day when this
// one runs again.
void take_over_checkpoints(const SearchConfig& search, const std::filesystem::path& checkpoints);

// search.json in the folder of the last rung: all trainings, the best first, and the best one's model.
void write_search(const SearchConfig& search, std::int64_t patience);

}  // namespace wflow::trainer
