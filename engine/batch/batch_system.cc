// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/batch_system.h"

#include <cstdlib>

#include "engine/batch/adapters.h"

namespace wflow::engine::batch {

std::unique_ptr<BatchSystem> make_batch_system(std::string_view name) {
  if (name == "slurm") return make_slurm();
  if (name == "flux") return make_flux();
  if (name == "pbs") return make_pbs();
  if (name == "lsf") return make_lsf(LsfLauncher::jsrun);
  if (name == "lsf-srun") return make_lsf(LsfLauncher::srun);
  if (name == "sge") return make_sge();
  return nullptr;
}

namespace {

// Takes the user's presets for all jobs where the study sets nothing. The other variables of sbatch would
// change options that wflow sets itself, so the submission does not inherit them.
void take_preset(JobRequest& request) {
  const auto preset = [](std::string& value, const char* variable) {
    const char* text = std::getenv(variable);
    if (value.empty() && text != nullptr && std::string_view(text).find('\n') == std::string_view::npos)
      value = text;
  };
  preset(request.account, "SBATCH_ACCOUNT");
  preset(request.partition, "SBATCH_PARTITION");
  preset(request.qos, "SBATCH_QOS");
  preset(request.constraint, "SBATCH_CONSTRAINT");
  preset(request.reservation, "SBATCH_RESERVATION");
}

}  // namespace

JobRequest request_of(const specs::AllocationSpec& pool, int slots) {
  JobRequest request;
  request.nodes = pool.nodes;
  request.walltime_s = pool.walltime_s;
  request.account = pool.account;
  request.partition = pool.partition;
  request.qos = pool.qos;
  request.constraint = pool.constraint;
  request.reservation = pool.reservation;
  request.memory = pool.memory;
  request.gpus = pool.gpus;
  request.exclusive = pool.exclusive;
  request.cores = slots;
  request.args = pool.args;
  if (pool.type == "slurm") take_preset(request);
  request.setup = pool.setup;
  request.launch_pre = pool.launch_pre;
  request.launch_args = pool.launch_args;
  request.worker_launch = pool.worker_launch;
  return request;
}

}  // namespace wflow::engine::batch
