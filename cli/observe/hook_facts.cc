// SPDX-License-Identifier: Apache-2.0
#include "cli/observe/hook_facts.h"

#include <array>
#include <utility>

namespace wflow::cli {

nlohmann::json hook_facts(const DueHook& due, const engine::CampaignStatus& status) {
  constexpr std::size_t kFailures = 5;
  nlohmann::json failures = nlohmann::json::array();
  for (const auto& failure : status.failures) {
    if (!failure.final || failures.size() == kFailures) continue;
    failures.push_back({{"task", failure.task}, {"reason", failure.reason}, {"detail", failure.detail}});
  }
  return {{"version", 1},
          {"event", due.hook.event},
          {"text", due.text},
          {"name", status.name},
          {"campaign", status.directory},
          {"state", engine::name_of(status.state)},
          {"time_s", status.time_s},
          {"elapsed_s", status.elapsed_s},
          {"tasks", status.elements()},
          {"done", status.ended() - status.failed() - status.cancelled()},
          {"failed", status.failed()},
          {"cancelled", status.cancelled()},
          {"coordinator", status.coordinator},
          {"failures", std::move(failures)}};
}

std::vector<std::string> hook_variables(const nlohmann::json& facts) {
  constexpr std::array<std::pair<const char*, const char*>, 10> kVariables = {
      {{"WFLOW_EVENT", "event"},
       {"WFLOW_TEXT", "text"},
       {"WFLOW_NAME", "name"},
       {"WFLOW_CAMPAIGN", "campaign"},
       {"WFLOW_STATE", "state"},
       {"WFLOW_TASKS", "tasks"},
       {"WFLOW_DONE", "done"},
       {"WFLOW_FAILED", "failed"},
       {"WFLOW_CANCELLED", "cancelled"},
       {"WFLOW_ELAPSED_S", "elapsed_s"}}};
  std::vector<std::string> variables;
  for (const auto& [name, key] : kVariables) {
    const nlohmann::json& value = facts.at(key);
    variables.push_back(std::string(name) + "=" +
                        (value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return variables;
}

}  // namespace wflow::cli
