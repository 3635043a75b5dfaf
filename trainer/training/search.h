// SPDX-License-Identifier: Apache-2.0
// Which trainings of a search go on, decided by each of them from the metrics files of all: nothing else is
// kept, so that a search that is killed and resumed comes to the same end.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/search_config.h"

namespace wflow::trainer {

// What one training has reported: the metric by epoch, from the first on; NaN where it is no number.
using SearchCurve = std::vector<double>;
SearchCurve search_curve(std::string_view metrics_jsonl, const std::string& metric);

struct SearchStanding {
  std::size_t training = 0;  // its place in SearchConfig::trainings
  std::size_t rung = 0;      // the last one that it trains in, from 1
  std::size_t place = 0;     // among those that trained in it, by the metric at its end; from 1
  std::size_t of = 0;        // so many
  double value = 0;          // of the metric there; NaN: it has not come so far
};

// The best first, those of later rungs before those of earlier ones, as far as the rungs before `rung`
// decide. Trainings that are equal stay in their order. `early_stop`: a curve may end before the rung.
std::vector<SearchStanding> search_standings(const SearchConfig& search, std::size_t rung,
                                             const std::vector<SearchCurve>& curves, bool early_stop);

std::vector<SearchCurve> read_search_curves(const SearchConfig& search);

// "place 5 of 9 at 2 epochs, validation_loss 0.3".
std::string describe(const SearchConfig& search, const SearchStanding& standing);

// search.json in the folder of the step: all trainings, the best first, and the best one's model.
void write_search(const SearchConfig& search, bool early_stop);

}  // namespace wflow::trainer
