// SPDX-License-Identifier: Apache-2.0
// The trainings of a campaign: their progress in a search, their ranking, their curves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/top/data.h"
#include "cli/view/terminal.h"
#include "engine/query/client.h"
#include "engine/wire/answers.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

// ---- the rungs of a search (docs/train.md, Searching) are steps; users see one training for all its rungs

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

// ---- the trainings of a campaign, ranked, with what differs between them

using TrainingPlace = std::pair<specs::ArrayId, specs::Element>;
using NamedValues = std::vector<std::pair<std::string, std::string>>;

struct TrainingRow : top::RankedTraining {
  NamedValues parameters;  // of the study and of its sample; those that differ between the trainings
  std::optional<SearchProgress> search;
  std::optional<double> seconds;  // that its executions took; nothing: none has ended, or has a record
};

struct TrainingRows {
  std::string metric;  // that they are ranked by; empty: there are no trainings
  std::vector<TrainingRow> rows;
};

// Of each of the tasks, in their order: parameters and values of its sample whose values are not the same for
// all.
std::vector<NamedValues> differing_parameters(const specs::Plan& plan,
                                              const std::vector<TrainingPlace>& tasks);

// "learning_rate 0.01, seed 3" of each.
std::map<TrainingPlace, std::string> parameter_texts(const specs::Plan& plan,
                                                     const std::vector<TrainingPlace>& tasks);
std::string values_text(const NamedValues& values);

// Of a search, who trains on comes before who was stopped, and a later rung before an earlier one. `client`
// answers for the campaign of `plan`; `metric` as in top::ranking_of().
TrainingRows training_rows(const specs::Plan& plan, engine::Client& client,
                           const engine::CampaignStatus& status, const std::string& metric = {});

Table training_table(const TrainingRows& trainings);
nlohmann::json to_json(const TrainingRows& trainings);

// ---- trainings to compare, from campaigns and from files of metrics, for `wflow curves`

// One training. Its curves are in order of their names.
struct CurveRun {
  std::string name;  // of the task, or the file's path
  std::string
      differs;  // "learning_rate 0.01, seed 3": what it does not share with the campaign's other trainings
  std::vector<engine::wire::MetricCurve> curves;
};

// Lines of JSON: objects of an epoch each as wflow-train writes them (metrics.jsonl; each number but epoch,
// step, seconds and member is a metric, names of objects within are joined by dots), or events of a task
// (docs/formats/events.md). What is neither is left out. In order of step, the last value of a step counts.
std::vector<engine::wire::MetricCurve> curves_of_lines(std::string_view text);

// Each name is a file, a directory with metrics.jsonl, or a campaign (find_campaign()); none: the newest
// campaign here. The best training of a campaign first. Error{usage} or Error{data} with a sentence where
// there is nothing to draw.
std::vector<CurveRun> curve_runs(const std::vector<std::string>& names);

}  // namespace wflow::cli
