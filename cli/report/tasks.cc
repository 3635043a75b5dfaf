// SPDX-License-Identifier: Apache-2.0
// The timeline of a small campaign: which worker ran which task, and when.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "cli/report/report.h"

namespace wflow::cli::report {

namespace {

constexpr std::size_t kRows = 128;
constexpr std::size_t kNamedSteps = 7;  // the others share a colour
// Starts are recorded in milliseconds: the next task of a slot seems to begin before the last one ended.
constexpr double kResolution_s = 2e-3;

struct Row {
  std::string worker;
  std::size_t slot = 0;
  auto operator<=>(const Row&) const = default;
};

// The row of each run: the first slot of its worker that is free.
std::vector<Row> rows_of(const std::vector<engine::Overview::Run>& runs) {
  std::map<std::string, std::vector<double>> ends;  // of the last run in each slot of a worker
  std::vector<Row> rows;
  for (const engine::Overview::Run& run : runs) {
    std::vector<double>& slots = ends[run.worker];
    const auto free = std::ranges::find_if(
        slots, [&](double ended_s) { return ended_s <= run.usage.started_s + kResolution_s; });
    const auto slot = static_cast<std::size_t>(free - slots.begin());
    if (free == slots.end()) slots.push_back(0);
    slots[slot] = run.usage.started_s + run.usage.duration_s;
    rows.push_back({run.worker, slot});
  }
  return rows;
}

// Numbers the rows: workers in the order in which they joined, their slots below one another.
std::map<Row, std::uint32_t> name_rows(const ReportData& data, const std::vector<Row>& rows,
                                       plot::Figure& figure) {
  std::map<std::string, std::size_t> slots;
  for (const Row& row : rows) slots[row.worker] = std::max(slots[row.worker], row.slot + 1);
  std::map<Row, std::uint32_t> numbers;
  const auto add = [&](const std::string& worker) {
    for (std::size_t slot = 0; slot < slots[worker]; ++slot) {
      numbers[{worker, slot}] = static_cast<std::uint32_t>(figure.categories.size());
      figure.categories.push_back(slots[worker] == 1 ? worker
                                                     : fmt::format("slot {} of {}", slot + 1, worker));
    }
    slots.erase(worker);
  };
  for (const engine::wire::WorkerView& worker : data.workers)
    if (slots.contains(worker.id)) add(worker.id);
  while (!slots.empty()) add(std::string(slots.begin()->first));
  return numbers;
}

std::map<std::string, std::uint32_t> name_steps(const ReportData& data, plot::Figure& figure) {
  std::map<std::string, std::uint32_t> numbers;
  for (const engine::StepStatus& step : data.status.steps) {
    const auto& runs = data.overview.runs;
    if (std::ranges::find(runs, step.name, &engine::Overview::Run::step) == runs.end()) continue;
    if (figure.series.size() <= kNamedSteps)
      figure.series.push_back({.name = figure.series.size() < kNamedSteps ? step.name : "other steps"});
    numbers[step.name] = static_cast<std::uint32_t>(figure.series.size() - 1);
  }
  return numbers;
}

std::string text_of(const ReportData& data, const engine::Overview::Run& run) {
  const engine::TaskUsage& used = run.usage;
  std::string text = specs::task_name(data.plan, used.array, used.first);
  if (used.count > 1) text += fmt::format(" to {}", used.first + used.count - 1);
  if (used.attempt > 0) text += fmt::format(", attempt {}", used.attempt + 1);
  if (run.failed) text += ", failed";
  return text;
}

}  // namespace

bool add_tasks(const ReportData& data, Page& page) {
  const auto& runs = data.overview.runs;
  if (runs.empty()) return false;
  plot::Figure figure{.id = "tasks", .kind = plot::Kind::timeline, .title = "Tasks"};
  figure.x = {.name = "time since the campaign began", .scale = plot::Scale::elapsed, .low = 0.0};
  const std::vector<Row> rows = rows_of(runs);
  const std::map<Row, std::uint32_t> numbers = name_rows(data, rows, figure);
  if (numbers.size() > kRows) return false;
  const std::map<std::string, std::uint32_t> steps = name_steps(data, figure);
  std::size_t failed = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto step = steps.find(runs[i].step);
    if (step == steps.end()) continue;
    failed += runs[i].failed ? 1 : 0;
    const double begin = runs[i].usage.started_s - data.overview.begin_s;
    figure.spans.push_back({.row = numbers.at(rows[i]),
                            .begin = begin,
                            .end = begin + runs[i].usage.duration_s,
                            .series = step->second,
                            .text = text_of(data, runs[i]),
                            .failed = runs[i].failed});
  }
  figure.caption =
      fmt::format("All {} with a record, by worker and slot.", counted(figure.spans.size(), "execution"));
  if (failed > 0)
    figure.caption += fmt::format(" Crosses mark the {} that failed.", text::format_count(failed));
  page.figure(std::move(figure));
  return true;
}

}  // namespace wflow::cli::report
