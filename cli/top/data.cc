// SPDX-License-Identifier: Apache-2.0
#include "cli/top/data.h"

#include <algorithm>

#include "cli/top/progress.h"

namespace wflow::cli::top {

namespace {

constexpr double kHour_s = 3600;

StepNeeds needs_of(const TopData& data, const std::string& step) {
  const auto found = data.needs.find(step);
  return found == data.needs.end() ? StepNeeds() : found->second;
}

}  // namespace

double busy_core_s(const TopData& data) {
  double busy = 0;
  for (const wire::StepStatus& step : data.status.steps) {
    const double counted = step.mean_s * static_cast<double>(step.count(engine::ElementState::done));
    busy += std::max(step.usage.duration_s.sum, counted) * needs_of(data, step.name).cores;
  }
  for (const wire::RunningView& task : data.running) {
    const std::string step = task.task.substr(0, task.task.find('/'));
    busy += std::max(0.0, data.now_s - task.started_s) * needs_of(data, step).cores;
  }
  return busy;
}

WorkerNames worker_names(const TopData& data) {
  WorkerNames names;
  for (const wire::WorkerView& worker : data.workers) names.add(worker.id);
  for (const wire::WorkerStatus& worker : data.status.workers) names.add(worker.id);
  return names;
}

std::optional<NodeHours> node_hours(const TopData& data) {
  double node_s = 0;
  double core_s = 0;
  for (const wire::WorkerView& worker : data.workers) {
    const double end_s = worker.ended_s > 0 ? std::min(worker.ended_s, data.now_s) : data.now_s;
    const double seconds = std::max(0.0, end_s - worker.joined_s);
    node_s += seconds;
    core_s += seconds * std::max(worker.cores, 1);
  }
  if (node_s <= 0) return std::nullopt;
  const double busy = std::clamp(busy_core_s(data) / core_s, 0.0, 1.0);
  return NodeHours{node_s / kHour_s, node_s * (1 - busy) / kHour_s, core_s / kHour_s};
}

std::optional<ForecastEnd> forecast_end(const TopData& data) {
  ForecastEnd forecast;
  for (const wire::PoolView& pool : data.status.allocations.pools)
    forecast.time_s = std::max(forecast.time_s, pool.ends_s.value_or(0));
  if (forecast.time_s > 0) return forecast;
  const auto left = overall_of(data.status).left;
  if (!left) return std::nullopt;
  forecast.at_least = left->at_least;
  forecast.time_s = data.now_s + left->seconds;
  return forecast;
}

}  // namespace wflow::cli::top
