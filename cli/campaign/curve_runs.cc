// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/curve_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/training_rows.h"
#include "engine/wire/task_event.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;
using engine::wire::MetricCurve;
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

// Without a step, epochs count, and without those lines.
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
