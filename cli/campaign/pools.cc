// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/pools.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/schedule/groups.h"

namespace wflow::cli {

namespace batch = engine::batch;

namespace {

// As the study has it; a group that it does not name asks for what batch: does.
specs::WorkerGroup group_of(const specs::Study& study, const std::string& name) {
  const auto at = std::ranges::find(study.workers, name, &specs::WorkerGroup::name);
  if (at != study.workers.end()) return *at;
  specs::WorkerGroup group;
  group.name = name;
  group.allocation = study.batch.allocation;
  return group;
}

// Stands for the job's name: the real one is new with each submission.
std::string shown_token(const std::string& pool) {
  constexpr std::size_t kLongest = 14;
  std::string token = "w";
  for (const char c : text::lower(pool)) {
    if (std::isalnum(static_cast<unsigned char>(c)) && token.size() < kLongest) token += c;
  }
  return token;
}

std::vector<std::string> steps_of(const specs::Plan& plan, const engine::Groups& groups,
                                  const engine::Group& group) {
  std::vector<std::string> names;
  for (const specs::PlannedStep& step : plan.steps()) {
    const bool served = group.pools[groups.pool_of(step.study_step)];
    const bool listed = std::ranges::find(names, step.name) != names.end();
    if (served && !listed) names.push_back(step.name);
  }
  return names;
}

batch::JobRequest job_of(const specs::Plan& plan, const specs::WorkerGroup& group) {
  batch::JobRequest job = batch::request_of(group.allocation, group.slots);
  job.token = shown_token(group.name);
  job.directory = (plan.campaign() / ".wflow" / "allocations").string();
  job.command = {sibling_program("wflow"),
                 "worker",
                 "--campaign",
                 plan.campaign().string(),
                 "--group=" + group.name,
                 "--linger",
                 fmt::format("{:.0f}", plan.study().batch.linger_s)};
  if (group.slots > 0) job.command.insert(job.command.end(), {"--slots", std::to_string(group.slots)});
  if (group.pin) job.command.emplace_back("--pin");
  job.command.insert(job.command.end(), {"--allocation", job.token});
  return job;
}

std::optional<double> walltime_of(const specs::Step& step) {
  const auto at = step.launcher_keys.find("walltime");
  return at == step.launcher_keys.end() ? std::nullopt : yaml::parse_seconds(at->second);
}

std::string clock_of(double unix_s) {
  const auto seconds = static_cast<std::time_t>(unix_s);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  return fmt::format("{:%Y-%m-%d %H:%M}", local);
}

std::string size_text(const PlannedPool& pool) {
  const std::string nodes = fmt::format("{} node{}", pool.job.nodes, pool.job.nodes == 1 ? "" : "s");
  const std::string time =
      pool.job.walltime_s > 0 ? text::format_duration(pool.job.walltime_s) : "the default time";
  return fmt::format("{} for {}", nodes, time);
}

}  // namespace

std::vector<PlannedPool> planned_pools(const specs::Plan& plan) {
  std::vector<PlannedPool> pools;
  const engine::Groups groups(plan.study());
  for (const engine::Group& group : groups.all()) {
    const specs::WorkerGroup written = group_of(plan.study(), group.name);
    if (written.allocation.is_local()) continue;
    pools.push_back({group.name, written.allocation.type, written.min, written.max, job_of(plan, written),
                     steps_of(plan, groups, group)});
  }
  return pools;
}

std::string scripts_text(const specs::Plan& plan) {
  std::string result;
  for (const PlannedPool& pool : planned_pools(plan)) {
    result += fmt::format("\nallocations of the pool {} ({}): up to {}, each of {}\n", pool.name,
                          pool.scheduler, pool.max, size_text(pool));
    for (const std::string& line :
         text::split(batch::make_batch_system(pool.scheduler)->script(pool.job), '\n'))
      result += line.empty() ? "\n" : "  " + line + "\n";
  }
  return result;
}

int write_allocation_scripts(const specs::Plan& plan) {
  int written = 0;
  for (const PlannedPool& pool : planned_pools(plan)) {
    std::filesystem::create_directories(pool.job.directory);
    write_file_durably(pool.job.directory + "/" + pool.job.token + ".sh",
                       batch::make_batch_system(pool.scheduler)->script(pool.job));
    ++written;
  }
  return written;
}

void check_walltimes(const specs::Plan& plan) {
  const std::vector<PlannedPool> pools = planned_pools(plan);
  for (const specs::PlannedStep& step : plan.steps()) {
    const auto needed = walltime_of(plan.study().steps[step.study_step]);
    if (!needed) continue;
    double longest_s = 0;
    bool any = false;
    bool fits = false;
    for (const PlannedPool& pool : pools) {
      if (std::ranges::find(pool.steps, step.name) == pool.steps.end()) continue;
      any = true;
      longest_s = std::max(longest_s, pool.job.walltime_s);
      fits = fits || pool.job.walltime_s <= 0 || *needed <= pool.job.walltime_s;
    }
    if (!any || fits) continue;
    throw Error(
        ExitCode::spec,
        fmt::format("the step '{}' asks for {} of walltime, and the allocations that serve it last {}; raise "
                    "the 'walltime' of batch: or of its pool, or lower the step's",
                    step.name, text::format_duration(*needed), text::format_duration(longest_s)));
  }
}

void check_nodes(const specs::Plan& plan) {
  const std::vector<PlannedPool> pools = planned_pools(plan);
  for (const specs::PlannedStep& step : plan.steps()) {
    const int asked = step.resources.min_nodes > 0 ? step.resources.min_nodes : step.resources.nodes;
    int most = 0;
    std::string names;
    for (const PlannedPool& pool : pools) {
      if (std::ranges::find(pool.steps, step.name) == pool.steps.end()) continue;
      most = std::max(most, pool.job.nodes);
      names += (names.empty() ? "" : ", ") + pool.name;
    }
    if (names.empty() || asked <= most) continue;
    throw Error(
        ExitCode::spec,
        fmt::format("the step '{}' asks for {} nodes, and the allocations that serve it ({}) have {}; raise "
                    "'nodes' of batch: or of the pool, or lower the step's",
                    step.name, asked, names, most));
  }
}

nlohmann::ordered_json batch_plan(const specs::Plan& plan) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const PlannedPool& pool : planned_pools(plan)) {
    const auto system = batch::make_batch_system(pool.scheduler);
    nlohmann::ordered_json row = {{"pool", pool.name},
                                  {"scheduler", pool.scheduler},
                                  {"steps", pool.steps},
                                  {"min", pool.min},
                                  {"max", pool.max},
                                  {"nodes", pool.job.nodes},
                                  {"walltime_s", pool.job.walltime_s},
                                  {"node_hours_each", pool.job.nodes * pool.job.walltime_s / 3600},
                                  {"starts_unix_s", nullptr},
                                  {"problem", nullptr}};
    const auto problem = system->check();
    if (problem) row["problem"] = *problem;
    batch::JobRequest probe = pool.job;
    probe.directory = std::filesystem::temp_directory_path() / fmt::format("wflow-plan-{}", ::getpid());
    if (const auto starts = problem ? std::nullopt : system->start_estimate_unix_s(probe))
      row["starts_unix_s"] = *starts;
    std::error_code ignored;
    std::filesystem::remove_all(probe.directory, ignored);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string batch_plan_text(const specs::Plan& plan) {
  std::string result;
  double all_h = 0;
  for (const auto& row : batch_plan(plan)) {
    const double each_h = row["node_hours_each"];
    const int most = row["max"];
    all_h += each_h * most;
    result += fmt::format("{} ({}): {} to {} allocations at a time, each {} node{}",
                          row["pool"].get<std::string>(), row["scheduler"].get<std::string>(),
                          row["min"].get<int>(), most, row["nodes"].get<int>(), row["nodes"] == 1 ? "" : "s");
    result += each_h > 0 ? fmt::format(" for {}: {:.1f} node-hours\n",
                                       text::format_duration(row["walltime_s"].get<double>()), each_h)
                         : " for the scheduler's default time\n";
    result += fmt::format("  steps   {}\n", text::join(row["steps"].get<std::vector<std::string>>(), ", "));
    if (row["starts_unix_s"].is_number())
      result += fmt::format("  starts  about {}\n", clock_of(row["starts_unix_s"]));
    if (row["problem"].is_string())
      result += fmt::format("  problem {}\n", row["problem"].get<std::string>());
  }
  if (result.empty()) return "no allocations: everything runs on this machine\n";
  return result +
         fmt::format(
             "\nat most {:.1f} node-hours at a time; a pool asks for no more than its work is worth\n",
             all_h);
}

std::vector<std::string> unusable_schedulers(const specs::Study& study) {
  std::set<std::string> wanted;
  const engine::Groups groups(study);
  for (const engine::Group& group : groups.all()) {
    const specs::AllocationSpec allocation = group_of(study, group.name).allocation;
    if (!allocation.is_local()) wanted.insert(allocation.type);
  }
  std::vector<std::string> sentences;
  for (const std::string& name : wanted) {
    if (const auto problem = batch::make_batch_system(name)->check()) {
      sentences.push_back(fmt::format(
          "the study asks for {}: {}; `wflow run --local` runs it on this machine", name, *problem));
    }
  }
  return sentences;
}

}  // namespace wflow::cli
