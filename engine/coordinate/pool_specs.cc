// SPDX-License-Identifier: Apache-2.0
#include "engine/coordinate/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/process.h"
#include "base/random.h"
#include "engine/schedule/graph.h"

namespace wflow::engine {

namespace {

// The group in the study; for a name that the study lacks, a group with the settings of batch:.
specs::WorkerGroup group_of(const specs::Study& study, const std::string& name) {
  const auto at = std::ranges::find(study.workers, name, &specs::WorkerGroup::name);
  if (at != study.workers.end()) return *at;
  specs::WorkerGroup group;
  group.name = name;
  group.allocation = study.batch.allocation;
  return group;
}

// Names of jobs: no blanks, and no character that a shell or a scheduler interprets.
std::string job_name_of(const std::string& text) {
  constexpr std::size_t kLongest = 80;
  std::string name;
  for (const char c : text.substr(0, kLongest)) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    name += plain ? c : '_';
  }
  return name;
}

// `number`: among the campaign's pools, for the name of its chain.
batch::PoolSpec pool_of(const specs::Plan& plan, const specs::WorkerGroup& group, std::size_t number) {
  batch::PoolSpec pool;
  pool.name = group.name;
  pool.scheduler = group.allocation.type;
  pool.slots = group.slots;
  pool.min = group.min;
  pool.max = group.max;
  pool.chain = group.allocation.chain;
  pool.idle_timeout_s = group.idle_timeout_s;
  pool.job = batch::request_of(group.allocation, group.slots);
  pool.job.chain = std::to_string(number);
  if (pool.job.name.empty()) pool.job.name = job_name_of(plan.study().name + "-" + group.name);
  pool.job.campaign = plan.campaign().string();
  pool.job.directory = (plan.campaign() / ".wflow" / "allocations").string();
  pool.job.command = {sibling_program("wflow"),
                      "worker",
                      "--campaign",
                      plan.campaign().string(),
                      "--group=" + group.name,
                      "--linger",
                      fmt::format("{:.0f}", plan.study().batch.linger_s)};
  if (group.slots > 0)
    pool.job.command.insert(pool.job.command.end(), {"--slots", std::to_string(group.slots)});
  if (group.allocation.gpus > 0)
    pool.job.command.insert(pool.job.command.end(), {"--gpus", std::to_string(group.allocation.gpus)});
  if (group.pin) pool.job.command.emplace_back("--pin");
  if (plan.study().batch.coordinator_in_allocation)
    pool.job.coordinator = coordinator_command(plan.campaign(), {}, false);
  return pool;
}

}  // namespace

bool wants_scheduler(const specs::Study& study, const std::string& group) {
  return !group_of(study, group).allocation.is_local();
}

std::set<std::string> wanted_schedulers(const specs::Study& study) {
  std::set<std::string> names;
  const Groups groups(study);
  for (const Group& group : groups.all()) {
    if (wants_scheduler(study, group.name)) names.insert(group_of(study, group.name).allocation.type);
  }
  return names;
}

std::vector<batch::PoolSpec> pool_specs(const specs::Plan& plan) {
  std::vector<batch::PoolSpec> pools;
  const Groups groups(plan.study());
  for (const Group& group : groups.all()) {
    if (wants_scheduler(plan.study(), group.name))
      pools.push_back(pool_of(plan, group_of(plan.study(), group.name), pools.size()));
  }
  return pools;
}

std::vector<std::string> coordinator_command(const std::filesystem::path& campaign,
                                             const std::filesystem::path& top, bool keep_going) {
  std::vector<std::string> command = {sibling_program("wflow"), "coordinate", "--campaign",
                                      campaign.string()};
  if (!top.empty() && top != campaign) command.insert(command.end(), {"--top", top.string()});
  if (keep_going) command.emplace_back("--keep-going");
  return command;
}

std::string job_prefix(const std::filesystem::path& campaign, const std::string& token) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  constexpr int kLength = 6;
  std::uint64_t number = 0;
  for (const char c : campaign.string() + '\n' + token)
    number = hash64(number, static_cast<unsigned char>(c));
  std::string prefix = "w";
  for (int i = 0; i < kLength; ++i, number /= kDigits.size()) prefix += kDigits[number % kDigits.size()];
  return prefix;
}

}  // namespace wflow::engine
