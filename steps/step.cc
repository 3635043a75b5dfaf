// SPDX-License-Identifier: Apache-2.0
#include "steps/step.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/blocks.h"
#include "base/error.h"
#include "base/text.h"
#include "specs/plan/plan.h"

namespace wflow::steps {

std::unique_ptr<const Step> make_step(const specs::TaskTemplate& task_template,
                                      const specs::SampleTable* samples,
                                      std::span<const std::string> environment) {
  switch (task_template.kind) {
    case specs::StepKind::shell:
      return make_shell(task_template, samples, environment);
    case specs::StepKind::convert:
      return make_convert(task_template, samples);
    case specs::StepKind::train:
      return make_train(task_template);
    case specs::StepKind::plugin:
      return make_plugin(task_template);
    case specs::StepKind::propose:
      return make_propose(task_template, samples);
  }
  throw Error(ExitCode::internal, "a step of an unknown kind");
}

std::string working_directory(const specs::TaskTemplate& t, specs::Element element) {
  if (!t.sample_dependent) return t.workspace;
  std::string path;
  if (t.bundle == 0) {
    path = specs::sample_path(element, layout_of(t), t.level_max_dirs);
  } else {
    const Blocks bundles(t.bundle, t.sample_starts);
    path = specs::sample_path(bundles.block_of(element), bundles.count(layout_of(t)), t.level_max_dirs);
  }
  return path.empty() ? t.workspace : t.workspace + "/" + path;
}

std::string source_directory(const specs::TaskTemplate& t, std::uint64_t row, std::uint64_t bundle) {
  specs::TaskTemplate source;
  source.workspace = t.source_workspace;
  source.sample_dependent = true;
  source.layout_samples = layout_of(t);
  source.level_max_dirs = t.level_max_dirs;
  source.sample_starts = t.sample_starts;
  source.bundle = bundle;
  return working_directory(source, row);
}

std::string process_suffix(const specs::TaskTemplate& t, const Execution& execution) {
  if (t.bundle == 0) return {};
  const BlockRange bundle = Blocks(t.bundle, t.sample_starts).around(execution.element, t.sample_count);
  const bool whole = execution.element == bundle.first && execution.count == bundle.size();
  return whole ? "" : fmt::format("-{}-{}", execution.element, execution.count);
}

std::vector<std::string> element_environment(const specs::TaskTemplate& task_template,
                                             const Execution& execution) {
  std::vector<std::string> environment;
  environment.reserve(6);  // includes the variables that the worker adds
  environment.push_back("WFLOW_TASK=" +
                        specs::numbered_task_name(specs::array_name(task_template.step, task_template.label),
                                                  execution.element));
  environment.push_back("WFLOW_ATTEMPT=" + std::to_string(execution.attempt));
  if (task_template.bundle > 0) {
    environment.push_back("WFLOW_FIRST=" + std::to_string(execution.element));
    environment.push_back("WFLOW_COUNT=" + std::to_string(execution.count));
  } else if (task_template.sample_dependent) {
    environment.push_back("WFLOW_SAMPLE_ID=" + std::to_string(execution.element));
  }
  const specs::Resources& asked = task_template.resources;
  const int nodes = std::max<int>(1, static_cast<int>(execution.nodes.size()));
  const int ranks = execution.nodes.empty() ? asked.procs : specs::ranks_on(asked, nodes);
  if (ranks > 1 || nodes > 1) environment.push_back("WFLOW_WORLD_SIZE=" + std::to_string(ranks));
  if (execution.nodes.empty()) return environment;
  environment.push_back("WFLOW_NODES=" + text::join(execution.nodes, ","));
  environment.push_back(lease_variable(execution.lease));
  return environment;
}

namespace {

// Variables of another task, which the worker must not pass on. A task's shell sets the last three itself.
constexpr std::array<std::string_view, 16> kTaskVariables = {
    "WFLOW_TASK",      "WFLOW_ATTEMPT", "WFLOW_SAMPLE_ID",  "WFLOW_EVENTS",
    "WFLOW_WORKSPACE", "WFLOW_WORKER",  "WFLOW_CORES",      "WFLOW_CAMPAIGN",
    "WFLOW_LEASE",     "WFLOW_NODES",   "WFLOW_WORLD_SIZE", "WFLOW_LAUNCH_ARGS",
    "WFLOW_SLOT",      "PWD",           "OLDPWD",           "_"};

std::string_view key_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

bool has(const std::vector<std::string>& environment, std::string_view key) {
  return std::any_of(environment.begin(), environment.end(), [&](const auto& v) { return key_of(v) == key; });
}

std::string value_of(const std::vector<std::string>& environment, std::string_view key) {
  for (const std::string& variable : environment) {
    if (key_of(variable) == key) return variable.substr(key.size() + 1);
  }
  return {};
}

void set(std::vector<std::string>& environment, const std::string& key, const std::string& value) {
  std::erase_if(environment, [&](const auto& v) { return key_of(v) == key; });
  environment.push_back(key + "=" + value);
}

}  // namespace

std::vector<std::string> worker_environment(const std::vector<std::string>& environment,
                                            const std::string& program_directory) {
  std::vector<std::string> result;
  std::string path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& variable : environment) {
    const std::string_view key = key_of(variable);
    if (key == "PATH") path = variable.substr(std::string_view("PATH=").size());
    if (std::find(kTaskVariables.begin(), kTaskVariables.end(), key) == kTaskVariables.end()) {
      result.push_back(variable);
    }
  }
  set(result, "PATH", program_directory + ":" + path);
  return result;
}

std::vector<std::string> array_environment(const std::vector<std::string>& worker,
                                           const specs::TaskTemplate& task_template, int worker_cores) {
  std::vector<std::string> result = worker;
  for (const auto& [key, value] : task_template.environment) set(result, key, value);
  set(result, "WFLOW_WORKSPACE", task_template.workspace);
  if (!task_template.campaign.empty()) {
    set(result, "WFLOW_CAMPAIGN", task_template.campaign);
    // Its `merlin`, which is wflow, before any other of that name.
    set(result, "PATH", task_template.campaign + "/.wflow/bin:" + value_of(result, "PATH"));
  }
  const std::string cores =
      std::to_string(std::clamp(task_template.resources.cores, 1, std::max(1, worker_cores)));
  set(result, "WFLOW_CORES", cores);
  if (!has(result, "OMP_NUM_THREADS")) set(result, "OMP_NUM_THREADS", cores);
  return result;
}

std::string lease_variable(std::uint64_t lease) {
  return "WFLOW_LEASE=" + std::to_string(lease);
}

std::vector<std::string> own_environment() {
  std::vector<std::string> result;
  for (char** variable = environ; *variable != nullptr; ++variable) result.emplace_back(*variable);
  return result;
}

}  // namespace wflow::steps
