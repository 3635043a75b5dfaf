// SPDX-License-Identifier: Apache-2.0
// Decides which trainings of a search go on. Each training decides from the metrics files of all; there is no
// other state, so a search that is killed and resumed has the same result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/search_config.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {

// The reported metric of one training.
struct SearchCurve {
  std::vector<double> values;  // value of each epoch, from the first on; NaN if it is not a number
  bool ended_early = false;    // early stop: the last value counts in all later rungs
};
// `early_stop`: the rule of the trainings.
SearchCurve search_curve(std::string_view metrics_jsonl, const std::string& metric, EarlyStop early_stop);

struct SearchStanding {
  std::size_t training = 0;  // index in SearchConfig::trainings
  std::size_t rung = 0;      // the last rung that it trains in, from 1
  std::size_t place = 0;     // rank in that rung, by the metric at its end; from 1
  std::size_t of = 0;        // number of trainings in that rung
  double value = 0;          // metric there; NaN: the training has not come so far
};

// The ranking after `rung` rungs: later rungs before earlier ones, the best first. Equal trainings keep their
// order.
std::vector<SearchStanding> search_standings(const SearchConfig& search, std::size_t rung,
                                             const std::vector<SearchCurve>& curves);

// The curves of all trainings in the first `rungs` rungs.
std::vector<SearchCurve> read_search_curves(const SearchConfig& search, std::size_t rungs,
                                            EarlyStop early_stop);

// "place 5 of 9 at 2 epochs, validation_loss 0.3".
std::string describe(const SearchConfig& search, const SearchStanding& standing);

// Copies the checkpoints in the folder `before` to `checkpoints` if that has none yet, so that the training
// continues from them. Uses hard links if the file system has them. The folder keeps its files, in case this
// training runs again. With `search`: those of the rung before.
void take_over_checkpoints(const std::filesystem::path& before, const std::filesystem::path& checkpoints);
void take_over_checkpoints(const SearchConfig& search, const std::filesystem::path& checkpoints);

// Writes search.json to the folder of the last rung: all trainings, the best first, and the best one's model.
void write_search(const SearchConfig& search, EarlyStop early_stop);

}  // namespace wflow::trainer
