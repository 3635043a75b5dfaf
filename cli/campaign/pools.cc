// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/campaigns.h"

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
#include "engine/batch/adapters.h"
#include "engine/coordinate/coordinator.h"
#include "engine/schedule/graph.h"
#include "specs/study/tokens.h"

namespace wflow::cli {

namespace batch = engine::batch;

namespace {

// Placeholder for the job's name: each submission has a new one.
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

// Uses a temporary directory, because the scheduler wants the script as a file.
batch::BatchSystem::Trial try_out(batch::BatchSystem& system, const batch::PoolSpec& pool);

// The job as it would be submitted, byte for byte except for the names.
batch::JobRequest shown_job(const batch::PoolSpec& pool) {
  return batch::job_of(pool, shown_token(pool.name), "w");
}

}  // namespace

namespace {

batch::BatchSystem::Trial try_out(batch::BatchSystem& system, const batch::PoolSpec& pool) {
  batch::JobRequest probe = shown_job(pool);
  probe.directory = std::filesystem::temp_directory_path() / fmt::format("wflow-plan-{}", ::getpid());
  auto trial = system.try_out(probe);
  std::error_code ignored;
  std::filesystem::remove_all(probe.directory, ignored);
  return trial;
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

namespace {

// The longest of its combinations: the walltime may be a parameter. 0: not given.
double longest_walltime_s(const specs::Plan& plan, const specs::PlannedStep& step) {
  const auto& keys = plan.study().steps[step.study_step].launcher_keys;
  const auto written = keys.find("walltime");
  if (written == keys.end()) return 0;
  if (!specs::find_token(written->second)) return specs::walltime_s(keys).value_or(0);
  double longest_s = 0;
  for (specs::ArrayId array = step.first_array; array < step.first_array + step.arrays; ++array)
    longest_s = std::max(longest_s, plan.walltime_s(array));
  return longest_s;
}

}  // namespace

void check_walltimes(const specs::Plan& plan) {
  const std::vector<batch::PoolSpec> pools = engine::pool_specs(plan);
  const engine::Groups groups(plan.study());
  for (const specs::PlannedStep& step : plan.steps()) {
    const double needed_s = longest_walltime_s(plan, step);
    if (needed_s <= 0) continue;
    double longest_s = 0;
    bool any = false;
    bool fits = false;
    for (const batch::PoolSpec& pool : pools) {
      if (!groups.find(pool.name)->pools[groups.pool_of(step.study_step)]) continue;
      any = true;
      longest_s = std::max(longest_s, pool.job.walltime_s);
      fits = fits || pool.job.walltime_s <= 0 || needed_s <= pool.job.walltime_s;
    }
    if (!any || fits) continue;
    throw Error(
        ExitCode::spec,
        fmt::format("the step '{}' asks for {} of walltime, and the allocations that serve it last {}; raise "
                    "the 'walltime' of batch: or of its pool, or lower the step's",
                    step.name, text::format_duration(needed_s), text::format_duration(longest_s)));
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

namespace {

// Memory of one node of the pool; 0: the study does not say.
std::int64_t memory_of(const batch::PoolSpec& pool) {
  constexpr std::string_view kPerCpu = "per_cpu ";
  const std::string& text = pool.job.memory;
  if (!text.starts_with(kPerCpu)) return yaml::parse_bytes(text).value_or(0);
  return yaml::parse_bytes(std::string_view(text).substr(kPerCpu.size())).value_or(0) * pool.slots;
}

// On shared nodes, a worker has as many processors as slots. The number of a whole node is not known.
int cores_of(const batch::PoolSpec& pool) {
  return pool.job.exclusive ? 0 : pool.slots;
}

// A resource that a task asks for on a node, and the amount that the nodes of a pool have. 0: unknown, taken
// as enough.
struct Room {
  std::string_view what;  // "GPUs"
  std::int64_t asked = 0;
  std::int64_t (*has)(const batch::PoolSpec& pool);
  std::string_view remedy;
  std::string (*text)(std::int64_t amount);
};

void check(const specs::PlannedStep& step, const std::vector<const batch::PoolSpec*>& serving,
           const Room& room) {
  std::int64_t most = 0;
  std::string names;
  for (const batch::PoolSpec* pool : serving) {
    const std::int64_t has = room.has(*pool);
    if (has < 0 || room.asked <= has) return;
    most = std::max(most, has);
    names += (names.empty() ? "" : ", ") + pool->name;
  }
  if (room.asked <= 0 || names.empty()) return;
  throw Error(
      ExitCode::spec,
      fmt::format("a task of the step '{}' asks for {}{}, and a node of the pools that serve it ({}) has "
                  "{}; raise {} of the pool, or lower the step's",
                  step.name, room.text(room.asked), room.what, names, room.text(most), room.remedy));
}

}  // namespace

void check_room(const specs::Plan& plan) {
  const std::vector<batch::PoolSpec> pools = engine::pool_specs(plan);
  const engine::Groups groups(plan.study());
  const auto number = [](std::int64_t amount) { return std::to_string(amount); };
  const auto bytes = [](std::int64_t amount) {
    return text::format_bytes(static_cast<std::uint64_t>(amount));
  };
  for (const specs::PlannedStep& step : plan.steps()) {
    std::vector<const batch::PoolSpec*> serving;
    for (const batch::PoolSpec& pool : pools) {
      if (groups.find(pool.name)->pools[groups.pool_of(step.study_step)]) serving.push_back(&pool);
    }
    const specs::Resources& asked = step.resources;
    const std::int64_t cores = std::int64_t{asked.cores} * specs::ranks_a_node(asked);
    check(step, serving,
          {" GPUs", asked.gpus, [](const batch::PoolSpec& pool) { return std::int64_t{pool.job.gpus}; },
           "'gpus'", number});
    check(step, serving,
          {" of memory", asked.memory_bytes,
           [](const batch::PoolSpec& pool) { return memory_of(pool) > 0 ? memory_of(pool) : -1; }, "'memory'",
           bytes});
    check(step, serving,
          {" processors", cores,
           [](const batch::PoolSpec& pool) { return std::int64_t{cores_of(pool) > 0 ? cores_of(pool) : -1}; },
           "'slots'", number});
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
                                  {"problem", nullptr},
                                  {"refused", nullptr}};
    const auto problem = system->check();
    if (problem) row["problem"] = *problem;
    const auto trial = problem ? batch::BatchSystem::Trial() : try_out(*system, pool);
    if (trial.starts_unix_s) row["starts_unix_s"] = *trial.starts_unix_s;
    if (trial.answer.refusal == batch::Submission::Refusal::fix) {
      row["refused"] = trial.answer.text;
    } else if (trial.answer.refusal != batch::Submission::Refusal::none) {
      row["problem"] = trial.answer.text;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::optional<std::string> refusal_in(const nlohmann::ordered_json& rows) {
  for (const auto& row : rows) {
    if (!row["refused"].is_string()) continue;
    return fmt::format(
        "{} would refuse an allocation for the pool '{}': {}; change the study's batch: block or the "
        "pool",
        row["scheduler"].get<std::string>(), row["pool"].get<std::string>(),
        row["refused"].get<std::string>());
  }
  return std::nullopt;
}

void check_submissions(const specs::Plan& plan) {
  if (engine::wanted_schedulers(plan.study()).empty()) return;
  if (const auto refusal = refusal_in(batch_plan(plan))) throw Error(ExitCode::system, *refusal);
}

std::string batch_plan_text(const nlohmann::ordered_json& rows) {
  std::string result;
  double all_h = 0;
  for (const auto& row : rows) {
    const double each_h = row["node_hours_each"];
    const int chain = row["chain"];
    const int most = std::max(row["max"].get<int>(), chain);
    all_h += each_h * most;
    const std::string count =
        chain > 0 ? fmt::format("{} allocations, one after another,", chain)
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
    if (row["refused"].is_string())
      result += fmt::format("  refused {}\n", row["refused"].get<std::string>());
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
