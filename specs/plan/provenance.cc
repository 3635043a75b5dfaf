// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/provenance.h"

#include <set>
#include <string>
#include <utility>

#include "specs/study/blocks.h"

namespace wflow::specs {

namespace {

// The mapping under `key`, made where there is none.
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

// Merlin starts a worker of this name for the steps that no other serves.
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
    add_default(*samples, "generate", yaml::map({{"cmd", yaml::quoted("")}}));
    add_default(*samples, "level_max_dirs", yaml::scalar("25"));
  }
  return root;
}

}  // namespace wflow::specs
