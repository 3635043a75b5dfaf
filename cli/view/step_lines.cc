// SPDX-License-Identifier: Apache-2.0
#include "cli/view/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "cli/top/progress.h"
#include "cli/top/words.h"
#include "engine/monitor/status.h"
#include "engine/schedule/disk_limit.h"

namespace wflow::cli {

namespace {

using engine::ElementState;
using engine::StepStatus;

constexpr int kRemarksWidth = 44;  // least width beside the bar, so that the bar seldom changes its length
constexpr int kLeastBar = 8, kGreatestBar = 30;
constexpr int kLeastName = 8;
constexpr int kBetween = 5;  // blanks before the name, around the bar, and before the remarks

Style style_of(top::Part part) {
  constexpr std::array<Style, top::kParts> kStyles = {Style::green, Style::red,    Style::yellow,
                                                      Style::cyan,  Style::yellow, Style::dim};
  return kStyles[static_cast<std::size_t>(part)];
}

std::vector<std::string> remarks_of(const engine::CampaignStatus& status, const StepStatus& step,
                                    const Terminal& terminal) {
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
  const engine::MissingCounts samples = engine::counts_of(step.missing);
  const std::uint64_t missing = samples.failed + samples.unusable;
  add(missing, missing == 1 ? "sample missing" : "samples missing", Style::yellow);
  add(samples.skipped, samples.skipped == 1 ? "sample skipped" : "samples skipped", Style::plain);
  add(step.count(ElementState::skipped), "skipped", Style::yellow);
  add(step.count(ElementState::cancelled), "cancelled", Style::yellow);
  add(step.count(ElementState::delayed), "to retry", Style::yellow);
  // Leased to a worker, which runs them or has them in its queue.
  add(step.count(ElementState::leased), "assigned", Style::plain);
  const bool ended = step.ended() == step.elements;
  if (!ended && step.progress_total == 0 && step.rate_per_s > 0)
    parts.push_back(top::brief_rate(step.rate_per_s));
  const auto left_s = top::left_of(status, step);
  if (left_s && !ended) parts.push_back(text::format_duration(*left_s) + " left");
  if (ended && step.mean_s > 0) parts.push_back(fmt::format("{} each", text::format_duration(step.mean_s)));
  // Show the memory peak of 95 % of the executions from this size on.
  constexpr double kWorth = 64 << 20;
  if (step.usage.executions > 0 && step.usage.peak_bytes.p95 >= kWorth)
    parts.push_back(text::format_bytes(static_cast<std::uint64_t>(step.usage.peak_bytes.p95)) + " of memory");
  return parts;
}

}  // namespace

std::string bar_of(const top::Shares& shares, const Terminal& terminal, int columns) {
  const auto cells = top::bar_cells(shares, columns);
  std::string bar;
  for (std::size_t i = 0; i < top::kParts; ++i) {
    const auto part = static_cast<top::Part>(i);
    std::string signs;
    for (int cell = 0; cell < cells[i]; ++cell) signs += top::sign_of(part, terminal.unicode);
    if (!signs.empty()) bar += styled(terminal, style_of(part), signs);
  }
  return bar;
}

bool waits_for_disk(const engine::StepStatus& step) {
  return step.held.starts_with(engine::kHeldByDisk);
}

std::vector<std::string> step_lines(const engine::CampaignStatus& status, const Terminal& terminal) {
  int name_width = kLeastName;
  int remarks_width = kRemarksWidth;
  for (const StepStatus& step : status.steps) {
    name_width = std::max(name_width, columns_of(step.name));
    remarks_width = std::max(remarks_width, columns_of(text::join(remarks_of(status, step, terminal), ", ")));
  }
  if (terminal.interactive) name_width = std::min(name_width, std::max(kLeastName, terminal.width / 3));
  const auto width_of_counts = [&](bool brief) {
    int width = 0;
    for (const StepStatus& step : status.steps)
      width = std::max(width, columns_of(top::text_of(top::counts_of(step), brief)));
    return width;
  };
  const int fixed = name_width + kBetween;
  // Remarks go to a second line, and counts become shorter, before the bar goes.
  const bool brief = terminal.interactive && fixed + width_of_counts(false) + kLeastBar > terminal.width;
  const int counts_width = width_of_counts(brief);
  const int bar_width =
      std::clamp(terminal.width - fixed - counts_width - remarks_width - 1, kLeastBar, kGreatestBar);
  std::vector<std::string> lines;
  for (const StepStatus& step : status.steps) {
    const std::string name = shortened_name(terminal, step.name, name_width);
    std::string line = fmt::format("  {} {} {:>{}}", fitted(name, name_width, true),
                                   bar_of(top::shares_of(step), terminal, bar_width),
                                   top::text_of(top::counts_of(step), brief), counts_width);
    std::ranges::move(
        flowed(terminal, std::move(line), remarks_of(status, step, terminal), "  ", ", ", name_width + 3),
        std::back_inserter(lines));
  }
  return lines;
}

}  // namespace wflow::cli
