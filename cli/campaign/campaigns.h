// SPDX-License-Identifier: Apache-2.0
// Finds, remembers and lists campaigns.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "specs/plan/plan.h"

namespace wflow::cli {

// Finds a campaign by its directory or by the beginning of its directory's name. Without a name: the campaign
// that contains the working directory, else the newest at most two levels below it, where a record of
// `wflow exec` counts only if there is no other. A study's file names the
// newest campaign of that study. Throws Error{usage} with the name that was not found, and as
// specs::require_trusted().
std::filesystem::path find_campaign(const std::string& name);

// True if the directory is that of a campaign.
bool is_campaign(const std::filesystem::path& directory);

// Marks a campaign as a record of `wflow exec`: without a name, it is found only where there is no other.
void mark_as_exec(const std::filesystem::path& campaign);

// The campaign that a process which began with this one coordinates now: itself, or one that follows on it;
// itself if there is no such process.
std::filesystem::path working_campaign(const std::filesystem::path& campaign);

// All campaigns at most two levels below `directory`, the oldest first.
std::vector<std::filesystem::path> find_campaigns(const std::filesystem::path& directory);

// The newest campaign of this study's file in the directory where a new one would be made, by directory name.
std::optional<std::filesystem::path> last_campaign_of(const specs::Study& study);

// Returns the plan that the campaign runs with. Reads only: if an update was killed, its version counts as
// soon as the record has it (recorded_version).
specs::Plan read_plan(const std::filesystem::path& campaign);

// The same for a command that runs or changes the campaign: first completes or undoes an update that was
// killed (finish_update).
specs::Plan read_plan_to_run(const std::filesystem::path& campaign);

// ---- the user's campaigns, wherever they are: a list of directories in $XDG_STATE_HOME/wflow/campaigns
// (~/.local/state/wflow/campaigns), for `wflow status --all`. The list is a convenience: its errors are not
// reported, because no run may fail for it.

void remember_campaign(const std::filesystem::path& campaign);

// The campaigns that still exist, in the order in which they began. Removes the others from the list.
std::vector<std::filesystem::path> remembered_campaigns();

// ---- listing.cc: campaigns as rows of a table, for `wflow ls` and `wflow status --all`

enum class Format { people, json, csv };

// Prints in the order given. `sizes`: also the bytes below each directory, which takes a walk through it.
void print_campaigns(const std::vector<std::filesystem::path>& campaigns, Format format, bool sizes);

// A directory relative to the current one, if that is shorter.
std::string short_name(const std::filesystem::path& directory);

// The sum of the files below the directory; files may come and go meanwhile.
std::uint64_t bytes_below(const std::filesystem::path& directory);

// The requests of a study to batch schedulers: for `wflow plan`, `validate` and `run --dry`.

// The submission script of each pool that runs in allocations, byte for byte except for the job's name. Empty
// if everything is local.
std::string scripts_text(const specs::Plan& plan);
// Writes DIRECTORY/.wflow/allocations/POOL.sh for each pool; returns their number.
int write_allocation_scripts(const specs::Plan& plan);

// Throws Error{spec} for a step whose `walltime` no allocation of its pools can hold.
void check_walltimes(const specs::Plan& plan);
// The same for a step that asks for more nodes than any allocation of its pools has.
void check_nodes(const specs::Plan& plan);
// The same for GPUs, memory and processors of one task that no node of its pools has, if the study says so.
void check_room(const specs::Plan& plan);

// Allocations, node-hours, and when the first would start if the scheduler can tell.
nlohmann::ordered_json batch_plan(const specs::Plan& plan);
std::string batch_plan_text(const nlohmann::ordered_json& rows);
// The first refusal among the rows as a sentence; empty if the schedulers would accept all.
std::optional<std::string> refusal_in(const nlohmann::ordered_json& rows);
// Throws Error{system} with that sentence. Asks the schedulers.
void check_submissions(const specs::Plan& plan);

// A sentence for each scheduler that the study asks for and that can't be used here.
std::vector<std::string> unusable_schedulers(const specs::Study& study);

}  // namespace wflow::cli
