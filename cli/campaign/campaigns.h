// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "specs/plan/plan.h"

namespace wflow::cli {

// A campaign named by its directory, by a name that begins its directory's name here, or by nothing: then the
// one that contains the working directory, else the newest at most two levels below it. A study's file names
// the newest campaign of that study. Throws Error{usage} with what was looked for; as specs::require_trusted().
std::filesystem::path find_campaign(const std::string& name);

// Whether the directory is one of a campaign.
bool is_campaign(const std::filesystem::path& directory);

// The campaign on which a process works that was begun with this one: itself, or one that follows on it;
// itself where there is none.
std::filesystem::path working_campaign(const std::filesystem::path& campaign);

// All campaigns at most two levels below `directory`, the oldest first.
std::vector<std::filesystem::path> find_campaigns(const std::filesystem::path& directory);

// The newest campaign of this study's file beside which a new one would be made; by the names of the directories.
std::optional<std::filesystem::path> last_campaign_of(const specs::Study& study);

// Returns the plan that the campaign runs with. Reads only: if an update was killed, its version counts as soon as the
// record has it (recorded_version).
specs::Plan read_plan(const std::filesystem::path& campaign);

// The same for a command that runs or changes the campaign: first completes or undoes an update that was killed
// (finish_update).
specs::Plan read_plan_to_run(const std::filesystem::path& campaign);

}  // namespace wflow::cli
