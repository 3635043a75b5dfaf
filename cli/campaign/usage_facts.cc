// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/usage_facts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cli/campaign/campaigns.h"
#include "cli/top/data.h"
#include "cli/top/pictures.h"
#include "engine/query/client.h"

namespace wflow::cli {

namespace {

constexpr std::uint32_t kRunning = 5000;

std::map<std::string, StepAsked> asked_by_step(const specs::Plan& plan) {
  std::map<std::string, StepAsked> asked;
  for (const specs::PlannedStep& step : plan.steps()) {
    const specs::TaskTemplate task = plan.task_template(step.first_array);
    const specs::Resources& resources = task.resources;
    const int nodes = std::max(resources.nodes, 1);
    asked[step.name] = {std::max(1, resources.cores), std::max({1, resources.procs, nodes}),
                        resources.memory_bytes, task.timeout_s};
  }
  return asked;
}

double lost_core_s(const StepFacts& step) {
  double seconds = 0;
  for (const engine::wire::LostTime& lost : step.lost) seconds += lost.seconds;
  return seconds * step.asked.all_cores();
}

std::optional<HourFacts> hours_of(const top::TopData& data, const std::vector<StepFacts>& steps) {
  const auto hours = top::node_hours(data);
  if (!hours) return std::nullopt;
  constexpr double kHour_s = 3600;
  HourFacts facts;
  facts.workers = data.workers.size();
  facts.core_h = hours->core_h;
  facts.node_h = hours->used;
  facts.idle_node_h = hours->idle;
  facts.used_node_h = hours->used - hours->idle;
  double lost_s = 0;
  for (const StepFacts& step : steps) lost_s += lost_core_s(step);
  const double share = hours->core_h > 0 ? lost_s / kHour_s / hours->core_h : 0;
  facts.lost_node_h = std::min(facts.node_h * share, facts.used_node_h);
  return facts;
}

}  // namespace

UsageFacts usage_facts(const std::filesystem::path& campaign) {
  const specs::Plan plan = read_plan(campaign);
  engine::Client client(plan);
  top::TopData data;
  engine::wire::WatchAnswer watch = client.watch({0, 0, kRunning});
  const engine::wire::UsageSummary summary = client.usage_summary();
  data.workers = client.workers();
  data.status = std::move(watch.status);
  data.running = std::move(watch.running);
  data.needs = top::needs_of(plan);
  data.now_s = data.status.time_s;
  // Of a worker that was killed with its coordinator no end is known.
  const bool live = client.live();
  for (engine::wire::WorkerView& worker : data.workers) {
    const bool over = !live || worker.state == engine::wire::WorkerViewState::unknown;
    if (worker.ended_s <= 0 && over) worker.ended_s = std::max(data.now_s, worker.joined_s);
  }

  UsageFacts facts;
  facts.name = data.status.name;
  facts.directory = data.status.directory;
  facts.state = data.status.state;
  facts.time_s = data.status.time_s;
  std::map<std::string, engine::StepUsage> used;
  for (const engine::wire::StepSketches& step : summary.steps)
    used[step.step] = engine::StepUsage::from_bytes(step.body);
  std::map<std::string, StepAsked> asked = asked_by_step(plan);
  for (const engine::StepStatus& status : data.status.steps) {
    StepFacts& step = facts.steps.emplace_back();
    step.name = status.name;
    step.kind = status.kind;
    step.asked = asked[status.name];
    step.used = std::move(used[status.name]);
    for (const engine::wire::LostTime& lost : summary.lost) {
      if (lost.step == status.name) step.lost.push_back(lost);
    }
    step.advice = step_advice(step.used, step.asked, step.lost);
  }
  facts.hours = hours_of(data, facts.steps);
  if (engine::is_at_rest(facts.state)) facts.advice = walltime_advice(client.allocations().allocations);
  return facts;
}

}  // namespace wflow::cli
