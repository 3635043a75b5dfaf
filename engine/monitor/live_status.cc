// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/live_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace wflow::engine {

namespace {

constexpr double kRateWindow_s = 10;
constexpr std::size_t kListedFailures = 20;

}  // namespace

LiveStatus::LiveStatus(const specs::Plan& plan, CampaignStatus recorded)
    : plan_(plan), status_(std::move(recorded)), windows_(plan.steps().size()) {
  status_.name = plan.study().name;
  status_.directory = plan.campaign().string();
}

std::string LiveStatus::task_name(ArrayId array, Element element) const {
  const std::string name = plan_.array_name(array);
  return plan_.steps()[plan_.step_of(array)].elements > 1 ? fmt::format("{}/{}", name, element) : name;
}

void LiveStatus::failure(const RecordFailure& failure) {
  if (!failure.final) return;
  const wire::Outcome& outcome = failure.outcome;
  FailureView view;
  view.task = task_name(outcome.array, outcome.element);
  view.step = plan_.steps()[plan_.step_of(outcome.array)].name;
  view.element = outcome.element;
  view.attempt = outcome.attempt;
  view.reason = describe_end(static_cast<int>(outcome.reason), outcome.exit_code);
  view.worker = failure.worker;
  view.time_s = outcome.started_s;
  view.duration_s = outcome.duration_s;
  view.final = true;
  view.detail = outcome.detail;
  status_.failures.push_back(std::move(view));
  if (status_.failures.size() > kListedFailures) status_.failures.erase(status_.failures.begin());
}

void LiveStatus::reopened(ArrayId array, Range range) {
  const std::string& step = plan_.steps()[plan_.step_of(array)].name;
  std::erase_if(status_.failures, [&](const FailureView& view) {
    return view.step == step && range.first <= view.element && view.element <= range.last &&
           view.task == task_name(array, view.element);
  });
}

void LiveStatus::metric(const std::string& name, std::uint64_t epoch, std::uint64_t step, double value) {
  // A training that goes on from a checkpoint says some steps again: the last word counts.
  const auto same = [&](const MetricPoint& p) { return p.name == name && p.step == step; };
  const auto at = std::find_if(status_.metrics.rbegin(), status_.metrics.rend(), same);
  if (at != status_.metrics.rend()) {
    at->value = value;
  } else {
    status_.metrics.push_back({name, epoch, step, value});
  }
}

bool LiveStatus::submitted(const store::Followup& followup) {
  if (!submitted_.insert(followup.source).second) return false;
  status_.followups.push_back(
      {followup.kind, followup.iteration, followup.spec, followup.directory, followup.state, 0, 0, 0});
  return true;
}

void LiveStatus::event(const wire::TaskEvent& event) {
  if (event.array >= plan_.array_count()) return;
  const nlohmann::json body = nlohmann::json::parse(event.line, nullptr, false);
  if (!body.is_object()) return;
  try {
    const std::string type = body.value("type", "");
    const specs::PlannedStep& planned = plan_.steps()[plan_.step_of(event.array)];
    if (type == "progress" && planned.elements == 1) {
      StepStatus& step = status_.steps[plan_.step_of(event.array)];
      step.progress_done = body.value("done", std::uint64_t{0});
      step.progress_total = body.value("total", std::uint64_t{0});
      step.progress_unit = body.value("unit", "");
    } else if (type == "metric") {
      metric(body.value("name", ""), body.value("epoch", std::uint64_t{0}),
             body.value("step", std::uint64_t{0}), body.value("value", 0.0));
    } else if (type == "artifact" && body.value("kind", "") != "shard") {
      ArtifactView view{planned.name, body.value("kind", ""), body.value("path", "")};
      std::erase_if(status_.artifacts, [&](const auto& known) { return known.path == view.path; });
      status_.artifacts.push_back(std::move(view));
    }
  } catch (const nlohmann::json::exception&) {
    // A task may write any types it likes into its event file; what can't be shown is not shown.
  }
}

std::optional<std::string> LiveStatus::note_of(const wire::TaskEvent& event) {
  if (event.line.find("\"note\"") == std::string::npos) return std::nullopt;
  const nlohmann::json body = nlohmann::json::parse(event.line, nullptr, false);
  const auto text_of = [&](const char* key) {
    const auto at = body.find(key);
    return at != body.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  if (!body.is_object() || text_of("type") != "note") return std::nullopt;
  return text_of("text");
}

void LiveStatus::history(const store::HistoryRow& row) {
  if (status_.history.empty()) status_.started_s = row.time_s;
  status_.history.push_back({row.time_s, row.kind, row.text});
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

// Rate and time left from the last seconds: of ended elements, or of the progress that a single long task
// reports.
void LiveStatus::estimate(std::size_t index, double steady_s) {
  StepStatus& step = status_.steps[index];
  std::deque<Sample>& window = windows_[index];
  const bool own = step.elements == 1 && step.progress_total > 0;
  const std::uint64_t done = own ? step.progress_done : step.ended();
  const std::uint64_t total = own ? step.progress_total : step.elements;
  step.rate_per_s = 0;
  step.left_s.reset();
  if (step.ended() == step.elements) {
    step.left_s = 0;
    return;
  }
  if (step.count(ElementState::leased) == 0) {
    window.clear();
    return;
  }
  window.push_back({steady_s, done});
  while (window.size() > 2 && window[1].time_s < steady_s - kRateWindow_s) window.pop_front();
  const double seconds = steady_s - window.front().time_s;
  if (seconds <= 0 || done <= window.front().done) return;
  step.rate_per_s = static_cast<double>(done - window.front().done) / seconds;
  step.left_s = static_cast<double>(total - std::min(done, total)) / step.rate_per_s;
}

const CampaignStatus& LiveStatus::update(const Scheduler& scheduler, double steady_s, double unix_s) {
  count(scheduler);
  for (std::size_t step = 0; step < status_.steps.size(); ++step) estimate(step, steady_s);
  status_.elapsed_s = unix_s - status_.started_s;
  return status_;
}

}  // namespace wflow::engine
