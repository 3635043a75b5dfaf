// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/searches.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "specs/study/blocks.h"

namespace wflow::cli {

namespace {

using engine::wire::MetricCurve;
using specs::ArrayId;

// Its name in the study, and its number among the step's trainings.
using TrainingOfSearch = std::pair<std::string, ArrayId>;

struct Reported {
  std::map<int, TaskPlace> trained;   // by rung
  std::map<int, double> stop_places;  // by the rung that it did not enter

  // What lies behind a stop is of an earlier ranking.
  int last_rung() const {
    const auto stop = stop_places.begin();
    const auto end = stop == stop_places.end() ? trained.end() : trained.lower_bound(stop->first);
    return end == trained.begin() ? 0 : std::prev(end)->first;
  }
};

const specs::PlannedStep& planned_of(const specs::Plan& plan, ArrayId array) {
  return plan.steps()[plan.step_of(array)];
}

const specs::Step& study_step_of(const specs::Plan& plan, ArrayId array) {
  return plan.study().steps[planned_of(plan, array).study_step];
}

std::optional<TrainingOfSearch> training_of(const specs::Plan& plan, ArrayId array) {
  if (array >= plan.array_count()) return std::nullopt;
  const auto rung = specs::search_rung(study_step_of(plan, array));
  if (!rung) return std::nullopt;
  return TrainingOfSearch{rung->step, array - planned_of(plan, array).first_array};
}

bool is_stop(const MetricCurve& curve) {
  return curve.name == specs::search_stopped_metric();
}

std::map<TrainingOfSearch, Reported> reports(const specs::Plan& plan,
                                             const std::vector<MetricCurve>& curves) {
  std::map<TrainingOfSearch, Reported> all;
  for (const MetricCurve& curve : curves) {
    const auto training = training_of(plan, curve.array);
    if (!training || curve.points.empty()) continue;
    Reported& reported = all[*training];
    const int rung = specs::search_rung(study_step_of(plan, curve.array))->rung;
    const double last = curve.points.back().value;
    if (!is_stop(curve)) reported.trained[rung] = {curve.array, curve.element};
    if (is_stop(curve) && last > 0) reported.stop_places[rung] = last;
  }
  return all;
}

SearchProgress progress_of(const specs::Plan& plan, const TrainingOfSearch& training,
                           const Reported& reported) {
  const int rung = reported.last_rung();
  const ArrayId array = reported.trained.at(rung).first;
  const specs::Step& rung_step = study_step_of(plan, array);
  SearchProgress progress;
  progress.rungs = specs::rung_count(rung_step);
  progress.rung = static_cast<std::size_t>(rung);
  for (const specs::PlannedStep& step : plan.steps()) {
    const auto its_rung = specs::search_rung(plan.study().steps[step.study_step]);
    if (!its_rung || its_rung->step != training.first) continue;
    progress.arrays.push_back(step.first_array + training.second);
    if (step.name == its_rung->step) progress.training = plan.array_name(progress.arrays.back());
  }
  if (!reported.stop_places.empty())
    progress.stopped = static_cast<std::uint64_t>(reported.stop_places.begin()->second);
  const std::size_t all = planned_of(plan, array).arrays;
  progress.trainings = specs::trainings_in_rung(rung_step, all, progress.rung);
  return progress;
}

}  // namespace

std::map<TaskPlace, SearchProgress> take_searches(const specs::Plan& plan, std::vector<MetricCurve>& curves) {
  const auto all = reports(plan, curves);
  std::map<TaskPlace, SearchProgress> searches;
  for (const auto& [training, reported] : all) {
    if (const int rung = reported.last_rung(); rung > 0)
      searches[reported.trained.at(rung)] = progress_of(plan, training, reported);
  }
  std::erase_if(curves, [&](const MetricCurve& curve) {
    const auto training = training_of(plan, curve.array);
    if (!training || curve.points.empty()) return false;
    const int rung = all.at(*training).last_rung();
    return is_stop(curve) || rung == 0 || all.at(*training).trained.at(rung).first != curve.array;
  });
  return searches;
}

std::string describe(const SearchProgress& progress) {
  const std::string rung = fmt::format("rung {} of {}", progress.rung, progress.rungs);
  if (!progress.stopped) return rung;
  return fmt::format("stopped at {}, place {} of {}", rung, *progress.stopped, progress.trainings);
}

void add_searches(const std::map<TaskPlace, SearchProgress>& searches,
                  std::map<TaskPlace, std::string>& texts) {
  for (const auto& [place, progress] : searches) {
    std::string& text = texts[place];
    text = describe(progress) + (text.empty() ? "" : "; ") + text;
  }
}

std::vector<std::string> search_results(const std::filesystem::path& campaign) {
  std::vector<std::string> lines;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(campaign, ignored)) {
    const std::filesystem::path file = entry.path() / "search.json";
    if (!std::filesystem::is_regular_file(file, ignored)) continue;
    const nlohmann::json search = nlohmann::json::parse(read_file(file), nullptr, false);
    // A step may have a file of that name for itself.
    if (!search.is_object() || !search.contains("trainings")) continue;
    const std::string best = search.value("best", "");
    const std::filesystem::path model = (entry.path() / search.value("model", "")).lexically_normal();
    lines.push_back(fmt::format("the best of {} is {}: {}", entry.path().filename().string(),
                                best == "." ? "its only training" : best, model.string()));
  }
  std::ranges::sort(lines);
  return lines;
}

}  // namespace wflow::cli
