// SPDX-License-Identifier: Apache-2.0
#include "cli/top/state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"

namespace wflow::cli::top {

namespace {

bool passes(const ViewState& state, std::string_view name) {
  return state.filter.empty() || text::lower(name).find(text::lower(state.filter)) != std::string::npos;
}

bool is_node_of(const std::string& host, const wire::AllocationView& allocation) {
  return std::ranges::any_of(allocation.node_names, [&](const std::string& node) {
    return node == host || host.starts_with(node + ".") || node.starts_with(host + ".");
  });
}

// The workers of each allocation, by its index; workers outside of any come after the last one.
std::vector<std::vector<const wire::WorkerStatus*>> workers_by_allocation(const TopData& data) {
  const auto& allocations = data.status.allocations.allocations;
  std::map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < allocations.size(); ++i) {
    for (const std::string& node : allocations[i].node_names) place.emplace(node, i);
  }
  std::vector<std::vector<const wire::WorkerStatus*>> result(allocations.size() + 1);
  for (const wire::WorkerStatus& worker : data.status.workers) {
    std::size_t at = allocations.size();
    if (const auto exact = place.find(worker.host); exact != place.end()) {
      at = exact->second;
    } else {
      const auto found = std::ranges::find_if(
          allocations, [&](const auto& allocation) { return is_node_of(worker.host, allocation); });
      at = static_cast<std::size_t>(found - allocations.begin());
    }
    result[at].push_back(&worker);
  }
  return result;
}

int curve_rank(std::string_view name) {
  if (name == "train_loss" || name == "loss") return 0;
  return name == "validation_loss" || name == "val_loss" ? 1 : 2;
}

}  // namespace

const std::vector<std::string>& sort_names(View view) {
  static const std::vector<std::string> kSteps = {"plan", "failed", "time left"};
  static const std::vector<std::string> kWorkers = {"name", "busy", "silent"};
  static const std::vector<std::string> kFailures = {"newest", "task", "worker", "reason"};
  static const std::vector<std::string> kTrainings = {"task", "loss"};
  static const std::vector<std::string> kCampaigns = {"newest", "name", "failed"};
  static const std::vector<std::string> kTasks = {"all", "running", "slowest", "failed", "node"};
  static const std::vector<std::string> kNone = {""};
  switch (view) {
    case View::steps:
      return kSteps;
    case View::workers:
      return kWorkers;
    case View::failures:
      return kFailures;
    case View::training:
      return kTrainings;
    case View::campaigns:
      return kCampaigns;
    case View::tasks:
      return kTasks;
    case View::pane:
    case View::help:
      break;
  }
  return kNone;
}

std::vector<const wire::StepStatus*> listed_steps(const TopData& data, const ViewState& state) {
  std::vector<const wire::StepStatus*> steps;
  for (const auto& step : data.status.steps) {
    if (passes(state, step.name)) steps.push_back(&step);
  }
  const auto left = [](const auto* step) {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    return step->ended() == step->elements ? -1.0 : step->left_s.value_or(kNever);
  };
  if (state.sort_of(View::steps) == 1)
    std::ranges::stable_sort(steps, std::greater<>(), [](const auto* step) { return step->failed(); });
  if (state.sort_of(View::steps) == 2) std::ranges::stable_sort(steps, std::greater<>(), left);
  return steps;
}

std::vector<const wire::FailureView*> listed_failures(const TopData& data, const ViewState& state) {
  std::vector<const wire::FailureView*> failures;
  std::set<std::pair<specs::ArrayId, specs::Element>> listed;
  const auto add = [&](const std::vector<wire::FailureView>& list) {
    for (auto at = list.rbegin(); at != list.rend(); ++at) {
      const bool is_new = listed.emplace(at->array, at->element).second;
      if (is_new && passes(state, at->task + " " + at->reason + " " + at->worker)) failures.push_back(&*at);
    }
  };
  add(data.status.failures);
  add(data.older_failures);
  const int order = state.sort_of(View::failures);
  if (order == 1) {
    std::ranges::stable_sort(failures, {},
                             [](const auto* failure) { return std::pair(failure->array, failure->element); });
  } else if (order == 2) {
    std::ranges::stable_sort(failures, {},
                             [](const auto* failure) { return std::string_view(failure->worker); });
  } else if (order == 3) {
    std::ranges::stable_sort(failures, {},
                             [](const auto* failure) { return std::string_view(failure->reason); });
  }
  return failures;
}

std::vector<TaskRow> listed_tasks(const TopData& data, const ViewState& state) {
  using Kind = TaskRow::Kind;
  if (!data.tasks) return {};
  const StepTasks& tasks = *data.tasks;
  const int order = state.sort_of(View::tasks);
  const WorkerNames names = worker_names(data);
  std::vector<TaskRow> rows;
  const auto add = [&](TaskRow row) {
    if (passes(state, row.task + " " + row.reason + " " + names.of(row.worker)))
      rows.push_back(std::move(row));
  };
  if (order != 2 && order != 3) {
    for (const wire::RunningView& task : data.running) {
      if (task.array < tasks.first_array || task.array > tasks.last_array) continue;
      add({Kind::running, {task.array, task.element}, task.task, task.worker, task.started_s, 0, ""});
    }
    std::ranges::stable_sort(rows, {}, &TaskRow::began_s);
  }
  if (order != 1 && order != 2) {
    for (auto at = tasks.failed.rbegin(); at != tasks.failed.rend(); ++at) {
      const std::string line = last_line_of(at->detail);
      add({Kind::failed,
           {at->array, at->element},
           at->task,
           at->worker,
           at->time_s,
           at->duration_s,
           at->reason + (line.empty() ? "" : ": " + line)});
    }
  }
  // A failed task is in the list already, unless the order is that of the slowest.
  std::set<std::pair<specs::ArrayId, specs::Element>> listed;
  for (const TaskRow& row : rows) listed.emplace(row.place.array, row.place.element);
  for (const TaskRow& row : tasks.slowest) {
    if (order != 1 && order != 3 && !listed.contains({row.place.array, row.place.element})) add(row);
  }
  if (order == 4)
    std::ranges::stable_sort(rows, {},
                             [&](const TaskRow& row) { return std::string_view(names.of(row.worker)); });
  return rows;
}

std::vector<const CampaignRow*> listed_campaigns(const TopData& data, const ViewState& state) {
  std::vector<const CampaignRow*> rows;
  for (const CampaignRow& row : data.campaigns) {
    if (passes(state, row.name + " " + row.state)) rows.push_back(&row);
  }
  const int order = state.sort_of(View::campaigns);
  if (order == 0)
    std::ranges::stable_sort(rows, std::greater<>(), [](const auto* row) { return row->started_s; });
  if (order == 1)
    std::ranges::stable_sort(rows, {}, [](const auto* row) { return std::string_view(row->name); });
  if (order == 2)
    std::ranges::stable_sort(rows, std::greater<>(), [](const auto* row) { return row->failed; });
  return rows;
}

std::vector<TreeRow> tree_rows(const TopData& data, const ViewState& state) {
  std::map<std::string_view, std::vector<const wire::RunningView*>> tasks;
  for (const wire::RunningView& task : data.running) tasks[task.worker].push_back(&task);
  auto groups = workers_by_allocation(data);
  const auto& allocations = data.status.allocations.allocations;
  std::vector<TreeRow> rows;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    auto& workers = groups[i];
    const int order = state.sort_of(View::workers);
    std::ranges::sort(workers, {}, [](const auto* worker) { return std::string_view(worker->id); });
    if (order == 1)
      std::ranges::stable_sort(workers, std::greater<>(), [](const auto* worker) { return worker->running; });
    if (order == 2)
      std::ranges::stable_sort(workers, std::greater<>(),
                               [](const auto* worker) { return worker->silent_s; });
    const bool under_allocation = i < allocations.size();
    const bool all = under_allocation && passes(state, allocations[i].id + " " + allocations[i].pool);
    const std::size_t place = rows.size();
    const int depth = under_allocation ? 1 : 0;
    for (const wire::WorkerStatus* worker : workers) {
      const bool whole = all || passes(state, worker->id);
      const std::size_t at = rows.size();
      for (const wire::RunningView* task : tasks[worker->id]) {
        if (whole || passes(state, task->task)) rows.push_back({nullptr, nullptr, task, depth + 1});
      }
      if (whole || rows.size() > at)
        rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(at), {nullptr, worker, nullptr, depth});
    }
    if (under_allocation && (all || rows.size() > place))
      rows.insert(rows.begin() + static_cast<std::ptrdiff_t>(place), {&allocations[i], nullptr, nullptr, 0});
  }
  return rows;
}

const wire::MetricCurve* Training::curve(std::string_view name) const {
  const auto found =
      std::ranges::find(curves, name, [](const auto* curve) { return std::string_view(curve->name); });
  return found == curves.end() || (*found)->points.empty() ? nullptr : *found;
}

std::vector<Training> trainings(const TopData& data, const ViewState& state) {
  std::map<std::pair<specs::ArrayId, specs::Element>, Training> by_task;
  for (const wire::MetricCurve& curve : data.status.metrics) {
    if (curve.points.empty() || !passes(state, curve.task)) continue;
    Training& training = by_task[{curve.array, curve.element}];
    training.array = curve.array;
    training.element = curve.element;
    training.task = curve.task;
    training.curves.push_back(&curve);
  }
  std::vector<Training> list;
  for (auto& [task, training] : by_task) {
    std::ranges::stable_sort(training.curves, {}, [](const auto* curve) { return curve_rank(curve->name); });
    list.push_back(std::move(training));
  }
  if (state.sort_of(View::training) == 1) {
    const auto loss = [](const Training& training) {
      const auto* curve = training.curve("validation_loss");
      if (curve == nullptr) curve = training.curves.front();
      const double value = curve->points.back().value;
      return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
    };
    std::ranges::stable_sort(list, {}, loss);
  }
  return list;
}

bool line_matches(const std::string& line, const std::string& text) {
  return !text.empty() && text::lower(line).find(text::lower(text)) != std::string::npos;
}

std::size_t list_size(const TopData& data, const ViewState& state, View view) {
  switch (view) {
    case View::steps:
      return listed_steps(data, state).size();
    case View::workers:
      return tree_rows(data, state).size();
    case View::failures:
      return listed_failures(data, state).size();
    case View::training:
      return trainings(data, state).size();
    case View::campaigns:
      return listed_campaigns(data, state).size();
    case View::tasks:
      return listed_tasks(data, state).size();
    case View::pane:
      return data.pane.lines.size();
    case View::help:
      break;
  }
  return 1;
}

}  // namespace wflow::cli::top
