// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kRatioPrefix = "validation_mae_ratio/";

double metric_of(const nlohmann::json& row, const std::string& metric) {
  const nlohmann::json* value = &row;
  std::vector<std::string> path = {metric};
  if (metric.starts_with(kRatioPrefix))
    path = {"validation", metric.substr(kRatioPrefix.size()), "mae_ratio"};
  for (const std::string& key : path) {
    if (!value->is_object() || !value->contains(key)) return kNoValue;
    value = &value->at(key);
  }
  return value->is_number() ? value->get<double>() : kNoValue;
}

double value_at(const SearchCurve& curve, std::int64_t epochs, bool early_stop) {
  const auto count = std::min<std::size_t>(curve.size(), static_cast<std::size_t>(epochs));
  const bool there = count == static_cast<std::size_t>(epochs) || (early_stop && count > 0);
  return there ? curve[count - 1] : kNoValue;
}

double epochs_of_rung(const SearchConfig& search, std::size_t rung) {
  return static_cast<double>(search.rungs[rung - 1]);
}

}  // namespace

SearchCurve search_curve(std::string_view metrics_jsonl, const std::string& metric) {
  SearchCurve curve;
  while (!metrics_jsonl.empty()) {
    const std::size_t end = std::min(metrics_jsonl.find('\n'), metrics_jsonl.size());
    const nlohmann::json row = nlohmann::json::parse(metrics_jsonl.substr(0, end), nullptr, false);
    if (row.is_object()) curve.push_back(metric_of(row, metric));
    metrics_jsonl.remove_prefix(std::min(end + 1, metrics_jsonl.size()));
  }
  return curve;
}

std::vector<SearchStanding> search_standings(const SearchConfig& search, std::size_t rung,
                                             const std::vector<SearchCurve>& curves, bool early_stop) {
  std::vector<SearchStanding> standings(curves.size());
  for (std::size_t i = 0; i < curves.size(); ++i) standings[i].training = i;
  std::size_t in_rung = curves.size();
  for (std::size_t r = 1; r <= rung; ++r) {
    const auto end = standings.begin() + static_cast<std::ptrdiff_t>(in_rung);
    // Ties by the place in the list, also after a rung in which the order was another.
    std::sort(standings.begin(), end, [](const auto& a, const auto& b) { return a.training < b.training; });
    for (auto s = standings.begin(); s != end; ++s) {
      const double value = value_at(curves[s->training], search.rungs[r - 1], early_stop);
      *s = {s->training, r, 0, in_rung, value};
    }
    std::stable_sort(standings.begin(), end, [](const auto& a, const auto& b) {
      const auto badness = [](double value) {
        return std::isfinite(value) ? value : std::numeric_limits<double>::infinity();
      };
      return badness(a.value) < badness(b.value);
    });
    for (std::size_t place = 0; place < in_rung; ++place) standings[place].place = place + 1;
    in_rung = trainings_in_rung(search, curves.size(), r + 1);
  }
  return standings;
}

std::vector<SearchCurve> read_search_curves(const SearchConfig& search) {
  std::vector<SearchCurve> curves;
  for (const std::string& training : search.trainings) {
    const fs::path file = fs::path(search.folder) / training / "metrics.jsonl";
    std::error_code ignored;
    const bool there = fs::exists(file, ignored);
    curves.push_back(there ? search_curve(read_file(file), search.metric) : SearchCurve());
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

void write_search(const SearchConfig& search, bool early_stop) {
  const std::vector<SearchCurve> curves = read_search_curves(search);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SearchStanding& standing : search_standings(search, search.rungs.size(), curves, early_stop)) {
    list.push_back({{"training", search.trainings[standing.training]},
                    {"rung", standing.rung},
                    {"place", standing.place},
                    {"of", standing.of},
                    {"epochs", curves[standing.training].size()},
                    {"value", std::isfinite(standing.value) ? nlohmann::ordered_json(standing.value)
                                                            : nlohmann::ordered_json()}});
  }
  const std::string best = list.front()["training"];
  nlohmann::ordered_json json = {{"wflow_format", 1},
                                 {"metric", search.metric},
                                 {"rungs", search.rungs},
                                 {"keep", search.keep},
                                 {"best", best},
                                 {"model", best + "/model.pt"},
                                 {"trainings", std::move(list)}};
  write_file_durably(fs::path(search.folder) / "search.json", json.dump(2) + "\n");
}

}  // namespace wflow::trainer
