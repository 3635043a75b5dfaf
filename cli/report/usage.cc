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
constexpr std::int32_t kLeastBins = 5, kMostBins = 40;

// Each bin joins the same number of whole buckets of the sketch: its count is exact, and it is not finer than
// the sketch. Buckets have equal widths on a logarithmic axis.
plot::Figure histogram(const std::string& title, const engine::QuantileSketch& sketch, const plot::Axis& axis,
                       double unit) {
  plot::Figure figure{.id = plot::figure_id(title), .kind = plot::Kind::histogram, .title = title};
  figure.x = axis;
  figure.x.scale = plot::Scale::logarithmic;
  figure.y = {.name = "executions", .low = 0.0};
  figure.series = {{.name = "executions"}};
  const auto& buckets = sketch.buckets();
  if (buckets.empty()) return figure;
  // Empty bins beside very few buckets: one bar that fills the plot would show no value.
  const std::int32_t beside =
      std::max(0, kLeastBins - (buckets.rbegin()->first - buckets.begin()->first)) / 2;
  const std::int32_t first = buckets.begin()->first - beside;
  const std::int32_t last = buckets.rbegin()->first + beside;
  const auto wanted = static_cast<std::int32_t>(std::sqrt(static_cast<double>(sketch.count())) * 2);
  const std::int32_t joined = (last - first) / std::clamp(wanted, kLeastBins, kMostBins) + 1;
  figure.series[0].y.resize(static_cast<std::size_t>((last - first) / joined) + 1);
  for (const auto& [bucket, number] : buckets)
    figure.series[0].y[static_cast<std::size_t>((bucket - first) / joined)] += static_cast<double>(number);
  for (std::size_t i = 0; i <= figure.series[0].y.size(); ++i)
    figure.edges.push_back(engine::QuantileSketch::bound(first - 1 + static_cast<std::int32_t>(i) * joined) /
                           unit);
  return figure;
}

std::int64_t memory_asked(const specs::Plan& plan, const std::string& step) {
  for (const specs::PlannedStep& planned : plan.steps())
    if (planned.name == step) return planned.resources.memory_bytes;
  return 0;
}

// " 3 of them have no measured memory and are not in the plot."
std::string not_shown(const engine::QuantileSketch& sketch, const char* why) {
  std::uint64_t shown = 0;
  for (const auto& [bucket, number] : sketch.buckets()) shown += number;
  if (shown >= sketch.count()) return {};
  return fmt::format(" {} of them {} and are not in the plot.", text::format_count(sketch.count() - shown),
                     why);
}

void add_step(const ReportData& data, const std::string& step, const engine::StepUsage& usage, Page& page) {
  plot::Figure time = histogram(step + ": duration", usage.duration_s, {.name = "duration", .unit = "s"}, 1);
  time.caption = fmt::format(
      "{}; median {}, 95 % below {}, the longest {}.", counted(usage.executions(), "execution"),
      text::format_duration(usage.duration_s.quantile(0.5)),
      text::format_duration(usage.duration_s.quantile(0.95)), text::format_duration(usage.duration_s.most()));
  time.caption += not_shown(usage.duration_s, "lasted less than a microsecond");
  if (!time.edges.empty()) page.figure(std::move(time));
  if (usage.peak_bytes.most() <= 0) return;
  constexpr double kMiB = 1 << 20;
  plot::Figure memory =
      histogram(step + ": memory", usage.peak_bytes, {.name = "peak memory", .unit = "MiB"}, kMiB);
  const auto bytes = [](double value) { return text::format_bytes(static_cast<std::uint64_t>(value)); };
  memory.caption =
      fmt::format("{}; median {}, 95 % below {}, the largest {}.",
                  counted(usage.peak_bytes.count(), "execution"), bytes(usage.peak_bytes.quantile(0.5)),
                  bytes(usage.peak_bytes.quantile(0.95)), bytes(usage.peak_bytes.most()));
  memory.caption += not_shown(usage.peak_bytes, "have no measured memory");
  if (const std::int64_t asked = memory_asked(data.plan, step); asked > 0) {
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
  page.paragraph(
      "Executions are processes: one for all samples of a bundle, and one more for each retry. Those that "
      "took "
      "less than a millisecond and did not fail are not counted.");
  if (steps.size() > kSteps)
    page.paragraph(fmt::format("Of the {} steps that took the most time; wflow usage has all.", kSteps));
  for (std::size_t i = 0; i < std::min(steps.size(), kSteps); ++i)
    add_step(data, steps[i].second, data.usage.at(steps[i].second), page);
}

}  // namespace wflow::cli::report
