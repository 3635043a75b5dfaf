// SPDX-License-Identifier: Apache-2.0
#include "cli/top/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "cli/top/words.h"
#include "engine/wire/campaign_state.h"

namespace wflow::cli::top {

namespace {

using engine::ElementState;
using engine::wire::StatusAnswer;
using engine::wire::StepStatus;

std::size_t index_of(Part part) {
  return static_cast<std::size_t>(part);
}

// Tasks of the step that run now: workers say how many run in all, and leases how they are spread.
double running_of(const StatusAnswer& status, const StepStatus& step) {
  std::uint64_t running = 0;
  for (const auto& worker : status.workers) running += worker.running;
  std::uint64_t leased = 0;
  for (const StepStatus& other : status.steps) leased += other.count(ElementState::leased);
  const std::uint64_t own = step.count(ElementState::leased);
  if (running == 0 || own == 0) return 0;
  return static_cast<double>(running) * static_cast<double>(own) / static_cast<double>(leased);
}

}  // namespace

const char* sign_of(Part part, bool unicode) {
  constexpr std::array<const char*, kParts> kBlocks = {"█", "x", "-", "▓", "~", "░"};
  constexpr std::array<const char*, kParts> kAscii = {"#", "x", "-", ">", "~", "."};
  return (unicode ? kBlocks : kAscii)[index_of(part)];
}

std::array<int, kParts> bar_cells(const Shares& shares, int columns) {
  std::array<int, kParts> cells{};
  const double whole = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (whole <= 0 || columns <= 0) return cells;
  int used = 0;
  for (std::size_t i = 0; i < kParts; ++i) {
    cells[i] = static_cast<int>(shares[i] / whole * columns + 1e-9);
    used += cells[i];
  }
  for (std::size_t i = 0; i < kParts; ++i) {
    if (shares[i] <= 0 || cells[i] > 0) continue;
    const auto largest = std::ranges::max_element(cells);
    if (used >= columns && *largest < 2) break;
    if (used >= columns) --*largest;
    used += used >= columns ? 0 : 1;
    cells[i] = 1;
  }
  // Cells that rounding left over go to the waiting part, or to the largest.
  const auto largest = static_cast<std::size_t>(std::ranges::max_element(shares) - shares.begin());
  cells[shares[index_of(Part::waiting)] > 0 ? index_of(Part::waiting) : largest] += columns - used;
  return cells;
}

bool reports_itself(const StepStatus& step) {
  return step.elements == 1 && step.progress_total > 0 && step.ended() == 0;
}

Shares shares_of(const StepStatus& step) {
  Shares shares{};
  const auto set = [&](Part part, std::uint64_t count) {
    shares[index_of(part)] = static_cast<double>(count);
  };
  if (reports_itself(step)) {
    const std::uint64_t done = std::min(step.progress_done, step.progress_total);
    set(Part::done, done);
    set(Part::waiting, step.progress_total - done);
    return shares;
  }
  set(Part::done, step.count(ElementState::done));
  set(Part::failed, step.failed());
  set(Part::skipped, skipped_of(step));
  set(Part::assigned, step.count(ElementState::leased));
  set(Part::retrying, step.count(ElementState::delayed));
  set(Part::waiting, step.count(ElementState::blocked) + step.count(ElementState::ready));
  return shares;
}

Counts counts_of(const StepStatus& step) {
  if (reports_itself(step)) return {step.progress_done, step.progress_total, step.progress_unit};
  return {step.count(ElementState::done), step.elements, ""};
}

std::string text_of(const Counts& counts, bool brief) {
  const auto number = [&](std::uint64_t value) {
    return brief ? brief_count(value) : text::format_count(value);
  };
  return fmt::format("{}/{}{}{}", number(counts.done), number(counts.total), counts.unit.empty() ? "" : " ",
                     counts.unit);
}

std::uint64_t skipped_of(const StepStatus& step) {
  return step.count(ElementState::skipped) + step.count(ElementState::cancelled);
}

std::optional<double> left_of(const StatusAnswer& status, const StepStatus& step) {
  if (step.ended() == step.elements) return 0;
  if (step.left_s) return step.left_s;
  const double running = running_of(status, step);
  if (running <= 0 || step.mean_s <= 0) return std::nullopt;
  return static_cast<double>(step.elements - step.ended()) * step.mean_s / running;
}

Overall overall_of(const StatusAnswer& status) {
  Overall overall;
  Left left;
  bool estimated = false;
  for (const StepStatus& step : status.steps) {
    overall.elements += step.elements;
    overall.done += step.count(ElementState::done);
    overall.failed += step.failed();
    overall.skipped += skipped_of(step);
    if (step.ended() == step.elements) continue;
    const auto step_left_s = left_of(status, step);
    left.at_least = left.at_least || !step_left_s;
    estimated = estimated || step_left_s;
    left.seconds = std::max(left.seconds, step_left_s.value_or(0));
  }
  if (overall.elements > 0) overall.percent = static_cast<int>(100 * overall.done / overall.elements);
  if (overall.elements == 0) overall.percent = 100;
  if (estimated && !engine::is_at_rest(status.state)) overall.left = left;
  return overall;
}

std::string share_text(const Overall& overall) {
  constexpr int kNearlyAll = 99;
  const std::uint64_t ended = overall.done + overall.failed + overall.skipped;
  if (overall.percent < kNearlyAll || ended >= overall.elements)
    return fmt::format("{} % done", overall.percent);
  return fmt::format("{} of {} left", text::format_count(overall.elements - ended),
                     counted(overall.elements, "task"));
}

}  // namespace wflow::cli::top
