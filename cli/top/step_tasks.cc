// SPDX-License-Identifier: Apache-2.0
#include "cli/top/step_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "cli/top/words.h"

namespace wflow::cli::top {

namespace {

namespace wire = engine::wire;

constexpr std::size_t kMostFailures = 10'000;
constexpr std::size_t kMostSlowest = 200;
constexpr int kMostPages = 40;  // of records of executions: a page has 5,000
constexpr auto kLastElement = static_cast<specs::Element>(std::numeric_limits<std::int64_t>::max());

std::uint32_t bit_of(engine::ElementState state) {
  return 1U << static_cast<unsigned>(state);
}

// Returns the words of the other failures: the record of a task has only the name of its end.
std::string reason_of(const wire::TaskRecord& record) {
  if (record.reason == "exited") return fmt::format("exit code {}", record.exit_code);
  return record.reason == "signalled" ? fmt::format("signal {}", record.exit_code) : spaced(record.reason);
}

}  // namespace

TaskQuestions::TaskQuestions(std::string step, specs::ArrayId first, specs::ArrayId last, Wanted wanted,
                             NameOf name_of)
    : wanted_(wanted), name_of_(std::move(name_of)), from_{first, 0} {
  tasks_.step = std::move(step);
  tasks_.first_array = first;
  tasks_.last_array = last;
}

std::optional<wire::Request> TaskQuestions::next() const {
  if (asks_ == Asks::failures) {
    const std::uint32_t states =
        bit_of(engine::ElementState::failed) | bit_of(engine::ElementState::hard_failed);
    return wire::TasksRequest{from_, tasks_.last_array, 0, kLastElement, states, false};
  }
  if (asks_ == Asks::usage) return wire::UsageRequest{from_.array, from_.element, kLastElement, 0};
  return std::nullopt;
}

void TaskQuestions::take(const wire::TasksAnswer& answer) {
  for (const wire::TaskRecord& record : answer.records) {
    wire::FailureView& failure = tasks_.failed.emplace_back();
    failure.task = name_of_(record.array, record.element);
    failure.step = failure.task.substr(0, failure.task.find('/'));
    failure.array = record.array;
    failure.element = record.element;
    failure.attempt = std::max(record.executions, 1U) - 1;
    failure.reason = reason_of(record);
    failure.worker = record.worker;
    failure.time_s = record.started_s;
    failure.duration_s = record.duration_s;
    failure.final = true;
    failure.detail = record.message;
  }
  if (answer.next && tasks_.failed.size() < kMostFailures) {
    from_ = *answer.next;
    return;
  }
  tasks_.complete = !answer.next;
  end_failures();
}

void TaskQuestions::end_failures() {
  std::ranges::stable_sort(tasks_.failed, {},
                           [](const auto& failure) { return failure.time_s + failure.duration_s; });
  from_ = {tasks_.first_array, 0};
  asks_ = wanted_ == Wanted::failures ? Asks::nothing : Asks::usage;
  tasks_.loading = asks_ != Asks::nothing;
}

void TaskQuestions::take(const wire::UsageAnswer& answer) {
  for (const wire::UsedView& used : answer.used) {
    TaskRow& row = tasks_.slowest.emplace_back();
    row.place = {used.usage.array, used.usage.first};
    row.task = name_of_(used.usage.array, used.usage.first);
    row.worker = used.worker;
    row.began_s = used.usage.started_s;
    row.seconds = used.usage.duration_s;
  }
  tasks_.compared += answer.used.size();
  keep_slowest();
  if (answer.next) {
    from_.element = *answer.next;
  } else {
    from_ = {from_.array + 1, 0};
  }
  const bool all = from_.array > tasks_.last_array;
  if (!all && ++pages_ < kMostPages) return;
  tasks_.complete = tasks_.complete && all;
  tasks_.loading = false;
  asks_ = Asks::nothing;
}

void TaskQuestions::keep_slowest() {
  std::ranges::stable_sort(tasks_.slowest, std::greater<>(), &TaskRow::seconds);
  if (tasks_.slowest.size() > kMostSlowest) tasks_.slowest.resize(kMostSlowest);
}

}  // namespace wflow::cli::top
