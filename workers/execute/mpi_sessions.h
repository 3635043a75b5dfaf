// SPDX-License-Identifier: Apache-2.0
// What Open MPI leaves in TMPDIR when mpirun is killed: ompi.HOST.UID/pid.N, a few files for each.
#pragma once

#include <sys/types.h>

#include <span>

namespace wflow::workers {

// Those of processes that have been killed.
void remove_mpi_sessions(std::span<const pid_t> pids);

}  // namespace wflow::workers
