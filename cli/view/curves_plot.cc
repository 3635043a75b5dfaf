// SPDX-License-Identifier: Apache-2.0
#include "cli/view/curves_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "cli/top/chart.h"
#include "cli/top/data.h"

namespace wflow::cli {

namespace {

using engine::wire::MetricCurve;
using top::Ink;

// Distinct colours; after the last one they repeat.
constexpr std::array<Ink, 5> kInksOfCurves = {Ink::accent, Ink::second, Ink::good, Ink::bad, Ink::bold};
constexpr std::string_view kSigns = "*o+x#@%&=~";

std::vector<std::string> default_metrics(const std::vector<CurveRun>& runs) {
  if (runs.size() == 1) {
    std::vector<std::string> losses;
    for (const MetricCurve& curve : runs[0].curves) {
      if (curve.name.ends_with("loss")) losses.push_back(curve.name);
    }
    if (!losses.empty()) return losses;
  }
  std::vector<MetricCurve> all;
  for (const CurveRun& run : runs) std::ranges::copy(run.curves, std::back_inserter(all));
  return {top::ranking_of(all).metric};
}

std::set<std::string> names_of(const std::vector<CurveRun>& runs) {
  std::set<std::string> names;
  for (const CurveRun& run : runs) {
    for (const MetricCurve& curve : run.curves) names.insert(curve.name);
  }
  return names;
}

CurveLine line_of(const CurveRun& run, const MetricCurve& curve, bool by_epoch,
                  const CurvesOptions& options) {
  CurveLine line;
  line.label = run.name;
  line.differs = run.differs;
  line.metric = curve.name;
  line.last = curve.points.back().value;
  for (const auto& point : curve.points) {
    line.x.push_back(static_cast<double>(by_epoch ? point.epoch : point.step));
    line.y.push_back(point.value);
  }
  if (options.smooth > 0) line.y = smoothed(line.y, options.smooth);
  return line;
}

Style style_of(Ink ink) {
  switch (ink) {
    case Ink::accent:
      return Style::cyan;
    case Ink::second:
      return Style::yellow;
    case Ink::good:
      return Style::green;
    case Ink::bad:
      return Style::red;
    case Ink::bold:
      return Style::bold;
    case Ink::dim:
      return Style::dim;
    default:
      return Style::plain;
  }
}

// One row of the grid with its colours, without blanks at its end.
std::string coloured(const top::Grid& grid, int row, const Terminal& terminal) {
  if (!terminal.colour) return grid.line(row);
  int end = grid.width();
  while (end > 0 && grid.at(row, end - 1).text == " ") --end;
  std::string line;
  for (int column = 0; column < end;) {
    const Ink ink = grid.at(row, column).ink;
    std::string part;
    while (column < end && grid.at(row, column).ink == ink) part += grid.at(row, column++).text;
    line += styled(terminal, style_of(ink), part);
  }
  return line;
}

}  // namespace

std::vector<double> smoothed(const std::vector<double>& values, double weight) {
  std::vector<double> result;
  double mean = 0;
  double left = 1;  // weight to the power of n
  for (const double value : values) {
    if (!std::isfinite(value)) {
      result.push_back(value);
      continue;
    }
    mean = weight * mean + (1 - weight) * value;
    left *= weight;
    result.push_back(mean / (1 - left));
  }
  return result;
}

CurveSet curve_set(const std::vector<CurveRun>& runs, const CurvesOptions& options) {
  const std::vector<std::string> metrics = options.metrics.empty() ? default_metrics(runs) : options.metrics;
  const std::set<std::string> names = names_of(runs);
  std::vector<const MetricCurve*> chosen;
  std::vector<const CurveRun*> of;
  for (const std::string& metric : metrics) {
    for (const CurveRun& run : runs) {
      const auto found = std::ranges::find(run.curves, metric, &MetricCurve::name);
      if (found == run.curves.end() || found->points.empty()) continue;
      chosen.push_back(&*found);
      of.push_back(&run);
    }
    if (names.contains(metric)) continue;
    const std::vector<std::string> known(names.begin(), names.end());
    throw Error(ExitCode::usage, fmt::format("no training has reported '{}'{}; there are: {}", metric,
                                             text::suggestion(metric, known), text::join(known, ", ")));
  }
  const bool by_epoch = !options.by_step && std::ranges::any_of(chosen, [](const MetricCurve* curve) {
    return curve->points.back().epoch > 0;
  });
  CurveSet set;
  set.x_name = by_epoch ? "epoch" : "step";
  if (metrics.size() == 1) set.y_name = metrics[0];
  for (std::size_t i = 0; i < chosen.size(); ++i)
    set.lines.push_back(line_of(*of[i], *chosen[i], by_epoch, options));
  for (const std::string& name : names) {
    if (std::ranges::find(metrics, name) == metrics.end()) set.other_metrics.push_back(name);
  }
  return set;
}

std::vector<std::string> plotted_lines(const CurveSet& set, const CurvesOptions& options,
                                       const Terminal& terminal) {
  constexpr int kGreatest = 160;
  const bool signs = !terminal.colour && set.lines.size() > 1;
  const auto charset = terminal.unicode && !signs ? top::Charset::utf8 : top::Charset::ascii;
  const int width = std::clamp(terminal.interactive ? terminal.width - 1 : terminal.width, 20, kGreatest);
  const int height =
      std::clamp(terminal.height - 4 - static_cast<int>(std::min<std::size_t>(set.lines.size(), 12)), 8, 40);
  std::vector<top::PlottedCurve> curves;
  for (std::size_t i = 0; i < set.lines.size(); ++i) {
    top::PlottedCurve& curve = curves.emplace_back();
    curve.ink = kInksOfCurves[i % kInksOfCurves.size()];
    curve.sign = kSigns[i % kSigns.size()];
    for (std::size_t k = 0; k < set.lines[i].x.size(); ++k) {
      if (options.logarithmic && set.lines[i].y[k] <= 0) continue;
      curve.points.push_back({set.lines[i].x[k], set.lines[i].y[k]});
    }
  }
  top::Grid grid(width, height, charset);
  top::put_plot(grid, 0, 0, width, height, curves, options.logarithmic);
  std::vector<std::string> lines = {
      fmt::format("{} by {}{}", set.y_name.empty() ? "metrics" : set.y_name, set.x_name,
                  options.smooth > 0 ? fmt::format(", smoothed by {:g}", options.smooth) : "")};
  for (int row = 0; row < height; ++row) lines.push_back(coloured(grid, row, terminal));
  for (std::size_t i = 0; i < set.lines.size(); ++i) {
    const CurveLine& line = set.lines[i];
    const std::string sign =
        charset == top::Charset::ascii ? std::string(1, curves[i].sign) : std::string("─");
    std::string text = "  " + styled(terminal, style_of(curves[i].ink), sign + " " + line.label);
    if (set.y_name.empty()) text += " " + line.metric;
    text += fmt::format("  {:.4g}", line.last);
    if (!line.differs.empty()) text += "  " + line.differs;
    lines.push_back(terminal.interactive ? fitted(text, terminal.width - 1, false) : text);
  }
  return lines;
}

plot::Figure figure_of(const CurveSet& set, const CurvesOptions& options, const std::string& title) {
  plot::Figure figure;
  figure.id = "curves";
  figure.kind = plot::Kind::lines;
  figure.title = title;
  if (options.smooth > 0) figure.caption = fmt::format("Moving averages of weight {:g}.", options.smooth);
  figure.x.name = set.x_name;
  figure.y.name = set.y_name.empty() ? "metrics" : set.y_name;
  plot::Bounds bounds;
  for (const CurveLine& line : set.lines) {
    plot::Series& series = figure.series.emplace_back();
    series.name = line.label + (set.y_name.empty() ? " " + line.metric : "") +
                  (line.differs.empty() ? "" : " (" + line.differs + ")");
    series.x = line.x;
    series.y = line.y;
    series.marks = line.x.size() == 1;
    for (const double value : line.y) bounds.add(value);
  }
  if (options.logarithmic || bounds.spans_decades()) figure.y.scale = plot::Scale::logarithmic;
  return figure;
}

}  // namespace wflow::cli
