// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace wflow::engine {

namespace {

constexpr const char* kDefault = "default";

bool serves(const specs::WorkerGroup& group, const std::string& step) {
  const auto named = [&](std::string_view name) {
    return std::find(group.steps.begin(), group.steps.end(), name) != group.steps.end();
  };
  return group.steps.empty() || named("all") || named(step);
}

}  // namespace

Groups::Groups(const specs::Study& study) {
  for (const specs::WorkerGroup& group : study.workers)
    groups_.push_back({group.name, group.slots, group.machines, group.pin, {}, !group.allocation.is_local()});
  std::map<std::vector<std::size_t>, std::uint32_t> pools;
  for (const specs::Step& step : study.steps) {
    std::vector<std::size_t> by;
    for (std::size_t group = 0; group < study.workers.size(); ++group) {
      if (serves(study.workers[group], step.name)) by.push_back(group);
    }
    if (by.empty()) {
      if (find(kDefault) == nullptr)
        groups_.push_back({kDefault, 0, {}, false, {}, !study.batch.allocation.is_local()});
      by.push_back(static_cast<std::size_t>(find(kDefault) - groups_.data()));
    }
    pool_of_.push_back(pools.emplace(std::move(by), static_cast<std::uint32_t>(pools.size())).first->second);
  }
  for (Group& group : groups_) group.pools.assign(pools.size(), false);
  for (const auto& [by, pool] : pools) {
    for (const std::size_t group : by) groups_[group].pools[pool] = true;
  }
}

const Group* Groups::find(const std::string& name) const {
  const auto at =
      std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.name == name; });
  return at == groups_.end() ? nullptr : &*at;
}

bool may_run_on(const Group& group, const std::string& host) {
  return group.machines.empty() || specs::names_host(group.machines, host);
}

std::string Groups::names() const {
  std::vector<std::string> names;
  for (const Group& group : groups_) names.push_back(group.name);
  return text::join(names, ", ");
}

std::optional<std::string> Groups::reason_to_refuse(const std::string& name) const {
  if (find(name) != nullptr) return std::nullopt;
  return fmt::format("the study has no worker group '{}'; its groups are: {} (--group)", name, names());
}

const Group& Groups::of_worker_on(const std::string& host) const {
  std::vector<const Group*> here;
  for (const Group& group : groups_) {
    if (group.name == kDefault || groups_.size() == 1) return group;
    if (!group.machines.empty() && may_run_on(group, host)) here.push_back(&group);
  }
  if (here.size() == 1) return *here.front();
  throw Error(ExitCode::usage,
              fmt::format("the study has several worker groups; say which one this worker is of: --group {}",
                          names()));
}

std::vector<const Group*> Groups::serving(std::size_t study_step) const {
  std::vector<const Group*> serving;
  for (const Group& group : groups_) {
    if (group.pools[pool_of_[study_step]]) serving.push_back(&group);
  }
  return serving;
}

std::vector<int> local_slots(const std::vector<Group>& groups, int cores, int limit) {
  std::vector<int> slots;
  std::int64_t sum = 0;
  for (const Group& group : groups) {
    slots.push_back(group.slots > 0 ? group.slots : limit > 0 ? std::min(cores, limit) : cores);
    sum += slots.back();
  }
  if (limit == 0 || sum <= limit) return slots;
  int left = limit;
  for (int& mine : slots) {
    mine = std::max(1, static_cast<int>(std::int64_t{mine} * limit / sum));
    left -= mine;
  }
  for (std::size_t i = 0; i < slots.size() && left > 0; ++i, --left) ++slots[i];
  return slots;
}

void check_pins(const std::vector<Group>& groups, const std::vector<int>& slots, int cores) {
  const Group* pinned = nullptr;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].pin) continue;
    if (pinned != nullptr) {
      throw Error(ExitCode::usage,
                  fmt::format("the worker groups '{}' and '{}' would pin their tasks to the same processors "
                              "of this machine; only one of them can have 'pin'",
                              pinned->name, groups[i].name));
    }
    pinned = &groups[i];
    if (slots[i] <= cores) continue;
    throw Error(ExitCode::usage,
                fmt::format("the worker group '{}' pins the tasks of {} slots, and this process may use {} "
                            "processors; give it fewer slots, or leave out 'pin'",
                            pinned->name, slots[i], cores));
  }
}

}  // namespace wflow::engine
