// SPDX-License-Identifier: Apache-2.0
// Losses and errors of trainings as small curves.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "cli/top/data.h"
#include "cli/view/status.h"

namespace wflow::cli {

namespace {

using engine::MetricCurve;
using engine::MetricPoint;

constexpr std::size_t kShownCurves = 8;  // of one name
constexpr int kLeastLabel = 16, kGreatestCurve = 60, kLeastCurve = 8;

struct CurveRow {
  std::string task, name;
  std::vector<MetricPoint> points;
  std::string targets;  // the last value of each
};

int curve_rank(const std::string& name) {
  return name == "train_loss" ? 0 : name == "validation_loss" ? 1 : 2;
}

// The losses of all tasks, then their errors and scores over all targets.
std::vector<CurveRow> curve_rows(const engine::CampaignStatus& status) {
  std::map<std::pair<specs::ArrayId, specs::Element>, std::vector<const MetricCurve*>> tasks;
  std::vector<CurveRow> rows;
  for (const MetricCurve& curve : status.metrics) {
    if (curve.points.empty()) continue;
    tasks[{curve.array, curve.element}].push_back(&curve);
    if (curve_rank(curve.name) < 2) rows.push_back({curve.task, curve.name, curve.points, ""});
  }
  for (const auto& [task, curves] : tasks) {
    for (top::Quality& quality : top::qualities_of(curves)) {
      std::string targets = top::targets_text(quality);
      rows.push_back({curves.front()->task, quality.name, std::move(quality.mean), std::move(targets)});
    }
  }
  std::ranges::stable_sort(rows, {}, [](const CurveRow& row) { return curve_rank(row.name); });
  return rows;
}

// Several tasks have a curve of this name: they stand below it.
bool is_shared(const std::vector<CurveRow>& rows, const std::string& name) {
  return std::ranges::count(rows, name, &CurveRow::name) > 1;
}

std::string curve_line(const CurveRow& row, const std::string& label, int label_width,
                       const Terminal& terminal) {
  std::vector<double> values;
  for (const MetricPoint& point : row.points) values.push_back(point.value);
  std::string line =
      fmt::format("  {} ", fitted(shortened_name(terminal, label, label_width), label_width, true));
  const std::string targets = row.targets.empty() ? "" : "  " + row.targets;
  const auto columns_beside = [&](int others) {
    return std::clamp(terminal.width - label_width - others, kLeastCurve, kGreatestCurve);
  };
  if (values.size() == 1) return line + fmt::format("{:.4g}{}", values.back(), targets);
  // A curve that is too long for the line states its beginning.
  int columns = columns_beside(15);
  std::string begin;
  if (values.size() > static_cast<std::size_t>(columns)) {
    columns = columns_beside(32);
    const MetricPoint& first = row.points[values.size() - static_cast<std::size_t>(columns)];
    begin = first.epoch > 0 ? fmt::format("  from epoch {}", first.epoch)
                            : fmt::format("  from step {}", first.step);
  }
  return line +
         fmt::format("{}  {:.4g}{}{}", sparkline(terminal, values, columns), values.back(), begin, targets);
}

}  // namespace

std::vector<std::string> curve_lines(const engine::CampaignStatus& status, const Terminal& terminal) {
  const std::vector<CurveRow> rows = curve_rows(status);
  int label_width = kLeastLabel;
  const auto label_of = [&](const CurveRow& row) {
    return is_shared(rows, row.name) ? "  " + row.task : row.name;
  };
  for (const CurveRow& row : rows) label_width = std::max(label_width, columns_of(label_of(row)));
  if (terminal.interactive) label_width = std::min(label_width, std::max(kLeastLabel, terminal.width / 3));
  std::map<std::string, std::size_t> shown;
  std::vector<std::string> lines;
  for (const CurveRow& row : rows) {
    const std::size_t number = ++shown[row.name];
    if (number == 1 && is_shared(rows, row.name)) lines.push_back("  " + row.name);
    if (number > kShownCurves + 1) continue;
    if (number == kShownCurves + 1) {
      const auto count = static_cast<std::size_t>(std::ranges::count(rows, row.name, &CurveRow::name));
      lines.push_back(fmt::format("    and {} more", count - kShownCurves));
      continue;
    }
    lines.push_back(curve_line(row, label_of(row), label_width, terminal));
  }
  return lines;
}

}  // namespace wflow::cli
