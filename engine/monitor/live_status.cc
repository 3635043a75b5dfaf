// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/live_status.h"
#include "engine/monitor/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "specs/plan/plan.h"

namespace wflow::engine {

namespace {

constexpr double kRateWindow_s = 10;
constexpr double kLongestWindow_s = 300;
constexpr double kPartOfTime = 0.125;
constexpr double kBetweenSamples_s = 1;
// A task that has run for so many times as long as 95 % of its step's, and so much longer, is pointed out;
// not before so many of them have ended.
constexpr double kFarBeyond = 5;
constexpr double kLeastBeyond_s = 30;
constexpr std::uint64_t kLeastExecutions = 10;

// 95 % of the step's executions took no longer; 0 where too few have ended.
double usual_duration_s(const std::map<std::string, StepUsage>& usage, const std::string& step) {
  constexpr double kHigh = 0.95;
  const auto found = usage.find(step);
  return found == usage.end() || found->second.executions() < kLeastExecutions
             ? 0
             : found->second.duration_s.quantile(kHigh);
}

}  // namespace

void StepPace::add(double time_s, std::uint64_t done) {
  if (samples_.empty()) began_s_ = time_s;
  latest_ = {time_s, done};
  if (samples_.empty() || time_s >= samples_.back().time_s + kBetweenSamples_s) samples_.push_back(latest_);
  while (samples_.size() > 2 && samples_[1].time_s < time_s - long_window_s()) samples_.pop_front();
}

double StepPace::long_window_s() const {
  return std::clamp(kPartOfTime * (latest_.time_s - began_s_), kRateWindow_s, kLongestWindow_s);
}

double StepPace::rate_over(double window_s) const {
  if (samples_.empty()) return 0;
  auto from = samples_.begin();
  while (from + 1 != samples_.end() && (from + 1)->time_s < latest_.time_s - window_s) ++from;
  const double seconds = latest_.time_s - from->time_s;
  if (seconds <= 0 || latest_.done <= from->done) return 0;
  return static_cast<double>(latest_.done - from->done) / seconds;
}

double StepPace::rate_per_s() const {
  return rate_over(kRateWindow_s);
}

std::optional<double> StepPace::left_s(std::uint64_t total) const {
  const double rate = rate_over(long_window_s());
  if (rate <= 0) return std::nullopt;
  return static_cast<double>(total - std::min(latest_.done, total)) / rate;
}

LiveStatus::LiveStatus(const specs::Plan& plan, CampaignStatus recorded,
                       std::map<std::string, StepUsage> usage, MissingSamples missing)
    : plan_(plan),
      status_(std::move(recorded)),
      usage_(std::move(usage)),
      missing_(std::move(missing)),
      paces_(plan.steps().size()) {
  for (std::size_t step = 0; step < plan.steps().size(); ++step) usage_changed_.insert(step);
  status_.name = plan.study().name;
  status_.directory = plan.campaign().string();
  status_.state = CampaignState::running;
  status_.steps.resize(plan.steps().size());
  earlier_s_ = status_.elapsed_s;
  metrics_.add(status_.metrics);
  if (!status_.history.empty()) last_history_ = status_.history.back().number;
}

void LiveStatus::apply(const store::Batch& batch) {
  // Before the events: a block that is converted again says anew what is missing.
  for (const RecordEnd& end : batch.ends) {
    if (has_ended(end.state)) continue;
    missing_.clear(end.array, end.range);
    missing_changed_ = true;
  }
  for (const RecordFailure& failure : batch.failures) add(failure);
  for (const RecordCause& cause : batch.causes) add(cause);
  for (const wire::TaskEvent& event : batch.events) add(event);
  for (const store::HistoryRow& row : batch.history) add(row);
  for (const store::Batch::Usage& used : batch.usage) {
    std::optional<std::size_t> last;  // looked up once for its neighbours
    StepUsage* usage = nullptr;
    for (const TaskUsage& execution : used.executions) {
      const std::size_t step = plan_.step_of(execution.array);
      if (last != step) usage = &usage_[plan_.steps()[step].name];
      if (last != step) usage_changed_.insert(step);
      last = step;
      usage->add(execution);
    }
  }
  for (const store::Followup& followup : batch.followups) {
    FollowupView view;
    view.kind = followup.kind;
    view.iteration = followup.iteration;
    view.spec = followup.spec;
    view.directory = followup.directory;
    view.state = followup.state;
    status_.followups.push_back(std::move(view));
  }
  keep_bounds(status_);
}

void LiveStatus::set_workers(std::vector<WorkerStatus> workers, std::size_t all) {
  status_.workers_total = all;
  if (workers.size() > kListedWorkers) workers.resize(kListedWorkers);
  status_.workers = std::move(workers);
}

void LiveStatus::set_state(CampaignState state) {
  WFLOW_CHECK(may_follow(status_.state, state));
  status_.state = state;
}

void LiveStatus::add(const RecordFailure& failure) {
  const wire::Outcome& outcome = failure.outcome;
  ++status_.last_failure;  // as the database numbers them
  if (!failure.final || outcome.array >= plan_.array_count()) return;
  FailureView view;
  view.number = status_.last_failure;
  view.task = specs::task_name(plan_, outcome.array, outcome.element);
  view.step = plan_.steps()[plan_.step_of(outcome.array)].name;
  view.array = outcome.array;
  view.element = outcome.element;
  view.attempt = outcome.attempt;
  view.reason = describe_end(static_cast<int>(outcome.reason), outcome.exit_code);
  view.worker = failure.worker;
  view.time_s = outcome.started_s;
  view.duration_s = outcome.duration_s;
  view.final = true;
  view.detail = outcome.detail;
  status_.failures.push_back(std::move(view));
  // Not only at the end of the batch: it may hold a million.
  if (status_.failures.size() > 2 * kListedFailures) {
    const auto extra = static_cast<std::ptrdiff_t>(status_.failures.size() - kListedFailures);
    status_.failures.erase(status_.failures.begin(), status_.failures.begin() + extra);
  }
}

// It was recorded when its worker was lost, and is the last one as is known now.
void LiveStatus::add(const RecordCause& cause) {
  if (!cause.final) return;
  RecordFailure failure;
  failure.outcome.array = cause.array;
  failure.outcome.element = cause.element;
  failure.outcome.attempt = cause.attempt;
  failure.outcome.reason = cause.reason;
  failure.outcome.started_s = cause.started_s;
  failure.outcome.detail = cause.detail;
  failure.worker = cause.worker;
  failure.final = true;
  --status_.last_failure;  // it has its row
  add(failure);
}

void LiveStatus::add(const wire::TaskEvent& event) {
  if (event.array >= plan_.array_count()) return;
  const std::size_t index = plan_.step_of(event.array);
  const specs::PlannedStep& planned = plan_.steps()[index];
  if (const auto* metric = std::get_if<wire::Metric>(&event.body)) {
    metrics_.add(event.array, event.element, *metric);
    metrics_changed_ = true;
  } else if (const auto* progress = std::get_if<wire::Progress>(&event.body)) {
    if (planned.elements != 1 || index >= status_.steps.size()) return;
    StepStatus& step = status_.steps[index];
    step.progress_done = progress->done;
    step.progress_total = progress->total;
    step.progress_unit = progress->unit;
  } else if (const auto* converted = std::get_if<wire::Converted>(&event.body)) {
    missing_.set(event.array, event.element, converted->missing);
    missing_changed_ = true;
  } else if (const auto* artifact = std::get_if<wire::Artifact>(&event.body)) {
    if (artifact->kind != "shard") add_artifact(planned.name, *artifact);
  }
}

void LiveStatus::add_artifact(const std::string& step, const wire::Artifact& artifact) {
  // The last report of a path counts.
  const auto same = [&](const ArtifactView& known) { return known.path == artifact.path; };
  const auto removed = std::erase_if(status_.artifacts, same);
  if (removed == 0) ++status_.artifacts_total;
  status_.artifacts.push_back({step, artifact.kind, artifact.path});
  if (status_.artifacts.size() > kListedArtifacts) status_.artifacts.erase(status_.artifacts.begin());
}

void LiveStatus::add(const store::HistoryRow& row) {
  if (status_.started_s <= 0) status_.started_s = row.time_s;
  status_.history.push_back({++last_history_, row.time_s, row.kind, row.text});
  if (status_.history.size() > kListedHistory) status_.history.erase(status_.history.begin());
}

void LiveStatus::count(const Scheduler& scheduler) {
  status_.steps.resize(plan_.steps().size());
  for (std::size_t i = 0; i < plan_.steps().size(); ++i) {
    const specs::PlannedStep& planned = plan_.steps()[i];
    StepStatus& step = status_.steps[i];
    step.name = planned.name;
    step.kind = specs::name_of(planned.kind);
    step.arrays = planned.arrays;
    step.elements = planned.arrays * planned.elements;
    if (planned.kind == specs::StepKind::convert && planned.block_samples > 0 && plan_.study().samples)
      step.samples = planned.arrays * plan_.study().samples->design.count;
    step.counts.fill(0);
    double timed = 0;
    double sum = 0;
    double squares = 0;
    for (ArrayId array = planned.first_array; array < planned.first_array + planned.arrays; ++array) {
      const ArrayProgress progress = scheduler.progress(array);
      for (std::size_t state = 0; state < kElementStates; ++state)
        step.counts[state] += progress.counts[state];
      timed += static_cast<double>(progress.timed);
      sum += progress.duration_sum_s;
      squares += progress.duration_square_sum;
    }
    step.mean_s = timed > 0 ? sum / timed : 0;
    step.deviation_s = timed > 0 ? std::sqrt(std::max(0.0, squares / timed - step.mean_s * step.mean_s)) : 0;
  }
}

// Rate and time left, of ended elements, or of the progress that a single long task reports.
void LiveStatus::estimate(std::size_t index, double steady_s) {
  StepStatus& step = status_.steps[index];
  StepPace& pace = paces_[index];
  const bool own = step.elements == 1 && step.progress_total > 0;
  step.rate_per_s = 0;
  step.left_s.reset();
  if (step.ended() == step.elements) {
    step.left_s = 0;
    return;
  }
  if (step.count(ElementState::leased) == 0) {
    pace.clear();
    return;
  }
  pace.add(steady_s, own ? step.progress_done : step.ended());
  step.rate_per_s = pace.rate_per_s();
  step.left_s = pace.left_s(own ? step.progress_total : step.elements);
}

void LiveStatus::set_running(std::span<const RunningOn> workers, double unix_s) {
  status_.slow.clear();
  std::map<std::size_t, double> usual;  // per step, computed once
  for (const auto& [worker, elements] : workers) {
    for (const RunningElement& element : elements) {
      const double running_s = unix_s - element.started_s;
      if (running_s < kLeastBeyond_s || element.array >= plan_.array_count()) continue;
      const std::size_t step = plan_.step_of(element.array);
      const auto [at, is_new] = usual.try_emplace(step, 0);
      if (is_new) at->second = usual_duration_s(usage_, plan_.steps()[step].name);
      const double usual_s = at->second;
      if (usual_s <= 0 || running_s < kFarBeyond * usual_s || running_s - usual_s < kLeastBeyond_s) continue;
      status_.slow.push_back(
          {specs::task_name(plan_, element.array, element.element), std::string(worker), running_s, usual_s});
    }
  }
  std::ranges::sort(status_.slow, std::greater<>(), &wire::SlowView::running_s);
  status_.slow_total = status_.slow.size();
  if (status_.slow.size() > kListedSlow) status_.slow.resize(kListedSlow);
}

const CampaignStatus& LiveStatus::update(const Scheduler& scheduler, double steady_s, double unix_s) {
  count(scheduler);
  for (std::size_t step = 0; step < status_.steps.size(); ++step) estimate(step, steady_s);
  // A failed task that runs again is no failure any more.
  std::erase_if(status_.failures, [&](const FailureView& failure) {
    const ElementState state = scheduler.states(failure.array).at(failure.element);
    return state != ElementState::failed && state != ElementState::hard_failed;
  });
  if (std::exchange(metrics_changed_, false)) {
    const auto name = [&](ArrayId array, Element element) { return specs::task_name(plan_, array, element); };
    status_.metrics = metrics_.curves(name, kListedPoints);
  }
  if (std::exchange(missing_changed_, false)) {
    for (std::size_t i = 0; i < status_.steps.size(); ++i)
      status_.steps[i].missing = missing_.sum(plan_.steps()[i].first_array, plan_.steps()[i].arrays);
  }
  for (std::size_t i = 0; i < status_.steps.size(); ++i)
    status_.steps[i].held = held_.contains(i) ? held_.at(i) : std::string();
  for (const std::size_t step : std::exchange(usage_changed_, {}))
    status_.steps[step].usage = view_of(usage_[plan_.steps()[step].name]);
  if (began_s_ <= 0) began_s_ = unix_s;
  status_.elapsed_s = earlier_s_ + std::max(0.0, unix_s - began_s_);
  status_.time_s = unix_s;
  return status_;
}

}  // namespace wflow::engine
