// SPDX-License-Identifier: Apache-2.0
// Requests and signals of users, and the two limits of a study.
// max_failures: a wrong study stops before it has used the whole ensemble. A step in which too many tasks
// have failed is paused; if nothing else is left, the campaign ends and can be resumed. max_disk: reports the
// simulations that the scheduler's DiskLimit blocks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "engine/coordinate/machine_impl.h"
#include "engine/monitor/status.h"
#include "engine/query/selection.h"

namespace wflow::engine {

namespace {

constexpr std::size_t kQuestions = 1000;  // at most so many wait for a commit
constexpr double kWatched_s = 10;         // after the last request of a dashboard
constexpr const char* kEnding = "the campaign is ending; it can be continued with wflow resume";
constexpr const char* kRetryLater =
    "the campaign is ending; ask again when it has ended: wflow retry then continues it";

std::string tasks(std::uint64_t count) {
  return fmt::format("{} task{}", text::format_count(count), count == 1 ? "" : "s");
}

// The end of a campaign waits for no disk, and a pause ends with its coordinator.
bool is_recorded(const wire::Request& request) {
  return std::holds_alternative<wire::CancelRequest>(request) ||
         std::holds_alternative<wire::AllocationsCommand>(request);
}

}  // namespace

void CoordinatorMachine::Impl::on_query(const PeerId& peer, wire::Query& query) {
  if (auto answer = command(query.request)) {
    if (is_recorded(query.request)) return confirm(peer, std::move(*answer));
    return act(action::Send{peer, std::move(*answer)});
  }
  const auto* watch = std::get_if<wire::WatchRequest>(&query.request);
  if (watch != nullptr && watch->running > 0) watched_until_s_ = running_s_ + kWatched_s;
  if (!disk_trouble_.empty()) {
    answer_in_trouble(peer, query);
  } else if (gathered_.questions.size() >= kQuestions) {
    ++refused_;
    act(action::Send{
        peer, wire::refusal("the coordinator has too many questions to answer; ask again", ExitCode::busy)});
  } else if (const auto* retry = std::get_if<wire::RetryRequest>(&query.request)) {
    ask_for_retry(peer, *retry);
  } else {
    gathered_.questions.emplace_back(action::AnswerQuery{peer, std::move(query)});
  }
}

// A user who reads that tasks are cancelled, or run again, can rely on it: the answer waits until that is on
// disk.
void CoordinatorMachine::Impl::confirm(const PeerId& peer, wire::Answer&& answer) {
  if (!std::holds_alternative<wire::Done>(answer.body)) {
    act(action::Send{peer, std::move(answer)});
  } else if (!disk_trouble_.empty()) {
    confirm_in_trouble(peer);
  } else {
    gathered_.questions.emplace_back(action::Send{peer, std::move(answer)});
  }
}

void CoordinatorMachine::Impl::confirm_in_trouble(const PeerId& peer) {
  act(action::Send{peer, wire::refusal(fmt::format("{}; your request takes effect, but is not recorded yet, "
                                                   "and is lost if the coordinator ends first",
                                                   disk_trouble_),
                                       ExitCode::system)});
}

// A status needs no store. Other queries would wait for the disk as long as the campaign does.
void CoordinatorMachine::Impl::answer_in_trouble(const PeerId& peer, wire::Query& query) {
  const auto* watch = std::get_if<wire::WatchRequest>(&query.request);
  const bool is_status =
      std::holds_alternative<wire::StatusRequest>(query.request) || (watch != nullptr && watch->points == 0);
  if (is_status) {
    act(action::AnswerQuery{peer, std::move(query)});
  } else {
    act(action::Send{peer,
                     wire::refusal(disk_trouble_ + "; ask again when that has changed", ExitCode::system)});
  }
}

// Queries from before the trouble would wait for a commit that may take hours. Actions without a client (jobs
// to submit, the retry of a start) keep waiting.
void CoordinatorMachine::Impl::answer_in_trouble(std::vector<CoordinatorAction>& questions) {
  for (CoordinatorAction& waiting : std::exchange(questions, {})) {
    if (auto* question = std::get_if<action::AnswerQuery>(&waiting)) {
      answer_in_trouble(question->peer, question->query);
    } else if (auto* retry = std::get_if<action::ResolveRetry>(&waiting); retry && !retry->peer.empty()) {
      wire::Query query{std::move(retry->request)};
      answer_in_trouble(retry->peer, query);
    } else if (const auto* confirmation = std::get_if<action::Send>(&waiting)) {
      confirm_in_trouble(confirmation->peer);
    } else {
      questions.push_back(std::move(waiting));
    }
  }
}

// Empty for a query, and for a retry that needs the store first.
std::optional<wire::Answer> CoordinatorMachine::Impl::command(const wire::Request& request) {
  if (std::holds_alternative<wire::DrainRequest>(request)) {
    request_drain("asked to drain");
    return wire::done_answer();
  }
  if (std::holds_alternative<wire::StopRequest>(request)) {
    request_stop("asked to stop");
    return wire::done_answer();
  }
  if (const auto* pause = std::get_if<wire::PauseRequest>(&request)) return this->pause(pause->pause);
  if (const auto* cancel = std::get_if<wire::CancelRequest>(&request)) return this->cancel(*cancel);
  if (std::holds_alternative<wire::AllocationsRequest>(request))
    return wire::Answer{allocations(now_.unix_s, true)};
  if (const auto* command = std::get_if<wire::AllocationsCommand>(&request)) return this->command(*command);
  if (std::holds_alternative<wire::RetryRequest>(request) && phase_ != Phase::running)
    return wire::refusal(kRetryLater);
  return std::nullopt;
}

wire::Answer CoordinatorMachine::Impl::pause(bool pause) {
  if (phase_ != Phase::running) return wire::refusal(kEnding);
  if (pause != scheduler_.paused()) record("stop", pause ? "paused: no new tasks are started" : "goes on");
  scheduler_.set_paused(pause);
  // Also releases steps that failures paused.
  while (!pause && !held_.empty()) let_go(held_.begin()->first);
  return wire::done_answer();
}

wire::Answer CoordinatorMachine::Impl::cancel(const wire::CancelRequest& request) {
  std::vector<std::pair<ArrayId, Range>> parts;
  try {
    parts = parts_named(plan_, request.tasks);
  } catch (const Error& error) {
    return wire::refusal(error.what(), error.code());
  }
  Scheduler::Cancelled all;
  for (const auto& [array, range] : parts) {
    const Scheduler::Cancelled some = scheduler_.cancel(array, range, request.kill);
    all.waiting += some.waiting;
    all.running += some.running;
  }
  if (is_everything(request.tasks)) cancelled_ = true;
  const std::string of_step = request.tasks.step.empty() ? "" : request.tasks.step + ": ";
  const std::uint64_t killed = request.kill ? all.running : 0;
  const std::string ended = killed > 0 ? fmt::format(", {} more will be ended", tasks(killed)) : "";
  record("stop", fmt::format("{}{} cancelled{}", of_step, tasks(all.waiting), ended));
  return wire::done_answer(all.waiting + killed, all.running);
}

// The failures that it may name must be in the store before it is resolved.
void CoordinatorMachine::Impl::ask_for_retry(const PeerId& peer, const wire::RetryRequest& request) {
  gathered_.questions.emplace_back(action::ResolveRetry{peer, request});
}

void CoordinatorMachine::Impl::on(event::Retry& event) {
  const bool at_start = event.peer.empty();
  if (at_start) retry_due_ = false;
  wire::Answer answer;
  if (event.error) {
    answer = wire::refusal(*event.error);
  } else if (phase_ != Phase::running) {
    answer = wire::refusal(kRetryLater);
  } else {
    answer = wire::done_answer(retry(event.parts));
  }
  if (!at_start) confirm(event.peer, std::move(answer));
}

std::uint64_t CoordinatorMachine::Impl::retry(const std::vector<std::pair<ArrayId, Range>>& parts) {
  std::uint64_t count = 0;
  for (const auto& [array, range] : parts) count += scheduler_.retry_failed(array, range);
  if (count == 0) return 0;
  for (const auto& [array, range] : parts) let_go(plan_.step_of(array));
  cancelled_ = false;
  record("retry", fmt::format("{} that failed will run again, with what follows from {}", tasks(count),
                              count == 1 ? "it" : "them"));
  return count;
}

void CoordinatorMachine::Impl::run_again(const RunAgain& what) {
  const std::uint64_t count = scheduler_.run_again(what.parts, what.below);
  if (count == 0) return;
  record("retry", fmt::format("{} without MERLIN_FINISHED will run again{}", tasks(count),
                              what.below ? ", with what depends on it" : ""));
}

void CoordinatorMachine::Impl::on(const event::Signal& event) {
  if (event.kind == event::SignalKind::hangup) {
    record("stop", "the terminal was lost; the campaign goes on");
  } else if (event.kind == event::SignalKind::interrupt && phase_ == Phase::running) {
    request_drain("interrupted");
  } else if (event.kind == event::SignalKind::workers_left) {
    begin_hand_over("the workers of its allocation have left");
  } else if (event.kind == event::SignalKind::terminate && runs_in_allocation() &&
             phase_ != Phase::draining) {
    begin_hand_over("its allocation ends");
  } else {
    asked_to_end_ = true;
    request_stop(event.kind == event::SignalKind::terminate ? "terminated" : "interrupted again");
  }
}

// Running tasks may end; their workers keep the results. The machine leases nothing whose end it could not
// record.
void CoordinatorMachine::Impl::on(event::CommitWaits& event) {
  if (!committing_) return;
  if (disk_trouble_.empty()) {
    disk_trouble_s_ = running_s_;
    log(LogLevel::warning,
        fmt::format("{}; the campaign pauses, and goes on by itself when that has changed", event.why));
  }
  disk_trouble_ = std::move(event.why);
  answer_in_trouble(written_.questions);
  answer_in_trouble(gathered_.questions);
}

void CoordinatorMachine::Impl::on(const event::CommitFinished&) {
  committing_ = false;
  scheduler_.saved();
  if (!disk_trouble_.empty()) {
    const std::string why = std::exchange(disk_trouble_, {});
    record("note", fmt::format("the campaign paused for {:.0f} s: {}", running_s_ - disk_trouble_s_, why));
  }
  follow_up(std::exchange(written_, {}));
}

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

// Counts its failures from zero.
void CoordinatorMachine::Impl::let_go(std::size_t step) {
  step_ends_.erase(step);
  if (held_.erase(step) > 0 && !options_.beyond.contains(step))
    scheduler_.hold_step(static_cast<std::uint32_t>(step), false);
}

void CoordinatorMachine::Impl::end_where_all_is_held() {
  if ((held_.empty() && options_.beyond.empty()) || phase_ != Phase::running || unsettled_ > 0 ||
      retry_due_ || !scheduler_.only_held_left())
    return;
  if (held_.empty()) {
    ended_before_beyond_ = true;
    request_drain("nothing is left but the steps beyond --until; wflow resume runs them");
    return;
  }
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
