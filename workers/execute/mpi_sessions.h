// SPDX-License-Identifier: Apache-2.0
// Files that Open MPI leaves behind when mpirun is killed: a session's folder ompi.HOST.UID/pid.N in TMPDIR,
// N being mpirun's process id, and its ranks' segments of shared memory, vader_segment.HOST.UID.JOB.RANK in
// /dev/shm.
#pragma once

#include <sys/types.h>

#include <span>

namespace wflow::workers {

// Removes the sessions of these processes, which have been killed.
void remove_mpi_sessions(std::span<const pid_t> pids);

// Removes all sessions of this user on this host whose mpirun no longer runs: no process has its number, and
// nothing listens at its address. The second test spares the sessions of a container that shares TMPDIR and
// numbers its processes by itself.
void remove_left_mpi_sessions();

}  // namespace wflow::workers
