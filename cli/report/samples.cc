// SPDX-License-Identifier: Apache-2.0
// The space of the samples: the parts that fail, and those that take long.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "cli/report/report.h"
#include "specs/samples/samples.h"

namespace wflow::cli::report {

namespace {

constexpr std::size_t kParameters = 6;
constexpr std::size_t kShownFailures = 700;
constexpr std::size_t kErrorPlots = 24;

bool has_samples(const specs::PlannedStep& step) {
  return step.sample_dependent && step.block_samples == 0 && step.bundle <= 1;
}

// The first step that runs once a sample.
const specs::PlannedStep* sampled_step(const specs::Plan& plan) {
  for (const specs::PlannedStep& step : plan.steps())
    if (has_samples(step)) return &step;
  return nullptr;
}

struct NumberColumn {
  std::string name;
  std::size_t index = 0;
};

// The columns of numbers: files of samples may also contain words.
std::vector<NumberColumn> number_columns(const specs::SampleTable& table) {
  std::vector<NumberColumn> columns;
  for (std::size_t k = 0; k < table.columns().size() && table.count() > 0; ++k) {
    try {
      if (std::isfinite(table.number(0, k))) columns.push_back({table.columns()[k], k});
    } catch (const Error&) {
      continue;
    }
    if (columns.size() == kParameters) break;
  }
  return columns;
}

struct Point {
  std::uint64_t sample = 0;
  bool failed = false;
  std::optional<double> duration_s;
};

std::vector<Point> points_of(const ReportData& data, const std::string& step) {
  std::vector<Point> points;
  std::set<std::uint64_t> failed;
  for (const engine::FailureView& failure : data.overview.failures)
    if (failure.step == step && failure.final) failed.insert(failure.element);
  const std::size_t every = failed.size() / kShownFailures + 1;
  std::size_t number = 0;
  for (const std::uint64_t sample : failed)
    if (number++ % every == 0) points.push_back({sample, true, std::nullopt});
  for (const engine::Overview::Execution& execution : data.overview.executions) {
    if (execution.step != step || execution.state != engine::ElementState::done) continue;
    points.push_back({execution.element, false, execution.usage.duration_s});
  }
  return points;
}

double value_at(const specs::SampleTable& table, std::uint64_t sample, std::size_t column) {
  try {
    return sample < table.count() ? table.number(sample, column) : NAN;
  } catch (const Error&) {
    return NAN;
  }
}

void add_outcomes(const specs::SampleTable& table, const std::vector<NumberColumn>& columns,
                  const std::vector<Point>& points, const engine::StepStatus& status, Page& page) {
  if (columns.size() < 2) return;
  for (std::size_t k = 1; k < std::min<std::size_t>(columns.size(), 3); ++k) {
    plot::Figure figure{.id = plot::figure_id(fmt::format("samples-{}-{}", columns[0].name, columns[k].name)),
                        .kind = plot::Kind::scatter,
                        .title = fmt::format("{}: done and failed", status.name)};
    figure.x = {.name = columns[0].name};
    figure.y = {.name = columns[k].name};
    plot::Series done{.name = "done"};
    plot::Series failed{.name = "failed"};
    for (const Point& point : points) {
      plot::Series& series = point.failed ? failed : done;
      series.x.push_back(value_at(table, point.sample, columns[0].index));
      series.y.push_back(value_at(table, point.sample, columns[k].index));
    }
    figure.caption = fmt::format("{} of {} done and {} of {} failed samples, chosen evenly.", done.x.size(),
                                 text::format_count(status.count(engine::ElementState::done)),
                                 failed.x.size(), text::format_count(status.failed()));
    figure.series.push_back(std::move(done));
    if (!failed.x.empty()) figure.series.push_back(std::move(failed));
    page.figure(std::move(figure));
  }
}

void add_durations(const specs::SampleTable& table, const std::vector<NumberColumn>& columns,
                   const std::vector<Point>& points, const std::string& step, Page& page) {
  for (const NumberColumn& column : columns) {
    plot::Figure figure{.id = plot::figure_id(fmt::format("duration-{}", column.name)),
                        .kind = plot::Kind::scatter,
                        .title = fmt::format("{}: duration against {}", step, column.name)};
    figure.x = {.name = column.name};
    figure.y = {.name = "duration", .unit = "s"};
    plot::Series done{.name = "done"};
    for (const Point& point : points) {
      if (!point.duration_s) continue;
      done.x.push_back(value_at(table, point.sample, column.index));
      done.y.push_back(*point.duration_s);
    }
    if (done.x.empty()) return;
    const auto [least, most] = std::ranges::minmax(done.y);
    constexpr double kWide = 10;
    if (least > 0 && most > kWide * least) figure.y.scale = plot::Scale::logarithmic;
    figure.series.push_back(std::move(done));
    page.figure(std::move(figure));
  }
}

// Plots the metrics that the samples' tasks reported, one value each.
void add_reported(const ReportData& data, const specs::PlannedStep& step, const specs::SampleTable& table,
                  const std::vector<NumberColumn>& columns, Page& page) {
  std::map<std::string, std::vector<std::pair<std::uint64_t, double>>> values;
  for (const engine::MetricCurve& curve : data.status.metrics)
    if (data.plan.steps()[data.plan.step_of(curve.array)].name == step.name && !curve.points.empty())
      values[curve.name].emplace_back(curve.element, curve.points.back().value);
  for (const auto& [name, list] : values) {
    for (const NumberColumn& column : columns) {
      if (list.size() < 3) continue;
      plot::Figure figure{.id = plot::figure_id(fmt::format("metric-{}-{}", name, column.name)),
                          .kind = plot::Kind::scatter,
                          .title = fmt::format("{} against {}", name, column.name)};
      figure.x = {.name = column.name};
      figure.y = {.name = name};
      plot::Series series{.name = name};
      constexpr std::size_t kMost = 1500;
      const std::size_t every = list.size() / kMost + 1;
      for (std::size_t i = 0; i < list.size(); i += every) {
        series.x.push_back(value_at(table, list[i].first, column.index));
        series.y.push_back(list[i].second);
      }
      figure.series.push_back(std::move(series));
      page.figure(std::move(figure));
    }
  }
}

// The median of y in each of some parts of x with equally many points: shows a trend that thousands of marks
// hide.
plot::Series medians_of(const plot::Series& points) {
  constexpr std::size_t kParts = 10;
  constexpr std::size_t kLeast = 5;  // points in a part
  plot::Series medians{.name = "median of a tenth of them"};
  std::vector<std::pair<double, double>> sorted;
  for (std::size_t i = 0; i < points.x.size(); ++i)
    if (std::isfinite(points.x[i]) && std::isfinite(points.y[i]))
      sorted.emplace_back(points.x[i], points.y[i]);
  if (sorted.size() < kParts * kLeast) return medians;
  std::ranges::sort(sorted);
  for (std::size_t part = 0; part < kParts; ++part) {
    const auto at = [&](std::size_t k) {
      return sorted.begin() + static_cast<std::ptrdiff_t>(k * sorted.size() / kParts);
    };
    const auto middle = at(part) + (at(part + 1) - at(part)) / 2;
    medians.x.push_back(middle->first);
    std::nth_element(at(part), middle, at(part + 1),
                     [](const auto& one, const auto& other) { return one.second < other.second; });
    medians.y.push_back(middle->second);
  }
  return medians;
}

plot::Figure errors_against(const Predictions& predictions, std::size_t target,
                            const specs::SampleTable& table, const NumberColumn& column) {
  const std::string& name = predictions.targets[target];
  plot::Figure figure{
      .id = plot::figure_id(fmt::format("error-{}-{}-{}", predictions.task, name, column.name)),
      .kind = plot::Kind::scatter,
      .title = fmt::format("{}: error of {} against {}", predictions.task, name, column.name)};
  figure.x = {.name = column.name};
  figure.y = {.name = "predicted - true " + name};
  figure.references.push_back({.value = 0, .horizontal = true});
  plot::Series series{.name = "test samples"};
  for (std::size_t i = 0; i < predictions.ids.size(); ++i) {
    if (!(predictions.ids[i] >= 0)) continue;
    series.x.push_back(value_at(table, static_cast<std::uint64_t>(predictions.ids[i]), column.index));
    series.y.push_back(predictions.predicted[target][i] - predictions.truths[target][i]);
  }
  figure.caption =
      fmt::format("The predicted value minus the true one, for {}.", counted(series.x.size(), "test sample"));
  plot::Series medians = medians_of(series);
  figure.series.push_back(std::move(series));
  if (!medians.x.empty()) figure.series.push_back(std::move(medians));
  return figure;
}

// Plots the errors of the networks against the parameters, the first trainings and targets first.
void add_errors(const ReportData& data, const specs::SampleTable& table,
                const std::vector<NumberColumn>& columns, Page& page) {
  std::size_t drawn = 0;
  for (const Predictions& predictions : data.predictions) {
    for (std::size_t target = 0; target < predictions.targets.size(); ++target) {
      for (const NumberColumn& column : columns) {
        if (drawn == kErrorPlots) return;
        plot::Figure figure = errors_against(predictions, target, table, column);
        if (figure.series.front().x.empty()) continue;
        page.figure(std::move(figure));
        ++drawn;
      }
    }
  }
}

}  // namespace

void write_samples(const ReportData& data, Page& page) {
  const specs::PlannedStep* step = sampled_step(data.plan);
  if (step == nullptr || !data.plan.study().samples) return;
  std::unique_ptr<const specs::SampleTable> table;
  try {
    table = specs::open_samples(data.plan.study().samples->design);
  } catch (const Error& error) {
    page.section("samples", "Samples");
    page.note(fmt::format("The table of samples can't be read: {}", error.what()));
    return;
  }
  const std::vector<NumberColumn> columns = number_columns(*table);
  if (columns.empty()) return;
  page.section("samples", "Samples");
  const std::vector<Point> points = points_of(data, step->name);
  page.paragraph(fmt::format("The study has {} of {}.", counted(table->count(), "sample"),
                             counted(table->columns().size(), "parameter")));
  for (const engine::StepStatus& status : data.status.steps)
    if (status.name == step->name) add_outcomes(*table, columns, points, status, page);
  add_durations(*table, columns, points, step->name, page);
  add_reported(data, *step, *table, columns, page);
  add_errors(data, *table, columns, page);
}

}  // namespace wflow::cli::report
