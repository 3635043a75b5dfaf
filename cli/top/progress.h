// SPDX-License-Identifier: Apache-2.0
// The progress of a campaign and of its steps: the one place that computes the counts, shares, percentages
// and times that `wflow run`, `wflow status` and `wflow top` show. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/wire/answers.h"

namespace wflow::cli::top {

// The parts of a bar, in their order.
enum class Part : std::uint8_t { done, failed, skipped, assigned, retrying, waiting };
inline constexpr std::size_t kParts = 6;
using Shares = std::array<double, kParts>;  // counts

// Each part has a sign of its own, so that they are distinct without colours: "███x-▓▓~░░░".
const char* sign_of(Part part, bool unicode);

// The cells of each part in a bar of that length. A part that is not 0 has at least one cell, at the cost of
// the largest, while the bar has enough of them.
std::array<int, kParts> bar_cells(const Shares& shares, int columns);

// True for a single long task that reports its own progress, until it ends.
bool reports_itself(const engine::wire::StepStatus& step);
Shares shares_of(const engine::wire::StepStatus& step);

// Done tasks, or the units that a single long task has reported.
struct Counts {
  std::uint64_t done = 0, total = 0;
  std::string unit;  // empty: tasks
};
Counts counts_of(const engine::wire::StepStatus& step);
std::string text_of(const Counts& counts, bool brief);  // "612,345/1,000,000", "612k/1.00M", "12/90 epochs"

// Skipped and cancelled tasks.
std::uint64_t skipped_of(const engine::wire::StepStatus& step);

// Seconds until the last task of a step ends: at its rate over the last seconds, else from the mean duration
// and the running tasks. Empty: unknown.
std::optional<double> left_of(const engine::wire::StatusAnswer& status, const engine::wire::StepStatus& step);

struct Left {
  double seconds = 0;
  bool at_least = false;  // a step has no estimate yet
};

struct Overall {
  std::uint64_t elements = 0, done = 0, failed = 0, skipped = 0;
  int percent = 0;           // of the tasks that are done, rounded down
  std::optional<Left> left;  // while the campaign runs
};
Overall overall_of(const engine::wire::StatusAnswer& status);
// "97 % done"; from 99 % on "1 of 4,114 tasks left": the last ones, such as a training, may take most of the
// time.
std::string share_text(const Overall& overall);

}  // namespace wflow::cli::top
