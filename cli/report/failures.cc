// SPDX-License-Identifier: Apache-2.0
// The failures by kind, node and message, with the end of the log of one task each.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "cli/report/report.h"
#include "cli/view/failure_groups.h"

namespace wflow::cli::report {

namespace {

constexpr std::size_t kBars = 15;
constexpr std::size_t kKinds = 7;
constexpr std::size_t kGroups = 20;

using Table = std::map<std::string, std::map<std::string, double>>;  // category -> series -> count

std::vector<std::string> by_size(const std::map<std::string, double>& sums, std::size_t most) {
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, sum] : sums) order.emplace_back(-sum, name);
  std::sort(order.begin(), order.end());
  std::vector<std::string> names;
  for (const auto& [sum, name] : order)
    if (names.size() < most) names.push_back(name);
  return names;
}

// The largest categories from top to bottom; series after the first few are joined.
plot::Figure bars_of(const std::string& id, const std::string& title, const Table& table) {
  plot::Figure figure{.id = id, .kind = plot::Kind::bars, .title = title};
  figure.x = {.name = "executions that failed"};
  std::map<std::string, double> categories;
  std::map<std::string, double> kinds;
  for (const auto& [category, counts] : table) {
    for (const auto& [kind, count] : counts) {
      categories[category] += count;
      kinds[kind] += count;
    }
  }
  figure.categories = by_size(categories, kBars);
  if (categories.size() > kBars)
    figure.caption = fmt::format("The first {} of {}.", kBars, categories.size());
  const std::vector<std::string> series = by_size(kinds, kKinds);
  for (const std::string& kind : series) {
    plot::Series bar{.name = kind};
    for (const std::string& category : figure.categories) {
      const auto& counts = table.at(category);
      bar.y.push_back(counts.contains(kind) ? counts.at(kind) : 0);
    }
    figure.series.push_back(std::move(bar));
  }
  if (kinds.size() <= series.size()) return figure;
  plot::Series others{.name = "others"};
  for (const std::string& category : figure.categories) {
    double count = 0;
    for (const auto& [kind, number] : table.at(category))
      if (std::ranges::find(series, kind) == series.end()) count += number;
    others.y.push_back(count);
  }
  figure.series.push_back(std::move(others));
  return figure;
}

std::map<std::string, std::string> hosts_of(const ReportData& data) {
  std::map<std::string, std::string> hosts;
  for (const engine::wire::WorkerView& worker : data.workers) hosts[worker.id] = worker.host;
  return hosts;
}

void add_groups(const ReportData& data, Page& page) {
  std::vector<FailureGroup> groups = group_failures(data.overview.failures);
  if (groups.empty()) return;
  std::ranges::stable_sort(groups, std::greater<>(), &FailureGroup::count);
  std::uint64_t all = 0;
  for (const auto& count : data.overview.failure_counts) all += count.count;
  page.heading("Messages");
  page.paragraph(
      data.overview.failures.size() < all
          ? fmt::format("Failures that are alike, counted among {} of {} (chosen evenly).",
                        data.overview.failures.size(), text::format_count(all))
          : "Failures that are alike but for numbers. A click shows the end of one task's output.");
  for (std::size_t i = 0; i < std::min(groups.size(), kGroups); ++i) {
    const engine::FailureView& first = groups[i].first;
    std::string_view line = text::trim(first.detail);
    if (const std::size_t at = line.rfind('\n'); at != std::string_view::npos) line.remove_prefix(at + 1);
    constexpr std::size_t kLine = 160;
    const std::string summary =
        fmt::format("{} × {}: {}{}{}", text::format_count(groups[i].count), first.step, first.reason,
                    line.empty() ? "" : ": ", line.substr(0, kLine));
    page.details(summary,
                 fmt::format("{}, attempt {}, {} on {}, after {}\n\n{}", first.task, first.attempt + 1,
                             date_text(first.time_s), first.worker, text::format_duration(first.duration_s),
                             first.detail.empty() ? "(it printed nothing)" : first.detail));
  }
  if (groups.size() > kGroups)
    page.paragraph(fmt::format("The most frequent {} of {} messages.", kGroups, groups.size()));
}

void add_missing(const ReportData& data, Page& page) {
  PageTable table{
      {"data set", "samples", "why a conversion could not use their output"}, {false, true, false}, {}};
  for (const engine::StepStatus& step : data.status.steps)
    for (const auto& reason : step.missing)
      table.rows.push_back({step.name, text::format_count(reason.samples), reason.reason});
  if (table.rows.empty()) return;
  page.heading("Samples without a place in a data set");
  page.table(table);
}

}  // namespace

void write_failures(const ReportData& data, Page& page) {
  page.section("failures", "Failures");
  if (data.overview.failure_counts.empty()) {
    page.paragraph("No execution has failed.");
    add_missing(data, page);
    return;
  }
  const std::map<std::string, std::string> hosts = hosts_of(data);
  Table by_kind;
  Table by_node;
  std::uint64_t all = 0;
  for (const auto& count : data.overview.failure_counts) {
    const auto host = hosts.find(count.worker);
    const auto number = static_cast<double>(count.count);
    all += count.count;
    by_kind[count.reason][count.step] += number;
    by_node[host == hosts.end() ? "(no node)" : host->second][count.reason] += number;
  }
  page.paragraph(fmt::format("{} failed, and {} failed in the end{}.", counted(all, "execution"),
                             counted(data.status.failed(), "task"),
                             all > data.status.failed() ? ": others were tried again" : ""));
  page.figure(bars_of("failures-by-kind", "Failures by kind", by_kind));
  page.figure(bars_of("failures-by-node", "Failures by node", by_node));
  add_groups(data, page);
  add_missing(data, page);
}

}  // namespace wflow::cli::report
