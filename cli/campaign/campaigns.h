// SPDX-License-Identifier: Apache-2.0
// Finds, remembers and lists campaigns.
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

// The plan that the campaign was created with.
specs::Plan read_plan(const std::filesystem::path& campaign);

// ---- the user's campaigns, wherever they are: a list of directories in $XDG_STATE_HOME/wflow/campaigns
// (~/.local/state/wflow/campaigns), for `wflow status --all`. The list is a convenience: its errors are not reported,
// because no run may fail for it.

void remember_campaign(const std::filesystem::path& campaign);

// Those that are still there, in the order in which they began; the others are forgotten.
std::vector<std::filesystem::path> remembered_campaigns();

// ---- listing.cc: campaigns as rows of a table, for `wflow ls` and `wflow status --all`

enum class Format { people, json, csv };

// In the order given. `sizes`: with the bytes below each directory, which takes as long as reading all of it.
void print_campaigns(const std::vector<std::filesystem::path>& campaigns, Format format, bool sizes);

// A directory relative to the current one, where that is shorter.
std::string short_name(const std::filesystem::path& directory);

// Of what is below it; files come and go while a campaign runs.
std::uint64_t bytes_below(const std::filesystem::path& directory);

}  // namespace wflow::cli
