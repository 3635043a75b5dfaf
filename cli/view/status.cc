// SPDX-License-Identifier: Apache-2.0
#include "cli/view/status.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <string_view>

#include "base/text.h"
#include "cli/campaign/trainings.h"
#include "cli/top/progress.h"
#include "cli/top/words.h"
#include "cli/view/failure_groups.h"
#include "engine/coordinate/timing.h"
#include "engine/monitor/status.h"

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

// "  iteration 2  running, 3/12 tasks, 1 failed  /campaigns/.../iterations/002"
std::string followup_line(const engine::FollowupView& followup, const Terminal& terminal) {
  const std::string name =
      followup.kind == "iteration" ? fmt::format("iteration {}", followup.iteration) : followup.kind;
  std::string line = fmt::format("  {:<13} {}", name,
                                 styled(terminal, style_of(followup.state), engine::state_text(followup)));
  if (followup.elements > 0) {
    line += fmt::format(", {} of {} done",
                        text::format_count(followup.ended - std::min(followup.ended, followup.failed)),
                        top::counted(followup.elements, "task"));
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
    lines.push_back(status.slow_total == kShown + 1
                        ? "  and 1 other task runs for far longer than is usual"
                        : fmt::format("  and {} other tasks run for far longer than is usual",
                                      status.slow_total - kShown));
  return lines;
}

// Lines about silent workers that do not count as lost yet: their tasks wait for that.
std::vector<std::string> silent_lines(const CampaignStatus& status) {
  constexpr double kSilent_s = 5;  // heartbeats come every second, or every third
  constexpr double kGivenUp_s = engine::Timing().lost_s + engine::Timing().margin_s;
  constexpr std::size_t kShown = 3;
  std::vector<std::string> lines;
  std::size_t silent = 0;
  for (const auto& worker : status.workers) {
    if (worker.silent_s <= kSilent_s || ++silent > kShown) continue;
    lines.push_back(fmt::format(
        "  node {} has been silent for {}, with {}: they run again elsewhere as "
        "soon as its scheduler says that it is gone, or in {}",
        worker.host, text::format_duration(worker.silent_s), top::counted(worker.running, "running task"),
        text::format_duration(std::max(0.0, kGivenUp_s - worker.silent_s))));
  }
  if (silent > kShown)
    lines.push_back(silent == kShown + 1 ? "  and 1 other node is silent"
                                         : fmt::format("  and {} other nodes are silent", silent - kShown));
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
    return fmt::format("{} {} missing from the data set of {}:", top::counted(missing, "sample"),
                       missing == 1 ? "is" : "are", step.name);
  }
  const engine::MissingCounts counts = engine::counts_of(step.missing);
  std::vector<std::string> parts;
  if (counts.failed > 0) parts.push_back(text::format_count(counts.failed) + " failed");
  if (counts.skipped > 0) parts.push_back(text::format_count(counts.skipped) + " were skipped");
  if (counts.unusable > 0)
    parts.push_back(fmt::format("of {} the output is not usable", text::format_count(counts.unusable)));
  return fmt::format("{} of {} samples are usable in the data set of {}: {}",
                     text::format_count(step.samples - missing), text::format_count(step.samples), step.name,
                     text::join(parts, ", "));
}

// Samples that are missing from a data set, and the remedy.
std::vector<std::string> missing_lines(const CampaignStatus& status, const Terminal& terminal) {
  std::vector<std::string> lines;
  std::string check;
  std::uint64_t unusable = 0;
  for (const StepStatus& step : status.steps) {
    if (step.missing.empty()) continue;
    lines.push_back("");
    unusable += engine::counts_of(step.missing).unusable;
    lines.push_back(missing_line(step));
    for (const auto& reason : step.missing) {
      lines.push_back(fmt::format("  {}: {}",
                                  styled(terminal, Style::yellow, text::format_count(reason.samples)),
                                  reason.reason) +
                      (reason.samples > 1 ? fmt::format(" (the first: sample {})", reason.first)
                                          : fmt::format(" (sample {})", reason.first)));
      if (check.empty() && engine::counts_of({reason}).unusable > 0) check = check_for(reason.reason);
    }
  }
  if (lines.empty()) return lines;
  if (const std::uint64_t failed = failed_simulations(status); failed > 0) {
    lines.push_back(fmt::format("  run the {} that failed again: wflow retry {}",
                                failed == 1 ? "simulation" : "simulations", status.directory));
  }
  if (unusable == 0) return lines;
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

std::string elapsed_text(double campaign_s, std::optional<double> command_s) {
  constexpr double kSame_s = 1;  // the campaign began with this command
  std::string text = text::format_duration(campaign_s);
  if (command_s && campaign_s - *command_s > kSame_s)
    text += fmt::format(", {} of it in this command", text::format_duration(*command_s));
  return text;
}

std::string left_text(const top::Left& left) {
  return fmt::format("{}{} left", left.at_least ? "at least " : "", text::format_duration(left.seconds));
}

namespace {

std::vector<std::string> head_lines(const CampaignStatus& status, const Terminal& terminal,
                                    std::optional<double> command_s) {
  const top::Overall overall = top::overall_of(status);
  const Style style = style_of(engine::followup_state(status.state));
  std::vector<std::string> parts = {styled(terminal, style, top::spaced(name_of(status.state))),
                                    top::share_text(overall), elapsed_text(status.elapsed_s, command_s)};
  if (overall.left) parts.push_back(left_text(*overall.left));
  std::int64_t cores = 0;
  for (const auto& worker : status.workers) cores += worker.cores;
  if (!status.workers.empty()) {
    parts.push_back(fmt::format("{} with {}", top::counted(status.workers.size(), "worker"),
                                top::counted(static_cast<std::uint64_t>(cores), "core")));
  }
  return flowed(terminal, styled(terminal, Style::bold, status.name), parts, "  ", "  ", 2);
}

}  // namespace

std::vector<std::string> overview(const CampaignStatus& status, const Terminal& terminal,
                                  std::optional<double> command_s) {
  std::vector<std::string> lines = head_lines(status, terminal, command_s);
  append(lines, step_lines(status, terminal));
  append(lines, held_lines(status));
  append(lines, slow_lines(status));
  append(lines, silent_lines(status));
  append(lines, allocation_lines(status.allocations, status.time_s, false));
  append(lines, curve_lines(status, terminal));
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

namespace {

constexpr std::uint64_t kShownHistory = 5;

// The last rows, and the number of all.
std::vector<std::string> history_lines(const CampaignStatus& status, const top::WorkerNames& names) {
  const auto& history = status.history;
  const std::size_t shown = std::min<std::size_t>(history.size(), kShownHistory);
  const std::uint64_t rest = history.back().number - shown;
  std::vector<std::string> lines = {"", "history:"};
  if (rest > 0)
    lines.push_back(fmt::format("  {} before these: wflow status --json has the last {}",
                                top::counted(rest, "event"), engine::kListedHistory));
  for (std::size_t i = history.size() - shown; i < history.size(); ++i) {
    lines.push_back(fmt::format("  {}  {:<9} {}", clock_time(history[i].time_s), history[i].kind,
                                names.in(history[i].text)));
  }
  return lines;
}

std::string worker_line(const engine::WorkerStatus& worker, const top::WorkerNames& names) {
  return fmt::format("  {}  {}, {} running, {} assigned{}", names.of(worker.id),
                     top::counted(static_cast<std::uint64_t>(std::max(worker.cores, 0)), "core"),
                     text::format_count(worker.running), text::format_count(worker.leased),
                     worker.draining ? ", draining" : "");
}

}  // namespace

std::vector<std::string> wrapped_lines(const std::vector<std::string>& lines, const Terminal& terminal) {
  constexpr int kIndent = 6;
  if (!terminal.interactive) return lines;
  std::vector<std::string> fitting;
  for (const std::string& line : lines)
    append(fitting, wrapped(line, terminal.width, kIndent, LongWords::kept));
  return fitting;
}

std::vector<std::string> details(const CampaignStatus& status, const Terminal& terminal, bool everything,
                                 const top::WorkerNames& names) {
  std::vector<std::string> lines = failure_lines(status, terminal, everything);
  append(lines, missing_lines(status, terminal));
  if (everything && !status.workers.empty()) {
    lines.insert(lines.end(), {"", "workers:"});
    for (const auto& worker : status.workers) lines.push_back(worker_line(worker, names));
  }
  if (everything && !status.allocations.allocations.empty()) {
    lines.insert(lines.end(), {"", "allocations:"});
    for (const auto& allocation : status.allocations.allocations)
      lines.push_back("  " + allocation_line(allocation, status.time_s));
  }
  if (!status.artifacts.empty()) {
    lines.emplace_back();
    for (const auto& artifact : status.artifacts)
      lines.push_back(fmt::format("  {:<12} {}", artifact.kind, artifact.path));
  }
  if (everything && !status.history.empty()) append(lines, history_lines(status, names));
  return wrapped_lines(lines, terminal);
}

std::vector<std::string> status_lines(const CampaignStatus& status, const TrainingRows& trainings,
                                      const top::WorkerNames& names, const Terminal& terminal) {
  std::vector<std::string> lines = overview(status, terminal);
  if (trainings.rows.size() > 1) {
    lines.insert(lines.end(),
                 {"", fmt::format("{} trainings by {}:", trainings.rows.size(), trainings.metric)});
    append(lines, training_table(trainings).whole_lines(terminal));
    append(lines, search_results(status.directory));
  }
  append(lines, training_results(status, terminal));
  append(lines, details(status, terminal, true, names));
  return lines;
}

}  // namespace wflow::cli
