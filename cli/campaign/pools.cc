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
#include "base/text.h"
#include "engine/batch/script.h"
#include "engine/coordinate/pool_specs.h"
#include "engine/schedule/groups.h"

namespace wflow::cli {

namespace batch = engine::batch;

namespace {

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

std::string size_text(const batch::PoolSpec& pool) {
  const std::string nodes = fmt::format("{} node{}", pool.job.nodes, pool.job.nodes == 1 ? "" : "s");
  const std::string time =
      pool.job.walltime_s > 0 ? text::format_duration(pool.job.walltime_s) : "the default time";
  return fmt::format("{} for {}", nodes, time);
}

std::string count_text(const batch::PoolSpec& pool) {
  return pool.chain > 0 ? fmt::format("{} in a chain", pool.chain) : fmt::format("up to {}", pool.max);
}

// Byte for byte as it is submitted, but for the names.
batch::JobRequest shown_job(const batch::PoolSpec& pool) {
  return batch::job_of(pool, shown_token(pool.name), "w");
}

}  // namespace

std::string scripts_text(const specs::Plan& plan) {
  std::string result;
  for (const batch::PoolSpec& pool : engine::pool_specs(plan)) {
    result += fmt::format("\nallocations of the pool {} ({}): {}, each of {}\n", pool.name, pool.scheduler,
                          count_text(pool), size_text(pool));
    for (const std::string& line :
         text::split(batch::make_batch_system(pool.scheduler)->script(shown_job(pool)), '\n'))
      result += line.empty() ? "\n" : "  " + line + "\n";
  }
  return result;
}

int write_allocation_scripts(const specs::Plan& plan) {
  int written = 0;
  for (const batch::PoolSpec& pool : engine::pool_specs(plan)) {
    const batch::JobRequest job = shown_job(pool);
    batch::write_script(job, batch::make_batch_system(pool.scheduler)->script(job));
    ++written;
  }
  return written;
}

void check_walltimes(const specs::Plan& plan) {
  const std::vector<batch::PoolSpec> pools = engine::pool_specs(plan);
  const engine::Groups groups(plan.study());
  for (const specs::PlannedStep& step : plan.steps()) {
    const auto needed = walltime_of(plan.study().steps[step.study_step]);
    if (!needed) continue;
    double longest_s = 0;
    bool any = false;
    bool fits = false;
    for (const batch::PoolSpec& pool : pools) {
      if (!groups.find(pool.name)->pools[groups.pool_of(step.study_step)]) continue;
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
  const std::vector<batch::PoolSpec> pools = engine::pool_specs(plan);
  const engine::Groups groups(plan.study());
  for (const specs::PlannedStep& step : plan.steps()) {
    const int asked = step.resources.min_nodes > 0 ? step.resources.min_nodes : step.resources.nodes;
    int most = 0;
    std::string names;
    for (const batch::PoolSpec& pool : pools) {
      if (!groups.find(pool.name)->pools[groups.pool_of(step.study_step)]) continue;
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
  const engine::Groups groups(plan.study());
  for (const batch::PoolSpec& pool : engine::pool_specs(plan)) {
    const auto system = batch::make_batch_system(pool.scheduler);
    nlohmann::ordered_json row = {{"pool", pool.name},
                                  {"scheduler", pool.scheduler},
                                  {"steps", steps_of(plan, groups, *groups.find(pool.name))},
                                  {"min", pool.min},
                                  {"max", pool.max},
                                  {"chain", pool.chain},
                                  {"nodes", pool.job.nodes},
                                  {"walltime_s", pool.job.walltime_s},
                                  {"node_hours_each", pool.job.nodes * pool.job.walltime_s / 3600},
                                  {"starts_unix_s", nullptr},
                                  {"problem", nullptr}};
    const auto problem = system->check();
    if (problem) row["problem"] = *problem;
    batch::JobRequest probe = shown_job(pool);
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
    const int chain = row["chain"];
    const int most = std::max(row["max"].get<int>(), chain);
    all_h += each_h * most;
    const std::string count = chain > 0
                                  ? fmt::format("{} allocations, one after another,", chain)
                                  : fmt::format("{} to {} allocations at a time,", row["min"].get<int>(), most);
    result += fmt::format("{} ({}): {} each {} node{}", row["pool"].get<std::string>(),
                          row["scheduler"].get<std::string>(), count, row["nodes"].get<int>(),
                          row["nodes"] == 1 ? "" : "s");
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
  std::vector<std::string> sentences;
  for (const std::string& name : engine::wanted_schedulers(study)) {
    if (const auto problem = batch::make_batch_system(name)->check()) {
      sentences.push_back(fmt::format(
          "the study asks for {}: {}; `wflow run --local` runs it on this machine", name, *problem));
    }
  }
  return sentences;
}

}  // namespace wflow::cli
