// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/answers.h"

#include <fmt/format.h>

#include "base/text.h"

namespace wflow::engine::wire {

namespace {

std::uint64_t sum(const std::vector<StepStatus>& steps, std::uint64_t (StepStatus::*member)() const) {
  std::uint64_t total = 0;
  for (const StepStatus& step : steps) total += (step.*member)();
  return total;
}

}  // namespace

bool FollowupView::left() const {
  if (state == FollowupState::could_not_begin || state == FollowupState::handed_over) return false;
  return elements == 0 || ended < elements;
}

std::uint64_t StepStatus::ended() const {
  std::uint64_t total = 0;
  for (std::size_t state = 0; state < kElementStates; ++state) {
    if (has_ended(static_cast<ElementState>(state))) total += counts[state];
  }
  return total;
}

std::uint64_t StepStatus::missing_samples() const {
  std::uint64_t total = 0;
  for (const MissingReason& reason : missing) total += reason.samples;
  return total;
}

std::uint64_t StatusAnswer::elements() const {
  std::uint64_t total = 0;
  for (const StepStatus& step : steps) total += step.elements;
  return total;
}

std::uint64_t StatusAnswer::ended() const {
  return sum(steps, &StepStatus::ended);
}
std::uint64_t StatusAnswer::failed() const {
  return sum(steps, &StepStatus::failed);
}
std::uint64_t StatusAnswer::cancelled() const {
  std::uint64_t total = 0;
  for (const StepStatus& step : steps) total += step.count(ElementState::cancelled);
  return total;
}

std::string RefusedView::sentence() const {
  const auto count = [](std::uint64_t number, const char* what) {
    return fmt::format("{} {}{}", text::format_count(number), what, number == 1 ? "" : "s");
  };
  std::vector<std::string> parts;
  if (connections > 0) {
    parts.push_back(count(connections, "connection") + " without the campaign's keys");
    if (other_keys > 0) parts.back() += fmt::format(" ({} with other keys)", text::format_count(other_keys));
  }
  if (messages > 0) parts.push_back(count(messages, "message") + " that made no sense");
  return "refused: " + text::join(parts, ", ");
}

}  // namespace wflow::engine::wire
