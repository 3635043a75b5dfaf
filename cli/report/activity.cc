// SPDX-License-Identifier: Apache-2.0
// The activity over time: throughput, executions at the same time, tasks or workers, allocations.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "cli/report/report.h"

namespace wflow::cli::report {

namespace {

constexpr std::size_t kLines = 7;        // steps with a line each
constexpr std::size_t kWorkerRows = 40;  // rows of the timeline; more workers make a map
constexpr std::size_t kAllocationRows = 40;
constexpr std::size_t kMapRows = 120;
// A slice counts as busy from this mean number of executions at the same time on.
constexpr double kBusy = 0.02;

plot::Axis time_axis() {
  return {.name = "time since the campaign began", .scale = plot::Scale::elapsed, .low = 0.0};
}

double slice_s(const engine::Overview& overview, std::size_t slices) {
  return std::max(overview.end_s - overview.begin_s, 1e-3) / static_cast<double>(slices);
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

// The number of slices to join, so that most contain ends of tasks: few tasks would look like a comb.
std::size_t slices_together(const engine::Overview& overview, std::size_t slices) {
  constexpr double kEnds = 10;
  constexpr std::size_t kLeast = 20;
  double most = 0;
  for (const auto& [step, activity] : overview.steps) most = std::max(most, sum_of(activity.ended));
  const auto wanted = static_cast<std::size_t>(most / kEnds);
  return std::max<std::size_t>(1, slices / std::clamp(wanted, kLeast, slices));
}

// The means over groups of `together` slices.
std::vector<double> joined(const std::vector<double>& values, std::size_t together) {
  std::vector<double> means;
  for (std::size_t first = 0; first < values.size(); first += together) {
    const std::size_t last = std::min(first + together, values.size());
    double sum = 0;
    for (std::size_t i = first; i < last; ++i) sum += values[i];
    means.push_back(sum / static_cast<double>(last - first));
  }
  return means;
}

// Adds one line per step; the steps after the first kLines share one.
void add_lines(const ReportData& data, std::vector<double> engine::Overview::Activity::*what,
               const std::map<std::string, double>& factors, plot::Figure& figure) {
  plot::Series others{.name = "other steps"};
  for (const engine::StepStatus& step : data.status.steps) {
    const auto activity = data.overview.steps.find(step.name);
    if (activity == data.overview.steps.end()) continue;
    const std::size_t together = slices_together(data.overview, (activity->second.*what).size());
    const double width_s =
        slice_s(data.overview, (activity->second.*what).size()) * static_cast<double>(together);
    const std::vector<double> values = joined(activity->second.*what, together);
    const double factor = factors.contains(step.name) ? factors.at(step.name) : 1;
    plot::Series line{.name = step.name};
    for (std::size_t i = 0; i < values.size(); ++i) {
      line.x.push_back((static_cast<double>(i) + 0.5) * width_s);
      line.y.push_back(values[i] * factor);
    }
    if (figure.series.size() < kLines) {
      figure.series.push_back(std::move(line));
    } else if (others.x.empty()) {
      others.x = line.x;
      others.y = line.y;
    } else {
      for (std::size_t i = 0; i < line.y.size(); ++i) others.y[i] += line.y[i];
    }
  }
  if (!others.x.empty()) figure.series.push_back(std::move(others));
}

void add_throughput(const ReportData& data, Page& page) {
  plot::Figure figure{.id = "throughput", .kind = plot::Kind::lines, .title = "Throughput"};
  figure.caption = "Tasks that ended per second.";
  figure.x = time_axis();
  figure.y = {.name = "tasks ended", .unit = "1/s", .low = 0.0};
  std::map<std::string, double> factors;
  for (const engine::StepStatus& step : data.status.steps) {
    const auto activity = data.overview.steps.find(step.name);
    if (activity == data.overview.steps.end()) continue;
    const double recorded = sum_of(activity->second.ended);
    // Tasks of less than a millisecond, and most of very many, have no record: scale by the recorded ones.
    const double missing = static_cast<double>(step.ended()) > recorded && recorded > 0
                               ? static_cast<double>(step.ended()) / recorded
                               : 1;
    factors[step.name] = missing / slice_s(data.overview, activity->second.ended.size());
  }
  add_lines(data, &engine::Overview::Activity::ended, factors, figure);
  if (!figure.series.empty()) page.figure(std::move(figure));
}

void add_running(const ReportData& data, Page& page) {
  plot::Figure figure{.id = "running", .kind = plot::Kind::lines, .title = "Tasks at the same time"};
  figure.caption = "Executions that ran at the same time, on average over each part of the time.";
  figure.x = time_axis();
  figure.y = {.name = "executions", .low = 0.0};
  add_lines(data, &engine::Overview::Activity::running, {}, figure);
  if (!figure.series.empty()) page.figure(std::move(figure));
}

// The numbers of workers and slots over time, as steps.
void add_slots(const ReportData& data, Page& page) {
  if (data.workers.size() < 2) return;
  std::map<double, std::pair<double, double>> changes;  // time -> workers, slots
  const double now_s = data.live ? data.made_s : data.overview.end_s;
  for (const engine::wire::WorkerView& worker : data.workers) {
    const double end_s = worker.ended_s > 0 ? worker.ended_s : now_s;
    auto& joined = changes[worker.joined_s - data.overview.begin_s];
    joined.first += 1;
    joined.second += worker.cores;
    auto& ended = changes[std::max(end_s, worker.joined_s) - data.overview.begin_s];
    ended.first -= 1;
    ended.second -= worker.cores;
  }
  plot::Figure figure{.id = "workers", .kind = plot::Kind::lines, .title = "Workers and slots"};
  figure.x = time_axis();
  figure.y = {.name = "number", .low = 0.0};
  plot::Series workers{.name = "workers"};
  plot::Series slots{.name = "slots"};
  double count = 0;
  double cores = 0;
  const auto point = [&](double time_s) {
    workers.x.push_back(time_s);
    workers.y.push_back(count);
    slots.x.push_back(time_s);
    slots.y.push_back(cores);
  };
  for (const auto& [time_s, change] : changes) {
    point(time_s);
    count += change.first;
    cores += change.second;
    point(time_s);
  }
  figure.series = {std::move(workers), std::move(slots)};
  page.figure(std::move(figure));
}

// The series of spans in the timeline.
enum SpanSeries : std::uint32_t { kRuns, kThere, kQueued, kAllocation };

// Names only the series that have a span.
void name_series(plot::Figure& figure) {
  constexpr std::array<const char*, 4> kNames = {"worker runs tasks", "worker is there",
                                                 "allocation in the queue", "allocation runs"};
  std::map<std::uint32_t, std::uint32_t> numbers;
  for (const plot::Span& span : figure.spans) numbers[span.series] = 0;
  for (auto& [series, number] : numbers) {
    number = static_cast<std::uint32_t>(figure.series.size());
    figure.series.push_back({.name = kNames.at(series)});
  }
  for (plot::Span& span : figure.spans) span.series = numbers[span.series];
}

// Adds neighbouring busy slices of a worker as spans.
void add_busy_spans(const std::vector<double>& running, double width_s, std::uint32_t row,
                    plot::Figure& figure) {
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (running[i] < kBusy) continue;
    std::size_t last = i;
    double sum = 0;
    for (; last < running.size() && running[last] >= kBusy; ++last) sum += running[last];
    figure.spans.push_back(
        {.row = row,
         .begin = static_cast<double>(i) * width_s,
         .end = static_cast<double>(last) * width_s,
         .series = kRuns,
         .text = fmt::format("{:.3g} tasks at the same time", sum / static_cast<double>(last - i))});
    i = last;
  }
}

void add_allocations(const ReportData& data, double now_s, plot::Figure& figure) {
  const auto& all = data.allocations.allocations;
  const std::size_t first = all.size() > kAllocationRows ? all.size() - kAllocationRows : 0;
  for (std::size_t i = first; i < all.size(); ++i) {
    const engine::wire::AllocationView& allocation = all[i];
    const auto row = static_cast<std::uint32_t>(figure.categories.size());
    figure.categories.push_back(
        fmt::format("allocation {}", allocation.id.empty() ? allocation.token : allocation.id));
    const auto since = [&](double unix_s) { return unix_s - data.overview.begin_s; };
    const double ended_s = allocation.ended_s > 0 ? allocation.ended_s : now_s;
    const double started_s = allocation.started_s > 0 ? allocation.started_s : ended_s;
    figure.spans.push_back({.row = row,
                            .begin = since(allocation.created_s),
                            .end = since(started_s),
                            .series = kQueued,
                            .text = "in the queue"});
    if (allocation.started_s > 0)
      figure.spans.push_back(
          {.row = row,
           .begin = since(started_s),
           .end = since(ended_s),
           .series = kAllocation,
           .text = fmt::format("{}, {}", counted(static_cast<std::uint64_t>(allocation.nodes), "node"),
                               allocation.reason.empty() ? allocation.state : allocation.reason)});
  }
}

// `with_workers`: also the workers, where no timeline of tasks shows them.
void add_timeline(const ReportData& data, bool with_workers, Page& page) {
  plot::Figure figure{.id = "timeline",
                      .kind = plot::Kind::timeline,
                      .title = with_workers ? "Allocations and workers" : "Allocations"};
  figure.x = time_axis();
  const double now_s = data.live ? data.made_s : data.overview.end_s;
  add_allocations(data, now_s, figure);
  if (with_workers && data.workers.size() <= kWorkerRows) {
    for (const engine::wire::WorkerView& worker : data.workers) {
      const auto row = static_cast<std::uint32_t>(figure.categories.size());
      figure.categories.push_back(worker.id);
      figure.spans.push_back(
          {.row = row,
           .begin = worker.joined_s - data.overview.begin_s,
           .end = (worker.ended_s > 0 ? worker.ended_s : now_s) - data.overview.begin_s,
           .series = kThere,
           .text = fmt::format("{}, {} {}", worker.host,
                               counted(static_cast<std::uint64_t>(worker.cores), "core"), worker.reason)});
      if (const auto running = data.overview.workers.find(worker.id); running != data.overview.workers.end())
        add_busy_spans(running->second, slice_s(data.overview, running->second.size()), row, figure);
    }
  }
  if (figure.categories.empty()) return;
  if (data.allocations.allocations_total > kAllocationRows)
    figure.caption =
        fmt::format("The last {} of {} allocations.", kAllocationRows, data.allocations.allocations_total);
  name_series(figure);
  page.figure(std::move(figure));
}

// Adds a map: workers from top to bottom in the order in which they joined, time to the right. Many workers
// share the rows of the map.
void add_map(const ReportData& data, Page& page) {
  if (data.workers.size() <= kWorkerRows || data.overview.workers.empty()) return;
  std::vector<const std::vector<double>*> rows;
  for (const engine::wire::WorkerView& worker : data.workers)
    if (const auto running = data.overview.workers.find(worker.id); running != data.overview.workers.end())
      rows.push_back(&running->second);
  if (rows.empty()) return;
  const std::size_t together = (rows.size() + kMapRows - 1) / kMapRows;
  plot::Image image{.name = "tasks at the same time, of each worker"};
  image.columns = static_cast<std::uint32_t>(rows.front()->size());
  for (std::size_t first = 0; first < rows.size(); first += together) {
    const std::size_t last = std::min(first + together, rows.size());
    for (std::size_t slice = 0; slice < image.columns; ++slice) {
      double sum = 0;
      for (std::size_t i = first; i < last; ++i) sum += (*rows[i])[slice];
      image.values.push_back(
          static_cast<float>(std::round(sum / static_cast<double>(last - first) * 100) / 100));
    }
    ++image.rows;
  }
  plot::Figure figure{.id = "worker-map", .kind = plot::Kind::images, .title = "Load of the workers"};
  figure.caption = fmt::format(
      "{} from top to bottom in the order in which they joined{}; time from left to right, {} in all.",
      counted(rows.size(), "worker"), together > 1 ? fmt::format(", {} a row", together) : "",
      text::format_duration(data.overview.end_s - data.overview.begin_s));
  figure.images.push_back(std::move(image));
  page.figure(std::move(figure));
}

}  // namespace

void write_activity(const ReportData& data, Page& page) {
  if (data.workers.empty() && data.overview.records == 0) return;
  page.section("activity", "Activity");
  add_throughput(data, page);
  add_running(data, page);
  add_slots(data, page);
  const bool shows_tasks = add_tasks(data, page);
  add_timeline(data, !shows_tasks, page);
  if (!shows_tasks) add_map(data, page);
  if (data.overview.records == 0)
    page.paragraph("No execution has a record yet: those of less than a millisecond have none.");
}

}  // namespace wflow::cli::report
