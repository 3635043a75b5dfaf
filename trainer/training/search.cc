// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "trainer/model/model_export.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

double number_in(const nlohmann::json& object, const std::string& key) {
  if (!object.is_object() || !object.contains(key)) return kNoValue;
  const nlohmann::json& value = object.at(key);
  return value.is_number() ? value.get<double>() : kNoValue;
}

// In a line of metrics.jsonl, as metric_of() in an evaluation.
double metric_in(const nlohmann::json& row, const MetricName& metric) {
  if (metric.is_loss()) return number_in(row, "validation_loss");
  double sum = 0;
  double count = 0;
  const nlohmann::json targets = row.value("validation", nlohmann::json::object());
  for (const auto& [target, values] : targets.items()) {
    const double value =
        metric.target.empty() || target == metric.target ? number_in(values, metric.key()) : kNoValue;
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count > 0 ? sum / count : kNoValue;
}

// `metric` is that of a search, or a metric of the user.
std::optional<MetricName> named(const std::string& metric) {
  if (metric == kTrainLoss) return std::nullopt;
  const std::vector<std::string> own = {metric.substr(0, metric.find('/'))};
  return search_metric(metric, own);
}

double metric_in(const nlohmann::json& row, const std::string& metric) {
  const auto name = named(metric);
  return name ? metric_in(row, *name) : number_in(row, metric);
}

bool larger_is_better(const SearchConfig& search) {
  const auto metric = named(search.metric);
  return metric && metric->larger_is_better();
}

double value_at(const SearchCurve& curve, std::int64_t epochs) {
  const auto count = std::min<std::size_t>(curve.values.size(), static_cast<std::size_t>(epochs));
  const bool there = count == static_cast<std::size_t>(epochs) || curve.ended_early;
  return there && count > 0 ? curve.values[count - 1] : kNoValue;
}

// The same value as value_of() for a row of the history.
double progress_of(const nlohmann::json& row, const MetricName& metric) {
  if (metric.is_loss() && !row.contains("validation_loss")) return number_in(row, std::string(kTrainLoss));
  return metric_in(row, metric);
}

bool is_of_step(const fs::path& checkpoint) {
  return checkpoint.filename().string().starts_with("step-");
}

bool has_checkpoints(const fs::path& directory) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (is_of_step(entry.path()) && entry.path().extension() == ".wfck") return true;
  }
  return false;
}

double epochs_of_rung(const SearchConfig& search, std::size_t rung) {
  return static_cast<double>(search.rungs[rung - 1]);
}

}  // namespace

SearchCurve search_curve(std::string_view metrics_jsonl, const std::string& metric, EarlyStop early_stop) {
  SearchCurve curve;
  Progress progress(early_stop);
  while (!metrics_jsonl.empty()) {
    const std::size_t end = std::min(metrics_jsonl.find('\n'), metrics_jsonl.size());
    const nlohmann::json row = nlohmann::json::parse(metrics_jsonl.substr(0, end), nullptr, false);
    metrics_jsonl.remove_prefix(std::min(end + 1, metrics_jsonl.size()));
    if (!row.is_object()) continue;
    curve.values.push_back(metric_in(row, metric));
    progress.add(progress_of(row, early_stop.metric));
  }
  curve.ended_early = progress.has_stopped();
  return curve;
}

std::vector<SearchStanding> search_standings(const SearchConfig& search, std::size_t rung,
                                             const std::vector<SearchCurve>& curves) {
  std::vector<SearchStanding> standings(curves.size());
  for (std::size_t i = 0; i < curves.size(); ++i) standings[i].training = i;
  const bool larger = larger_is_better(search);
  std::size_t in_rung = curves.size();
  for (std::size_t r = 1; r <= rung; ++r) {
    const auto end = standings.begin() + static_cast<std::ptrdiff_t>(in_rung);
    // Ties keep the order of the list, also after a rung with another order.
    std::sort(standings.begin(), end, [](const auto& a, const auto& b) { return a.training < b.training; });
    for (auto s = standings.begin(); s != end; ++s) {
      const double value = value_at(curves[s->training], search.rungs[r - 1]);
      *s = {s->training, r, 0, in_rung, value};
    }
    std::stable_sort(standings.begin(), end,
                     [larger](const auto& a, const auto& b) { return is_better(a.value, b.value, larger); });
    for (std::size_t place = 0; place < in_rung; ++place) standings[place].place = place + 1;
    in_rung = trainings_in_rung(search, curves.size(), r + 1);
  }
  return standings;
}

// The file of a rung begins with the epochs of the rungs before: the last file has all.
std::vector<SearchCurve> read_search_curves(const SearchConfig& search, std::size_t rungs,
                                            EarlyStop early_stop) {
  std::vector<SearchCurve> curves(search.trainings.size());
  for (std::size_t i = 0; i < curves.size(); ++i) {
    for (std::size_t rung = rungs; rung > 0; --rung) {
      const fs::path file = fs::path(search.folders.at(rung - 1)) / search.trainings[i] / "metrics.jsonl";
      std::error_code ignored;
      if (!fs::exists(file, ignored)) continue;
      curves[i] = search_curve(read_file(file), search.metric, early_stop);
      break;
    }
  }
  return curves;
}

std::string describe(const SearchConfig& search, const SearchStanding& standing) {
  const double epochs = epochs_of_rung(search, standing.rung);
  const std::string value = std::isfinite(standing.value)
                                ? fmt::format("{} {:.4g}", search.metric, standing.value)
                                : fmt::format("no {}", search.metric);
  return fmt::format("place {} of {} at {:g} epoch{}, {}", standing.place, standing.of, epochs,
                     epochs == 1 ? "" : "s", value);
}

void take_over_checkpoints(const SearchConfig& search, const fs::path& checkpoints) {
  const auto own = static_cast<std::size_t>(search.training);
  take_over_checkpoints(
      fs::path(search.folders.at(search.folders.size() - 2)) / search.trainings.at(own) / "checkpoints",
      checkpoints);
}

void take_over_checkpoints(const fs::path& before, const fs::path& checkpoints) {
  std::error_code ignored;
  if (fs::equivalent(before, checkpoints, ignored) || has_checkpoints(checkpoints)) return;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(before, ignored)) {
    if (entry.path().extension() == ".wfck") files.push_back(entry.path());
  }
  // The best and the newest first: a training that is killed here continues from the newest that was copied.
  std::ranges::sort(files, [](const fs::path& a, const fs::path& b) {
    const bool step_a = is_of_step(a);
    return step_a != is_of_step(b) ? !step_a : a > b;
  });
  make_directories(checkpoints);
  for (const fs::path& file : files) {
    const fs::path target = checkpoints / file.filename();
    if (fs::exists(target, ignored)) continue;
    std::error_code failed;
    fs::create_hard_link(file, target, failed);
    if (failed) write_file_durably(target, read_file(file));
  }
}

namespace {

// In the last rung only trainings with results count: if one failed while it wrote them, another is the best.
std::vector<SearchCurve> finished_curves(const SearchConfig& search, EarlyStop early_stop) {
  std::vector<SearchCurve> curves = read_search_curves(search, search.rungs.size(), early_stop);
  const auto before_last = static_cast<std::size_t>(search.rungs[search.rungs.size() - 2]);
  for (std::size_t i = 0; i < curves.size(); ++i) {
    std::error_code ignored;
    if (fs::exists(fs::path(search.folders.back()) / search.trainings[i] / "result.json", ignored)) continue;
    std::vector<double>& values = curves[i].values;
    values.resize(std::min(values.size(), before_last));
  }
  return curves;
}

std::string search_json(const SearchConfig& search, EarlyStop early_stop) {
  const std::vector<SearchCurve> curves = finished_curves(search, early_stop);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SearchStanding& standing : search_standings(search, search.rungs.size(), curves)) {
    const bool known = std::isfinite(standing.value);
    list.push_back({{"training", search.trainings[standing.training]},
                    {"rung", standing.rung},
                    {"place", standing.place},
                    {"of", standing.of},
                    {"epochs", curves[standing.training].values.size()},
                    {"value", known ? nlohmann::ordered_json(standing.value) : nlohmann::ordered_json()}});
  }
  const std::string best = list.front()["training"];
  const nlohmann::ordered_json json = {{"wflow_format", 1},
                                       {"metric", search.metric},
                                       {"rungs", search.rungs},
                                       {"keep", search.keep},
                                       {"best", best},
                                       {"model", best + "/model.pt"},
                                       {"trainings", std::move(list)}};
  return json.dump(2) + "\n";
}

}  // namespace

// Trainings of the last rung may end at the same time: the last one to write has read all results.
void write_search(const SearchConfig& search, EarlyStop early_stop) {
  const fs::path file = fs::path(search.folders.back()) / "search.json";
  std::string written;
  for (std::string now = search_json(search, early_stop); now != written;
       now = search_json(search, early_stop)) {
    write_file_durably(file, now);
    written = std::move(now);
  }
}

}  // namespace wflow::trainer
