// SPDX-License-Identifier: Apache-2.0
#include "cli/view/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "engine/schedule/disk_limit.h"

namespace wflow::cli {

namespace {

using engine::ElementState;
using engine::StepStatus;

constexpr int kRemarksWidth = 44;  // least width beside the bar, so that the bar seldom changes its length
constexpr int kLeastBar = 8, kGreatestBar = 30;

bool shows_own_progress(const StepStatus& step) {
  return step.elements == 1 && step.progress_total > 0 && step.ended() == 0;
}

// The number of ended elements, or the progress of a single long task.
std::pair<std::uint64_t, std::uint64_t> progress_of(const StepStatus& step) {
  if (shows_own_progress(step)) return {step.progress_done, step.progress_total};
  return {step.ended(), step.elements};
}

std::string counts_of(const StepStatus& step) {
  const auto [done, total] = progress_of(step);
  return fmt::format("{}/{}{}", text::format_count(done), text::format_count(total),
                     shows_own_progress(step) ? " " + step.progress_unit : "");
}

std::vector<std::string> remarks_of(const StepStatus& step, const Terminal& terminal) {
  std::vector<std::string> parts;
  const auto add = [&](std::uint64_t count, const char* word, Style style) {
    if (count > 0)
      parts.push_back(styled(terminal, style, fmt::format("{} {}", text::format_count(count), word)));
  };
  add(step.failed(), "failed", Style::red);
  if (waits_for_disk(step)) {
    parts.push_back(styled(terminal, Style::yellow, "held back"));
  } else if (!step.held.empty()) {
    parts.push_back(styled(terminal, Style::red, "paused"));
  }
  const std::uint64_t missing = step.missing_samples();
  add(missing, missing == 1 ? "sample missing" : "samples missing", Style::yellow);
  add(step.count(ElementState::skipped), "skipped", Style::yellow);
  add(step.count(ElementState::cancelled), "cancelled", Style::yellow);
  add(step.count(ElementState::delayed), "to retry", Style::yellow);
  // Leased to a worker, which runs them or has them in its queue.
  add(step.count(ElementState::leased), "assigned", Style::plain);
  if (step.rate_per_s > 0 && step.progress_total == 0) {
    parts.push_back(step.rate_per_s < 1 ? fmt::format("{:.1f}/min", step.rate_per_s * 60)
                                        : fmt::format("{:.1f}/s", step.rate_per_s));
  }
  const bool ended = step.ended() == step.elements;
  if (step.left_s && !ended) parts.push_back(text::format_duration(*step.left_s) + " left");
  if (ended && step.mean_s > 0) parts.push_back(fmt::format("{} each", text::format_duration(step.mean_s)));
  // Show the memory peak of 95 % of the executions from this size on.
  constexpr double kWorth = 64 << 20;
  if (step.usage.executions > 0 && step.usage.peak_bytes.p95 >= kWorth)
    parts.push_back(text::format_bytes(static_cast<std::uint64_t>(step.usage.peak_bytes.p95)) + " of memory");
  return parts;
}

// Adds the remarks to `line`, or as separate lines if they do not fit.
void add_step(std::string line, const std::vector<std::string>& remarks, const Terminal& terminal, int indent,
              std::vector<std::string>& lines) {
  bool first = true;  // in this line
  for (const std::string& remark : remarks) {
    const int width = columns_of(line) + 2 + columns_of(remark);
    if (terminal.interactive && width > terminal.width && columns_of(line) > indent) {
      lines.push_back(std::exchange(line, std::string(static_cast<std::size_t>(indent), ' ')));
      line += remark;
    } else {
      line += (first ? "  " : ", ") + remark;
    }
    first = false;
  }
  lines.push_back(std::move(line));
}

}  // namespace

bool waits_for_disk(const engine::StepStatus& step) {
  return step.held.starts_with(engine::kHeldByDisk);
}

std::vector<std::string> step_lines(const std::vector<StepStatus>& steps, const Terminal& terminal,
                                    int name_width) {
  int counts_width = 0;
  int remarks_width = kRemarksWidth;
  for (const StepStatus& step : steps) {
    counts_width = std::max(counts_width, columns_of(counts_of(step)));
    remarks_width = std::max(remarks_width, columns_of(text::join(remarks_of(step, terminal), ", ")));
  }
  const int bar_width =
      std::min(terminal.width - name_width - counts_width - remarks_width - 6, kGreatestBar);
  std::vector<std::string> lines;
  for (const StepStatus& step : steps) {
    const auto [done, total] = progress_of(step);
    const double fraction = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
    std::string line = fmt::format("  {} ", fitted(step.name, name_width, true));
    if (bar_width >= kLeastBar) line += bar(terminal, fraction, bar_width) + " ";
    line += fmt::format("{:>{}}", counts_of(step), counts_width);
    add_step(std::move(line), remarks_of(step, terminal), terminal, name_width + 3, lines);
  }
  return lines;
}

}  // namespace wflow::cli
