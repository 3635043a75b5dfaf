// SPDX-License-Identifier: Apache-2.0
// What a campaign used, gathered from its coordinator or its record: behind `wflow usage`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/view/usage_advice.h"
#include "engine/usage/step_usage.h"
#include "engine/wire/answers.h"
#include "engine/wire/campaign_state.h"

namespace wflow::cli {

struct StepFacts {
  std::string name, kind;
  StepAsked asked;
  engine::StepUsage used;  // of executions of a millisecond or more, and of those that failed
  std::vector<engine::wire::LostTime> lost;
  std::vector<Advice> advice;
};

// Time of the workers, each from when it joined to its end, or to now. A part of it is used where tasks held
// its cores: durations times the cores that the step asks for. What failed executions held is a part of that.
struct HourFacts {
  std::size_t workers = 0;
  double core_h = 0;
  double node_h = 0, used_node_h = 0, idle_node_h = 0, lost_node_h = 0;
};

struct UsageFacts {
  std::string name, directory;
  engine::CampaignState state = engine::CampaignState::running;
  double time_s = 0;  // Unix time of these facts
  std::vector<StepFacts> steps;
  std::optional<HourFacts> hours;  // nothing before a worker has joined
  std::vector<Advice> advice;      // of the whole campaign
};

// Throws Error as engine::Client.
UsageFacts usage_facts(const std::filesystem::path& campaign);

}  // namespace wflow::cli
