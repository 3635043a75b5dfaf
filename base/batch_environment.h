// SPDX-License-Identifier: Apache-2.0
// What the environment of one batch job must not carry into another, nor into what it launches. Sources: the
// manual pages of sbatch and srun ("input environment variables"), and the accidents in
// research/peers2.md 4.1 and 4.2.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wflow {

// Variables ("NAME=value" each) for a command of the scheduler `type` ("slurm", "flux", "pbs", "lsf", "sge"):
// without those that change its meaning (SBATCH_PARTITION beats a script's #SBATCH line, SQUEUE_FORMAT an
// option), and without those of a job, or of an MPI program, that the caller itself runs in. Where the
// scheduler is found stays (SLURM_CONF, FLUX_URI, LSF_ENVDIR, SGE_ROOT, ...).
std::vector<std::string> scheduler_environment(std::string_view type,
                                               const std::vector<std::string>& variables);

// A variable that the start of a worker through a launcher leaves behind and that a task's own launcher, or
// its MPI library, would take for its own: the worker unsets it. The job's id and nodes stay.
bool leaks_into_tasks(std::string_view name);

// Unsets them in this process.
void clean_task_environment();

// "NAME=value" each.
std::vector<std::string> current_environment();

// Empty where it is not set.
std::string environment_value(const char* name);

}  // namespace wflow
