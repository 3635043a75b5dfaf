// SPDX-License-Identifier: Apache-2.0
#include "cli/view/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/text.h"

namespace wflow::cli {

namespace {

using engine::CampaignStatus;
using engine::ElementState;
using engine::StepStatus;

Style style_of(engine::FollowupState state) {
  if (state == engine::FollowupState::finished) return Style::green;
  if (state == engine::FollowupState::running) return Style::cyan;
  return Style::yellow;
}

// Done elements; of a single long task its own progress.
std::pair<std::uint64_t, std::uint64_t> progress_of(const StepStatus& step) {
  if (step.elements == 1 && step.progress_total > 0 && step.ended() == 0)
    return {step.progress_done, step.progress_total};
  return {step.ended(), step.elements};
}

std::string remarks(const StepStatus& step, const Terminal& terminal) {
  std::vector<std::string> parts;
  const auto add = [&](std::uint64_t count, const char* word, Style style) {
    if (count > 0)
      parts.push_back(styled(terminal, style, fmt::format("{} {}", text::format_count(count), word)));
  };
  add(step.failed(), "failed", Style::red);
  add(step.count(ElementState::skipped), "skipped", Style::yellow);
  add(step.count(ElementState::cancelled), "cancelled", Style::yellow);
  add(step.count(ElementState::delayed), "to retry", Style::yellow);
  add(step.count(ElementState::leased), "in progress", Style::plain);
  if (step.rate_per_s > 0 && step.progress_total == 0) {
    parts.push_back(step.rate_per_s < 1 ? fmt::format("{:.1f}/min", step.rate_per_s * 60)
                                        : fmt::format("{:.1f}/s", step.rate_per_s));
  }
  const bool ended = step.ended() == step.elements;
  if (step.left_s && !ended) parts.push_back(text::format_duration(*step.left_s) + " left");
  if (ended && step.mean_s > 0) parts.push_back(fmt::format("{} each", text::format_duration(step.mean_s)));
  return text::join(parts, ", ");
}

std::string step_line(const StepStatus& step, const Terminal& terminal, int name_width) {
  const auto [done, total] = progress_of(step);
  std::string counts = fmt::format("{}/{}", text::format_count(done), text::format_count(total));
  if (step.elements == 1 && step.progress_total > 0 && step.ended() == 0) counts += " " + step.progress_unit;
  const double fraction = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
  const int bar_width = std::clamp(terminal.width - name_width - 64, 0, 30);
  std::string line = fmt::format("  {} ", fitted(step.name, name_width, true));
  if (bar_width >= 8) line += bar(terminal, fraction, bar_width) + " ";
  return line + fmt::format("{:>13}  ", counts) + remarks(step, terminal);
}

constexpr std::size_t kShownCurves = 8;

// A line for each task's curve of this name, at most so many.
void add_curves(const CampaignStatus& status, const std::string& name, const Terminal& terminal,
                int name_width, std::vector<std::string>& lines) {
  const auto is_named = [&](const engine::MetricCurve& curve) { return curve.name == name; };
  const auto count = static_cast<std::size_t>(std::ranges::count_if(status.metrics, is_named));
  const int columns = std::clamp(terminal.width - name_width - 30, 8, 60);
  std::size_t shown = 0;
  for (const auto& curve : status.metrics) {
    if (!is_named(curve) || curve.points.empty()) continue;
    if (shown == kShownCurves) {
      lines.push_back(fmt::format("  and {} more of {}", count - shown, name));
      return;
    }
    ++shown;
    std::vector<double> values;
    for (const auto& point : curve.points) values.push_back(point.value);
    const std::string label = count == 1 ? name : fmt::format("{} {}", curve.task, name);
    lines.push_back(fmt::format("  {} {}  {:.4g}", fitted(label, std::max(name_width, 16), true),
                                sparkline(terminal, values, columns), values.back()));
  }
}

// "  iteration 2  running, 3/12 tasks, 1 failed  /campaigns/.../iterations/002"
std::string followup_line(const engine::FollowupView& followup, const Terminal& terminal) {
  const std::string name =
      followup.kind == "iteration" ? fmt::format("iteration {}", followup.iteration) : followup.kind;
  std::string line = fmt::format("  {:<13} {}", name,
                                 styled(terminal, style_of(followup.state), engine::state_text(followup)));
  if (followup.elements > 0) {
    line += fmt::format(", {}/{} tasks", text::format_count(followup.ended),
                        text::format_count(followup.elements));
  }
  if (followup.failed > 0) {
    line +=
        ", " + styled(terminal, Style::red, fmt::format("{} failed", text::format_count(followup.failed)));
  }
  return line + "  " + (followup.directory.empty() ? followup.spec : followup.directory);
}

}  // namespace

std::string clock_time(double unix_s) {
  const auto seconds = static_cast<std::time_t>(unix_s);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(seconds));
}

std::uint64_t newest_epoch(const CampaignStatus& status) {
  std::uint64_t newest = 0;
  for (const auto& curve : status.metrics) {
    if (!curve.points.empty()) newest = std::max(newest, curve.points.back().epoch);
  }
  return newest;
}

std::string training_line(const CampaignStatus& status) {
  const std::uint64_t epoch = newest_epoch(status);
  std::vector<std::string> parts;
  std::string task;
  for (const auto& curve : status.metrics) {
    if (curve.points.empty() || curve.points.back().epoch != epoch) continue;
    // Of several trainings that are as far the first one.
    if (!task.empty() && task != curve.task) continue;
    task = curve.task;
    parts.push_back(fmt::format("{} {:.4g}", curve.name, curve.points.back().value));
  }
  if (parts.empty()) return {};
  return fmt::format("epoch {}: {}", epoch, text::join(parts, ", "));
}

std::vector<std::string> allocation_lines(const engine::wire::AllocationsAnswer& answer, double now_s,
                                          bool everything) {
  std::vector<std::string> lines;
  for (const auto& pool : answer.pools) {
    int queued = 0;
    int running = 0;
    for (const auto& allocation : answer.allocations) {
      if (allocation.pool != pool.name) continue;
      if (allocation.state == "running") ++running;
      if (allocation.state == "queued" || allocation.state == "intended") ++queued;
    }
    std::string line =
        fmt::format("  pool {} ({}): {} running, {} queued", pool.name, pool.scheduler, running, queued);
    if (pool.used_node_h >= 0.005) line += fmt::format(", {:.2f} node-hours used", pool.used_node_h);
    if (pool.left_node_h >= 0.005) line += fmt::format(", about {:.2f} left", pool.left_node_h);
    if (pool.ends_s) line += ", ends about " + clock_time(*pool.ends_s);
    if (pool.more > 0) {
      line += fmt::format("; {} more allocation{} of {}", pool.more, pool.more == 1 ? "" : "s",
                          text::format_duration(pool.walltime_s));
    }
    if (!pool.gave_up.empty()) line += "; submits no more: " + pool.gave_up;
    lines.push_back(std::move(line));
  }
  for (const auto& allocation : answer.allocations) {
    if (allocation.never_clears.empty() && !everything) continue;
    lines.push_back("    " + allocation_line(allocation, now_s));
  }
  return lines;
}

std::string allocation_line(const engine::wire::AllocationView& allocation, double now_s) {
  const std::string id = allocation.id.empty() ? allocation.token : allocation.id;
  const auto since = [&](double time_s) { return text::format_duration(std::max(0.0, now_s - time_s)); };
  if (allocation.state == "ended") return fmt::format("allocation {}: ended: {}", id, allocation.reason);
  if (allocation.state == "running") {
    std::string line = fmt::format(
        "allocation {}: {} on {}, {} worker{}", id, allocation.leaving ? "is given back" : "runs",
        text::join(allocation.node_names, ", "), allocation.workers, allocation.workers == 1 ? "" : "s");
    if (allocation.ends_s > now_s) line += ", ends in " + text::format_duration(allocation.ends_s - now_s);
    return line;
  }
  std::string line = fmt::format("allocation {}: pending for {}", id, since(allocation.created_s));
  if (!allocation.never_clears.empty()) return line + ", and will never start: " + allocation.never_clears;
  return allocation.reason.empty() ? line : line + ": " + allocation.reason;
}

std::vector<std::string> overview(const CampaignStatus& status, const Terminal& terminal) {
  std::vector<std::string> lines;
  std::string head =
      styled(terminal, Style::bold, status.name) + "  " +
      styled(terminal, style_of(engine::followup_state(status.state)), std::string(name_of(status.state))) +
      "  " + text::format_duration(status.elapsed_s);
  std::uint64_t running = 0;
  for (const auto& worker : status.workers) running += worker.running;
  if (!status.workers.empty()) {
    head += fmt::format("  {} worker{}, {} running", status.workers.size(),
                        status.workers.size() == 1 ? "" : "s", running);
  }
  lines.push_back(head);
  int name_width = 8;
  for (const StepStatus& step : status.steps) name_width = std::max(name_width, columns_of(step.name));
  name_width = std::min(name_width, std::max(8, terminal.width / 3));
  for (const StepStatus& step : status.steps) lines.push_back(step_line(step, terminal, name_width));
  for (std::string& line : allocation_lines(status.allocations, status.started_s + status.elapsed_s, false))
    lines.push_back(std::move(line));
  for (const char* name : {"train_loss", "validation_loss"})
    add_curves(status, name, terminal, name_width, lines);
  for (const engine::FollowupView& followup : status.followups)
    lines.push_back(followup_line(followup, terminal));
  if (!status.iterations.empty()) lines.push_back("  iterations: " + status.iterations);
  if (!status.coordinator.empty() && !status.history.empty() && status.history.back().kind == "note")
    lines.push_back("  " + status.history.back().text);
  for (std::string& line : lines) {
    if (terminal.interactive) line = fitted(line, terminal.width, false);
    while (line.ends_with(' ')) line.pop_back();
  }
  return lines;
}

std::vector<std::string> details(const CampaignStatus& status, const Terminal& terminal, bool everything) {
  std::vector<std::string> lines;
  if (!status.failures.empty()) {
    lines.push_back("");
    lines.push_back(fmt::format("{} task{} failed:", text::format_count(status.failed()),
                                status.failed() == 1 ? "" : "s"));
    const std::size_t shown =
        everything ? status.failures.size() : std::min<std::size_t>(status.failures.size(), 5);
    for (auto at = status.failures.end() - static_cast<std::ptrdiff_t>(shown); at != status.failures.end();
         ++at) {
      lines.push_back(fmt::format("  {} after {} execution{}: {}", styled(terminal, Style::red, at->task),
                                  at->attempt + 1, at->attempt == 0 ? "" : "s", at->reason));
      const std::string detail = text::tail(at->detail, everything ? 2000 : 400);
      for (const std::string& line : text::split(text::trim(detail), '\n')) {
        if (!line.empty()) lines.push_back("      " + line);
      }
    }
    lines.push_back("  one task's output: wflow logs " + status.directory + " " +
                    status.failures.back().task);
  }
  if (everything && !status.workers.empty()) {
    lines.push_back("");
    lines.push_back("workers:");
    for (const auto& worker : status.workers) {
      lines.push_back(fmt::format("  {}  {} cores, {} running, {} leased{}", worker.id, worker.cores,
                                  worker.running, worker.leased, worker.draining ? ", draining" : ""));
    }
  }
  if (everything && !status.allocations.allocations.empty()) {
    lines.push_back("");
    lines.push_back("allocations:");
    for (const auto& allocation : status.allocations.allocations)
      lines.push_back("  " + allocation_line(allocation, status.started_s + status.elapsed_s));
  }
  if (!status.artifacts.empty()) {
    lines.push_back("");
    for (const auto& artifact : status.artifacts)
      lines.push_back(fmt::format("  {:<12} {}", artifact.kind, artifact.path));
  }
  if (everything && !status.history.empty()) {
    lines.push_back("");
    lines.push_back("history:");
    for (const auto& row : status.history)
      lines.push_back(fmt::format("  {}  {:<9} {}", clock_time(row.time_s), row.kind, row.text));
  }
  return lines;
}

}  // namespace wflow::cli
