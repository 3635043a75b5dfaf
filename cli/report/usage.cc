// SPDX-License-Identifier: Apache-2.0
// The durations and memory of each step's tasks, as histograms.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "cli/report/report.h"

namespace wflow::cli::report {

namespace {

constexpr std::size_t kSteps = 8;
constexpr std::uint64_t kFewExecutions = 5;  // up to this number, a table says more than a histogram
constexpr std::size_t kMostBins = 40;
constexpr double kWide = 8;  // from this ratio of the greatest to the least value on, the axis is logarithmic

struct Bins {
  std::vector<double> edges, counts;
  bool logarithmic = false;
};

// Joins the sketch's buckets, each 2 % wide; a bucket across an edge is shared.
Bins bins_of(const engine::QuantileSketch& sketch) {
  Bins bins;
  if (sketch.buckets().empty()) return bins;
  const double low = engine::QuantileSketch::bound(sketch.buckets().begin()->first - 1);
  const double high = engine::QuantileSketch::bound(sketch.buckets().rbegin()->first);
  bins.logarithmic = high > kWide * low;
  const auto wanted = static_cast<std::size_t>(std::sqrt(static_cast<double>(sketch.count())) * 2);
  const std::size_t count = std::clamp<std::size_t>(wanted, 5, kMostBins);
  for (std::size_t i = 0; i <= count; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(count);
    bins.edges.push_back(bins.logarithmic ? low * std::pow(high / low, share) : low + share * (high - low));
  }
  bins.counts.resize(count);
  for (const auto& [bucket, number] : sketch.buckets()) {
    const double from = engine::QuantileSketch::bound(bucket - 1);
    const double to = engine::QuantileSketch::bound(bucket);
    for (std::size_t i = 0; i < count; ++i) {
      const double overlap = std::min(to, bins.edges[i + 1]) - std::max(from, bins.edges[i]);
      if (overlap > 0) bins.counts[i] += static_cast<double>(number) * overlap / (to - from);
    }
  }
  return bins;
}

plot::Figure histogram(const std::string& title, const engine::QuantileSketch& sketch, const plot::Axis& axis,
                       double unit) {
  plot::Figure figure{.id = plot::figure_id(title), .kind = plot::Kind::histogram, .title = title};
  Bins bins = bins_of(sketch);
  for (double& edge : bins.edges) edge /= unit;
  figure.x = axis;
  if (bins.logarithmic) figure.x.scale = plot::Scale::logarithmic;
  figure.y = {.name = "executions", .low = 0.0};
  figure.edges = std::move(bins.edges);
  figure.series = {{.name = "executions", .y = std::move(bins.counts)}};
  return figure;
}

std::int64_t memory_asked(const specs::Plan& plan, const std::string& step) {
  for (const specs::PlannedStep& planned : plan.steps())
    if (planned.name == step) return planned.resources.memory_bytes;
  return 0;
}

void add_step(const ReportData& data, const std::string& step, const engine::StepUsage& usage, Page& page) {
  plot::Figure time = histogram(step + ": duration", usage.duration_s, {.name = "duration", .unit = "s"}, 1);
  time.caption = fmt::format(
      "{}; median {}, 95 % below {}, the longest {}.", counted(usage.executions(), "execution"),
      text::format_duration(usage.duration_s.quantile(0.5)),
      text::format_duration(usage.duration_s.quantile(0.95)), text::format_duration(usage.duration_s.most()));
  page.figure(std::move(time));
  if (usage.peak_bytes.most() <= 0) return;
  constexpr double kMiB = 1 << 20;
  plot::Figure memory =
      histogram(step + ": memory", usage.peak_bytes, {.name = "peak memory", .unit = "MiB"}, kMiB);
  const auto bytes = [](double value) { return text::format_bytes(static_cast<std::uint64_t>(value)); };
  memory.caption =
      fmt::format("Median {}, 95 % below {}, the largest {}.", bytes(usage.peak_bytes.quantile(0.5)),
                  bytes(usage.peak_bytes.quantile(0.95)), bytes(usage.peak_bytes.most()));
  if (const std::int64_t asked = memory_asked(data.plan, step); asked > 0) {
    if (static_cast<double>(asked) > kWide / 2 * usage.peak_bytes.most())
      memory.x.scale = plot::Scale::logarithmic;
    memory.references.push_back({.value = static_cast<double>(asked) / kMiB, .text = "asked"});
    memory.caption +=
        fmt::format(" The study asks for {}.", text::format_bytes(static_cast<std::uint64_t>(asked)));
  }
  page.figure(std::move(memory));
}

}  // namespace

void write_usage(const ReportData& data, Page& page) {
  std::vector<std::pair<double, std::string>> steps;
  for (const auto& [step, usage] : data.usage)
    if (usage.executions() >= kFewExecutions) steps.emplace_back(-usage.duration_s.sum(), step);
  if (steps.empty()) return;
  std::sort(steps.begin(), steps.end());
  page.section("usage", "Time and memory");
  if (steps.size() > kSteps)
    page.paragraph(fmt::format("Of the {} steps that took the most time; wflow usage has all.", kSteps));
  for (std::size_t i = 0; i < std::min(steps.size(), kSteps); ++i)
    add_step(data, steps[i].second, data.usage.at(steps[i].second), page);
}

}  // namespace wflow::cli::report
