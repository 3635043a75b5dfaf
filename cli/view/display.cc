// SPDX-License-Identifier: Apache-2.0
#include "cli/view/display.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <span>

#include "base/text.h"
#include "cli/campaign/trainings.h"
#include "cli/top/progress.h"
#include "cli/top/words.h"
#include "cli/view/status.h"
#include "cli/view/terminal.h"

namespace wflow::cli {

namespace {

using engine::MetricCurve;
using engine::MetricPoint;

// The last of the curve's points in that epoch.
const MetricPoint* point_of(const MetricCurve& curve, std::uint64_t epoch) {
  const auto end = std::ranges::upper_bound(curve.points, epoch, {}, &MetricPoint::epoch);
  return end != curve.points.begin() && std::prev(end)->epoch == epoch ? &*std::prev(end) : nullptr;
}

int rank_of(std::string_view name) {
  return name == "train_loss" ? 0 : name == "validation_loss" ? 1 : 2;
}

std::string line_of(std::string text, const std::vector<const MetricCurve*>& curves, std::uint64_t epoch,
                    std::size_t columns) {
  constexpr std::size_t kForCount = 14;  // length of ", and 100 more"
  std::size_t left = 0;
  std::string_view separator = ": ";
  for (const MetricCurve* curve : curves) {
    const MetricPoint* point = point_of(*curve, epoch);
    if (point == nullptr) continue;
    const std::string part = fmt::format("{}{} {:.4g}", separator, curve->name, point->value);
    if (left > 0 || text.size() + part.size() + kForCount > columns) {
      ++left;
      continue;
    }
    text += part;
    separator = ", ";
  }
  if (left > 0) text += fmt::format("{}{}{} more", separator, separator == ", " ? "and " : "", left);
  return text;
}

// The epochs greater than `after`.
std::set<std::uint64_t> epochs_of(const std::vector<const MetricCurve*>& curves, std::uint64_t after) {
  std::set<std::uint64_t> epochs;
  for (const MetricCurve* curve : curves) {
    for (auto point = curve->points.rbegin(); point != curve->points.rend() && point->epoch > after; ++point)
      epochs.insert(point->epoch);
  }
  return epochs;
}

}  // namespace

std::vector<std::string> TrainingLines::take(const engine::CampaignStatus& status, std::size_t columns,
                                             bool all) {
  std::map<std::string, std::vector<const MetricCurve*>> curves;
  for (const MetricCurve& curve : status.metrics) curves[curve.task].push_back(&curve);
  std::vector<std::string> lines;
  for (auto& [task, list] : curves) {
    std::ranges::stable_sort(list, {}, [](const MetricCurve* curve) { return rank_of(curve->name); });
    Training& training = trainings_[task];
    const auto epochs = epochs_of(list, training.given);
    if (first_call_ && !epochs.empty()) {
      training.given = *epochs.rbegin();
      continue;
    }
    for (const std::uint64_t epoch : epochs) {
      const std::string name = curves.size() > 1 ? task + " " : "";
      std::string line = line_of(fmt::format("{}epoch {}", name, epoch), list, epoch, columns);
      const bool newest = epoch == *epochs.rbegin();
      if (newest && !all && line != training.newest_as_seen) {
        training.newest_as_seen = std::move(line);
        break;
      }
      training.given = epoch;
      lines.push_back(std::move(line));
    }
  }
  first_call_ = false;
  return lines;
}

namespace {

constexpr std::size_t kLineWidth = 100;  // width of lines for pipes and files

void print(const std::string& text) {
  // A reader that went away (| head) must not end the campaign: failures to print are ignored.
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

std::string progress_line(const engine::CampaignStatus& status, std::size_t columns) {
  const top::Overall overall = top::overall_of(status);
  std::string end;
  if (overall.failed > 0) end += fmt::format("; {} failed", text::format_count(overall.failed));
  if (overall.left) end += "; " + left_text(*overall.left);
  std::string line = top::share_text(overall);
  std::string_view separator = ": ";
  for (const engine::StepStatus& step : status.steps) {
    if (step.ended() == step.elements) continue;
    const std::string part =
        fmt::format("{}{} {}", separator, step.name, top::text_of(top::counts_of(step), false));
    constexpr std::size_t kForMore = 5;  // length of ", ..."
    if (line.size() + part.size() + end.size() + kForMore > columns) return line + ", ..." + end;
    line += part;
    separator = ", ";
  }
  return line + end;
}

Display::Display(bool quiet, Interrupt interrupt) : quiet_(quiet), interrupt_(interrupt) {}

void Display::show(const engine::CampaignStatus& status) {
  if (quiet_) return;
  if (!began_s_) began_s_ = status.elapsed_s;
  // Read the size every time, because users resize windows.
  const Terminal terminal = standard_output();
  terminal.interactive ? draw(picture(status, terminal, false)) : print_changes(status, false);
}

void Display::show(const specs::Plan& plan, const engine::CampaignStatus& status) {
  // Without curves there is nothing to copy a status for.
  if (quiet_ || status.metrics.empty()) return show(status);
  show(with_one_curve_each(plan, status));
}

// The reason of the stop, and the effect of a second Ctrl-C.
std::string Display::stop_text(const engine::CampaignStatus& status, const std::string& row) const {
  const bool hint = status.state == engine::CampaignState::draining && interrupt_ == Interrupt::ends_campaign;
  return row + (hint ? "; Ctrl-C again kills them (they run again on resume)" : "");
}

std::vector<std::string> Display::picture(const engine::CampaignStatus& status, const Terminal& terminal,
                                          bool last) const {
  // A line that fills the last column leaves the cursor in different places on different terminals.
  Terminal narrower = terminal;
  narrower.width = std::max(terminal.width - 1, 1);
  std::vector<std::string> lines = overview(status, narrower, command_s(status));
  if (status.state != engine::CampaignState::running && !engine::is_at_rest(status.state)) {
    const auto row =
        std::ranges::find(status.history.rbegin(), status.history.rend(), "stop", &engine::HistoryView::kind);
    if (row != status.history.rend()) {
      const auto text = wrapped("  " + stop_text(status, row->text), narrower.width, 4);
      for (const std::string& line : text) lines.push_back(styled(terminal, Style::yellow, line));
    }
  }
  if (!last) {
    const auto failed = failure_overview(status, narrower);
    lines.insert(lines.end(), failed.begin(), failed.end());
  }
  // A picture that is higher than the window can't be redrawn in place.
  const auto most = static_cast<std::size_t>(std::max(terminal.height - 1, 2));
  if (!engine::is_at_rest(status.state) && lines.size() > most) {
    const std::size_t left = lines.size() - (most - 1);
    lines.resize(most - 1);
    lines.push_back(fitted(fmt::format("  and {}: wflow status", top::counted(left, "more line")),
                           narrower.width, false));
  }
  return lines;
}

void Display::draw(const std::vector<std::string>& lines) {
  // A window that has become narrower has broken the lines on the screen into more lines. It may have changed
  // since `lines` were made.
  const Terminal terminal = standard_output();
  int rows = 0;
  for (const int columns : drawn_)
    rows += terminal.reflows ? std::max(1, (columns - 1) / terminal.width + 1) : 1;
  std::string text;
  if (rows > 0) text += own_escape(fmt::format("{}A", rows));
  drawn_.clear();
  for (const std::string& line : lines) {
    text += line + own_escape("K") + "\n";
    drawn_.push_back(columns_of(line));
  }
  print(text + own_escape("J"));
}

void Display::print_changes(const engine::CampaignStatus& status, bool last) {
  const std::string stamp = "[" + text::format_duration(status.elapsed_s) + "] ";
  print_progress(status, stamp, last);
  for (const std::string& line : failures_.news(status)) print(stamp + line + "\n");
  for (const std::string& line : training_.take(status, kLineWidth - stamp.size(), last))
    print(stamp + line + "\n");
  for (const auto& row : status.history) {
    if (row.number <= reported_history_) continue;
    reported_history_ = row.number;
    if (row.kind == "stop") {
      print(stamp + stop_text(status, row.text) + "\n");
    } else if (row.kind == "error" || row.kind == "retry" || row.kind == "note") {
      print(stamp + row.text + "\n");
    }
  }
}

// At once, then with each tenth of a step, and at least every half minute.
void Display::print_progress(const engine::CampaignStatus& status, const std::string& stamp, bool last) {
  constexpr double kSilence_s = 30;
  for (const auto& step : status.steps) {
    if (step.elements == 0) continue;
    const int tenths = static_cast<int>(10 * step.ended() / step.elements);
    auto [reported, is_new] = tenths_.try_emplace(step.name, 0);
    if (tenths <= reported->second) continue;
    reported->second = tenths;
    progress_s_ = status.time_s;
    std::string line = fmt::format("{}{}: {}", stamp, step.name, top::text_of(top::counts_of(step), false));
    if (step.failed() > 0) line += fmt::format(", {} failed", text::format_count(step.failed()));
    if (const auto skipped = top::skipped_of(step); skipped > 0)
      line += fmt::format(", {} skipped", text::format_count(skipped));
    if (step.rate_per_s > 0) line += ", " + top::brief_rate(step.rate_per_s);
    if (const auto left_s = top::left_of(status, step); left_s && *left_s > 0)
      line += fmt::format(", {} left", text::format_duration(*left_s));
    print(line + "\n");
  }
  if (last || status.steps.empty()) return;
  if (progress_s_ && status.time_s - *progress_s_ < kSilence_s) return;
  progress_s_ = status.time_s;
  print(stamp + progress_line(status, kLineWidth - stamp.size()) + "\n");
}

std::optional<double> Display::command_s(const engine::CampaignStatus& status) const {
  if (!began_s_ || interrupt_ != Interrupt::ends_campaign) return std::nullopt;
  return status.elapsed_s - *began_s_;
}

void Display::finish(const engine::CampaignStatus& status) {
  if (quiet_) return;
  const Terminal terminal = standard_output();
  if (terminal.interactive) {
    draw(picture(status, terminal, true));
  } else {
    print_changes(status, true);
    for (const std::string& line : overview(status, terminal, command_s(status))) print(line + "\n");
  }
  for (const std::string& line : training_results(status, terminal)) print(line + "\n");
  for (const std::string& line : search_results(status.directory)) print(line + "\n");
  for (const std::string& line : details(status, terminal, false, {})) print(line + "\n");
}

void Display::finish(const specs::Plan& plan, const engine::CampaignStatus& status) {
  if (quiet_ || status.metrics.empty()) return finish(status);
  finish(with_one_curve_each(plan, status));
}

}  // namespace wflow::cli
