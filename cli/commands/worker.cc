// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "base/batch_environment.h"
#include "cli/commands/commands.h"
#include "workers/agent/agent.h"

namespace wflow::cli {

void add_worker(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<workers::WorkerOptions>();
  options->group = "default";
  CLI::App* command =
      app.add_subcommand("worker", "run tasks of a campaign (started by wflow run, or inside an allocation)");
  command->footer(
      "Examples:\n  srun --ntasks-per-node=1 wflow worker --campaign "
      "/scratch/me/campaigns/cosmoflow_20261121-160001");
  command->add_option("--campaign", options->campaign, "the campaign's directory")->required();
  command->add_option("--group", options->group, "worker group of the study");
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
  command->add_option("--started-by", options->started_by, "epoch of the coordinator that starts this worker")
      ->group("");  // for the coordinator: not in the help
  command->add_flag("--zero", options->zero,
                    "complete every task without running it (measures the coordinator)");
  command
      ->add_option("--zero-failures", options->zero_failures,
                   "with --zero: the fraction of tasks that fail, each told one by one")
      ->check(CLI::Range(0.0, 1.0));
  command->callback([options, &chosen] {
    chosen = [options] {
      clean_task_environment();  // of the launcher that started it on this node
      return workers::run_worker(*options);
    };
  });
}

}  // namespace wflow::cli
