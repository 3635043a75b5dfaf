// SPDX-License-Identifier: Apache-2.0
#include "cli/top/feed.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace wflow::cli::top {

namespace {

using engine::ElementState;
using engine::RecordedCampaign;

double slice_length_s(const engine::Timeline& timeline) {
  return std::max((timeline.end_s - timeline.begin_s) / static_cast<double>(kSlices), 1e-3);
}

// The part of the step's ended tasks that had ended by `at_s`, 0 to 1.
double ended_share(const engine::Timeline& timeline, const std::string& step, double at_s) {
  if (at_s >= timeline.end_s) return 1;
  const double slices = std::max(0.0, (at_s - timeline.begin_s) / slice_length_s(timeline));
  const auto found = timeline.ended.find(step);
  const double all =
      found == timeline.ended.end() ? 0 : std::accumulate(found->second.begin(), found->second.end(), 0.0);
  if (all <= 0) return std::min(slices / static_cast<double>(kSlices), 1.0);  // no records: an even rate
  const auto whole = std::min(static_cast<std::size_t>(slices), found->second.size() - 1);
  const auto here = found->second.begin() + static_cast<std::ptrdiff_t>(whole);
  const double before = std::accumulate(found->second.begin(), here, 0.0);
  return std::min((before + *here * std::min(slices - static_cast<double>(whole), 1.0)) / all, 1.0);
}

// Records may cover a part of the tasks: scales the rates to the number of ended tasks.
std::vector<double> rates_of(const RecordedCampaign& record, const wire::StepStatus& step,
                             std::size_t slices) {
  const auto found = record.timeline.ended.find(step.name);
  if (found == record.timeline.ended.end()) return {};
  const double all = std::accumulate(found->second.begin(), found->second.end(), 0.0);
  const double scale =
      all > 0 ? static_cast<double>(step.ended()) / all / slice_length_s(record.timeline) : 0;
  std::vector<double> rates;
  for (std::size_t i = 0; i < std::min(slices, found->second.size()); ++i)
    rates.push_back(found->second[i] * scale);
  return rates;
}

void set_counts(wire::StepStatus& step, double share) {
  const std::uint64_t elements = step.elements;
  std::uint64_t ended = 0;
  for (std::size_t i = 0; i < engine::kElementStates; ++i) {
    if (!has_ended(static_cast<ElementState>(i))) {
      step.counts[i] = 0;
      continue;
    }
    step.counts[i] =
        static_cast<std::uint64_t>(std::floor(static_cast<double>(step.counts[i]) * share + 1e-9));
    ended += step.counts[i];
  }
  step.counts[static_cast<std::size_t>(ElementState::blocked)] = elements - std::min(ended, elements);
}

void cut_curves(std::vector<wire::MetricCurve>& curves, const engine::Timeline& timeline, double at_s) {
  for (wire::MetricCurve& curve : curves) {
    const auto reports = timeline.reports.find({curve.array, curve.element});
    if (reports == timeline.reports.end()) continue;
    std::uint64_t step = 0;
    bool any = false;
    for (const auto& report : reports->second) {
      if (report.time_s > at_s) break;
      step = std::max(step, report.step);
      any = true;
    }
    std::erase_if(curve.points, [&](const wire::MetricPoint& point) { return !any || point.step > step; });
  }
  std::erase_if(curves, [](const wire::MetricCurve& curve) { return curve.points.empty(); });
}

// The workers that had joined by then; those that had not left are connected.
void set_worker_lists(TopData& data, const std::vector<wire::WorkerView>& all, double at_s) {
  data.workers.clear();
  data.status.workers.clear();
  for (wire::WorkerView worker : all) {
    if (worker.joined_s > at_s) continue;
    if (worker.ended_s > at_s) worker.ended_s = 0;
    if (worker.ended_s <= 0)
      data.status.workers.push_back({worker.id, worker.host, worker.cores, 0, 0, 0, false});
    data.workers.push_back(std::move(worker));
  }
  data.status.workers_total = data.status.workers.size();
}

}  // namespace

std::map<std::string, StepNeeds> needs_of(const specs::Plan& plan) {
  std::map<std::string, StepNeeds> needs;
  for (const specs::PlannedStep& step : plan.steps()) {
    const int copies = std::max({step.resources.procs, step.resources.nodes, 1});
    needs[step.name] = {std::max(step.resources.cores, 1) * copies, step.resources.memory_bytes};
  }
  return needs;
}

TopData picture_of(const RecordedCampaign& record) {
  TopData data;
  data.status = record.watch.status;
  data.checkpoints = record.watch.checkpoints;
  data.workers = record.workers;
  // The end of a worker that was killed together with its coordinator is unknown.
  for (wire::WorkerView& worker : data.workers) {
    if (worker.ended_s <= 0) worker.ended_s = record.timeline.end_s;
  }
  for (const wire::StepStatus& step : data.status.steps)
    data.rates[step.name] = rates_of(record, step, kSlices);
  data.rate_span_s = slice_length_s(record.timeline);
  data.now_s = record.timeline.end_s;
  data.link = Link::at_rest;
  return data;
}

TopData picture_at(const RecordedCampaign& record, double at_s) {
  const engine::Timeline& timeline = record.timeline;
  TopData data = picture_of(record);
  data.link = Link::replay;
  data.now_s = std::clamp(at_s, timeline.begin_s, timeline.end_s);
  if (at_s >= timeline.end_s) return data;
  data.status.state = engine::CampaignState::running;
  data.status.time_s = data.now_s;
  data.status.elapsed_s = data.now_s - timeline.begin_s;
  const double slices = (data.now_s - timeline.begin_s) / slice_length_s(timeline);
  for (wire::StepStatus& step : data.status.steps) {
    data.rates[step.name] = rates_of(record, step, static_cast<std::size_t>(slices));
    set_counts(step, ended_share(timeline, step.name, data.now_s));
    step.rate_per_s = data.rates[step.name].empty() ? 0 : data.rates[step.name].back();
    const double open = static_cast<double>(step.elements - step.ended());
    step.left_s.reset();
    if (step.rate_per_s > 0) step.left_s = open / step.rate_per_s;
    if (step.elements == 1 && step.progress_total > 0) {
      const double share =
          static_cast<double>(step.progress_done) * ended_share(timeline, step.name, data.now_s);
      if (step.ended() == 0) step.progress_done = static_cast<std::uint64_t>(share);
    }
  }
  std::erase_if(data.status.failures,
                [&](const auto& failure) { return failure.time_s + failure.duration_s > at_s; });
  std::erase_if(data.status.history, [&](const auto& row) { return row.time_s > at_s; });
  std::erase_if(data.checkpoints, [&](const auto& checkpoint) { return checkpoint.time_s > at_s; });
  cut_curves(data.status.metrics, timeline, at_s);
  set_worker_lists(data, record.workers, at_s);
  return data;
}

StepTasks tasks_at(const StepTasks& tasks, double at_s) {
  StepTasks then = tasks;
  std::erase_if(then.failed, [&](const auto& failure) { return failure.time_s + failure.duration_s > at_s; });
  std::erase_if(then.slowest, [&](const TaskRow& row) { return row.end_s() > at_s; });
  return then;
}

}  // namespace wflow::cli::top
