// SPDX-License-Identifier: Apache-2.0
// The rungs of a search (docs/train.md, Searching) are steps; for people they are one training each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/wire/answers.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

using TaskPlace = std::pair<specs::ArrayId, specs::Element>;

// How far a training of a search has come.
struct SearchProgress {
  std::string training;                // "train/LR.0.1", in whatever rung it is
  std::vector<specs::ArrayId> arrays;  // of all its rungs
  std::size_t rungs = 0;
  std::size_t rung = 0;                  // in which it trains, or has trained as the last one; from 1
  std::size_t trainings = 0;             // that rung began with
  std::optional<std::uint64_t> stopped;  // by the search: its place at the end of that rung
};

// Leaves out of `curves` what a later rung of the same training tells again, and says by the place of each
// training's remaining curves how far it has come.
std::map<TaskPlace, SearchProgress> take_searches(const specs::Plan& plan,
                                                  std::vector<engine::wire::MetricCurve>& curves);

// "stopped at rung 1 of 3, place 5 of 9", "rung 2 of 3".
std::string describe(const SearchProgress& progress);

// The same before what tells the trainings apart.
void add_searches(const std::map<TaskPlace, SearchProgress>& searches,
                  std::map<TaskPlace, std::string>& texts);

// "the best of train is LR.0.1: /campaign/train/LR.0.1/model.pt", of each search that has ended.
std::vector<std::string> search_results(const std::filesystem::path& campaign);

}  // namespace wflow::cli
