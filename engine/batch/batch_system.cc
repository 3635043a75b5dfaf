// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/batch_system.h"

#include <algorithm>

namespace wflow::engine::batch {

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
  request.cores = pool.exclusive ? 0 : std::max(1, slots);
  request.args = pool.args;
  request.setup = pool.setup;
  request.launch_pre = pool.launch_pre;
  request.launch_args = pool.launch_args;
  request.worker_launch = pool.worker_launch;
  return request;
}

}  // namespace wflow::engine::batch
