// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "base/text.h"
#include "specs/study/blocks.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

namespace {

using Json = nlohmann::ordered_json;

const char* name_of(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::element:
      return "sample";
    case EdgeKind::block:
      return "block";
    case EdgeKind::all:
      break;
  }
  return "all";
}

Json resources_to_json(const Resources& resources) {
  return {{"nodes", resources.nodes},
          {"procs", resources.procs},
          {"cores", resources.cores},
          {"gpus", resources.gpus},
          {"memory_bytes", resources.memory_bytes}};
}

Json step_to_json(const Plan& plan, const PlannedStep& planned) {
  const Step& step = plan.study().steps[planned.study_step];
  const TaskTemplate first = plan.task_template(planned.first_array);
  Json json = {{"name", planned.name},
               {"kind", name_of(planned.kind)},
               {"combinations", planned.arrays},
               {"tasks_a_combination", planned.elements},
               {"runs_once_a_sample", planned.sample_dependent},
               {"depth", planned.depth},
               {"resources", resources_to_json(planned.resources)},
               {"max_retries", planned.max_retries},
               {"timeout_s", planned.timeout_s},
               {"priority", planned.priority}};
  if (planned.retry_memory > 0) json["retry_memory"] = planned.retry_memory;
  if (planned.max_failures.kind == FailureLimit::Kind::count)
    json["max_failures"] = planned.max_failures.count;
  if (planned.max_failures.kind == FailureLimit::Kind::fraction)
    json["max_failures"] = fmt::format("{:g} %", 100 * planned.max_failures.fraction);
  if (planned.max_failures.kind == FailureLimit::Kind::none) json["max_failures"] = "none";
  if (planned.stall_timeout_s > 0) json["stall_timeout_s"] = planned.stall_timeout_s;
  if (planned.trust_markers) json["trust_markers"] = true;
  if (!step.when.empty()) json["when"] = step.when;
  if (planned.bundle > 0) json["bundle"] = planned.bundle;
  if (planned.block_samples > 0) json["block_samples"] = planned.block_samples;
  if (planned.continue_on) json["continue_on"] = name_of(*planned.continue_on);
  if (step.output == OutputMode::packed) json["output"] = "packed";
  for (const StepOutput& output : step.outputs) {
    json["outputs"].push_back({{"file", output.file},
                               {"dataset", output.dataset},
                               {"shape", output.shape},
                               {"finite", output.finite}});
  }
  json["after"] = Json::array();
  for (const Edge& edge : planned.edges) {
    Json after = {{"step", plan.steps()[plan.step_of(edge.parent)].name}, {"edge", name_of(edge.kind)}};
    if (edge.kind == EdgeKind::block) after["block"] = edge.block;
    json["after"].push_back(std::move(after));
  }
  json["workspace"] = first.workspace;
  if (planned.kind != StepKind::shell) {
    json["settings"] = yaml::emit(to_yaml(first.settings));
  } else {
    json["command"] = template_text(plan, first.command);
  }
  return json;
}

std::string dot_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    c == '\n' ? result += "\\n" : result += c;
  }
  return result + "\"";
}

}  // namespace

const char* name_of(ContinueOn continue_on) {
  switch (continue_on) {
    case ContinueOn::never:
      return "never";
    case ContinueOn::any:
      return "any";
    case ContinueOn::gathered:
      return "gathered";
    case ContinueOn::ended:
      return "ended";
    case ContinueOn::soft_fail:
      break;
  }
  return "soft_fail";
}

Json plan_to_json(const Plan& plan) {
  const Study& study = plan.study();
  Json json = {{"study", study.name},
               {"dialect", name_of(study.format.dialect)},
               {"dialect_reason", study.format.reason},
               {"campaign", plan.campaign().string()}};
  if (study.samples) {
    Json columns = Json::array();
    for (const SampleColumn& column : study.samples->design.columns) columns.push_back(column.name);
    json["samples"] = {{"design", name_of(study.samples->design.kind)},
                       {"count", study.samples->design.count},
                       {"columns", columns}};
  }
  if (!study.parameters.empty()) {
    Json names = Json::array();
    for (const Parameter& parameter : study.parameters) names.push_back(parameter.name);
    json["parameters"] = {{"names", names}, {"combinations", study.parameters.front().values.size()}};
  }
  json["steps"] = Json::array();
  for (const PlannedStep& step : plan.steps()) json["steps"].push_back(step_to_json(plan, step));
  json["arrays"] = plan.array_count();
  json["tasks"] = plan.element_count();
  return json;
}

std::string plan_to_dot(const Plan& plan) {
  std::string text =
      fmt::format("digraph {} {{\n  rankdir=LR;\n  node [shape=box];\n", dot_text(plan.study().name));
  for (const PlannedStep& step : plan.steps()) {
    const Step& from = plan.study().steps[step.study_step];
    std::string label = step.name + "\n";
    if (step.arrays > 1) label += text::format_count(step.arrays) + " x ";
    label += text::format_count(step.elements) + (step.elements == 1 ? " task" : " tasks");
    if (step.bundle > 0) label += fmt::format("\nbundles of {}", step.bundle);
    if (!from.when.empty()) label += "\nwhen " + from.when;
    if (step.priority != 0) label += fmt::format("\npriority {}", step.priority);
    text += fmt::format("  {} [label={}];\n", dot_text(step.name), dot_text(label));
  }
  for (const PlannedStep& step : plan.steps()) {
    for (const Edge& edge : step.edges) {
      const std::string label = edge.kind == EdgeKind::block     ? fmt::format("blocks of {}", edge.block)
                                : edge.kind == EdgeKind::element ? "sample by sample"
                                                                 : "all";
      text += fmt::format("  {} -> {} [label={}];\n", dot_text(plan.steps()[plan.step_of(edge.parent)].name),
                          dot_text(step.name), dot_text(label));
    }
  }
  return text + "}\n";
}

namespace {

// The mapping under `key`, created if missing.
yaml::Node& block_of(yaml::Node& map, std::string_view key) {
  const yaml::Node* found = map.find(key);
  if (found == nullptr || !found->is_map()) set_key(map, key, yaml::map({}));
  return *map.find(key);
}

void add_default(yaml::Node& map, std::string_view key, yaml::Node value) {
  if (map.find(key) == nullptr) set_key(map, key, std::move(value));
}

yaml::Node worker(std::vector<yaml::Node> steps) {
  return yaml::map({{"steps", yaml::sequence(std::move(steps))}, {"nodes", {}}, {"batch", {}}});
}

// Merlin starts a worker of this name for the steps that no other worker serves.
void add_default_worker(const Study& study, yaml::Node& workers) {
  std::set<std::string> served;
  for (const WorkerGroup& group : study.workers) {
    if (group.steps.empty()) return;
    served.insert(group.steps.begin(), group.steps.end());
  }
  if (served.contains("all")) return;
  std::vector<yaml::Node> left;
  for (const Step& step : study.steps) {
    if (!served.contains(step.name)) left.push_back(yaml::quoted(step.name));
  }
  if (study.workers.empty()) left = {yaml::scalar("all")};
  if (!left.empty()) add_default(workers, "default_worker", worker(std::move(left)));
}

void add_to_steps(const Study& study, yaml::Node& root) {
  yaml::Node* list = root.find("study");
  if (list == nullptr) return;
  for (yaml::Node& step : list->items) {
    yaml::Node* run = step.find("run");
    if (run == nullptr || !run->is_map()) continue;
    add_default(*run, "task_queue", yaml::scalar("merlin"));
    add_default(*run, "shell", yaml::quoted(study.batch.shell));
    add_default(*run, "max_retries", yaml::scalar("30"));
  }
}

}  // namespace

yaml::Node expanded_copy(const Study& study) {
  yaml::Node root = study.expanded;
  if (study.format.dialect != Dialect::merlin) return root;
  yaml::Node& batch = block_of(root, "batch");
  add_default(batch, "type", yaml::scalar("local"));
  add_default(batch, "dry_run", yaml::scalar("false"));
  add_default(batch, "shell", yaml::quoted(study.batch.shell));
  add_to_steps(study, root);
  yaml::Node& merlin = block_of(root, "merlin");
  yaml::Node& resources = block_of(merlin, "resources");
  add_default(resources, "task_server", yaml::scalar("celery"));
  add_default(resources, "overlap", yaml::scalar("false"));
  yaml::Node& workers = block_of(resources, "workers");
  for (auto& [name, group] : workers.entries) {
    if (!group.is_map()) group = yaml::map({});
    add_default(group, "steps", yaml::sequence({yaml::scalar("all")}));
    add_default(group, "nodes", {});
    add_default(group, "batch", {});
  }
  add_default_worker(study, workers);
  yaml::Node* samples = merlin.find("samples");
  if (samples != nullptr && samples->is_map()) {
    if (study.options.samples_file.empty())
      add_default(*samples, "generate", yaml::map({{"cmd", yaml::quoted("")}}));
    add_default(*samples, "level_max_dirs", yaml::scalar("25"));
  }
  return root;
}

}  // namespace wflow::specs
