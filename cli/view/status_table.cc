// SPDX-License-Identifier: Apache-2.0
#include "cli/view/status.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "cli/campaign/trainings.h"
#include "cli/top/data.h"
#include "cli/top/progress.h"
#include "cli/top/words.h"
#include "cli/view/failure_groups.h"
#include "cli/view/terminal.h"

namespace wflow::cli {

namespace {

using engine::ElementState;
using engine::StepStatus;

std::string count_cell(std::uint64_t count) {
  return count == 0 ? "-" : text::format_count(count);
}

std::string duration_or_dash(double seconds) {
  return seconds > 0 ? text::format_duration(seconds) : "-";
}

std::string rate_cell(const StepStatus& step) {
  const std::string rate = top::brief_rate(step.rate_per_s);
  return rate.empty() ? "-" : rate;
}

std::string memory_cell(const StepStatus& step, const top::TopData& data) {
  if (step.usage.peak_bytes.p95 <= 0) return "-";
  std::string cell = text::format_bytes(static_cast<std::uint64_t>(step.usage.peak_bytes.p95));
  const auto needs = data.needs.find(step.name);
  if (needs != data.needs.end() && needs->second.memory_bytes > 0)
    cell += " of " + text::format_bytes(static_cast<std::uint64_t>(needs->second.memory_bytes));
  return cell;
}

// Units of a single long task that reports its own progress.
std::string unit_cell(std::uint64_t count, const std::string& unit) {
  return text::format_count(count) + (unit.empty() ? "" : " " + unit);
}

Table steps_table(const top::TopData& data) {
  Table table({"step", "done", "of", "failed", "skipped", "assigned", "to retry", "waiting", "rate", "left",
               "median", "95 %", "memory 95 %"});
  for (const StepStatus& step : data.status.steps) {
    const bool ended = step.ended() == step.elements;
    const std::uint64_t waiting = step.count(ElementState::blocked) + step.count(ElementState::ready);
    const top::Counts counts = top::counts_of(step);
    const std::uint64_t skipped = top::skipped_of(step);
    const auto left_s = top::left_of(data.status, step);
    table.add({{step.name},
               {unit_cell(counts.done, counts.unit)},
               {unit_cell(counts.total, counts.unit)},
               {count_cell(step.failed()), step.failed() > 0 ? Style::red : Style::plain},
               {count_cell(skipped), skipped > 0 ? Style::yellow : Style::plain},
               {count_cell(step.count(ElementState::leased))},
               {count_cell(step.count(ElementState::delayed))},
               {count_cell(waiting)},
               {rate_cell(step)},
               {!ended && left_s ? text::format_duration(*left_s) : "-"},
               {duration_or_dash(step.usage.duration_s.median)},
               {duration_or_dash(step.usage.duration_s.p95)},
               {memory_cell(step, data)}});
  }
  return table;
}

std::vector<std::string> head_lines(const top::TopData& data) {
  const engine::CampaignStatus& status = data.status;
  const top::Overall overall = top::overall_of(status);
  std::string head =
      fmt::format("{}: {} for {}, {} % done: {} of {}", status.name, top::spaced(name_of(status.state)),
                  text::format_duration(status.elapsed_s), overall.percent, text::format_count(overall.done),
                  top::counted(overall.elements, "task"));
  if (overall.failed > 0) head += fmt::format(", {} failed", text::format_count(overall.failed));
  if (overall.skipped > 0) head += fmt::format(", {} skipped", text::format_count(overall.skipped));
  std::vector<std::string> lines = {std::move(head)};
  std::int64_t cores = 0;
  for (const auto& worker : status.workers) cores += worker.cores;
  std::vector<std::string> parts;
  if (!status.workers.empty()) {
    parts.push_back(fmt::format("{} with {}", top::counted(status.workers_total, "worker"),
                                top::counted(static_cast<std::uint64_t>(cores), "core")));
  }
  if (const auto hours = top::node_hours(data)) {
    parts.push_back(fmt::format("{:.3g} node-hours, {:.0f} % of it idle", hours->used,
                                hours->used > 0 ? 100 * hours->idle / hours->used : 0));
  }
  if (const auto end = top::forecast_end(data); end && !engine::is_at_rest(status.state))
    parts.push_back(
        fmt::format("{} {}", end->at_least ? "ends after" : "ends about", clock_time(end->time_s)));
  if (!parts.empty()) lines.push_back(text::join(parts, "; "));
  return lines;
}

}  // namespace

std::vector<std::string> status_table(const top::TopData& data, const TrainingRows& trainings,
                                      const Terminal& terminal) {
  std::vector<std::string> lines = head_lines(data);
  const auto append = [&](const std::vector<std::string>& more) {
    lines.emplace_back();
    lines.insert(lines.end(), more.begin(), more.end());
  };
  append(steps_table(data).whole_lines(terminal));
  if (!trainings.rows.empty()) append(training_table(trainings).whole_lines(terminal));
  auto failures = failure_lines(data.status, terminal, false);
  while (!failures.empty() && failures.front().empty()) failures.erase(failures.begin());
  if (!failures.empty()) append(failures);
  append({data.status.directory});
  return wrapped_lines(lines, terminal);
}

}  // namespace wflow::cli
