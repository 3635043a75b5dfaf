// SPDX-License-Identifier: Apache-2.0
// What a hook is given (docs/hooks.md).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/observe/hook_watch.h"

namespace wflow::cli {

nlohmann::json hook_facts(const DueHook& due, const engine::CampaignStatus& status);

// "WFLOW_EVENT=finished", ..., of such facts.
std::vector<std::string> hook_variables(const nlohmann::json& facts);

}  // namespace wflow::cli
