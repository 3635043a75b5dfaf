// SPDX-License-Identifier: Apache-2.0
#include "steps/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace wflow::steps {

namespace {

// Of another task, and of the shell that started the worker: a task's shell sets the last three itself.
constexpr std::array<std::string_view, 15> kTaskVariables = {
    "WFLOW_TASK",   "WFLOW_ATTEMPT",    "WFLOW_SAMPLE_ID",
    "WFLOW_EVENTS", "WFLOW_WORKSPACE",  "WFLOW_WORKER",
    "WFLOW_CORES",  "WFLOW_CAMPAIGN",   "WFLOW_LEASE",
    "WFLOW_NODES",  "WFLOW_WORLD_SIZE", "WFLOW_LAUNCH_ARGS",
    "PWD",          "OLDPWD",           "_"};

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
