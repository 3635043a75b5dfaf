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
  int rung = 0;  // the last one that has reported anything but the stop
  ArrayId array = 0;
  specs::Element element = 0;
  std::uint64_t epoch = 0;
  std::optional<engine::wire::MetricPoint> stop;
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
    const engine::wire::MetricPoint& last = curve.points.back();
    if (is_stop(curve)) {
      if (!reported.stop || reported.stop->epoch < last.epoch) reported.stop = last;
      continue;
    }
    reported.epoch = std::max(reported.epoch, last.epoch);
    const int rung = specs::search_rung(study_step_of(plan, curve.array))->rung;
    if (rung <= reported.rung) continue;
    reported.rung = rung;
    reported.array = curve.array;
    reported.element = curve.element;
  }
  return all;
}

SearchProgress progress_of(const specs::Plan& plan, const TrainingOfSearch& training,
                           const Reported& reported) {
  const specs::Step& rung_step = study_step_of(plan, reported.array);
  SearchProgress progress;
  progress.rungs = specs::rung_count(rung_step);
  progress.rung = static_cast<std::size_t>(reported.rung);
  for (const specs::PlannedStep& step : plan.steps()) {
    const auto rung = specs::search_rung(plan.study().steps[step.study_step]);
    if (!rung || rung->step != training.first) continue;
    progress.arrays.push_back(step.first_array + training.second);
    if (step.name == rung->step) progress.training = plan.array_name(progress.arrays.back());
  }
  // One that was stopped and then goes on all the same, with other data say, is not.
  if (reported.stop && reported.stop->epoch >= reported.epoch)
    progress.stopped = static_cast<std::uint64_t>(reported.stop->value);
  const std::size_t all = planned_of(plan, reported.array).arrays;
  progress.trainings = specs::trainings_in_rung(rung_step, all, progress.rung);
  return progress;
}

}  // namespace

std::map<TaskPlace, SearchProgress> take_searches(const specs::Plan& plan, std::vector<MetricCurve>& curves) {
  const auto all = reports(plan, curves);
  std::map<TaskPlace, SearchProgress> searches;
  for (const auto& [training, reported] : all) {
    if (reported.rung > 0)
      searches[{reported.array, reported.element}] = progress_of(plan, training, reported);
  }
  std::erase_if(curves, [&](const MetricCurve& curve) {
    const auto training = training_of(plan, curve.array);
    if (!training || curve.points.empty()) return false;
    return is_stop(curve) || all.at(*training).array != curve.array;
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
    lines.push_back(fmt::format("the best of {} is {}: {}", entry.path().filename().string(),
                                search.value("best", ""),
                                (entry.path() / search.value("model", "")).string()));
  }
  std::ranges::sort(lines);
  return lines;
}

}  // namespace wflow::cli
