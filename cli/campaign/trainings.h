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

// The progress of a training of a search.
struct SearchProgress {
  std::string training;                // "train/LR.0.1", in whatever rung it is
  std::vector<specs::ArrayId> arrays;  // the arrays of all its rungs
  std::size_t rungs = 0;
  std::size_t rung = 0;                  // the last rung in which it trained; from 1
  std::size_t trainings = 0;             // number of trainings at the beginning of that rung
  std::optional<std::uint64_t> stopped;  // if the search stopped it: its place at the end of that rung
};

// Removes from `curves` the curves that a later rung of the same training repeats, and those that a later
// part of the same trainer of a tournament repeats. Returns the progress of each training by the place of its
// remaining curves.
std::map<TaskPlace, SearchProgress> take_searches(const specs::Plan& plan,
                                                  std::vector<engine::wire::MetricCurve>& curves);

// The status as views of a whole campaign show it: without the curves that take_searches removes, and with
// the curves of a trainer of a tournament under its name ("fit.trainer_2"), whatever part they come from.
engine::CampaignStatus with_one_curve_each(const specs::Plan& plan, engine::CampaignStatus status);

// "stopped at rung 1 of 3, place 5 of 9", "rung 2 of 3".
std::string describe(const SearchProgress& progress);

// Puts the description of the progress before the text of each training.
void add_searches(const std::map<TaskPlace, SearchProgress>& searches,
                  std::map<TaskPlace, std::string>& texts);

// "the best of train is LR.0.1: /campaign/train/LR.0.1/model.pt", for each search that has ended.
std::vector<std::string> search_results(const std::filesystem::path& campaign);

// ---- the trainings of a campaign, ranked, with what differs between them

using TrainingPlace = std::pair<specs::ArrayId, specs::Element>;
using NamedValues = std::vector<std::pair<std::string, std::string>>;

struct TrainingRow : top::RankedTraining {
  NamedValues parameters;  // those of study and sample that differ between the trainings
  std::optional<SearchProgress> search;
  std::optional<double> seconds;  // total time of its executions; empty: none has ended or is recorded
};

struct TrainingRows {
  std::string metric;   // the metric of the ranking; empty: there are no trainings
  std::string quality;  // top::Ranking::quality, if it is another one
  std::vector<TrainingRow> rows;
};

// The parameters and sample values of each task, in order, without those that are the same for all.
std::vector<NamedValues> differing_parameters(const specs::Plan& plan,
                                              const std::vector<TrainingPlace>& tasks);

// "learning_rate 0.01, seed 3" for each task.
std::map<TrainingPlace, std::string> parameter_texts(const specs::Plan& plan,
                                                     const std::vector<TrainingPlace>& tasks);
std::string values_text(const NamedValues& values);

// In a search, trainings that go on come before stopped ones, and a later rung before an earlier one.
// `client` belongs to the campaign of `plan`; `metric` as in top::ranking_of().
TrainingRows training_rows(const specs::Plan& plan, engine::Client& client,
                           const engine::CampaignStatus& status, const std::string& metric = {});

Table training_table(const TrainingRows& trainings);
nlohmann::json to_json(const TrainingRows& trainings);

// ---- trainings to compare, from campaigns and from files of metrics, for `wflow curves`

// One training. Its curves are in order of their names.
struct CurveRun {
  std::string name;     // name of the task, or path of the file
  std::string differs;  // "learning_rate 0.01, seed 3": values that differ from the other trainings
  std::vector<engine::wire::MetricCurve> curves;
};

// Reads lines of JSON: one object per epoch as wflow-train writes them (metrics.jsonl; each number except
// epoch, step, seconds and member is a metric, names of nested objects are joined by dots), or events of a
// task (docs/formats/events.md). Ignores other lines. Points are in order of step; the last value of a step
// counts.
std::vector<engine::wire::MetricCurve> curves_of_lines(std::string_view text);

// Each name is a file, a directory with metrics.jsonl, or a campaign (find_campaign()). Without names: the
// newest campaign here. The best training of a campaign comes first. Error{usage} or Error{data} if there is
// nothing to draw.
std::vector<CurveRun> curve_runs(const std::vector<std::string>& names);

}  // namespace wflow::cli
