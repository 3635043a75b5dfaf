// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/training_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "specs/samples/samples.h"

namespace wflow::cli {

namespace {

// Executions of so many trainings are asked for, the best ones: one question each.
constexpr std::size_t kTimedTrainings = 100;

NamedValues all_parameters(const specs::Plan& plan, const specs::SampleTable* samples,
                           const TrainingPlace& task) {
  const auto& [array, element] = task;
  NamedValues values = plan.parameters(array);
  if (samples == nullptr || !plan.steps()[plan.step_of(array)].sample_dependent) return values;
  if (plan.steps()[plan.step_of(array)].block_samples > 0) return values;
  for (std::size_t column = 0; column < samples->columns().size(); ++column)
    values.emplace_back(samples->columns()[column], samples->text(element, column));
  return values;
}

std::string number_text(double value) {
  return std::isnan(value) ? std::string("-") : fmt::format("{:.4g}", value);
}

nlohmann::json number_json(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

}  // namespace

std::vector<NamedValues> differing_parameters(const specs::Plan& plan,
                                              const std::vector<TrainingPlace>& tasks) {
  std::unique_ptr<const specs::SampleTable> samples;
  if (plan.study().samples) samples = specs::open_samples(plan.study().samples->design);
  std::vector<NamedValues> all;
  std::map<std::string, std::set<std::string>> seen;
  for (const TrainingPlace& task : tasks) {
    all.push_back(task.first < plan.array_count() ? all_parameters(plan, samples.get(), task)
                                                  : NamedValues());
    for (const auto& [name, value] : all.back()) seen[name].insert(value);
  }
  for (NamedValues& values : all)
    std::erase_if(values, [&](const auto& value) { return seen.at(value.first).size() < 2; });
  return all;
}

std::string values_text(const NamedValues& values) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : values) parts.push_back(name + " " + value);
  return text::join(parts, ", ");
}

std::map<TrainingPlace, std::string> parameter_texts(const specs::Plan& plan,
                                                     const std::vector<TrainingPlace>& tasks) {
  const std::vector<NamedValues> all = differing_parameters(plan, tasks);
  std::map<TrainingPlace, std::string> texts;
  for (std::size_t i = 0; i < tasks.size(); ++i) texts[tasks[i]] = values_text(all[i]);
  return texts;
}

TrainingRows training_rows(const specs::Plan& plan, engine::Client& client,
                           const engine::CampaignStatus& status, const std::string& metric) {
  TrainingRows trainings;
  std::vector<engine::MetricCurve> curves = status.metrics;
  const auto searches = take_searches(plan, curves);
  top::Ranking ranking = top::ranking_of(curves, metric);
  std::ranges::stable_sort(ranking.trainings, {}, [&](const top::RankedTraining& training) {
    const auto search = searches.find({training.array, training.element});
    const bool stopped = search != searches.end() && search->second.stopped;
    if (!stopped) return std::pair<std::size_t, std::uint64_t>();
    return std::pair(search->second.rungs - search->second.rung + 1, *search->second.stopped);
  });
  trainings.metric = ranking.metric;
  std::vector<TrainingPlace> places;
  for (const top::RankedTraining& training : ranking.trainings)
    places.emplace_back(training.array, training.element);
  std::vector<NamedValues> parameters = differing_parameters(plan, places);
  for (std::size_t i = 0; i < ranking.trainings.size(); ++i) {
    TrainingRow row{ranking.trainings[i], std::move(parameters[i]), std::nullopt, std::nullopt};
    std::vector<specs::ArrayId> arrays = {row.array};
    if (const auto search = searches.find({row.array, row.element}); search != searches.end()) {
      row.search = search->second;
      row.task = row.search->training;
      arrays = row.search->arrays;
    }
    if (i >= kTimedTrainings) arrays.clear();
    for (const specs::ArrayId array : arrays) {
      for (const auto& used : client.usage({array, row.element, row.element, 0}).used)
        row.seconds = row.seconds.value_or(0) + used.usage.duration_s;
    }
    trainings.rows.push_back(std::move(row));
  }
  return trainings;
}

Table training_table(const TrainingRows& trainings) {
  std::vector<std::string> headings = {"rank",   "training", trainings.metric, "best", "at epoch",
                                       "epochs", "time"};
  const bool searches =
      std::ranges::any_of(trainings.rows, [](const auto& row) { return row.search.has_value(); });
  if (searches) headings.emplace_back("search");
  std::vector<std::string> names;
  for (const TrainingRow& row : trainings.rows) {
    for (const auto& [name, value] : row.parameters) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  headings.insert(headings.end(), names.begin(), names.end());
  Table table(headings);
  std::size_t rank = 0;
  for (const TrainingRow& row : trainings.rows) {
    const bool ranked = !std::isnan(row.last);
    std::vector<Cell> cells = {{ranked ? std::to_string(++rank) : "-"},
                               {row.task},
                               {number_text(row.last)},
                               {number_text(row.best)},
                               {std::isnan(row.best) ? "-" : std::to_string(row.best_epoch)},
                               {std::to_string(row.epoch)},
                               {row.seconds ? text::format_duration(*row.seconds) : "-"}};
    if (searches) cells.push_back({row.search ? describe(*row.search) : ""});
    for (const std::string& name : names) {
      const auto found = std::ranges::find(row.parameters, name, &std::pair<std::string, std::string>::first);
      cells.push_back({found == row.parameters.end() ? "" : found->second});
    }
    table.add(std::move(cells));
  }
  return table;
}

nlohmann::json to_json(const TrainingRows& trainings) {
  nlohmann::json list = nlohmann::json::array();
  for (const TrainingRow& row : trainings.rows) {
    nlohmann::json parameters = nlohmann::json::object();
    for (const auto& [name, value] : row.parameters) parameters[name] = value;
    nlohmann::json search;
    if (row.search) {
      search = {{"rung", row.search->rung}, {"rungs", row.search->rungs}, {"of", row.search->trainings}};
      search["stopped_at_place"] =
          row.search->stopped ? nlohmann::json(*row.search->stopped) : nlohmann::json();
    }
    list.push_back({{"task", row.task},
                    {"metric", trainings.metric},
                    {"last", number_json(row.last)},
                    {"best", number_json(row.best)},
                    {"best_epoch", row.best_epoch},
                    {"epoch", row.epoch},
                    {"seconds", row.seconds ? nlohmann::json(*row.seconds) : nlohmann::json()},
                    {"search", std::move(search)},
                    {"parameters", std::move(parameters)}});
  }
  return list;
}

}  // namespace wflow::cli
