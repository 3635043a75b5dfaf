// SPDX-License-Identifier: Apache-2.0
// max_failures: a wrong study is stopped before it has burnt the whole ensemble. A step in which too many
// tasks have failed is held; where nothing else is left, the campaign ends and can be resumed.
// max_disk: what the scheduler's DiskLimit holds back, for people.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "engine/coordinate/machine_impl.h"
#include "engine/monitor/describe_end.h"

namespace wflow::engine {

namespace {

using specs::FailureLimit;

std::uint64_t limit_of(const specs::PlannedStep& step) {
  const FailureLimit& limit = step.max_failures;
  const auto tasks = static_cast<double>(step.arrays) * static_cast<double>(step.elements);
  switch (limit.kind) {
    case FailureLimit::Kind::first:
      return FailureLimit::kFirstFailures;
    case FailureLimit::Kind::count:
      return limit.count;
    case FailureLimit::Kind::fraction:
      return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(limit.fraction * tasks)));
    case FailureLimit::Kind::none:
      break;
  }
  return 0;
}

}  // namespace

void CoordinatorMachine::Impl::count_step_ends(const Actions& decisions) {
  for (const RecordFailure& failure : decisions.failures) {
    if (!failure.final) continue;
    const wire::Outcome& outcome = failure.outcome;
    step_ends_[plan_.step_of(outcome.array)].reason =
        describe_end(static_cast<int>(outcome.reason), outcome.exit_code);
  }
  for (const RecordCause& cause : decisions.causes) {
    if (cause.final)
      step_ends_[plan_.step_of(cause.array)].reason = describe_end(static_cast<int>(cause.reason), 0);
  }
  std::set<std::size_t> failed;
  for (const RecordEnd& end : decisions.ends) {
    if (end.state != ElementState::failed && end.state != ElementState::hard_failed) continue;
    const std::size_t step = plan_.step_of(end.array);
    step_ends_[step].failed += end.range.size();
    failed.insert(step);
  }
  for (const std::size_t step : failed) {
    if (is_too_many(step)) hold_step(step);
  }
}

bool CoordinatorMachine::Impl::is_too_many(std::size_t index) {
  const specs::PlannedStep& step = plan_.steps()[index];
  StepEnds& ends = step_ends_[index];
  const std::uint64_t limit = limit_of(step);
  const bool only_first = step.max_failures.kind == FailureLimit::Kind::first;
  if (held_.contains(index) || limit == 0 || ends.failed < limit || (only_first && ends.some_done))
    return false;
  bool some_left = false;
  for (ArrayId array = step.first_array; array < step.first_array + step.arrays; ++array) {
    const auto& states = scheduler_.states(array);
    ends.some_done = ends.some_done || states.total(ElementState::done) > 0;
    some_left = some_left || states.total(ElementState::ready) > 0 ||
                states.total(ElementState::delayed) > 0 || states.total(ElementState::leased) > 0 ||
                states.total(ElementState::blocked) > 0;
  }
  return some_left && !(only_first && ends.some_done);
}

void CoordinatorMachine::Impl::hold_step(std::size_t index) {
  const specs::PlannedStep& step = plan_.steps()[index];
  const StepEnds& ends = step_ends_[index];
  const bool only_first = step.max_failures.kind == FailureLimit::Kind::first;
  const std::string last = ends.reason.empty() ? "" : fmt::format(" (the last: {})", ends.reason);
  held_[index] = only_first
                     ? fmt::format("its first {} tasks all failed{}", ends.failed, last)
                     : fmt::format("{} of its tasks failed{}, and max_failures allows fewer than {}",
                                   text::format_count(ends.failed), last, text::format_count(limit_of(step)));
  record(
      "stop",
      fmt::format("the step '{}' is paused: {}. wflow tasks --group shows why; wflow retry runs them again "
                  "and goes on",
                  step.name, held_[index]));
  scheduler_.hold_step(static_cast<std::uint32_t>(index), true);
  send_revokes(scheduler_.take_actions().revokes);
}

// Its failures are counted anew.
void CoordinatorMachine::Impl::let_go(std::size_t step) {
  step_ends_.erase(step);
  if (held_.erase(step) > 0) scheduler_.hold_step(static_cast<std::uint32_t>(step), false);
}

void CoordinatorMachine::Impl::end_where_all_is_held() {
  if (held_.empty() || phase_ != Phase::running || unsettled_ > 0 || retry_due_ ||
      !scheduler_.only_held_left())
    return;
  std::vector<std::string> names;
  for (const auto& [step, why] : held_) names.push_back("'" + plan_.steps()[step].name + "'");
  request_drain(fmt::format("nothing is left but paused steps ({})", text::join(names, ", ")));
}

void CoordinatorMachine::Impl::note_disk() {
  if (const auto used = scheduler_.take_disk_overrun()) {
    const std::string text = fmt::format(
        "max_disk is {}, and what must be on the disk at the same time takes about {}: simulations of one "
        "block "
        "at a time run until it is converted",
        text::format_bytes(scheduler_.disk().limit_bytes()),
        text::format_bytes(static_cast<std::uint64_t>(*used)));
    log(LogLevel::warning, text);
    batch_.history.push_back({now_.unix_s, "note", text});
  }
  if (const std::uint64_t again = scheduler_.take_made_again(); again > 0) {
    record("retry", fmt::format("raw outputs were deleted: {} {} again", text::format_count(again),
                                again == 1 ? "simulation runs" : "simulations run"));
  }
}

std::string CoordinatorMachine::Impl::disk_text() const {
  return fmt::format("{}{} of {}, conversion catches up", kHeldByDisk,
                     text::format_bytes(static_cast<std::uint64_t>(scheduler_.disk().used_bytes())),
                     text::format_bytes(scheduler_.disk().limit_bytes()));
}

std::map<std::size_t, std::string> CoordinatorMachine::held_back() const {
  std::map<std::size_t, std::string> steps;
  const DiskLimit& disk = impl_->scheduler_.disk();
  if (!disk.holds_any()) return steps;
  for (ArrayId array = 0; array < impl_->scheduler_.array_count(); ++array) {
    if (disk.held_back(array) > 0) steps.emplace(impl_->plan_.step_of(array), impl_->disk_text());
  }
  return steps;
}

const std::map<std::size_t, std::string>& CoordinatorMachine::held() const {
  return impl_->held_;
}

}  // namespace wflow::engine
