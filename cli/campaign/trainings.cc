// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/trainings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "engine/wire/task_event.h"
#include "specs/samples/samples.h"
#include "specs/study/blocks.h"

namespace wflow::cli {

namespace {

using engine::wire::MetricCurve;
using specs::ArrayId;

// The step's name in the study, and the number of the training within the step.
using TrainingOfSearch = std::pair<std::string, ArrayId>;

struct Reported {
  std::map<int, TaskPlace> trained;   // by rung
  std::map<int, double> stop_places;  // by the rung that it did not enter

  // Rungs after a stop belong to an earlier ranking.
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

// A trainer of a tournament in tasks: the step of the study, the trainer, and the number of the combination.
using TrainerOfTournament = std::tuple<std::string, std::int64_t, ArrayId>;

// Each part of a trainer repeats the epochs of the parts before: the last one that has reported stays.
void take_tournaments(const specs::Plan& plan, std::vector<MetricCurve>& curves) {
  const auto part_of = [&](const MetricCurve& curve) {
    return curve.array < plan.array_count() ? specs::tournament_part(study_step_of(plan, curve.array))
                                            : std::nullopt;
  };
  const auto trainer_of = [&](const specs::TournamentStep& part, ArrayId array) {
    return TrainerOfTournament{part.step, part.trainer, array - planned_of(plan, array).first_array};
  };
  std::map<TrainerOfTournament, std::int64_t> last;
  for (const MetricCurve& curve : curves)
    if (const auto part = part_of(curve); part && !part->ranks)
      last[trainer_of(*part, curve.array)] = std::max(last[trainer_of(*part, curve.array)], part->part);
  std::erase_if(curves, [&](const MetricCurve& curve) {
    const auto part = part_of(curve);
    return part && (part->ranks || part->part < last[trainer_of(*part, curve.array)]);
  });
}

}  // namespace

std::map<TaskPlace, SearchProgress> take_searches(const specs::Plan& plan, std::vector<MetricCurve>& curves) {
  take_tournaments(plan, curves);
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

engine::CampaignStatus with_one_curve_each(const specs::Plan& plan, engine::CampaignStatus status) {
  take_searches(plan, status.metrics);
  for (MetricCurve& curve : status.metrics) {
    if (curve.array >= plan.array_count()) continue;
    const specs::Step& step = study_step_of(plan, curve.array);
    if (const auto part = specs::tournament_part(step); part && curve.task.starts_with(step.name))
      curve.task.replace(0, step.name.size(), specs::tournament_trainer(part->step, part->trainer));
  }
  return status;
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
    // A step may write a file of that name for its own use.
    if (!search.is_object() || !search.contains("trainings")) continue;
    const std::string best = search.value("best", "");
    const std::filesystem::path model = (entry.path() / search.value("model", "")).lexically_normal();
    lines.push_back(fmt::format("the best of {} is {}: {}", entry.path().filename().string(),
                                best == "." ? "its only training" : best, model.string()));
  }
  std::ranges::sort(lines);
  return lines;
}

namespace {

// The number of trainings, the best ones, whose executions are requested: one request each.
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
  trainings.quality = ranking.quality == ranking.metric ? std::string() : ranking.quality;
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
  if (!trainings.quality.empty()) headings.push_back(trainings.quality);
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
    if (!trainings.quality.empty()) cells.push_back({number_text(row.quality)});
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

namespace {

namespace fs = std::filesystem;
using engine::wire::MetricPoint;
// By name, then by step.
using PointsByName = std::map<std::string, std::map<std::uint64_t, MetricPoint>>;

void add_numbers(const nlohmann::json& row, const std::string& prefix, std::uint64_t epoch,
                 std::uint64_t step, PointsByName& points) {
  for (const auto& [key, value] : row.items()) {
    if (value.is_object()) {
      add_numbers(value, prefix + key + ".", epoch, step, points);
    } else if (value.is_number() && !(prefix.empty() && (key == "epoch" || key == "step" ||
                                                         key == "seconds" || key == "member"))) {
      points[prefix + key][step] = {epoch, step, value.get<double>()};
    }
  }
}

// Without a step the epoch is the position, without an epoch the line number.
void add_line(std::string_view line, std::uint64_t number, PointsByName& points) {
  if (const auto event = engine::wire::parse_event_line(line)) {
    const auto* body = std::get_if<engine::wire::EventBody>(&*event);
    const auto* metric = body != nullptr ? std::get_if<engine::wire::Metric>(body) : nullptr;
    if (metric != nullptr) {
      points[metric->name][metric->step] = {metric->epoch, metric->step, metric->value};
      return;
    }
  }
  const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
  if (!row.is_object() || row.contains("type")) return;
  const auto count = [&](const char* key, std::uint64_t otherwise) {
    const auto found = row.find(key);
    return found != row.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : otherwise;
  };
  const std::uint64_t epoch = count("epoch", 0);
  add_numbers(row, "", epoch, count("step", epoch > 0 ? epoch : number), points);
}

std::vector<CurveRun> runs_of_campaign(const fs::path& campaign, bool several) {
  const specs::Plan plan = read_plan(campaign);
  engine::Client client(plan);
  const engine::CampaignStatus status = client.status();
  const TrainingRows trainings = training_rows(plan, client, status);
  std::vector<CurveRun> runs;
  for (const TrainingRow& row : trainings.rows) {
    CurveRun& run = runs.emplace_back();
    run.name = several ? fmt::format("{}: {}", status.name, row.task) : row.task;
    run.differs = values_text(row.parameters);
    for (const MetricCurve& curve : status.metrics) {
      if (curve.array == row.array && curve.element == row.element && !curve.points.empty())
        run.curves.push_back(curve);
    }
  }
  if (runs.empty())
    throw Error(ExitCode::usage, fmt::format("no task of {} has reported a metric yet", campaign.string()));
  return runs;
}

}  // namespace

std::vector<MetricCurve> curves_of_lines(std::string_view text) {
  PointsByName points;
  std::uint64_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    add_line(text.substr(0, end), ++number, points);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::vector<MetricCurve> curves;
  for (const auto& [name, by_step] : points) {
    MetricCurve& curve = curves.emplace_back();
    curve.name = name;
    for (const auto& [step, point] : by_step) curve.points.push_back(point);
  }
  return curves;
}

std::vector<CurveRun> curve_runs(const std::vector<std::string>& names) {
  if (names.empty()) return runs_of_campaign(find_campaign(""), false);
  std::vector<CurveRun> runs;
  for (const std::string& name : names) {
    std::error_code ignored;
    fs::path file = name;
    if (fs::is_directory(file, ignored) && !fs::exists(file / ".wflow", ignored)) file /= "metrics.jsonl";
    if (!fs::is_regular_file(file, ignored)) {
      std::ranges::move(runs_of_campaign(find_campaign(name), names.size() > 1), std::back_inserter(runs));
      continue;
    }
    CurveRun run{name, "", curves_of_lines(read_file(file))};
    if (run.curves.empty())
      throw Error(ExitCode::data,
                  fmt::format("{} has no metrics: a line each, as wflow-train's metrics.jsonl or as "
                              "events (docs/formats/events.md)",
                              file.string()));
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace wflow::cli
