// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "base/yaml.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "cli/commands/run.h"
#include "engine/batch/batch_system.h"
#include "engine/batch/local_pool.h"
#include "engine/schedule/graph.h"
#include "engine/wire/keys.h"
#include "workers/agent/worker.h"

namespace wflow::cli {

namespace {

int work(workers::WorkerOptions& options) {
  const auto endpoint = engine::wire::read_endpoint(options.campaign);
  if (endpoint && engine::wire::is_out_of_reach(*endpoint)) {
    throw Error(ExitCode::usage,
                fmt::format("the coordinator of {} runs on {} and takes workers of that host only; "
                            "start it with --listen",
                            options.campaign.string(), endpoint->host));
  }
  if (options.group.empty()) {
    const specs::Plan plan = read_plan(find_campaign(options.campaign));
    options.group = engine::Groups(plan.study()).of_worker_on(host_name()).name;
  }
  return workers::run_worker(options);
}

constexpr double kAskEnd_s = 300;  // between two queries for the allocation's end, ...
constexpr int kAskingNodes = 16;   // ... for this many nodes; workers of larger allocations ask less often

struct EndOptions {
  double ends_at = 0;
  std::string walltime, scheduler;
};

// The number of nodes as Slurm sets it; 1 elsewhere.
int allocation_nodes() {
  const char* nodes = std::getenv("SLURM_NNODES");
  return nodes == nullptr ? 1 : static_cast<int>(text::to_integer(nodes).value_or(1));
}

// Slurm does not always bind a step to the processors of its job.
void limit_slots(workers::WorkerOptions& options) {
  const auto given = text::to_integer(environment_value("SLURM_CPUS_ON_NODE"));
  if (options.slots > 0 || !options.allocation.starts_with("slurm:") || !given || *given <= 0) return;
  options.slots = static_cast<int>(std::min<std::int64_t>(*given, engine::batch::usable_cores()));
}

}  // namespace

std::string scheduler_around() {
  constexpr std::pair<const char*, const char*> kVariables[] = {{"FLUX_URI", "flux"},
                                                                {"SLURM_JOB_ID", "slurm"},
                                                                {"LSB_JOBID", "lsf"},
                                                                {"PBS_JOBID", "pbs"},
                                                                {"SGE_ROOT", "sge"}};
  for (const auto& [variable, name] : kVariables) {
    if (std::getenv(variable) != nullptr) return name;
  }
  return {};
}

namespace {

// Finds the allocation and its name of this node: the workers of one allocation take tasks together.
void find_allocation(workers::WorkerOptions& options) {
  options.node = environment_value("SLURMD_NODENAME");
  if (options.node.empty()) options.node = host_name();
  if (!options.allocation.empty() || options.started_by != 0) return;
  constexpr std::pair<const char*, const char*> kJobs[] = {{"flux", "FLUX_JOB_ID"},
                                                           {"slurm", "SLURM_JOB_ID"},
                                                           {"lsf", "LSB_JOBID"},
                                                           {"pbs", "PBS_JOBID"},
                                                           {"sge", "JOB_ID"}};
  for (const auto& [name, job] : kJobs) {
    if (scheduler_around() == name && !environment_value(job).empty())
      options.allocation = fmt::format("{}:{}", name, environment_value(job));
  }
}

// Takes the end of the allocation from the command line, or asks the scheduler, now and every few minutes.
void find_end(const EndOptions& end, workers::WorkerOptions& options) {
  if (const char* restarts = std::getenv("SLURM_RESTART_COUNT"))
    options.incarnation = static_cast<int>(text::to_integer(restarts).value_or(0));
  if (end.ends_at > 0 || !end.walltime.empty()) {
    options.ends_unix_s = end.ends_at;
    if (end.walltime.empty()) return;
    const auto seconds = yaml::parse_seconds(end.walltime);
    if (!seconds || *seconds <= 0)
      throw Error(ExitCode::usage,
                  fmt::format("--walltime '{}' is no time; write 30min, 4h or hh:mm:ss", end.walltime));
    options.ends_unix_s = unix_now_s() + *seconds;
    return;
  }
  // The script of the allocation has already asked the scheduler, for all of its nodes.
  const char* told = std::getenv("WFLOW_ENDS_AT");
  if (told != nullptr) options.ends_unix_s = text::to_real(told).value_or(0);
  const std::string name = end.scheduler.empty() ? scheduler_around() : end.scheduler;
  const std::shared_ptr<engine::batch::BatchSystem> scheduler = engine::batch::make_batch_system(name);
  if (!scheduler) return;
  options.ask_end = [scheduler] { return scheduler->ends_unix_s(); };
  options.ask_end_every_s = kAskEnd_s * std::max(1, allocation_nodes() / kAskingNodes);
  if (options.ends_unix_s > 0) return;
  try {
    options.ends_unix_s = scheduler->ends_unix_s().value_or(0);
  } catch (const Error&) {
    // The scheduler does not answer now; the worker asks again later.
  }
}

}  // namespace

void add_worker(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<workers::WorkerOptions>();
  const auto end = std::make_shared<EndOptions>();
  CLI::App* command =
      app.add_subcommand("worker", "run tasks of a campaign (started by wflow run, or inside an allocation)");
  command->footer(
      "Examples:\n  srun --ntasks-per-node=1 wflow worker --campaign "
      "/scratch/me/campaigns/cosmoflow_20261121-160001");
  command->add_option("--campaign", options->campaign, "the campaign's directory")->required();
  command->add_option("--group", options->group,
                      "worker group of the study (default: the only one, or the one for this machine)");
  command->add_option("--slots", options->slots, "tasks at a time (default: the cores it may use)");
  command->add_option("--cores", options->cores, "cores shared by the tasks (default: as many as slots)");
  command->add_option("--gpus", options->gpus, "GPUs to give to tasks");
  command
      ->add_option("--memory", options->memory_bytes,
                   "bytes shared by tasks that ask for memory: 64GiB (default: what it may use)")
      ->transform(CLI::AsSizeValue(false));
  command->add_flag("--pin", options->pin, "give every task processors of its own");
  command->add_option("--idle-timeout", options->idle_timeout_s, "end after so many seconds without work");
  command->add_option("--linger", options->linger_s,
                      "end after so many seconds without a coordinator, once nothing runs");
  command
      ->add_option("--ends-at", end->ends_at,
                   "end tasks in time before this moment, in seconds since 1970 (default: ask the scheduler)")
      ->check(CLI::PositiveNumber);
  command->add_option("--walltime", end->walltime, "the same, so long from now: 4h, 30min, hh:mm:ss");
  command
      ->add_option("--scheduler", end->scheduler,
                   "whose allocation this is (default: as the environment says)")
      ->group("");
  command->add_option("--allocation", options->allocation, "its name at the scheduler")->group("");
  command->add_option("--started-by", options->started_by, "epoch of the coordinator that starts this worker")
      ->group("");  // the coordinator sets it: not in the help
  command->callback([options, end, &chosen] {
    chosen = [options, end] {
      find_end(*end, *options);
      find_allocation(*options);
      limit_slots(*options);
      clean_task_environment();  // removes variables of the launcher that started the worker on this node
      return work(*options);
    };
  });
}

}  // namespace wflow::cli
