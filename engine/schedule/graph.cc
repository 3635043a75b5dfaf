// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "specs/study/blocks.h"
#include "specs/study/tokens.h"

namespace wflow::engine {

namespace {

// Training continues from its checkpoint, so one more try after a crash costs little.
constexpr int kTrainingRetries = 1;

// A step's own priority comes before its depth.
constexpr int kDeepest = 1 << 16;

int failure_retries(const specs::PlannedStep& step) {
  if (step.retry_failures) return step.max_retries;
  return step.kind == specs::StepKind::train ? kTrainingRetries : 0;
}

bool is_merlins(const specs::Plan& plan) {
  return plan.study().format.dialect == specs::Dialect::merlin;
}

// A data set's closing step and a training can't work without what they wait for. Merlin's files follow
// Merlin; Maestro's do the same as wflow's own, because many files could be either.
specs::ContinueOn continue_on(const specs::Plan& plan, const specs::PlannedStep& step) {
  if (step.continue_on) return *step.continue_on;
  const bool closes = step.kind == specs::StepKind::convert && step.block_samples == 0;
  if (closes || step.kind == specs::StepKind::train) return specs::ContinueOn::never;
  return is_merlins(plan) ? specs::ContinueOn::soft_fail : specs::ContinueOn::never;
}

// A conversion continues without the samples that failed. A step that gathers what many elements left
// (`depends: [simulate_*]`, or all samples) does so without those that failed, too, except in Merlin's files.
std::vector<specs::Edge> edges_of(const specs::Plan& plan, const specs::PlannedStep& step, ArrayId array) {
  std::vector<specs::Edge> edges = plan.edges(array);
  if (step.continue_on) return edges;
  if (edges.empty()) return edges;
  std::map<std::size_t, std::size_t> from;  // planned step -> edges
  for (const specs::Edge& edge : edges) ++from[plan.step_of(edge.parent)];
  const bool gathers = !is_merlins(plan) && step.kind != specs::StepKind::train &&
                       !(step.kind == specs::StepKind::convert && step.block_samples == 0);
  for (specs::Edge& edge : edges) {
    const std::size_t parent = plan.step_of(edge.parent);
    if (edge.kind == specs::EdgeKind::block) edge.continue_on = specs::ContinueOn::ended;
    if (edge.kind == specs::EdgeKind::all && gathers &&
        (from.at(parent) > 1 || plan.steps()[parent].elements > 1))
      edge.continue_on = specs::ContinueOn::gathered;
  }
  return edges;
}

// A step of a study that runs on this machine alone has one worker, however many nodes it needs.
Gang gang_of(const Groups& groups, const specs::PlannedStep& step, const specs::Resources& asked,
             bool in_one) {
  if (asked.nodes <= 1) return {};
  const auto serving = groups.serving(step.study_step);
  const bool in_allocations =
      std::any_of(serving.begin(), serving.end(), [](const Group* group) { return group->in_allocations; });
  if (!in_allocations && !in_one) return {};
  return {asked.nodes, asked.min_nodes > 0 ? std::min(asked.min_nodes, asked.nodes) : asked.nodes,
          std::max(1, asked.cores) * std::max(1, ranks_a_node(asked))};
}

// Where they are values of parameters, every combination has its own.
bool resources_vary(const specs::Plan& plan, const specs::PlannedStep& step) {
  const auto& keys = plan.study().steps[step.study_step].launcher_keys;
  constexpr std::array<const char*, 6> kNumbers = {"nodes",          "procs", "min_nodes",
                                                   "cores per task", "cores", "walltime"};
  return std::any_of(kNumbers.begin(), kNumbers.end(), [&](const char* name) {
    const auto key = keys.find(name);
    return key != keys.end() && specs::find_token(key->second);
  });
}

// The walltime of the longest allocations that serve a step; 0 where some have none that is known.
double longest_allocation_s(const specs::Study& study, const Groups& groups, const specs::PlannedStep& step) {
  double longest_s = 0;
  for (const Group* group : groups.serving(step.study_step)) {
    const auto own = std::ranges::find(study.workers, group->name, &specs::WorkerGroup::name);
    const double walltime_s =
        own == study.workers.end() ? study.batch.allocation.walltime_s : own->allocation.walltime_s;
    if (!group->in_allocations || walltime_s <= 0) return 0;
    longest_s = std::max(longest_s, walltime_s);
  }
  return longest_s;
}

// Computes the common parts of all combinations of a step once: a study may have ten million combinations.
struct StepSpec {
  ArraySpec array;
  bool varies = false;  // its resources, or its walltime
};

StepSpec spec_of(const specs::Plan& plan, const Groups& groups, std::size_t index, bool runs_here,
                 bool in_one) {
  const specs::PlannedStep& step = plan.steps()[index];
  const specs::Step& asked = plan.study().steps[step.study_step];
  StepSpec result;
  result.varies = resources_vary(plan, step);
  ArraySpec& array = result.array;
  array.count = step.elements;
  array.priority = step.priority * kDeepest + std::min(step.depth, kDeepest - 1);
  array.step = static_cast<std::uint32_t>(index);
  array.pool = groups.pool_of(step.study_step);
  array.resources = step.resources;
  if (!runs_here) array.gang = gang_of(groups, step, array.resources, in_one);
  array.bundle = step.bundle;
  if (step.bundle > 0) array.block_starts = plan.block_starts();
  array.max_retries = step.max_retries;
  array.failure_retries = failure_retries(step);
  array.retry_delay_s = step.retry_delay_s;
  array.memory_factor = step.retry_memory;
  array.walltime_s = specs::walltime_s(asked.launcher_keys).value_or(0);
  if (!runs_here) array.longest_allocation_s = longest_allocation_s(plan.study(), groups, step);
  array.goes_on = step.kind == specs::StepKind::train || !asked.restart.empty();
  array.trust_markers = step.trust_markers;
  array.own_program = step.kind != specs::StepKind::shell;
  array.deletes_input = step.block_samples > 0 && specs::deletes_inputs(asked);
  if (array.deletes_input) array.max_disk_bytes = specs::max_disk_bytes(plan.study());
  array.continue_on = continue_on(plan, step);
  array.leaves_out_failed = step.block_samples > 0 && !specs::uses_failed(asked);
  return result;
}

// True if a task of this array may look for the status file of what it waits for. A step's file is written
// once all of its elements have ended, that of a task (`leaf_status`) with the task's end.
bool may_read_status(const specs::Plan& plan, const std::vector<specs::Edge>& edges) {
  if (!is_merlins(plan)) return false;
  return std::ranges::any_of(edges, [&](const specs::Edge& edge) {
    const specs::PlannedStep& parent = plan.steps()[plan.step_of(edge.parent)];
    return parent.kind == specs::StepKind::shell &&
           (plan.study().options.leaf_status || parent.elements == 1 || edge.kind == specs::EdgeKind::all);
  });
}

}  // namespace

std::vector<ArraySpec> array_specs(const specs::Plan& plan, bool runs_here, bool in_one) {
  const Groups groups(plan.study());
  std::vector<ArraySpec> arrays;
  arrays.reserve(plan.array_count());
  for (std::size_t index = 0; index < plan.steps().size(); ++index) {
    const specs::PlannedStep& step = plan.steps()[index];
    const StepSpec common = spec_of(plan, groups, index, runs_here, in_one);
    for (ArrayId id = step.first_array; id < step.first_array + step.arrays; ++id) {
      ArraySpec& array = arrays.emplace_back(common.array);
      if (common.varies) {
        array.resources = plan.task_template(id).resources;
        array.walltime_s = plan.walltime_s(id);
        if (!runs_here) array.gang = gang_of(groups, step, array.resources, in_one);
      }
      array.edges = edges_of(plan, step, id);
      array.after_record = may_read_status(plan, array.edges);
    }
  }
  return arrays;
}

void restore_states(Scheduler& scheduler, const store::Restored& restored) {
  for (const auto& end : restored.ends) scheduler.restore_end(end.array, end.range, end.state);
  for (const store::RestoredAttempt& attempt : restored.attempts) {
    scheduler.restore_attempt(attempt.array, attempt.element, attempt.counts);
    if (attempt.cut_s > 0) scheduler.restore_cut(attempt.array, attempt.element, attempt.cut_s);
  }
  for (const RecordFloor& floor : restored.floors)
    scheduler.restore_floor(floor.array, floor.range, floor.lease);
  for (const auto& [array, progress] : restored.totals) {
    scheduler.restore_durations(array, progress.timed, progress.duration_sum_s, progress.duration_square_sum);
  }
}

namespace {

constexpr const char* kDefault = "default";

bool serves(const specs::WorkerGroup& group, const std::string& step) {
  const auto named = [&](std::string_view name) {
    return std::find(group.steps.begin(), group.steps.end(), name) != group.steps.end();
  };
  return group.steps.empty() || named("all") || named(step);
}

}  // namespace

Groups::Groups(const specs::Study& study) {
  for (const specs::WorkerGroup& group : study.workers)
    groups_.push_back({group.name, group.slots, group.machines, group.pin, {}, !group.allocation.is_local()});
  std::map<std::vector<std::size_t>, std::uint32_t> pools;
  for (const specs::Step& step : study.steps) {
    std::vector<std::size_t> by;
    for (std::size_t group = 0; group < study.workers.size(); ++group) {
      if (serves(study.workers[group], step.name)) by.push_back(group);
    }
    if (by.empty()) {
      if (find(kDefault) == nullptr)
        groups_.push_back({kDefault, 0, {}, false, {}, !study.batch.allocation.is_local()});
      by.push_back(static_cast<std::size_t>(find(kDefault) - groups_.data()));
    }
    pool_of_.push_back(pools.emplace(std::move(by), static_cast<std::uint32_t>(pools.size())).first->second);
  }
  for (Group& group : groups_) group.pools.assign(pools.size(), false);
  for (const auto& [by, pool] : pools) {
    for (const std::size_t group : by) groups_[group].pools[pool] = true;
  }
}

const Group* Groups::find(const std::string& name) const {
  const auto at =
      std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.name == name; });
  return at == groups_.end() ? nullptr : &*at;
}

bool may_run_on(const Group& group, const std::string& host) {
  return group.machines.empty() || specs::names_host(group.machines, host);
}

std::string Groups::names() const {
  std::vector<std::string> names;
  for (const Group& group : groups_) names.push_back(group.name);
  return text::join(names, ", ");
}

std::optional<std::string> Groups::reason_to_refuse(const std::string& name) const {
  if (find(name) != nullptr) return std::nullopt;
  return fmt::format("the study has no worker group '{}'; its groups are: {} (--group)", name, names());
}

const Group& Groups::of_worker_on(const std::string& host) const {
  std::vector<const Group*> here;
  for (const Group& group : groups_) {
    if (group.name == kDefault || groups_.size() == 1) return group;
    if (!group.machines.empty() && may_run_on(group, host)) here.push_back(&group);
  }
  if (here.size() == 1) return *here.front();
  throw Error(ExitCode::usage,
              fmt::format("the study has several worker groups; say which one this worker is of: --group {}",
                          names()));
}

std::vector<const Group*> Groups::serving(std::size_t study_step) const {
  std::vector<const Group*> serving;
  for (const Group& group : groups_) {
    if (group.pools[pool_of_[study_step]]) serving.push_back(&group);
  }
  return serving;
}

std::vector<int> local_slots(const std::vector<Group>& groups, int cores, int limit) {
  std::vector<int> slots;
  std::int64_t sum = 0;
  for (const Group& group : groups) {
    slots.push_back(group.slots > 0 ? group.slots : limit > 0 ? std::min(cores, limit) : cores);
    sum += slots.back();
  }
  if (limit == 0 || sum <= limit) return slots;
  int left = limit;
  for (int& mine : slots) {
    mine = std::max(1, static_cast<int>(std::int64_t{mine} * limit / sum));
    left -= mine;
  }
  for (std::size_t i = 0; i < slots.size() && left > 0; ++i, --left) ++slots[i];
  return slots;
}

void check_pins(const std::vector<Group>& groups, const std::vector<int>& slots, int cores) {
  const Group* pinned = nullptr;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].pin) continue;
    if (pinned != nullptr) {
      throw Error(ExitCode::usage,
                  fmt::format("the worker groups '{}' and '{}' would pin their tasks to the same processors "
                              "of this machine; only one of them can have 'pin'",
                              pinned->name, groups[i].name));
    }
    pinned = &groups[i];
    if (slots[i] <= cores) continue;
    throw Error(ExitCode::usage,
                fmt::format("the worker group '{}' pins the tasks of {} slots, and this process may use {} "
                            "processors; give it fewer slots, or leave out 'pin'",
                            pinned->name, slots[i], cores));
  }
}

}  // namespace wflow::engine
