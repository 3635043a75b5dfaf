// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/batch_system.h"

#include "engine/batch/adapters.h"
#include "engine/batch/slurm.h"

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
  request.setup = pool.setup;
  request.launch_pre = pool.launch_pre;
  request.launch_args = pool.launch_args;
  request.worker_launch = pool.worker_launch;
  return request;
}

}  // namespace wflow::engine::batch
