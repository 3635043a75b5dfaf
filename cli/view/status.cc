// SPDX-License-Identifier: Apache-2.0
#include "cli/view/status.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>
#include <span>
#include <string_view>

#include "base/text.h"
#include "cli/view/failure_groups.h"
#include "engine/coordinate/timing.h"
#include "engine/monitor/views.h"

namespace wflow::cli {

namespace {

using engine::CampaignStatus;
using engine::StepStatus;

Style style_of(engine::FollowupState state) {
  if (state == engine::FollowupState::finished) return Style::green;
  if (state == engine::FollowupState::running) return Style::cyan;
  return Style::yellow;
}

void append(std::vector<std::string>& lines, std::vector<std::string> more) {
  std::ranges::move(more, std::back_inserter(lines));
}

constexpr std::size_t kShownCurves = 8;

// Contains the task's name if several tasks have a curve of this name.
std::string label_of(const CampaignStatus& status, const engine::MetricCurve& curve) {
  const auto count = std::ranges::count(status.metrics, curve.name, &engine::MetricCurve::name);
  return count == 1 ? curve.name : fmt::format("{} {}", curve.task, curve.name);
}

// A width for every label of these metrics, but no more than a third of the line if steps have short
// names.
int curve_label_width(const CampaignStatus& status, std::span<const std::string_view> names,
                      const Terminal& terminal, int name_width) {
  std::size_t longest = 0;
  for (const engine::MetricCurve& curve : status.metrics) {
    if (std::ranges::find(names, curve.name) != names.end())
      longest = std::max(longest, label_of(status, curve).size());
  }
  const int most = std::max({name_width, 16, terminal.width / 3});
  return std::clamp(static_cast<int>(longest), std::max(name_width, 16), most);
}

// A line for each task's curve of this name, up to a limit.
void add_curves(const CampaignStatus& status, std::string_view name, const Terminal& terminal,
                int label_width, std::vector<std::string>& lines) {
  const auto is_named = [&](const engine::MetricCurve& curve) { return curve.name == name; };
  const auto count = static_cast<std::size_t>(std::ranges::count_if(status.metrics, is_named));
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
    const std::string label = label_of(status, curve);
    // A curve that is too long for the line states its beginning.
    int columns = std::clamp(terminal.width - label_width - 15, 8, 60);
    const auto number = static_cast<std::size_t>(columns);
    std::string begin;
    if (values.size() > number) {
      columns = std::clamp(terminal.width - label_width - 32, 8, 60);
      const auto& first = curve.points[values.size() - static_cast<std::size_t>(columns)];
      begin = first.epoch > 0 ? fmt::format("  from epoch {}", first.epoch)
                              : fmt::format("  from step {}", first.step);
    }
    lines.push_back(fmt::format("  {} {}  {:.4g}{}", fitted(label, label_width, true),
                                sparkline(terminal, values, columns), values.back(), begin));
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

std::vector<std::string> held_lines(const CampaignStatus& status) {
  std::vector<std::string> lines;
  for (const StepStatus& step : status.steps) {
    if (step.held.empty()) continue;
    if (waits_for_disk(step)) {
      lines.push_back(fmt::format("  {} is held back: {}", step.name, step.held));
      continue;
    }
    lines.push_back(
        fmt::format("  {} is paused: {}. wflow tasks --group shows why; wflow retry runs them again and "
                    "goes on",
                    step.name, step.held));
  }
  return lines;
}

std::vector<std::string> slow_lines(const CampaignStatus& status) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < std::min(status.slow.size(), kShown); ++i) {
    const engine::wire::SlowView& task = status.slow[i];
    lines.push_back(
        fmt::format("  {} has run for {}, and 95 % of its step take at most {}: wflow cancel {} {} --kill",
                    task.task, text::format_duration(task.running_s), text::format_duration(task.usual_s),
                    status.directory, text::shell_quote(task.task)));
  }
  if (status.slow_total > kShown)
    lines.push_back(
        fmt::format("  and {} other tasks run for far longer than is usual", status.slow_total - kShown));
  return lines;
}

// Lines about silent workers that do not count as lost yet: their tasks wait for that.
std::vector<std::string> silent_lines(const CampaignStatus& status) {
  constexpr double kSilent_s = 5;  // heartbeats come every second
  constexpr double kGivenUp_s = engine::Timing().lost_s + engine::Timing().margin_s;
  constexpr std::size_t kShown = 3;
  std::vector<std::string> lines;
  std::size_t silent = 0;
  for (const auto& worker : status.workers) {
    if (worker.silent_s <= kSilent_s || ++silent > kShown) continue;
    lines.push_back(fmt::format(
        "  node {} has been silent for {}, with {} running task{}: they run again elsewhere as "
        "soon as its scheduler says that it is gone, or in {}",
        worker.host, text::format_duration(worker.silent_s), worker.running, worker.running == 1 ? "" : "s",
        text::format_duration(std::max(0.0, kGivenUp_s - worker.silent_s))));
  }
  if (silent > kShown) lines.push_back(fmt::format("  and {} other nodes are silent", silent - kShown));
  return lines;
}

// The declaration with which such a task would have failed at its end; empty if there is none.
std::string check_for(const std::string& reason) {
  const std::string file = reason.substr(0, reason.find(' '));
  if (reason.find("NaN or infinite") != std::string::npos)
    return fmt::format("{{file: {}, finite: true}}", file);
  const bool shape = reason.find("most samples of the block") != std::string::npos ||
                     reason.find(", expected (") != std::string::npos;
  if (shape) return fmt::format("{{file: {}, shape: [...]}}", file);
  return {};
}

// Tasks whose failure keeps their sample out of the data sets.
std::uint64_t failed_simulations(const CampaignStatus& status) {
  std::uint64_t failed = 0;
  for (const StepStatus& step : status.steps) {
    if (step.kind == "shell") failed += step.failed();
  }
  return failed;
}

// "36 of 40 samples are usable in the data set of data: 4 failed"
std::string missing_line(const StepStatus& step) {
  const std::uint64_t missing = step.missing_samples();
  if (step.samples < missing) {  // in an outvoted block, or of an earlier version
    return fmt::format("{} sample{} {} missing from the data set of {}:", text::format_count(missing),
                       missing == 1 ? "" : "s", missing == 1 ? "is" : "are", step.name);
  }
  std::uint64_t failed = 0;
  for (const auto& reason : step.missing) {
    if (engine::is_left_out(reason.reason)) failed += reason.samples;
  }
  std::string line = fmt::format(
      "{} of {} samples are usable in the data set of {}: ", text::format_count(step.samples - missing),
      text::format_count(step.samples), step.name);
  if (failed > 0) line += fmt::format("{} failed", text::format_count(failed));
  if (failed > 0 && missing > failed) line += ", ";
  if (missing > failed)
    line += fmt::format("of {} the output is not usable", text::format_count(missing - failed));
  return line;
}

// Samples that are missing from a data set, and the remedy.
std::vector<std::string> missing_lines(const CampaignStatus& status, const Terminal& terminal) {
  std::vector<std::string> lines;
  std::string check;
  std::uint64_t most = 0;
  for (const StepStatus& step : status.steps) {
    if (step.missing.empty()) continue;
    lines.push_back("");
    const std::uint64_t samples = step.missing_samples();
    most = std::max(most, samples);
    lines.push_back(missing_line(step));
    for (const auto& reason : step.missing) {
      lines.push_back(fmt::format("  {}: {}",
                                  styled(terminal, Style::yellow, text::format_count(reason.samples)),
                                  reason.reason) +
                      (reason.samples > 1 ? fmt::format(" (the first: sample {})", reason.first)
                                          : fmt::format(" (sample {})", reason.first)));
      if (check.empty() && !engine::is_left_out(reason.reason)) check = check_for(reason.reason);
    }
  }
  if (lines.empty()) return lines;
  if (const std::uint64_t failed = failed_simulations(status); failed > 0) {
    lines.push_back(fmt::format("  run the {} that failed again: wflow retry {}",
                                failed == 1 ? "simulation" : "simulations", status.directory));
    if (most <= failed) return lines;
  }
  lines.push_back(fmt::format("  which ones: wflow tasks {} --missing", status.directory));
  lines.push_back(fmt::format("  run their simulations again: wflow redo {} --missing", status.directory));
  if (!check.empty())
    lines.push_back(
        fmt::format("  to let such simulations fail as they end: outputs: [{}] in their step", check));
  return lines;
}

// The newest note of a running campaign, such as a step that waits for a worker. A worker that has joined
// since may have resolved it.
std::string newest_note(const CampaignStatus& status) {
  if (status.coordinator.empty()) return {};
  for (auto row = status.history.rbegin(); row != status.history.rend(); ++row) {
    if (row->kind == "note") return row->text;
    if (row->kind == "worker") break;
  }
  return {};
}

}  // namespace

std::string clock_time(double unix_s) {
  const auto seconds = static_cast<std::time_t>(unix_s);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(seconds));
}

std::vector<std::string> overview(const CampaignStatus& status, const Terminal& terminal) {
  std::vector<std::string> lines;
  std::string head =
      styled(terminal, Style::bold, status.name) + "  " +
      styled(terminal, style_of(engine::followup_state(status.state)), std::string(name_of(status.state))) +
      "  " + text::format_duration(status.elapsed_s);
  std::int64_t cores = 0;
  for (const auto& worker : status.workers) cores += worker.cores;
  if (!status.workers.empty()) {
    head += fmt::format("  {} worker{} with {} core{}", status.workers.size(),
                        status.workers.size() == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
  }
  lines.push_back(head);
  int name_width = 8;
  for (const StepStatus& step : status.steps) name_width = std::max(name_width, columns_of(step.name));
  name_width = std::min(name_width, std::max(8, terminal.width / 3));
  append(lines, step_lines(status.steps, terminal, name_width));
  append(lines, held_lines(status));
  append(lines, slow_lines(status));
  append(lines, silent_lines(status));
  append(lines, allocation_lines(status.allocations, status.time_s, false));
  constexpr std::array<std::string_view, 2> kShownMetrics = {"train_loss", "validation_loss"};
  const int label_width = curve_label_width(status, kShownMetrics, terminal, name_width);
  for (const std::string_view name : kShownMetrics) add_curves(status, name, terminal, label_width, lines);
  for (const engine::FollowupView& followup : status.followups)
    lines.push_back(followup_line(followup, terminal));
  if (!status.iterations.empty()) lines.push_back("  iterations: " + status.iterations);
  if (status.refused.all() > 0) lines.push_back("  " + status.refused.sentence());
  if (const std::string note = newest_note(status); !note.empty()) lines.push_back("  " + note);
  std::vector<std::string> fitting;
  for (const std::string& line : lines)
    terminal.interactive ? append(fitting, wrapped(line, terminal.width, 4)) : fitting.push_back(line);
  for (std::string& line : fitting) {
    while (line.ends_with(' ')) line.pop_back();
  }
  return fitting;
}

std::vector<std::string> details(const CampaignStatus& status, const Terminal& terminal, bool everything) {
  std::vector<std::string> lines = failure_lines(status, terminal, everything);
  append(lines, missing_lines(status, terminal));
  if (everything && !status.workers.empty()) {
    lines.push_back("");
    lines.push_back("workers:");
    for (const auto& worker : status.workers) {
      lines.push_back(fmt::format("  {}  {} cores, {} running, {} assigned{}", worker.id, worker.cores,
                                  worker.running, worker.leased, worker.draining ? ", draining" : ""));
    }
  }
  if (everything && !status.allocations.allocations.empty()) {
    lines.push_back("");
    lines.push_back("allocations:");
    for (const auto& allocation : status.allocations.allocations)
      lines.push_back("  " + allocation_line(allocation, status.time_s));
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
