// SPDX-License-Identifier: Apache-2.0
// The study's pools as the coordinator submits them.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "engine/batch/pools.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

// True if the pool or group of this name has its workers in allocations of a scheduler.
bool wants_scheduler(const specs::Study& study, const std::string& group);
// The names of the schedulers of all such pools.
std::set<std::string> wanted_schedulers(const specs::Study& study);
// job_of() of engine/batch/pools.h makes each submission of them.
std::vector<batch::PoolSpec> pool_specs(const specs::Plan& plan);
// argv of the coordinator that waits in each allocation; it ends with `--allocation TOKEN`.
// `top`: the campaign that this one follows, or itself.
std::vector<std::string> coordinator_command(const std::filesystem::path& campaign,
                                             const std::filesystem::path& top, bool keep_going);
// The prefix of the names of all of the campaign's jobs, and of no other campaign's: seven characters.
std::string job_prefix(const std::filesystem::path& campaign, const std::string& token);

}  // namespace wflow::engine
